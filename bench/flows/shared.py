"""What the flow benchmark takes from elsewhere: processes, a private redis-server and table cells from the task
benchmark, a private RabbitMQ from the tests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "tasks"), str(HERE.parent.parent)]  # the names there differ from those here

from server import private_redis, url_of, version  # noqa: E402
from system import REPO, BenchError, Processes, slug  # noqa: E402
from tables import number, table  # noqa: E402

__all__ = [
    "HERE", "REPO", "BenchError", "Session", "number", "private_rabbitmq", "private_redis", "slug", "table",
    "url_of", "version",
]  # fmt: skip


@contextlib.contextmanager
def private_rabbitmq() -> Iterator[str]:
    """Its URL. Raises BenchError when it is not installed."""
    if not Path("/usr/lib/rabbitmq/bin/rabbitmq-server").exists():
        raise BenchError("there is no rabbitmq-server (Debian: apt install rabbitmq-server)")
    from tests.servers import rabbitmq_server

    with rabbitmq_server() as server:
        yield server.url


class Session(Processes):
    """Processes that end together; one of them may be talked to."""

    def talk(self, command: list[str], env: dict[str, str], errors: Path) -> subprocess.Popen[bytes]:
        with errors.open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=HERE,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                bufsize=0,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._started]

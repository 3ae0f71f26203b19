"""`tradewind up` and `tradewind run`: settings from flags, the checks before a start, then the station itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tradewind.cli.http import is_loopback
from tradewind.errors import Invalid, Problem

if TYPE_CHECKING:
    from tradewind.settings import Settings

ROLES = ("scheduler", "worker", "comsrv", "modsrv", "rulesrv", "alarmsrv", "hissrv", "api")

DataDir = Annotated[Path | None, typer.Option("--data-dir", metavar="D", help="Where the station keeps its data.")]
Host = Annotated[str | None, typer.Option("--host", metavar="H", help="Address to listen on (127.0.0.1).")]
Port = Annotated[int | None, typer.Option("--port", metavar="P", min=0, max=65535, help="Port to listen on (8400).")]
Imports = Annotated[
    list[str] | None, typer.Option("--import", metavar="MODULE", help="Module with your @task functions; repeatable.")
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file (tradewind.toml).")]
Concurrency = Annotated[
    int | None, typer.Option("--worker-concurrency", metavar="N", min=1, help="Tasks at once in this worker.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="L", help="Label of this worker: it also gets tasks that ask for it; repeatable."),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Allow a --host that others can reach.")]
LogLevel = Annotated[str | None, typer.Option("--log-level", metavar="L", help="DEBUG, INFO, WARNING or ERROR.")]
LogFormat = Annotated[str | None, typer.Option("--log-format", metavar="F", help="auto, console or json.")]


def up(
    ctx: typer.Context,
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    imports: Imports = None,
    config: Config = None,
    worker_concurrency: Concurrency = None,
    labels: Labels = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> int:
    """Start a station: every role in this process, until Ctrl-C or SIGTERM."""
    flags = _overrides(ctx, data_dir, host, port, imports, worker_concurrency, labels, insecure, log_level, log_format)
    return start(ROLES, config, flags)


def run(
    ctx: typer.Context,
    roles: Annotated[list[str], typer.Argument(metavar="ROLE…", help=f"One or more of {', '.join(ROLES)}.")],
    data_dir: DataDir = None,
    host: Host = None,
    port: Port = None,
    imports: Imports = None,
    config: Config = None,
    worker_concurrency: Concurrency = None,
    labels: Labels = None,
    insecure: Insecure = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> int:
    """Start only the named roles in this process; needs a Redis that the others share."""
    flags = _overrides(ctx, data_dir, host, port, imports, worker_concurrency, labels, insecure, log_level, log_format)
    return start(roles, config, flags)


def start(roles: Sequence[str], config: Path | None, overrides: dict[str, Any]) -> int:
    """Check everything that can be checked before something is opened, then run. Raises TradewindError."""
    from tradewind.settings import load_settings

    wanted = check_roles(roles)
    settings = load_settings(config, overrides)
    check_host(settings, wanted)
    check_shared_redis(settings, wanted)
    from tradewind.process import run_station

    return run_station(settings, wanted)


def check_roles(roles: Sequence[str]) -> frozenset[str]:
    unknown = [role for role in roles if role not in ROLES]
    if unknown:
        known = f"the roles are: {', '.join(ROLES)}"
        problems = [Problem("unknown_role", role, known) for role in unknown]
        raise Invalid(f"unknown role: {', '.join(unknown)}", code="unknown_role", hint=known, problems=problems)
    return frozenset(roles)


def check_host(settings: Settings, roles: frozenset[str]) -> None:
    host = settings.api.host
    if "api" in roles and not settings.api.insecure and not is_loopback(host):
        raise Invalid(
            f"refusing to listen on {host}: there is no authentication yet, so everybody who reaches that address "
            "could submit and cancel tasks",
            code="insecure_host",
            hint="listen on 127.0.0.1, or add --insecure if the network itself keeps others out",
        )
    if "api" in roles and not settings.api.allowed_hosts and not is_loopback(host):
        raise Invalid(
            f"refusing to listen on {host} without the names under which it is reached: pages of other sites could "
            "speak to the station under a name of their own",
            code="no_allowed_hosts",
            hint='set api.allowed_hosts, such as ["station.example.com", "192.0.2.7"], or TRADEWIND_API_ALLOWED_HOSTS',
        )


def check_shared_redis(settings: Settings, roles: frozenset[str]) -> None:
    """The embedded store belongs to one process, so roles that run apart need a Redis by URL."""
    from tradewind.redis.urls import target_of

    if roles != frozenset(ROLES) and target_of(settings.redis) is None:
        raise Invalid(
            f"{' and '.join(sorted(roles))} alone cannot run on the embedded store: it belongs to one process, "
            "so the other roles could not reach it",
            code="no_shared_redis",
            hint="set TRADEWIND_REDIS_URL (or redis.url), or run all roles in one process with `tradewind up`",
        )


def _overrides(
    ctx: typer.Context,
    data_dir: Path | None,
    host: str | None,
    port: int | None,
    imports: list[str] | None,
    worker_concurrency: int | None,
    labels: list[str] | None,
    insecure: bool,
    log_level: str | None,
    log_format: str | None,
) -> dict[str, Any]:
    """Flags as settings; those not given say nothing. --json means logs as JSON."""
    given = {
        "data_dir": data_dir,
        "api.host": host,
        "api.port": port,
        "imports": imports or None,
        "worker.concurrency": worker_concurrency,
        "worker.labels": labels or None,
        "api.insecure": insecure or None,
        "log.level": log_level,
        "log.format": log_format or ("json" if ctx.obj.is_json else None),
    }
    return {name: value for name, value in given.items() if value is not None}

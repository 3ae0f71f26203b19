"""Structured logs: one line per fact, readable on a terminal, JSON elsewhere. Secrets are masked."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, TextIO

import structlog

from tradewind.masking import masked_fields
from tradewind.settings import LogSettings


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Never raise: whoever logs has better things to do than to fail with its log."""


def _without_secrets(_logger: Any, _method: str, fields: structlog.types.EventDict) -> structlog.types.EventDict:
    return masked_fields(fields)


def _own_stream() -> TextIO:
    """stderr under a number of its own: code of users may close theirs."""
    if sys.stderr is not sys.__stderr__ or sys.stderr is None:
        return sys.stderr
    try:
        return os.fdopen(os.dup(sys.stderr.fileno()), "w", buffering=1, encoding="utf-8", errors="backslashreplace")
    except (OSError, ValueError):
        return sys.stderr


def configure_logging(settings: LogSettings) -> None:
    """Send structlog and the standard library's loggers to stderr in one form."""
    level = logging.getLevelNamesMapping().get(settings.level.upper(), logging.INFO)
    is_console = settings.format == "console" or (settings.format == "auto" and sys.stderr.isatty())
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if is_console else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = _Handler(_own_stream())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                _without_secrets,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for noisy in ("uvicorn.access", "httpx", "httpx2", "httpcore", "httpcore2", "alembic"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))

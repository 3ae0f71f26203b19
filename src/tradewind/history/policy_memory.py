"""The last policy that was in use, on a disk that stays: a Redis without its data must not change what is kept."""

from __future__ import annotations

from pathlib import Path

import structlog

from tradewind import codec
from tradewind.errors import Invalid, error_text
from tradewind.history.policy import Policy, read_policy
from tradewind.history.small_file import read_small, write_small

log = structlog.get_logger(__name__)
FILE = "policy.json"


class PolicyMemory:
    """Without `path` it remembers as long as the process lives. Blocking, but small."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._last: bytes | None = None

    def last(self) -> bytes:
        """Empty when there never was one that could be read."""
        if self._last is None:
            self._last = read_small(self._path) if self._path is not None else b""
            try:
                policy_of(self._last)
            except Invalid as error:
                log.warning(
                    "the remembered policy of history cannot be read", file=str(self._path), error=error_text(error)
                )
                self._last = b""
        return self._last

    def keep(self, text: bytes) -> None:
        """A policy that is in use now. A disk that does not take it costs the memory after a restart only."""
        if not text or text == self.last():
            return
        self._last = text
        if self._path is not None:
            try:
                write_small(self._path, text)
            except OSError as error:
                log.warning("the policy of history cannot be remembered", file=str(self._path), error=error_text(error))


def policy_of(text: bytes) -> Policy:
    """The default one of an empty text. Raises Invalid."""
    if not text:
        return Policy()
    return read_policy(codec.decode(text))

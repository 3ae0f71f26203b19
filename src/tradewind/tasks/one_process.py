"""Ends copies of a worker: user code that calls `os.fork` and lets the copy run on into our code."""

from __future__ import annotations

import os

#: Exit code of a copy.
FORKED = 70


class one_process:
    """Whatever leaves this block in another process than it entered ends there: a copy would go on as a second worker,
    with the connections, the answers and the listening sockets of the first one."""

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._pid:
            os._exit(FORKED)

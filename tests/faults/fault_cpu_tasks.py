"""A task in a child process that overreaches; apart, because a station with such a task has a second worker."""

from __future__ import annotations

import sys

from fault_tasks import _note

import tradewind


@tradewind.task(cpu=True)
def cpu_overreach(how: str) -> str:
    _note("begin")
    sys.stdin.close()
    sys.stdout.close()
    sys.stderr.close()
    _note("end")
    return how

"""Work that would hold the event loop: it runs in a few threads of its own, beside the requests of others.

Threads share the interpreter with the loop, which gets its turn every few milliseconds; with as many threads as callers
these turns would add up, so there are two, and whoever comes later waits. Single calls into C that take long hold the
loop even from here: callers bound the sizes of what they hand over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 2
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="offload")


async def offload(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the function returns or raises. It is not interrupted when the caller is cancelled."""
    call = partial(copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool, call)

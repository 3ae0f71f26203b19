"""Sample task functions for `tradewind demo`; also what user code looks like."""

from __future__ import annotations

import asyncio
import random

from tradewind import current, task


@task(timeout=30)
async def report(pages: int = 10) -> dict[str, int]:
    """Write a report page by page, and say how far it is."""
    for done in range(1, pages + 1):
        await asyncio.sleep(0.2)
        current().progress({"done": done, "total": pages})
    return {"pages": pages}


@task(timeout=10, retries=4, backoff=0.3)
async def call_supplier(order: int) -> str:
    """Call somebody who does not answer at first: succeeds at the third attempt."""
    await asyncio.sleep(random.uniform(0.01, 0.1))
    if current().attempt < 3:
        raise ConnectionError(f"the supplier of order {order} does not answer")
    return f"order {order} confirmed"


@task(timeout=10)
def total(amounts: list[float]) -> float:
    """A plain function runs in a thread."""
    return round(sum(amounts), 2)

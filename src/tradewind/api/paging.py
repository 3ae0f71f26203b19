"""Pages of lists: they end with `PAGE_BYTES`, however many items were asked for, and are gathered in small steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.responses import Response

from tradewind import codec
from tradewind.api.connection_limits import PAGE_BYTES
from tradewind.api.routing import json_response

#: Items that are read before their size is known.
FIRST = 16

#: The items after a cursor, at most so many, and the cursor of the next ones, None at the end.
Fetch = Callable[[str | None, int], Awaitable[tuple[list[Any], str | None]]]


async def gather_page(fetch: Fetch, cursor: str | None, limit: int) -> Response:
    """Items may be long: what is read in one step follows the size of those before."""
    items: list[bytes] = []
    size, count = 0, FIRST
    while True:
        count = min(count, limit - len(items))
        found, cursor = await fetch(cursor, count)
        items += map(codec.encode, found)
        size += sum(map(len, items[len(items) - len(found) :]))
        if cursor is None or len(items) >= limit or size >= PAGE_BYTES or len(found) < count:
            return _response(items, cursor)
        count = max(1, int((PAGE_BYTES - size) / (size / len(items))))


def cut_page(items: Iterable[Any], cursor_of: Callable[[Any], str], limit: int) -> Response:
    """For lists that are in memory already: `items` are all from the cursor on, made one by one."""
    page: list[bytes] = []
    size, last = 0, None
    for item in items:
        if len(page) == limit or size >= PAGE_BYTES:
            return _response(page, last)
        page.append(codec.encode(item))
        size += len(page[-1])
        last = cursor_of(item)
    return _response(page, None)


def _response(items: list[bytes], cursor: str | None) -> Response:
    return json_response(b'{"items":[%s],"next_cursor":%s}' % (b",".join(items), codec.encode(cursor)))

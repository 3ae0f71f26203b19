"""Removing many rules with few requests."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tradewind.cli.http import Http
from tradewind.errors import Invalid, NotFound, TradewindError

#: Rules in one request.
PART = 5000
_INDEX = re.compile(r"remove\[(\d+)\]")


def remove_rules(station: Http, ids: Sequence[str]) -> dict[str, TradewindError]:
    """All that there are, in one change (a change for each 5000); why the others were not, by id."""
    refused: dict[str, TradewindError] = {}
    for start in range(0, len(ids), PART):
        part = list(ids[start : start + PART])
        while part:
            try:
                station.put("/rules", {"remove": part})
                break
            except Invalid as error:
                unknown = [int(match[1]) for p in error.problems if (match := _INDEX.fullmatch(p.path))]
                if not unknown:
                    raise
                for at in unknown:
                    message = f"there is no rule {part[at]!r}"
                    refused[part[at]] = NotFound(message, code="unknown_rule", hint="see `tradewind rule list`")
                part = [name for name in part if name not in refused]
    return refused

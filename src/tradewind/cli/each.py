"""The same request for several things: one that is refused does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tradewind.cli.group import Session
from tradewind.cli.output import cell, envelope, exit_code
from tradewind.errors import TradewindError

Answer = dict[str, Any]


def for_each(cli: Session, names: Sequence[str], ask: Callable[[str], Answer], say: Callable[[Answer], str]) -> int:
    """Show all answers and refusals; the exit code is that of the first refusal. A single one is simply raised."""
    if len(names) == 1:
        answer = ask(names[0])
        cli.out.show({"items": [answer], "errors": []}, lambda: cell(say(answer)))
        return 0
    answers: list[Answer] = []
    errors: list[tuple[str, TradewindError]] = []
    for name in names:
        try:
            answers.append(ask(name))
        except TradewindError as error:
            errors.append((name, error))
    refused = [{"id": name, **envelope(error)} for name, error in errors]
    if answers or cli.is_json:
        from rich.text import Text

        cli.out.show({"items": answers, "errors": refused}, lambda: Text("\n").join(cell(say(a)) for a in answers))
    if not cli.is_json:
        for _, refusal in errors:
            cli.out.error(refusal)
    return exit_code(errors[0][1]) if errors else 0

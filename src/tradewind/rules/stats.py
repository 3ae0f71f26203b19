"""Figures of the process that judges, and rules that cannot be judged."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from tradewind.rules.program import RuleProgram

log = structlog.get_logger(__name__)
#: Rules that are looked at for errors each time.
WATCHED = 500


class RuleStats(msgspec.Struct):
    """Since this process judges. `errors`: rules that are left out or have no value, and why. `behind_ms`: how old the
    last batch was when it was judged."""

    rules: int = 0
    rounds: int = 0
    entries: int = 0
    checks: int = 0
    fired: int = 0
    missed: int = 0
    behind_ms: int = 0
    errors: dict[str, str] = {}
    watched: int = 0

    def watch(self, programs: Mapping[str, RuleProgram]) -> None:
        """Find conditions that have no value although all that they read is known; some rules a time."""
        names, errors = list(programs), self.errors
        part = names[self.watched : self.watched + WATCHED]
        self.watched = self.watched + WATCHED if self.watched + WATCHED < len(names) else 0
        for name in part:
            error = programs[name].error
            if error and name not in errors:
                log.warning("rule_fails", rule=name, error=error)
                errors[name] = error
            elif not error and errors.pop(name, ""):
                log.info("rule_works_again", rule=name)

"""Regular expressions of users, on RE2: time in proportion to the text, whatever the pattern. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import re2  # type: ignore[import-untyped]

from tradewind.errors import Invalid, Problem

MAX_PATTERN = 500
#: Of the text that is searched; what is behind is not looked at.
MAX_TEXT = 10_000
#: Bytes that one pattern may take up.
MEMORY = 1 << 20


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A test whether the pattern is found anywhere in a text. Raises Invalid (`bad_regex`) with a problem."""
    if len(pattern) > MAX_PATTERN:
        raise _refused(f"{len(pattern)} characters are too many, {MAX_PATTERN} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MEMORY
    try:
        search = re2.compile(pattern, options).search
    except re2.error as error:
        said = error.args[0] if error.args else "it cannot be read"
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise _refused(f"{text}; back-references and look-around do not exist in RE2") from None

    def is_found(text: str) -> bool:
        return search(text[:MAX_TEXT]) is not None

    return is_found


def _refused(hint: str) -> Invalid:
    problem = Problem("bad_regex", "", hint)
    return Invalid("the regular expression cannot be used", code="bad_regex", hint=hint, problems=[problem])

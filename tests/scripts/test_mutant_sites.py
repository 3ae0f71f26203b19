"""The mutation sampler: what it changes, what it leaves alone."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.process import ROOT
from tests.soak import SOAK

sys.path.insert(0, str(ROOT / "scripts"))

from mutants import run, sites

PYTHON = '''
"""A docstring with 3 numbers."""
LIMIT: int = 10

async def store(rows: list[int], *, again: bool = True) -> int:
    """Not this 5."""
    log.info("stored", count=3)
    if rows and len(rows) <= LIMIT:
        await sink.write(rows)
    try:
        kept = max(rows) - 1
    except ValueError:
        kept = 0
    if not again:
        raise Refused(f"é {kept + 1}")
    return kept
'''

LUA = """
-- a comment with 1 number and == signs
local n = redis.call('LLEN', KEYS[1])
if n > 10 and ARGV[1] ~= '1' then
  redis.call('DEL', KEYS[1])
  return 1
end
return n + 1
"""


def changes(file: str, source: str) -> set[tuple[str, str, str]]:
    return {(m.kind, m.old, m.text) for m in sites.find(file, source)}


def test_python_is_changed_where_it_decides_and_nowhere_else() -> None:
    assert changes("x.py", PYTHON) == {
        ("number", "10", "20"),
        ("boolean", "True", "False"),
        ("negate-if", "rows and len(rows) <= LIMIT", "not (rows and len(rows) <= LIMIT)"),
        ("logic", "and", "or"),
        ("compare", "<=", "<"),
        ("drop-statement", "await sink.write(rows)", "pass"),
        ("opposite", "max", "min"),
        ("arithmetic", "-", "+"),
        ("number", "1", "2"),
        ("no-recovery", "kept = 0", "raise"),
        ("number", "0", "1"),
        ("negate-if", "not again", "not (not again)"),
        ("drop-not", "not again", "again"),
        ("no-raise", 'raise Refused(f"é {kept + 1}")', "pass"),
        ("return-none", "return kept", "return None"),
    }


def test_lua_is_changed_outside_of_comments_and_strings() -> None:
    found = changes("x.lua", LUA)
    assert ("swap", ">", ">=") in found
    assert ("logic", "and", "or") in found
    assert ("swap", "~=", "==") in found
    assert ("drop-statement", "redis.call('DEL', KEYS[1])", "") in found
    assert ("return-nil", "return n + 1", "return nil") in found
    assert ("negate-if", "n > 10 and ARGV[1] ~= '1'", "not (n > 10 and ARGV[1] ~= '1')") in found
    assert not any(old == "==" for _, old, _ in found), "that one stands in a comment"


def test_every_mutation_of_the_product_is_a_program_of_its_own() -> None:
    for file in sites.files(ROOT)[:: max(1, 6 // SOAK)]:
        source = (ROOT / file).read_text()
        assert sites.group(file, source) in run.GOALS
        found = sites.find(file, source)
        assert len({m.id + m.text for m in found}) == len(found)
        for mutation in found[:: max(1, len(found) // 5)]:
            changed = mutation.apply(source)
            assert changed != source
            if file.endswith(".py"):
                ast.parse(changed)


def test_a_mutation_refuses_a_text_that_has_changed() -> None:
    mutation = sites.find("x.lua", LUA)[0]
    with pytest.raises(AssertionError, match="not the one that was read"):
        mutation.apply("\n" + LUA)


def test_an_explained_survivor_still_exists() -> None:
    known = {
        run.stable(mutation)
        for file in {what.partition("  ")[0] for what, _ in run.explanations()}
        for mutation in sites.find(file, (ROOT / file).read_text())
    }
    for what, reason in run.explanations():
        assert what in known, f"no such mutation any more, remove its explanation: {what}"
        assert len(reason) > 20

"""The page about the schema names every table, column and index, with the column's kind and place in the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tradewind.sql.tables import metadata

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sql-schema.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(metadata.tables))
def test_the_page_describes_the_table(name: str) -> None:
    table = metadata.tables[name]
    section = PAGE.partition(f"\n## `{name}`")[2].partition("\n## ")[0]
    shown = {}
    for names, kind in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", section, re.M):
        shown |= dict.fromkeys(re.findall(r"`(\w+)`", names), kind)
    kinds = {}
    for column in table.columns:
        kind = str(column.type).lower()
        kinds[column.name] = kind + (", key" if column.primary_key else ", null" if column.nullable else "")
    assert shown == kinds
    for index in table.indexes:
        columns = ", ".join(f"`{column.name}`" for column in index.columns)
        assert f"`{index.name}` ({columns})" in " ".join(section.split())

"""docs/alarms.md and docs/notifications.md are so: commands on a real station, tables against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import station_process
from tests.docs_reader import ROOT, Reader, blocks
from tradewind.alarms.record import LEVELS, level_of
from tradewind.alarms.transitions import NEXT

TEXT = (ROOT / "docs" / "alarms.md").read_text(encoding="utf-8")
_ID = re.compile(r"alarm_[0-9a-f-]{36}")


class Operator(Reader):
    """Types the id that was shown last where the page says `alarm_…`."""

    last = ""

    def run(self, command: str) -> tuple[int, str]:
        code, out = super().run(command.replace("alarm_…", self.last))
        self.last = (_ID.findall(out) or [self.last])[-1]
        return code, out


def test_the_pages_on_a_station(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with station_process(tmp_path) as station:
        reader = Operator(monkeypatch, station)
        for kind, text in blocks("docs/alarms.md") + blocks("docs/notifications.md"):
            reader.do(kind, text)
    assert (tmp_path / "alarms.csv").read_text().count("Pump 3 leaks") == 1


def test_the_transitions_of_the_page_are_those_of_the_code() -> None:
    told = dict(re.findall(r"^\| (\w+) \| ([^|]+) \|$", TEXT.partition("| Status |")[2].partition("\n\n")[0], re.M))
    assert set(told) == set(NEXT)
    for status, following in NEXT.items():
        words = re.findall(r"[A-Z]\w+", told[status].partition(";")[0])
        assert words == list(following), status


def test_the_levels_of_the_page_are_those_of_the_code() -> None:
    found = re.findall(r"^\| (\w+) \| (\d) \| (\w+) \| (\w*) ?\|$", TEXT, re.M)
    assert [(name, int(number), colour) for name, number, colour, _ in found] == [
        (level.value, level.priority, level.colour) for level in LEVELS
    ]
    assert all(level_of(alias) == name for name, _, _, alias in found if alias)


def test_every_fault_that_is_reported_is_named() -> None:
    sources = [*(ROOT / "src" / "tradewind").rglob("*.py"), *(ROOT / "src" / "tradewind").rglob("*.lua")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    told = re.findall(
        r"^\| `(\w+)(?:…)?` \| `(?:comsrv|points|rulesrv|notify|notifications|alarms|history|station):", TEXT, re.M
    )
    lost = {"alarm_journal_dropped", "notification_dropped", "readings_lost", "faults_lost", "output_owed"}
    lost |= {"channels_unclaimed", "clock_set_back"}
    assert set(told) == {"channel_offline", "feed_missed", "rule_loop", "notification_failed", "history_"} | lost
    assert all(re.search(rf"['\"]{word}", code) for word in told)
    reported = set(re.findall(r"report\([\w.]+, [\w.]+, \"(\w+)\"", code)) | set(re.findall(r"'code', '(\w+)'", code))
    assert reported and reported <= set(told)

"""docs/acquisition.md: its tables are whole, its figures those of the code. Its promises are in test_acquisition_*."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tradewind.api.channel_book import STATES
from tradewind.points import acquisition, channel_claim, channel_runner
from tradewind.points.channel_status import ChannelStatus
from tradewind.points.spec import Quality
from tradewind.settings import Settings

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "acquisition.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def named(text: str) -> set[str]:
    """Everything in backticks in the first cells of tables."""
    return {name for cell in re.findall(r"^\| (`[^|]+) \|", text, re.M) for name in re.findall(r"`(\w+)`", cell)}


def test_every_figure_and_state_is_told() -> None:
    figures, _, states = section("Figures").partition("The states of a channel:")
    assert named(figures) == set(ChannelStatus("1", "", 0, 0).fields())
    assert named(states) - {"state"} == set(STATES)


def test_every_quality_is_told() -> None:
    assert named(section("Quality and age")) == {quality.value for quality in Quality}


def test_the_figures_in_the_text_are_those_of_the_code() -> None:
    lease = inspect.signature(channel_claim.ClaimKeeper).parameters["lease_s"].default
    assert lease == 10 and f"a lease of {lease:.0f} s" in TEXT and f"within {lease * 1.5:.0f} s (1.5 leases)" in TEXT
    assert (channel_runner.FIRST_PAUSE_S, channel_runner.LONGEST_PAUSE_S) == (1, 60)
    assert "a pause of 1 s, then 2, 4, 8 … up to 60 s" in section("Reconnecting")
    assert f"what comes within {channel_runner.GATHER_S * 1000:.0f} ms" in TEXT
    assert f"up to {channel_runner.MAX_WAITING:,} readings of a channel wait" in TEXT
    assert f"({acquisition.STOP_S:.0f} s at most)" in section("Changes of a definition")
    assert f"within about {acquisition.COMMANDS_S} s" in TEXT
    assert f"`points.stale_s` ({Settings().points.stale_s:.0f} s)" in section("Quality and age")


def test_pauses_are_cut_to_half_at_most() -> None:
    for failed, whole in enumerate([1, 2, 4, 8, 16, 32, 60, 60]):
        assert channel_runner.pause_after(failed, 0) == whole / 2
        assert channel_runner.pause_after(failed, 1) == whole

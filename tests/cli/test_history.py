"""The commands of `tradewind history` against a real station, and `apply` of what is recorded."""

from __future__ import annotations

import os
import pty
import random
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.parquet as parquet
import pytest

from tests.cli.conftest import Canned, Cli, StationProcess, clean_env, run_process
from tests.servers import wait_for
from tradewind.cli import history_file
from tradewind.clock import now_ms

POLICY = "batch_config: {size: 1000, timeout_ms: 50}\npolicies:\n  - {match: 'comsrv:77:*', record: false}\n"


class Past:
    """A series of its own for each test, with a minute of samples some hours ago."""

    def __init__(self, folder: Path) -> None:
        self.channel = str(random.randrange(10**9, 10**12))
        self.series = f"comsrv:{self.channel}:m:1"
        self.t0 = (now_ms() - 5 * 3_600_000) // 60_000 * 60_000
        self.file = folder / "past.csv"
        rows = [f"{self.t0 + at * 1000},{self.series},{at / 4!r},{at % 2}\n" for at in range(60)]
        self.file.write_text("ts,address,value,quality\n" + "".join(rows))

    @property
    def period(self) -> tuple[str, ...]:
        return ("--from", str(self.t0), "--to", str(self.t0 + 60_000))


@pytest.fixture
def past(cli: Cli, station: StationProcess, tmp_path: Path) -> Past:
    made = Past(tmp_path)
    ran = cli("history", "import", str(made.file))
    assert (ran.code, ran.out) == (0, "stored 60 of 60 rows\n"), ran.err
    return made


def test_samples_and_buckets_are_shown(cli: Cli, past: Past) -> None:
    found = cli("history", "query", past.series, *past.period, "--bucket", "30s", "--agg", "mean,max", "--json").json
    assert found["columns"] == ["ts", "mean", "max"]
    assert found["series"][0]["samples"] == [[past.t0, 3.625, 7.25], [past.t0 + 30_000, 11.125, 14.75]]
    shown = cli("history", "query", past.series, *past.period, "--bucket", "30s")
    assert (shown.code, "11.125" in shown.out, "mean" in shown.out) == (0, True, True)
    raw = cli("history", "query", past.series, *past.period, "--bucket", "raw", "--limit", "2")
    assert "uncertain" in raw.out and f"--from {past.t0 + 2000}" in raw.err
    wider = cli("history", "query", past.series, "--from", "-6h", "--bucket", "raw")
    assert "nothing for" in wider.err  # the gaps before and after
    both = cli("history", "query", past.series, "comsrv:1:m:404", *past.period, "--bucket", "30s")
    assert past.series in both.out and "comsrv:1:m:404" in both.out
    assert "comsrv:1:m:404: there is no sample of it" in both.err and f"{past.series}: its newest" not in both.err
    before = cli("history", "query", past.series, "--from", "-2d", "--to", "-1d")
    assert f"{past.series}: its newest sample is from" in before.err


def test_a_wrong_question_is_refused_with_what_to_do(cli: Cli, past: Past) -> None:
    ran = cli("history", "query", past.series, "--from", "soon", "--bucket", "wide")
    assert ran.code == 2 and "- from:" in ran.err and "- bucket:" in ran.err
    assert cli("history", "stats", "--from", "-1h").code == 2
    assert cli("history", "export", past.series, "--json").code == 2


def test_the_newest_the_list_and_the_figures(cli: Cli, past: Past) -> None:
    (newest,) = cli("history", "latest", past.series, "--json").json["items"]
    assert (newest["ts"], newest["value"], newest["quality"]) == (past.t0 + 59_000, 14.75, "uncertain")
    assert "14.75" in cli("history", "latest", past.series).out
    listed = cli("history", "series", f"comsrv:{past.channel}:*", "--json").json
    assert [(item["address"], item["count"]) for item in listed["items"]] == [(past.series, 60)]
    assert past.series in cli("history", "series", f"comsrv:{past.channel}:*").out
    assert cli("history", "series", "comsrv:none*").out == "nothing recorded fits comsrv:none*\n"
    (figures,) = cli("history", "stats", past.series, *past.period, "--json").json["items"]
    assert (figures["count"], figures["mean"], figures["good_share"]) == (60, 7.375, 0.5)
    assert "7.375" in cli("history", "stats", past.series, *past.period).out


def test_stats_say_how_recording_goes(cli: Cli, past: Past) -> None:
    wait_for(lambda: cli("history", "stats").code == 0, "the recorder", 30)
    shown = cli("history", "stats").out
    for word in ("recorder", "written", "spool", "lag", "dropped", "embedded", "oldest"):
        assert word in shown
    status = cli("history", "stats", "--json").json
    assert status["sink"]["stats"]["rows"] >= 60 and status["recorder"]["sink"] == "ok"


def test_an_export_comes_back_by_an_import(cli: Cli, past: Past, station: StationProcess, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    ran = cli("history", "export", past.series, *past.period, "-o", str(out))
    assert (ran.code, ran.out) == (0, f"wrote {out}: 60 rows, {out.stat().st_size} bytes\n"), ran.err
    assert out.read_text() == past.file.read_text()
    assert not out.with_name("out.csv.part").exists()
    assert run_process("--url", station.url, "history", "export", past.series, *past.period).out == out.read_text()
    assert cli("history", "import", str(out), "--json").json["stored"] == 60
    (figures,) = cli("history", "stats", past.series, *past.period, "--json").json["items"]
    assert figures["count"] == 60  # the second time changed nothing
    table = tmp_path / "out.parquet"
    told = cli("history", "export", past.series, *past.period, "-o", str(table), "--json").json
    assert (told["format"], told["bytes"], told["rows"]) == ("parquet", table.stat().st_size, 60)
    assert parquet.read_table(table).num_rows == 60
    ran = cli("history", "import", str(table))
    assert ran.code == 2 and "is a Parquet file" in ran.err and "--format csv" in ran.err
    nothing = cli("history", "export", past.series, "--from", "-3d", "--to", "-2d", "-o", str(tmp_path / "none.csv"))
    assert nothing.code == 0 and "0 rows" in nothing.out and "no samples in that time" in nothing.err
    wide = tmp_path / "wide.csv"
    more = ("--bucket", "1m", "--agg", "count", "--layout", "wide", "--time", "iso")
    assert cli("history", "export", past.series, *past.period, "-o", str(wide), *more).code == 0
    assert wide.read_text().splitlines()[0] == f"ts,{past.series}" and wide.read_text().endswith(",60\n")


def test_an_export_that_fails_leaves_no_file(cli: Cli, past: Past, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert cli("history", "export", past.series, "--format", "xlsx", "-o", str(out)).code == 2
    assert cli("history", "export", past.series, "-o", str(tmp_path / "no" / "where.csv")).code == 6
    assert list(tmp_path.glob("out*")) == []


def test_bad_rows_are_named_and_nothing_is_stored(cli: Cli, past: Past, tmp_path: Path) -> None:
    file, series = tmp_path / "bad.csv", past.series.replace(":m:", ":s:")
    file.write_bytes(
        f"ts,address,value\n{past.t0},{series},1\n{past.t0},{series},warm\n".encode()
        + f"{past.t0 + 1},\xff,1\nnoon,{series},2\n{past.t0 + 2},{series},3\n".encode("latin-1")
    )
    ran = cli("history", "import", str(file))
    assert ran.code == 2 and "3 bad rows" in ran.err and "nothing was stored" in ran.err
    for line in ("line 3", "line 4", "line 5"):
        assert line in ran.err
    assert cli("history", "latest", series, "--json").json["items"][0]["ts"] is None
    assert cli("history", "import", str(file), "--skip-bad", "--dry-run").out == "2 rows are good, 3 left out\n"
    ran = cli("history", "import", str(file), "--skip-bad")
    assert (ran.code, ran.out) == (0, "stored 2 of 2 rows, 3 left out\n") and "left out: line 4" in ran.err
    assert cli("history", "latest", series, "--json").json["items"][0]["value"] == 3.0
    assert cli("history", "import", str(tmp_path / "none.csv")).code == 2


def test_an_import_that_breaks_off_says_how_far_it_came(
    cli: Cli, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "PART", 10)
    file = tmp_path / "some.csv"
    file.write_text("ts,address,value\n" + "".join(f"{at},comsrv:1:m:1,1\n" for at in range(25)))
    done = {"stored": 10, "refused_count": 0, "refused": [], "left_out_count": 0, "left_out": []}
    canned.answer("POST /api/v1/history/import", 200, done)
    ran = cli("history", "import", str(file), "--json")
    assert (ran.json["stored"], len(canned.asked)) == (30, 3)
    canned.refuse("POST /api/v1/history/import", 503, "sink_away", "the sink is away")
    ran = cli("history", "import", str(file))
    assert ran.code == 6 and "0 of 25 rows are stored; import the same file again" in ran.err
    late = {"series": "comsrv:1:m:1", "ts": 1, "value": "1.0", "reason": "too_old"}
    canned.answer("POST /api/v1/history/import", 200, {**done, "stored": 9, "refused_count": 1, "refused": [late]})
    ran = cli("history", "import", str(file))
    assert ran.code == 1 and "3 refused" in ran.out and "too_old" in ran.err


def test_the_policy_is_shown_set_and_applied(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    file = tmp_path / "history.yaml"
    file.write_text(POLICY)
    ran = cli("history", "policy", "--set", str(file))
    assert ran.code == 0 and "comsrv:77:*" in ran.out
    assert cli("history", "policy", "--json").json["batch_config"]["timeout_ms"] == 50
    again = cli("apply", "-f", str(tmp_path))
    assert "no difference (1 unchanged)" in again.out, again.err
    file.write_text(POLICY.replace("record: false", "deadband: 0.5"))
    changed = cli("apply", "-f", str(tmp_path), "--dry-run")
    assert "~ history policy" in changed.out and "deadband" in changed.out
    assert cli("apply", "-f", str(tmp_path)).code == 0
    assert cli("history", "policy", "--json").json["policies"][0]["deadband"] == 0.5
    file.write_text("batch_config: {size: 1000}\npolicies:\n  - {match: 'x', deadband: -1}\n")
    for command in (("apply", "-f", str(tmp_path)), ("history", "policy", "--set", str(file))):
        ran = cli(*command)
        assert ran.code == 2 and "history.yaml:3:policies[0].deadband" in ran.err
    assert cli("history", "policy", "--json").json["policies"][0]["deadband"] == 0.5
    assert cli("history", "policy", "--set", str(tmp_path / "none.yaml")).code == 2


def test_classes_are_applied_shown_and_named_when_they_are_wrong(
    cli: Cli, station: StationProcess, tmp_path: Path
) -> None:
    file, channel = tmp_path / "history.yaml", random.randrange(10**9, 10**12)
    classes = "classes:\n  brief: {raw_days: 7}\n  archive: {raw_days: 0}\n"
    file.write_text(POLICY + f"  - {{match: 'comsrv:{channel}:*', class: brief}}\n" + classes)
    planned = cli("apply", "-f", str(tmp_path), "--dry-run")
    assert planned.code == 0 and "classes" in planned.out and "brief" in planned.out, planned.out
    assert cli("apply", "-f", str(tmp_path)).code == 0
    shown = cli("history", "policy").out
    assert "brief" in shown and "7 d" in shown and "for ever" in shown and "as in the settings" in shown
    old = tmp_path / "old.csv"
    old.write_text(f"ts,address,value\n{now_ms() - 20 * 86_400_000},comsrv:{channel}:m:1,1\n")
    ran = cli("history", "import", str(old))
    assert (ran.code, ran.out) == (0, "stored 1 of 1 rows\n") and "only their rollups" in ran.err
    stats = cli("history", "stats").out
    assert "class brief" in stats and "samples 7 days" in stats and "class archive" in stats
    file.write_text(file.read_text().replace("class: brief", "class: short").replace("raw_days: 7", "raw_days: -7"))
    ran = cli("apply", "-f", str(tmp_path))
    assert ran.code == 2 and "history.yaml:4:policies[1].class" in ran.err and "default, archive, brief" in ran.err
    assert "history.yaml:6:classes.brief.raw_days" in ran.err
    file.write_text(POLICY)
    assert cli("apply", "-f", str(tmp_path)).code == 0


def test_rows_that_are_too_old_are_counted_and_the_setting_is_named(
    cli: Cli, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "PART", 10)
    file = tmp_path / "some.csv"
    file.write_text("ts,address,value\n" + "".join(f"{at},comsrv:1:m:1,1\n" for at in range(20)))
    late = [{"series": "comsrv:1:m:1", "ts": at, "value": "1.0", "reason": "too_old"} for at in range(2)]
    old = [
        {"class": "default", "raw_days": 30, "rows": 4, "kept_from": 1_790_035_200_000},
        {"class": "brief", "raw_days": 2, "rows": 3, "kept_from": 1_790_035_200_000},
    ]
    done = {"stored": 3, "refused_count": 7, "refused": late, "too_old": old, "rollups_only": 0}
    canned.answer("POST /api/v1/history/import", 200, {**done, "left_out_count": 0, "left_out": []})
    ran = cli("history", "import", str(file))
    assert (ran.code, ran.out) == (1, "stored 6 of 20 rows, 14 refused\n")
    assert "8 rows from before" in ran.err and "history.raw_days is 30" in ran.err
    assert "6 rows from before" in ran.err and "raw_days of the class brief is 2" in ran.err
    assert ran.err.count("refused:") == 2


def test_what_is_written_to_a_point_is_recorded(cli: Cli, station: StationProcess, tmp_path: Path) -> None:
    (tmp_path / "history.yaml").write_text("batch_config: {timeout_ms: 50}\n")
    assert cli("history", "policy", "--set", str(tmp_path / "history.yaml")).code == 0
    address = f"comsrv:{random.randrange(10**9, 10**12)}:m:1"
    assert cli("point", "write", f"{address}=4.5").code == 0

    def is_recorded() -> bool:
        return bool(cli("history", "latest", address, "--json").json["items"][0]["value"] == 4.5)

    wait_for(is_recorded, "the sample in the history", 30)


def test_an_export_that_breaks_off_leaves_no_file_and_says_so(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The station dies in the middle: the length that it has promised never comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(2):
            with listener.accept()[0] as peer:
                peer.recv(65536)
                head = b"HTTP/1.1 200 OK\r\nContent-Type: text/csv\r\nTransfer-Encoding: chunked\r\n\r\n"
                peer.sendall(head + b"5\r\nts,ad\r\n")

    threading.Thread(target=answer, daemon=True).start()
    monkeypatch.setenv("TRADEWIND_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
    out = tmp_path / "out.csv"
    out.write_text("what was there before")
    ran = cli("history", "export", "comsrv:1:m:1", "-o", str(out))
    assert ran.code == 6
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"] and out.read_text() == "what was there before"
    listener.close()


def on_terminal(station: StationProcess, *words: str) -> tuple[bytes, str]:
    """What a command of history writes to stdout, and what it draws on a terminal that is its stderr."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tradewind.cli", "--url", station.url, "history", *words]
    env = clean_env(TERM="xterm", COLUMNS="100")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=env) as process:
        out, _ = process.communicate(timeout=60)
        os.close(theirs)
        shown = os.read(ours, 65536).decode()
    os.close(ours)
    return out, shown


def test_a_bar_is_drawn_on_a_terminal(past: Past, station: StationProcess, tmp_path: Path) -> None:
    out, shown = on_terminal(station, "import", str(past.file))
    assert out == b"stored 60 of 60 rows\n"
    assert "check" in shown and "import" in shown and "60/60" in shown


@pytest.mark.parametrize("more", [("-o", "a.parquet"), ("-o", "b.csv", "--bucket", "10s"), ("-o", "c.csv")])
def test_a_bar_of_every_export(past: Past, station: StationProcess, tmp_path: Path, more: tuple[str, ...]) -> None:
    (where, name), others = more[:2], more[2:]
    out, shown = on_terminal(station, "export", past.series, *past.period, where, str(tmp_path / name), *others)
    rows = 6 if others else 60
    assert f"{rows} rows," in out.decode()
    assert "export" in shown and "100%" in shown and f"{rows} rows" in shown

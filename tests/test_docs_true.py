"""What the documentation shows is so: code compiles and runs, commands exist with their flags, links lead somewhere."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import tradewind
from tests.cli.conftest import StationProcess, station_process
from tradewind.cli.main import app, global_options_first, main
from tradewind.tasks.function import OPTIONS, task

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def blocks(page: Path, language: str) -> list[str]:
    return [text for name, text in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def code(page: str) -> list[str]:
    return blocks(ROOT / page, "python")


def commands() -> list[str]:
    """Every line of a shell block that calls `tradewind`."""
    found = []
    for page in PAGES:
        for name, text in _FENCE.findall(page.read_text(encoding="utf-8")):
            if name not in ("", "sh", "bash", "console"):
                continue
            for line in text.replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ").removeprefix(".venv/bin/")
                if command.startswith("tradewind "):
                    found.append(command)
    return sorted(set(found))


def links() -> list[Any]:
    found = []
    for page in PAGES:
        text = _FENCE.sub("", page.read_text(encoding="utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" not in target and not target.startswith("mailto:"):
                found.append(pytest.param(page, target, id=f"{page.relative_to(ROOT)}-{target}"))
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("page", "target"), links())
def test_a_link_leads_somewhere(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    assert there.exists(), f"{page.name} links to {target}"
    if anchor and there.suffix == ".md":
        assert anchor in anchors(there), f"{there.name} has no heading {anchor!r}"


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=lambda page: page.name)
def test_python_blocks_compile(page: Path) -> None:
    for text in blocks(page, "python"):
        compile(text, page.name, "exec")


@functools.cache
def help_of(*path: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main([*path, "--help"]) == 0
    return " ".join(said.getvalue().split())


@pytest.mark.parametrize("line", commands())
def test_a_shown_command_exists_with_its_flags(line: str) -> None:
    words = [word for word in global_options_first(shlex.split(line, comments=True)[1:]) if word != "--json"]
    command: Any = typer.main.get_command(app)
    path = []
    while words and words[0] in getattr(command, "commands", {}):
        path.append(words.pop(0))
        command = command.commands[path[-1]]
    assert path and not hasattr(command, "commands"), f"no such command: {line}"
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    # What begins with a minus and a digit is a value: --from -1h.
    flags = [word for word in words if word.startswith("-") and word != "-" and not word[1].isdigit()]
    used = {word.partition("=")[0] for word in flags}
    assert used <= known | {"--help"}, f"{' '.join(path)} does not take {used - known}"
    assert "Usage: tradewind " + " ".join(path) in help_of(*path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StationProcess]:
    """A station that serves the README's own `shop.py`."""
    folder = tmp_path_factory.mktemp("shop")
    text = code("README.md")[0]
    assert text.startswith("# shop.py\n")
    (folder / "shop.py").write_text(text)
    with station_process(folder, "--import", "shop") as station:
        yield station


def test_the_functions_of_the_readme_run(shop: StationProcess) -> None:
    with tradewind.connect(shop.url) as tw:
        sent = tw.submit("send_email", "ada@example.com", subject="hi")
        assert sent.result(timeout=20) == "sent 'hi' to ada@example.com"
        assert sent.view()["max_attempts"] == 4
        assert sent.view()["timeout_s"] == 30
        assert tw.submit("crunch", 1000).result(timeout=20) == sum(i * i for i in range(1000))
        assert tw.submit("refresh_prices").result(timeout=20) is None


def test_the_program_of_the_readme_runs(shop: StationProcess, capsys: pytest.CaptureFixture[str]) -> None:
    text = code("README.md")[1]
    assert text.count("http://127.0.0.1:8400") == text.count("redis://127.0.0.1:6379") == 1
    text = text.replace("http://127.0.0.1:8400", shop.url).replace("redis://127.0.0.1:6379", str(shop.data))
    text = text.replace("100_000", "100").replace("delay=2", "delay=0.1")
    there: dict[str, Any] = {}
    exec(compile(text, "README.md", "exec"), there)
    asyncio.run(there["main"]())
    assert capsys.readouterr().out.splitlines() == [
        "sent 'hi' to ada@example.com",
        str(sum(i * i for i in range(1_000_000))),
    ]


def test_the_command_of_the_readme_runs(shop: StationProcess, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [line for line in commands() if line.startswith("tradewind task submit send_email --kwargs")]
    assert main([*shlex.split(line)[1:], "--url", shop.url]) == 0
    assert "sent 'hi' to ada@example.com" in capsys.readouterr().out


def test_the_periodic_task_of_the_readme_is_scheduled(shop: StationProcess, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schedule", "list", "--json", "--url", shop.url]) == 0
    assert '"refresh_prices"' in capsys.readouterr().out


def test_the_readme_options_are_those_of_the_code() -> None:
    """The option tables of the tasks guide name what `@task` and `submit` take, no more and no less."""
    text = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
    table = text.partition("| option |")[2].partition("\n\n")[0]
    shown = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    assert shown | {"name"} == set(inspect.signature(task).parameters) - {"function"}
    listed = set(re.findall(r"`(\w+)`", text.partition("Options of `submit`:")[2].partition("All other keywords")[0]))
    assert listed >= OPTIONS

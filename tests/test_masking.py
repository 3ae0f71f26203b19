"""One masker: what counts as a secret, and that no secret of the settings is shown anywhere."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import BaseModel

from tests.cli.conftest import clean_env
from tests.servers import free_port
from tradewind.cli.main import main
from tradewind.masking import MASK, is_secret, masked, masked_fields, masked_text, masked_url, secrets_of, struck_out
from tradewind.redis.connection import Link
from tradewind.settings import Settings, load_settings, setting_names

MARK = "m4rk3r"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:s3cret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://ann:s3cret@host", "redis://ann:***@host"),
        ("redis://t0ken@host", "redis://***@host"),
        ("redis://:a/b@c/d@host/0", "redis://:***@host/0"),
        ("redis://:a#b?c@host/0", "redis://:***@host/0"),
        ("redis+sentinel://:s3cret@a:1,b:2/main", "redis+sentinel://:***@a:1,b:2/main"),
        ("postgresql://u:p@ss/w@host/db?sslmode=prefer", "postgresql://u:***@host/db?sslmode=prefer"),
        ("postgresql://host/db?user=u&password=s3cret", "postgresql://host/db?user=u&password=***"),
        ("https://host/api?token=s3cret&x=1#access_token=s3cret", "https://host/api?token=***&x=1#access_token=***"),
        ("https://host/api?api_key=s3cret", "https://host/api?api_key=***"),
        ("https://host/a@b", "https://host/a@b"),
        ("https://[::1]:80/a@b", "https://[::1]:80/a@b"),
        ("http://host:80", "http://host:80"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock"),
        ("sqlite:////data/a.db", "sqlite:////data/a.db"),
        ("no url at all", "no url at all"),
        ("", ""),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert masked_url(shown) == shown
    assert "s3cret" not in struck_out(f"cannot reach {url}: s3cret", secrets_of(url)) or "s3cret" not in url


def test_urls_within_a_text_are_masked() -> None:
    text = 'lost "redis://:s3cret@host:1" and amqp://u:s3cret@host/v, see https://host/?token=s3cret.'
    assert masked_text(text) == 'lost "redis://:***@host:1" and amqp://u:***@host/v, see https://host/?token=***'


def test_fields_of_a_log_line_are_masked() -> None:
    line = {"event": "failed at redis://:s3cret@h", "key": "tw:queue", "password": "s3cret", "api_token": "s3cret"}
    line |= {"tokens": 3, "parts": [{"secret": "s3cret"}]}
    shown = masked_fields(line)
    assert "s3cret" not in str(shown)
    assert (shown["key"], shown["tokens"]) == ("tw:queue", 3)


def leaves(model: type[BaseModel], head: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= leaves(kind, f"{head}{name}.")
        else:
            found[head + name] = field
    return found


def marked() -> dict[str, str]:
    """A marker in every setting that may hold a secret: those that are hidden in `repr`, and those named so."""
    port = free_port()
    found: dict[str, str] = {}
    for name, field in leaves(Settings).items():
        last = name.rpartition(".")[2]
        if last in ("url", "address"):
            scheme = {"redis": "redis", "sql": "postgresql", "amqp": "amqp"}.get(name.partition(".")[0], "http")
            found[name] = f"{scheme}://ann:{MARK}@127.0.0.1:{port}" + ("/db" if scheme == "postgresql" else "")
        elif not field.repr or is_secret(last):
            found[name] = MARK
    return found


def test_every_setting_that_holds_a_secret_is_marked_here() -> None:
    found = marked()
    assert {"redis.url", "redis.password", "sql.url", "amqp.url", "influx.url", "influx.password", "influx.token"} <= {
        *found
    }
    assert set(found) <= set(setting_names())


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in clean_env() if name.startswith("TRADEWIND_")]:
        monkeypatch.delenv(name)
    lines = [f"{name} = {json.dumps(value)}" for name, value in marked().items()]
    lines += ['signals.transport = "amqp"', "redis.dial_timeout_s = 0.2"]
    file = tmp_path / "tradewind.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize(
    "command",
    [["config", "show"], ["--json", "config", "show"], ["doctor"], ["run", "worker"]],
    ids=" ".join,
)
def test_no_secret_of_the_settings_is_shown_by_a_command(
    command: list[str], settings_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_ready = Link.wait_ready
    monkeypatch.setattr(Link, "wait_ready", lambda link, timeout_s: wait_ready(link, min(timeout_s, 1)))
    code = main([*command, "--config", str(settings_file)])
    shown = capfd.readouterr()
    assert MARK not in shown.out + shown.err
    assert (code == 0) == ("config" in command), shown
    if "config" in command:
        assert MASK in shown.out and "127.0.0.1" in shown.out


def test_no_secret_is_shown_from_the_environment(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in marked().items():
        monkeypatch.setenv(f"TRADEWIND_{name.replace('.', '_').upper()}", value)
    assert main(["config", "show"]) == 0 and main(["--json", "config", "show"]) == 0
    shown = capfd.readouterr()
    assert MARK not in shown.out + shown.err and "environment TRADEWIND_INFLUX_TOKEN" in shown.out
    assert MARK not in repr(load_settings())


def test_nodes_with_a_password_are_masked() -> None:
    settings = Settings(redis={"sentinel": {"master": "m", "nodes": [f"ann:{MARK}@10.0.0.1:26379", "10.0.0.2:1"]}})
    assert settings.public()["redis"]["sentinel"]["nodes"] == ["***@10.0.0.1:26379", "10.0.0.2:1"]


def test_logs_are_masked_however_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    from tradewind import logs

    stream = io.StringIO()
    monkeypatch.setattr(logs, "_own_stream", lambda: stream)
    root = logging.getLogger()
    before, level, config = root.handlers[:], root.level, structlog.get_config()
    try:
        _configure(logs, Settings().log)
        url = f"redis://:{MARK}@host:1"
        structlog.get_logger("a").warning(f"lost {url}", where=url, token=MARK, parts={"password": MARK})
        logging.getLogger("b").warning("lost %s", url)
        try:
            raise ConnectionError(url)
        except ConnectionError:
            structlog.get_logger("c").exception("failed")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.configure(**config)
    assert MARK not in stream.getvalue() and stream.getvalue().count("redis://:***@host:1") >= 4


def _configure(logs: Any, settings: Any) -> None:
    """The real one: tests have a stand-in for it."""
    import importlib.util

    spec = importlib.util.find_spec("tradewind.logs")
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    fresh._own_stream = logs._own_stream
    fresh.configure_logging(settings.model_copy(update={"format": "json"}))


def test_plain_data_is_masked_by_names() -> None:
    given = {"a": {"password": MARK, "key_file": "f"}, "urls": [f"http://u:{MARK}@h"], "empty": {"token": ""}}
    assert masked(given) == {
        "a": {"password": MASK, "key_file": "f"},
        "urls": ["http://u:***@h"],
        "empty": {"token": ""},
    }

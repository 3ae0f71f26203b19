from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tradewind.errors import Invalid
from tradewind.settings import Settings, load_settings, setting_names

DOCS = Path(__file__).parents[1] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("TRADEWIND_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def problems(error: pytest.ExceptionInfo[Invalid]) -> dict[str, str]:
    return {problem.path: problem.hint for problem in error.value.problems}


def test_defaults_are_the_documented_ones() -> None:
    settings = load_settings()
    assert settings == Settings()
    assert settings.redis.url == "" and settings.redis.pool_size == 100
    assert settings.tasks.max_queued == 2_000_000
    assert settings.api.port == 8400


def test_flags_win_over_environment_which_wins_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text(
        "key_prefix = 'file:'\n[api]\nport = 1\nhost = 'file'\n[worker]\nconcurrency = 5\nlabels = ['a']\n"
    )
    monkeypatch.setenv("TRADEWIND_API_PORT", "2")
    monkeypatch.setenv("TRADEWIND_WORKER_CONCURRENCY", "6")
    settings = load_settings(overrides={"api.port": 3})
    assert (settings.api.port, settings.api.host) == (3, "file")
    assert (settings.worker.concurrency, settings.worker.labels) == (6, ["a"])
    assert settings.key_prefix == "file:"


@pytest.mark.parametrize(
    ("name", "value", "path", "expected"),
    [
        ("TRADEWIND_REDIS_URL", "redis://h:1/0", "redis.url", "redis://h:1/0"),
        ("TRADEWIND_SQL_URL", "postgresql://h/db", "sql.url", "postgresql://h/db"),
        ("TRADEWIND_AMQP_URL", "amqp://h/", "amqp.url", "amqp://h/"),
        ("TRADEWIND_INFLUX_URL", "http://h:8086", "influx.url", "http://h:8086"),
        ("TRADEWIND_TASKS_RESULT_TTL_S", "7", "tasks.result_ttl_s", 7),
        ("TRADEWIND_TASKS_ARCHIVE", "false", "tasks.archive", False),
        ("TRADEWIND_DATA_DIR", "/data", "data_dir", Path("/data")),
        ("TRADEWIND_KEY_PREFIX", "plant-1:", "key_prefix", "plant-1:"),
        ("TRADEWIND_IMPORTS", "jobs, more.jobs", "imports", ["jobs", "more.jobs"]),
        ("TRADEWIND_WORKER_LABELS", "gpu,big", "worker.labels", ["gpu", "big"]),
        ("TRADEWIND_LOG_LEVEL", "debug", "log.level", "DEBUG"),
        ("tradewind_api_port", "9", "api.port", 9),
    ],
)
def test_environment_names_lead_to_their_setting(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, path: str, expected: object
) -> None:
    monkeypatch.setenv(name, value)
    found: object = load_settings()
    for part in path.split("."):
        found = getattr(found, part)
    assert found == expected


def test_an_empty_environment_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_API_PORT", "")
    assert load_settings().api.port == 8400


def test_variables_that_kubernetes_injects_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_API_PORT", "tcp://10.0.0.1:8400")
    monkeypatch.setenv("TRADEWIND_API_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("TRADEWIND_API_PORT_8400_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("TRADEWIND_URL", "http://127.0.0.1:8400")
    assert load_settings() == Settings()


def test_a_file_named_by_the_environment_or_the_caller_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[api]\nport = 1\n")
    (tmp_path / "b.toml").write_text("[api]\nport = 2\n")
    monkeypatch.setenv("TRADEWIND_CONFIG", str(tmp_path / "a.toml"))
    assert load_settings().api.port == 1
    assert load_settings(tmp_path / "b.toml").api.port == 2


def test_all_problems_are_reported_at_once_with_their_paths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text("[redis]\npool_size = 0\nurll = 'x'\n[cluster]\nnodes = []\n")
    monkeypatch.setenv("TRADEWIND_API_PORT", "http")
    monkeypatch.setenv("TRADEWIND_TASKS_RESULT_TTL", "5")
    with pytest.raises(Invalid) as error:
        load_settings(overrides={"key_prefix": "a{b}", "log.format": "xml"})
    found = problems(error)
    assert set(found) == {
        "redis.pool_size",
        "redis.urll",
        "cluster",
        "api.port",
        "tasks.result_ttl",
        "key_prefix",
        "log.format",
    }
    assert "redis.url?" in found["redis.urll"]
    assert "tasks.result_ttl_s?" in found["tasks.result_ttl"]
    assert all(found.values())
    assert "redis.pool_size" in error.value.message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("redis.url", "http://h"),
        ("redis.db", -1),
        ("redis.read_timeout_s", 0),
        ("redis.dial_timeout_s", float("inf")),
        ("redis.appendfsync", "sometimes"),
        ("sql.url", "mysql://h/db"),
        ("amqp.url", "redis://h"),
        ("influx.url", "h:8086"),
        ("tasks.max_payload_bytes", 0),
        ("tasks.max_queued", -1),
        ("worker.id", "a b"),
        ("worker.address", "ftp://h"),
        ("worker.concurrency", 0),
        ("scheduler.renew_s", 5),
        ("scheduler.assign_batch", 100_000),
        ("api.port", 65_536),
        ("api.host", ""),
        ("log.level", "LOUD"),
        ("key_prefix", "ü"),
    ],
)
def test_bad_values_are_refused_at_their_path(path: str, value: object) -> None:
    with pytest.raises(Invalid) as error:
        load_settings(overrides={path: value})
    assert list(problems(error)) == [path]


def test_a_short_leader_term_needs_a_shorter_renewal() -> None:
    with pytest.raises(Invalid) as error:
        load_settings(overrides={"scheduler.leader_ttl_s": 4})
    assert list(problems(error)) == ["scheduler.renew_s"]


def test_a_group_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tradewind.toml").write_text("redis = 'redis://h'\n")
    with pytest.raises(Invalid) as error:
        load_settings()
    assert list(problems(error)) == ["redis"]


def test_a_broken_or_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[redis\n")
    with pytest.raises(Invalid, match=r"bad\.toml"):
        load_settings(tmp_path / "bad.toml")
    with pytest.raises(Invalid, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml")


def test_settings_are_frozen() -> None:
    settings = Settings()
    with pytest.raises(ValueError, match="frozen"):
        settings.redis.db = 3


def test_passwords_are_shown_nowhere() -> None:
    secret = "s3cr3t"
    settings = load_settings(
        overrides={
            "redis.url": f"redis+sentinel://user:{secret}@h1,h2/m",
            "redis.password": secret,
            "sql.url": f"postgresql+asyncpg://me:{secret}@h/db",
            "amqp.url": f"amqp://:{secret}@h/",
        }
    )
    shown = settings.public()
    assert secret not in str(shown) and secret not in repr(settings)
    assert shown["redis"]["url"] == "redis+sentinel://user:***@h1,h2/m"
    assert shown["redis"]["password"] == "***"
    with pytest.raises(Invalid) as error:
        load_settings(overrides={"redis.url": f"http://:{secret}@h", "redis.password": [secret]})
    assert secret not in error.value.message + str(error.value.problems)


def test_every_setting_is_documented_with_its_environment_name_and_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_.]+)` \| (.*) \|$", DOCS.read_text(), re.M))
    assert set(rows) == set(setting_names())
    for name, row in rows.items():
        value: object = Settings()
        for part in name.split("."):
            value = getattr(value, part)
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        shown = shown.lower() if isinstance(value, bool) else shown or '""'
        assert row.split(" | ")[1] == f"`{shown}`", name
        if name.count(".") < 2:
            assert f"`TRADEWIND_{name.upper().replace('.', '_')}`" in row, name

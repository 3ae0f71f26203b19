"""Every key in one place: prefixed, in one slot, documented, and none of another name in the scripts."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from redis.crc import key_slot

from tradewind.redis.keys import Keys

ROOT = Path(__file__).resolve().parents[2]
METHODS = [name for name, method in vars(Keys).items() if inspect.isfunction(method) and not name.startswith("_")]
CHANNELS = {"events", "reply", "control"}


def all_keys(keys: Keys) -> dict[str, str]:
    found = {}
    for name in METHODS:
        method = getattr(keys, name)
        found[name] = method(*(f"<{parameter}>" for parameter in inspect.signature(method).parameters))
    return found


def test_every_key_starts_with_the_prefix() -> None:
    plain = all_keys(Keys())
    for name, key in all_keys(Keys("plant7:")).items():
        assert key == f"plant7:{plain[name]}"
    assert len(set(plain.values())) == len(plain), "two methods make one key"


def test_in_a_cluster_all_keys_share_one_slot() -> None:
    found = all_keys(Keys("plant7:", cluster=True))
    broadcast = {"events", "flow_events", "command_events", "alarm_events"}
    apart = {"points", "points_ts", "points_quality", "points_mark", "point_substitutions", "channel_status", "feed"}
    stored = {name: key for name, key in found.items() if name not in {*broadcast, *apart}}
    assert {found[name].partition("}")[0] for name in apart} == {"plant7:comsrv:{<channel>"}, "a slot per channel"
    for key in stored.values():
        assert key.startswith("plant7:{tw}:")
    assert {key_slot(key.encode()) for key in stored.values()} == {key_slot(b"tw")}
    assert found["events"] == "plant7:task:events", "observers need not know how the keys are spread"
    assert found["flow_events"] == "plant7:flow:events"
    assert found["command_events"] == "plant7:cmd:events"
    assert found["alarm_events"] == "plant7:alarm:events"


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (Keys().queue("high"), "queue:high"),
        (Keys().worker_queue("w"), "worker:w:queue"),
        (Keys().leader(), "scheduler:leader"),
        (Keys().worker("w"), "worker:w"),
        (Keys().worker_type("t"), "worker:type:t"),
        (Keys().cancel("i"), "task:cancel:i"),
        (Keys().cache("i"), "task:cache:i"),
        (Keys().status("i"), "task:status:i"),
        (Keys().events(), "task:events"),
        (Keys().metric_queue_length(), "metrics:queue:length"),
        (Keys().metric_worker_count(), "metrics:worker:count"),
        (Keys().metric_task_count("success"), "metrics:task:count:success"),
        (Keys().rate_second("t"), "ratelimit:task:t"),
        (Keys().delayed(), "queue:delayed"),
        (Keys().lock("i"), "lock:task:i"),
    ],
)
def test_names_of_the_seed_are_kept(key: str, expected: str) -> None:
    assert key == expected


def test_each_key_says_its_type_and_what_bounds_it() -> None:
    kinds = ("string", "list", "set", "zset", "hash", "stream", "channel", "any")
    for name in METHODS:
        text = inspect.getdoc(getattr(Keys, name)) or ""
        kind, _, rest = text.partition(";")
        assert kind.split()[0] in kinds, f"{name}: {text}"
        assert rest.strip().endswith("."), f"{name}: {text}"


def test_the_page_is_made_from_the_code() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "redis_schema.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_scripts_use_no_key_of_their_own() -> None:
    """`P .. 'name:'` in a script must be the beginning of a key that keys.py makes."""
    known = [re.sub(r"<\w+>", "\0", key) for key in all_keys(Keys()).values()]
    folder = Path(str(resources.files("tradewind.tasks") / "lua"))
    used = 0
    for file in folder.glob("*.lua"):
        for name in re.findall(r"\bP \.\. '([^']+)'", file.read_text(encoding="utf-8")):
            used += 1
            assert any(key.startswith(name) for key in known), (
                f"{file.name} builds {name!r}, which keys.py does not know"
            )
    assert used > 10

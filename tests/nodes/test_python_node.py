"""`python`: what the code can do, and the limits that it really hits."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.nodes.host import Host, new_call, once, outputs, problems
from tests.tasks.workshop import eventually
from tradewind.flows.node_errors import (
    NodeException,
    NodeExecutionException,
    NodeResourceException,
    NodeTimeoutException,
    NodeValidationException,
)
from tradewind.nodes import python_node, python_sandbox
from tradewind.nodes.python_process import _CHILD, MAX_PRINTED_BYTES


@pytest.fixture(autouse=True)
def code_nodes() -> Iterator[None]:
    before = python_node.is_allowed()
    python_node.allow(True)
    yield
    python_node.allow(before)


async def run(code: str, inputs: dict[str, Any] | None = None, host: Host | None = None, **config: Any) -> Any:
    return await outputs("python", {"code": code, **config}, inputs or {}, host)


async def failure(code: str, **config: Any) -> NodeException:
    with pytest.raises(NodeException) as caught:
        await run(code, **config)
    return caught.value


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Permissions keep nobody out of it."""
    with tempfile.TemporaryDirectory(prefix="tradewind-open-") as name:
        os.chmod(name, 0o777)
        yield Path(name)


def folders() -> list[str]:
    """Those of this process; other test processes have theirs."""
    return [name for name in os.listdir(tempfile.gettempdir()) if name.startswith(f"tradewind-code-{os.getpid()}-")]


def processes() -> list[psutil.Process]:
    return [child for child in psutil.Process().children(recursive=True) if _CHILD in child.cmdline()]


async def test_code_is_off_until_it_is_allowed() -> None:
    python_node.allow(False)
    code = "def run(inputs):\n    return 1"
    assert "flows.code_nodes" in str(await failure(code))
    assert [p.code for p in problems("python", {"code": code})] == ["code_nodes_off"]


async def test_what_run_returns_is_sent() -> None:
    assert await run("def run(inputs):\n    return inputs['a'] + 1", {"a": 2}) == {"result": 3}
    assert await run("def run(inputs): pass") == {"result": None}


async def test_the_entries_of_a_dict_are_also_handles() -> None:
    code = "def run(inputs):\n    return {'low': 1, 'high': [2], 'not a handle': 3}"
    whole = {"low": 1, "high": [2], "not a handle": 3}
    assert await run(code) == {"result": whole, "low": 1, "high": [2]}
    assert await run(code, outputs=["low"]) == {"low": 1}
    assert "no other" in str(await failure(code, outputs=["low", "other"]))


async def test_code_may_use_the_standard_library() -> None:
    code = """
import datetime, statistics, re
from decimal import Decimal

def half(x):
    return x / 2

def run(inputs):
    datetime.datetime.strptime("2020", "%Y")
    return half(statistics.mean(inputs["prices"])), str(Decimal("0.1")), re.sub("a", "b", "aé")
"""
    assert await run(code, {"prices": [1, 3]}) == {"result": [1.0, "0.1", "bé"]}


async def test_prints_go_to_the_log() -> None:
    host = Host()
    code = "import sys\ndef run(inputs):\n    print('hello'); print('oops', file=sys.stderr)\n    return 1"
    assert await run(code, host=host) == {"result": 1}
    assert len(host.logs) == 1
    assert sorted(host.logs[0][1].splitlines()) == ["hello", "oops"]


@pytest.mark.parametrize(
    ("code", "line", "said"),
    [
        ("def run(inputs):\n    x = 0\n    return 1 / x", 3, "ZeroDivisionError: division by zero"),
        ("import no_such_module\ndef run(inputs): pass", 1, "ModuleNotFoundError"),
        ("def run(inputs):\n    retrn 1", 2, "SyntaxError: invalid syntax"),
        ("import json\ndef run(inputs):\n    return json.loads('{')", 3, "JSONDecodeError"),
        ("def run(inputs):\n    return run(inputs)", 2, "RecursionError"),
        ("import sys\ndef run(inputs):\n    sys.exit('bye')", 3, "SystemExit: bye"),
    ],
)
async def test_an_error_names_the_line_of_the_users_code(code: str, line: int, said: str) -> None:
    text = str(await failure(code))
    assert f"line {line} of the code of node 'n'" in text
    assert f"`{code.splitlines()[line - 1].strip()}`" in text
    assert said in text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def run(inputs): return {1, 2}", "NotJson"),
        ("def run(inputs): return float('nan')", "NotJson"),
        ("x = 1", "defines no function run"),
        ("import os\ndef run(inputs): os._exit(3)", "ended with code 3"),
        ("import os, signal\ndef run(inputs): os.kill(os.getpid(), signal.SIGSEGV)", "code -11"),
        ("import os\ndef run(inputs):\n    os.write(3, b'!')", "did not answer in JSON"),
    ],
)  # fmt: skip
async def test_other_ways_to_fail_are_told_clearly(code: str, said: str) -> None:
    error = await failure(code)
    assert isinstance(error, NodeExecutionException)
    assert said in str(error)


@pytest.mark.parametrize("code", ["def run(inputs):\n    while True: pass", "import time\ndef run(i): time.sleep(60)"])
async def test_an_endless_loop_is_killed(code: str) -> None:
    began = time.monotonic()
    error = await failure(code, timeout=0.7)
    assert isinstance(error, NodeTimeoutException)
    assert "0.7 s" in str(error)
    assert time.monotonic() - began < 5
    assert not processes()
    assert not folders()


@pytest.mark.parametrize(
    "body",
    ["x = bytearray(10**10)", "x = []\n    while True: x.append('a' * 1000)", "x = {}\n    while True: x[len(x)] = {}"],
)
async def test_a_memory_bomb_hits_its_bound(body: str) -> None:
    error = await failure(f"def run(inputs):\n    {body}", memory_mb=128, timeout=60)
    assert isinstance(error, NodeResourceException)
    assert "more than 128 MB" in str(error)
    assert "line " in str(error)


@pytest.mark.parametrize(
    "body",
    [
        "while True: os.fork()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "subprocess.run(['/bin/true'])",
        "threading.Thread(target=print).start()",
    ],
)
async def test_code_starts_no_process_and_no_thread(body: str) -> None:
    error = await failure(f"import os, subprocess, threading\ndef run(inputs):\n    {body}")
    assert "Resource temporarily unavailable" in str(error) or "can't start new thread" in str(error)
    assert not processes()


async def test_a_huge_result_is_refused() -> None:
    assert "at most 1000000" in str(await failure("def run(inputs): return 'x' * 5_000_000"))


async def test_a_flood_of_prints_is_cut() -> None:
    host = Host()
    code = "def run(inputs):\n    for _ in range(100_000): print('x' * 99)\n    return 1"
    assert await run(code, host=host, timeout=60) == {"result": 1}
    assert len(host.logs[0][1]) <= MAX_PRINTED_BYTES + 10


async def test_a_flood_on_the_answer_is_cut() -> None:
    """Whoever finds the pipe can write to it, but not fill our memory."""
    code = "import os\ndef run(inputs):\n    while True: os.write(3, b'x' * 65536)"
    error = await failure(code, timeout=1)
    assert isinstance(error, NodeExecutionException)


async def test_files_are_bounded() -> None:
    assert "File too large" in str(
        await failure("def run(inputs):\n    with open('f', 'wb') as f:\n        while True: f.write(b'x' * 10**6)")
    )
    assert "Too many open files" in str(
        await failure("def run(inputs):\n    x = [open('/dev/null') for _ in range(99)]")
    )


async def test_code_finds_an_empty_folder_and_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_TEST_SECRET", "secret")
    code = """
import os, sys
def run(inputs):
    open("mine", "w").close()
    return {"env": sorted(os.environ), "cwd": os.getcwd(), "files": os.listdir("."), "path": sys.path,
            "fds": sum(1 for fd in range(64) if is_open(fd))}

def is_open(fd):
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False
"""
    found = (await run(code))["result"]
    assert set(found["env"]) <= {"HOME", "TMPDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "LC_CTYPE"}
    assert Path(found["cwd"]).name.startswith("tradewind-code-")
    assert found["files"] == ["mine"]
    assert "" not in found["path"] and found["cwd"] not in found["path"]
    assert found["fds"] < 15
    assert not folders()


async def test_limits_cannot_be_raised_again() -> None:
    code = "import resource\ndef run(inputs): resource.setrlimit(resource.RLIMIT_AS, (-1, -1))"
    assert "ValueError" in str(await failure(code))


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes somebody else")
async def test_code_of_a_root_station_is_not_root() -> None:
    code = "import os\ndef run(inputs): return [os.getuid(), os.geteuid(), os.getgid(), os.getgroups()]"
    assert (await run(code))["result"] == [65534, 65534, 65534, []]
    assert "PermissionError" in str(await failure("def run(inputs): open('/etc/shadow')"))
    assert "PermissionError" in str(await failure("import os\ndef run(inputs): os.setuid(0)"))


WALLED = pytest.mark.skipif(
    not (python_sandbox.landlock_version() and python_sandbox.has_seccomp()), reason="this kernel has no walls"
)


@WALLED
@pytest.mark.parametrize(
    "body",
    [
        "socket.create_connection(('127.0.0.1', {port}), 5)",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))",
        "socket.socket(socket.AF_UNIX).connect({unix!r})",
        "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
        "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', {unix!r})",
        "ctypes.CDLL(None, use_errno=True).syscall(425, 8, ctypes.create_string_buffer(120)) >= 0 or socket.socket()",
    ],
)
async def test_code_reaches_no_network_and_no_socket(body: str, open_folder: Path) -> None:
    met: list[str] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append("somebody")
        writer.close()

    unix = str(open_folder / "s")
    tcp, local = await asyncio.start_server(greet, "127.0.0.1", 0), await asyncio.start_unix_server(greet, unix)
    os.chmod(unix, 0o777)
    async with tcp, local:
        line = body.format(port=tcp.sockets[0].getsockname()[1], unix=unix)
        error = await failure(f"import ctypes, socket\ndef run(inputs):\n    {line}\n    return 1")
    assert "PermissionError" in str(error)
    assert not met


@WALLED
@pytest.mark.parametrize(
    "body",
    [
        "open({secret!r}).read()",
        "os.listdir({folder!r})",
        "open({folder!r} + '/new', 'w')",
        "os.unlink({secret!r})",
        "os.rename({secret!r}, 'mine')",
        "os.link({secret!r}, 'mine')",
        "os.symlink({secret!r}, 'mine'); open('mine')",
        "open('/proc/1/cmdline').read()",
        "open('/proc/{pid}/environ').read()",
        "open('/etc/passwd').read()",
        "os.execv('/bin/sh', ['sh', '-c', 'true'])",
        "[open(f'/proc/self/fd/{{n}}/' + '../' * 12 + {secret!r}[1:]) for n in range(20) if is_folder(n)] or refuse()",
        "os.kill({pid}, 0)",
        "os.kill(1, 0)",
        "ctypes.CDLL(None, use_errno=True).ptrace(16, {pid}, 0, 0) == 0 or refuse()",
    ],
)
async def test_code_reaches_no_file_and_no_process_of_others(body: str, open_folder: Path) -> None:
    """Whoever the station is: the files may be read and written by anybody."""
    secret = open_folder / "secret"
    secret.write_text("of the station")
    secret.chmod(0o666)
    line = body.format(secret=str(secret), folder=str(open_folder), pid=os.getpid())
    code = f"""
import ctypes, os, stat
def refuse(): raise PermissionError("refused")
def is_folder(fd):
    try: return stat.S_ISDIR(os.fstat(fd).st_mode)
    except OSError: return False
def run(inputs):
    {line}
    return 1
"""
    error = await failure(code)
    assert "PermissionError" in str(error) or "Invalid cross-device link" in str(error)
    assert secret.read_text() == "of the station"
    assert os.listdir(open_folder) == ["secret"]


@WALLED
async def test_code_behind_its_walls_still_works() -> None:
    code = """
import asyncio, os, signal, sqlite3, ssl, tempfile, zoneinfo, random, decimal, lzma
async def soon(): return await asyncio.sleep(0, "done")
def run(inputs):
    with tempfile.NamedTemporaryFile("w+") as file:
        file.write("x"); file.flush()
        os.makedirs("a/b"); os.rename("a/b", "c")
        assert open(file.name).read() == "x"
    db = sqlite3.connect("mine.db"); db.execute("create table t (x)"); db.commit()
    open("/dev/null", "w").write("x")
    os.kill(os.getpid(), 0)
    return [asyncio.run(soon()), len(os.urandom(4)), str(zoneinfo.ZoneInfo("Europe/Berlin"))]
"""
    assert (await run(code))["result"] == ["done", 4, "Europe/Berlin"]


async def test_root_without_walls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_sandbox, "landlock_version", lambda: 0)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    (found,) = problems("python", {"code": "def run(inputs): return 1"})
    assert found.code == "code_nodes_root"


async def test_a_cancelled_node_leaves_no_process() -> None:
    job = asyncio.create_task(once(new_call("python", {"code": "def run(i):\n    while True: pass"})))
    await eventually(lambda: bool(processes()))
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job
    assert not processes()
    assert not folders()


async def test_many_run_side_by_side() -> None:
    code = "def run(inputs): return inputs['i'] * 2"
    found = await asyncio.gather(*(run(code, {"i": i}, timeout=60) for i in range(20)))
    assert found == [{"result": 2 * i} for i in range(20)]


def test_bad_code_is_found_at_registration() -> None:
    for code, said in [
        ("def run(inputs):\n    retrn 1", "line 2: invalid syntax"),
        ("def main(inputs): pass", "def run(inputs)"),
        ("async def run(inputs): pass", "not `async def`"),
        ("x = " + "(" * 5000, "line 1"),
        ("a\0b", ""),
    ]:
        (found,) = problems("python", {"code": code})
        assert found.code == "bad_code" and found.path == "code"
        assert said in found.hint
    assert not problems("python", {"code": "def run(inputs):\n    return 1"})
    assert not problems("python", {"code": "from helpers import work\nrun = work"})


async def test_a_wrong_config_is_refused() -> None:
    for wrong in ({"timeout": 0}, {"memory_mb": 1}, {"outputs": ["not a handle"]}):
        with pytest.raises(NodeValidationException):
            await run("def run(inputs): pass", **wrong)

"""The process of one code node: limits itself, runs the code, answers in JSON. Not for import: started by file name.

In (stdin): {"code", "inputs", "limits": {"cpu_s", "memory_bytes", "file_bytes", "files", "answer_bytes"}}.
Out (what stdout was): {"value"} or {"error": {"type", "message", "line", "source"}}. Prints go to stderr.
It knows the standard library only, so that it starts quickly and works wherever the interpreter does.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
import sys
import types
from typing import Any

FILE = "<code>"
NOBODY = 65534
RESERVE_BYTES = 4 << 20
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


def confine(limits: dict[str, int]) -> None:
    """Give up what can be given up. Order matters: another user first, because that forgets the death signal.

    Raises OSError when it cannot be done. Code of a root station is not run without the walls: the handles by which it
    finds its libraries lead everywhere.
    """
    sandbox = load_sandbox()
    is_root = os.getuid() == 0
    ruleset = sandbox.prepare_files(os.getcwd())
    if is_root and (ruleset < 0 or not sandbox.has_seccomp()):
        raise OSError("this kernel has no Landlock or seccomp, and the station runs as root")
    if is_root:  # for root, limits are no limits
        keep_libraries()
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    bounds = {
        resource.RLIMIT_CPU: limits["cpu_s"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: limits["files"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,  # counts all processes of the user, so with 0 it can start none, nor a thread
        resource.RLIMIT_AS: limits["memory_bytes"],
    }
    for what, most in bounds.items():
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # else its own /proc/self/fd is closed to it
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a worker that is killed leaves nothing behind
        if ruleset >= 0:
            sandbox.shut_files(ruleset)
        if sandbox.has_seccomp():
            sandbox.shut_calls()


def load_sandbox() -> Any:
    """The module beside this file: its folder is not on the path."""
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_sandbox.py")
    spec = importlib.util.spec_from_file_location("python_sandbox", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep_libraries() -> None:
    """Reach the libraries through open folders: the way to them may lead through root's home, closed to others."""
    moved = {}
    for folder in sys.path:
        if os.path.isdir(folder):
            moved[folder] = f"/proc/self/fd/{os.open(folder, os.O_RDONLY | os.O_DIRECTORY)}"
    for module in list(sys.modules.values()):  # packages that are loaded look for their other parts by themselves
        for folder in getattr(module, "__path__", ()):
            parent, _, name = folder.rpartition("/")
            if parent in moved:
                module.__path__ = [f"{moved[parent]}/{name}"]
    sys.path[:] = [moved.get(folder, folder) for folder in sys.path]
    sys.path_importer_cache.clear()


def run(code: str, inputs: dict[str, Any]) -> Any:
    module = types.ModuleType("__code__")
    exec(compile(code, FILE, "exec", dont_inherit=True), module.__dict__)
    function = module.__dict__.get("run")
    if not callable(function):
        raise TypeError("the code defines no function run(inputs)")
    return function(inputs)


def described(error: BaseException, code: str) -> dict[str, Any]:
    """What went wrong, and in which line of the user's code: the innermost that is his."""
    line = 0
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line, message = error.lineno or 0, error.msg
    else:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == FILE:
                line = trace.tb_lineno
            trace = trace.tb_next
        try:
            message = str(error)
        except Exception:  # noqa: BLE001 — the fence around user code: its __str__
            message = "(its message cannot be read)"
    lines = code.splitlines()
    source = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return {"type": type(error).__name__, "message": message[:2000], "line": line, "source": source[:200]}


def failure(kind: str, message: str) -> bytes:
    return json.dumps({"error": {"type": kind, "message": message, "line": 0, "source": ""}}).encode()


def answer_of(request: dict[str, Any]) -> bytes:
    reserve = [bytearray(RESERVE_BYTES)]
    code = request["code"]
    try:
        value = run(code, request["inputs"])
    except BaseException as error:  # noqa: BLE001 — the fence around user code; the parent records it
        reserve.clear()  # there must be room to say that there is none
        answer = {"error": described(error, code)}
        error.__traceback__ = None
        return json.dumps(answer).encode()
    try:
        data = json.dumps({"value": value}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError, MemoryError) as error:
        reserve.clear()
        return failure("NotJson", str(error)[:2000])
    most = request["limits"]["answer_bytes"]
    if len(data) > most:
        return failure("TooLarge", f"the result has {len(data)} bytes of JSON; at most {most} are kept")
    return data


def main() -> None:
    request = json.load(sys.stdin.buffer)
    answers = os.dup(1)
    os.dup2(2, 1)
    try:
        confine(request["limits"])
    except OSError as error:
        data = failure("NotConfined", str(error))
    else:
        data = answer_of(request)
    sys.stdout.flush()
    while data:
        data = data[os.write(answers, data) :]
    os._exit(0)  # what the code left for the end of the process (atexit, __del__) shall not run


if __name__ == "__main__":
    main()

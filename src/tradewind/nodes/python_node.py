"""`python`: code of the flow's author, in a limited process of its own. Off until the station allows it."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from typing import Annotated, Any

import structlog
from msgspec import Meta

from tradewind.errors import Problem
from tradewind.flows.node import Node, Output, node
from tradewind.flows.node_errors import (
    NodeExecutionException,
    NodeResourceException,
    NodeTimeoutException,
    NodeValidationException,
)
from tradewind.ids import ID
from tradewind.nodes import python_sandbox as sandbox
from tradewind.nodes.python_process import CodeError, run_code

MAX_CHARACTERS = 50_000
MAX_HANDLES = 64
OFF = "code nodes are off; set flows.code_nodes = true if you trust everyone who may register flows"
AS_ROOT = "as root, code nodes need a Linux kernel with Landlock and seccomp; run the station as an ordinary user"
_allowed = False
log = structlog.get_logger(__name__)


def allow(is_allowed: bool) -> None:
    """Let code nodes run in this process, or not: the setting `flows.code_nodes`, told by the station."""
    global _allowed
    _allowed = is_allowed
    if is_allowed and not (sandbox.landlock_version() and sandbox.has_seccomp()):
        log.warning(
            "code_nodes_unwalled", landlock=sandbox.landlock_version(), seccomp=sandbox.has_seccomp(),
            hint="code of flows may read the station's files or use the network; Linux with Landlock keeps it away",
        )  # fmt: skip


def is_allowed() -> bool:
    return _allowed


@node("python", category="code", open_inputs=True, open_outputs=True)
class PythonNode(Node):
    """Runs Python code in a limited process of its own. Off unless the setting `flows.code_nodes` is on.

    The code defines `run(inputs)`. What that returns is sent on `result`; the entries of a dict also on handles of
    their names. Prints go to the flow's log.
    """

    code: Annotated[str, Meta(min_length=1, max_length=MAX_CHARACTERS, description="Must define def run(inputs).")]
    outputs: Annotated[
        tuple[Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,64}$")], ...],
        Meta(
            max_length=MAX_HANDLES, description="If given, run returns a dict with these keys, and only they are sent."
        ),
    ] = ()
    timeout: Annotated[float, Meta(ge=0.1, le=600, description="How long it may run, in seconds.")] = 10.0
    memory_mb: Annotated[int, Meta(ge=64, le=4096, description="How much memory it may take, in MB.")] = 256
    result: Output[Any] = Output(description="What run(inputs) returned.")

    async def execute(self) -> None:
        if not _allowed:
            raise NodeValidationException(f"node {self.node_id!r}: {OFF}", ["code"], self.node_id, hint=OFF)
        answer = await run_code(self.code, self.inputs, timeout_s=self.timeout, memory_mb=self.memory_mb)
        if answer.printed.strip():
            await self.persist_log(answer.printed.rstrip())
        if answer.error is not None:
            raise self._failure(answer.error)
        for handle, value in self._sent(answer.value).items():
            await self.send_signal(handle, value)

    def _sent(self, value: Any) -> dict[str, Any]:
        if not self.outputs:
            parts = value if isinstance(value, dict) and len(value) <= MAX_HANDLES else {}
            return {key: part for key, part in parts.items() if ID.fullmatch(key)} | {"result": value}
        missing = [name for name in self.outputs if not isinstance(value, dict) or name not in value]
        if missing:
            raise NodeExecutionException(
                f"the code of node {self.node_id!r} returned no {', '.join(missing)}", self.node_id,
                hint="run(inputs) must return a dict with the keys that `outputs` names",
            )  # fmt: skip
        return {name: value[name] for name in self.outputs}

    def _failure(self, error: CodeError) -> NodeExecutionException:
        where = f"line {error.line} of the code" if error.line else "the code"
        source = f" (`{error.source}`)" if error.source else ""
        said = f": {error.message}" if error.message else ""
        message = f"{where} of node {self.node_id!r} failed{source}: {error.type}{said}"
        if error.type == "TimedOut":
            return NodeTimeoutException(f"the code of node {self.node_id!r}{said}", self.timeout, self.node_id)
        if error.type == "MemoryError":
            return NodeResourceException(f"{message}: more than {self.memory_mb} MB", "memory", self.node_id)
        if error.type == "NotConfined":
            message = f"the code of node {self.node_id!r} was not run, because it could not be limited{said}"
            return NodeValidationException(message, ["code"], self.node_id, hint="run the station as an ordinary user")
        if error.type == "SyntaxError":
            return NodeValidationException(message, ["code"], self.node_id)
        return NodeExecutionException(message, self.node_id)

    @classmethod
    def check_config(cls, config: dict[str, Any], inputs: Sequence[str]) -> list[Problem]:
        if not _allowed:
            return [Problem("code_nodes_off", "code", OFF)]
        if os.getuid() == 0 and not (sandbox.landlock_version() and sandbox.has_seccomp()):
            return [Problem("code_nodes_root", "code", AS_ROOT)]
        code = config.get("code")
        return _code_problems(code) if isinstance(code, str) and len(code) <= MAX_CHARACTERS else []


def _code_problems(code: str) -> list[Problem]:
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return [Problem("bad_code", "code", f"line {error.lineno}: {error.msg}")]
    except (ValueError, RecursionError, MemoryError) as error:
        return [Problem("bad_code", "code", f"it cannot be read: {error}")]
    for part in tree.body:
        if isinstance(part, ast.AsyncFunctionDef) and part.name == "run":
            return [Problem("bad_code", "code", f"line {part.lineno}: run must be a plain `def`, not `async def`")]
    named = {part.name for part in tree.body if isinstance(part, ast.FunctionDef)} | {
        name.id for part in tree.body for name in ast.walk(part) if isinstance(name, ast.Name)
    }
    return [] if "run" in named else [Problem("bad_code", "code", "define a function: def run(inputs): …")]

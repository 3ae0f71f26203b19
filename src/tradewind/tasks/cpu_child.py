"""The child process of a CPU-bound task: reads calls from stdin, answers on the pipe that stdout was. Not for import.

Frame: 4 bytes of length, then JSON. In: a Call. Out: an Answer.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import struct
import sys
from typing import BinaryIO

import msgspec

from tradewind.tasks.executor import BadArguments, Raised, call, converted, raised_by
from tradewind.tasks.function import registry
from tradewind.tasks.record import Request
from tradewind.tasks.running import Running, enter

_LENGTH = struct.Struct(">I")
PR_SET_PDEATHSIG = 1


class Call(msgspec.Struct):
    id: str
    type: str
    attempt: int
    token: str
    request: Request


class Answer(msgspec.Struct, omit_defaults=True):
    """How the call with that token ended; or, while it runs, how far it is."""

    token: str
    progress: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"null")
    raised: Raised | None = None


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    decode = msgspec.json.Decoder(Call).decode

    def send(answer: Answer) -> None:
        data = msgspec.json.encode(answer)
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()

    def report(state: Running, value: bytes) -> None:
        send(Answer(state.token, msgspec.Raw(value)))

    while header := calls.read(_LENGTH.size):
        told = decode(calls.read(_LENGTH.unpack(header)[0]))
        state = Running(told.id, told.type, told.attempt, told.token, report)
        send(run(told, state))


def run(told: Call, state: Running) -> Answer:
    enter(state)
    try:
        function = registry.get(told.type)
        if function is None:
            raise BadArguments(f"the child process has no function for the type {told.type!r}")
        args, kwargs = converted(function, told.request)
    except Exception as error:  # noqa: BLE001 — the fence around user code: its types convert the arguments
        return Answer(told.token, raised=raised_by(error))
    said = call(function.function, args, kwargs)
    if isinstance(said, Raised):
        return Answer(told.token, raised=said)
    return Answer(told.token, result=msgspec.Raw(said))


def main() -> None:
    if sys.platform == "linux":  # a worker that is killed must not leave its computation behind
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Whatever the function prints goes to stderr, what it reads is empty, what it closes is not ours.
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    for module in sys.argv[1:]:
        importlib.import_module(module)
    serve(calls, answers)


if __name__ == "__main__":
    main()

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

from tradewind.tasks.executor import BadArguments, converted, encoded, failure_of, retry_ms
from tradewind.tasks.function import registry
from tradewind.tasks.record import Failure, Request
from tradewind.tasks.running import Abort, Retry, Running, enter

_LENGTH = struct.Struct(">I")
PR_SET_PDEATHSIG = 1


class Call(msgspec.Struct):
    id: str
    type: str
    attempt: int
    token: str
    request: Request


class Answer(msgspec.Struct, omit_defaults=True):
    """How the call ended; or, while it runs, how far it is."""

    progress: msgspec.Raw = msgspec.Raw(b"")
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: Failure | None = None
    is_retryable: bool = True
    asks_again: bool = False  # it raised Retry
    delay_ms: int | None = None


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    decode = msgspec.json.Decoder(Call).decode

    def send(answer: Answer) -> None:
        data = msgspec.json.encode(answer)
        answers.write(_LENGTH.pack(len(data)) + data)
        answers.flush()

    while header := calls.read(_LENGTH.size):
        call = decode(calls.read(_LENGTH.unpack(header)[0]))
        state = Running(call.id, call.type, call.attempt, call.token, lambda _, value: send(Answer(msgspec.Raw(value))))
        send(run(call, state))


def run(call: Call, state: Running) -> Answer:
    enter(state)
    try:
        function = registry.get(call.type)
        if function is None:
            raise BadArguments(f"the child process has no function for the type {call.type!r}")
        args, kwargs = converted(function, call.request)
        return Answer(result=msgspec.Raw(encoded(function.function(*args, **kwargs))))
    except Retry as error:
        return Answer(error=failure_of(error), asks_again=True, delay_ms=retry_ms(error.delay))
    except (Exception, SystemExit) as error:  # noqa: BLE001 — the fence around user code; the parent records it
        return Answer(error=failure_of(error), is_retryable=not isinstance(error, (Abort, BadArguments)))


def main() -> None:
    if sys.platform == "linux":  # a worker that is killed must not leave its computation behind
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # Whatever the function prints goes to stderr; the pipe stays ours.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.path.insert(0, os.getcwd())
    for module in sys.argv[1:]:
        importlib.import_module(module)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()

"""What a caller sends: a bounded body, strict JSON, known query parameters. The rest is refused with its reason."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from starlette.requests import Request

from tradewind.api.errors import Refused
from tradewind.errors import Invalid, Problem
from tradewind.numerals import read_number
from tradewind.offload import offload
from tradewind.problems import Problems, unknown_words

#: Deeper data would overrun recursive readers further in.
MAX_DEPTH = 100
#: Longer bodies are read in a thread, beside other requests.
LONG = 50_000
#: Things that one request puts, and names that it removes.
MOST_ITEMS = 100_000
#: Bytes that are decoded with one call.
PIECE = 1_000_000
#: What a JSON number may be so that Redis, both SQL databases and other languages keep it.
_INT_RANGE = range(-(2**63), 2**64)
_LONG_NUMBER = re.compile(rb"\d{19}")
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_BYTE = re.compile(r" ?\(byte (\d+)\)")
_NAME = re.compile(rb'\s*"(?:[^"\\]|\\.)*"\s*:\s*')
_COMMA = re.compile(rb"\s*,?\s*")
_decode = msgspec.json.Decoder().decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


async def read_json(request: Request, max_bytes: int) -> Any:
    """The body as plain data. Raises Refused: 415 not JSON by its type, 413 too large, 400 not strict JSON."""
    data = await read_json_bytes(request, max_bytes)
    return await decode_off_loop(data)


async def read_json_bytes(request: Request, max_bytes: int) -> bytes:
    """The body as it came, for who decodes it in a way of his own. Raises Refused: 415, 413."""
    _check_type(request)
    return await read_bytes(request, max_bytes)


def is_short(request: Request) -> bool:
    """Whether the body is said to be so short that it is looked through at once."""
    declared = request.headers.get("content-length", "")
    return declared.isdecimal() and int(declared[:20]) < LONG


async def read_json_or_none(request: Request, max_bytes: int) -> Any:
    """As `read_json`; None when there is no body at all, whatever it is declared as."""
    data = await read_bytes(request, max_bytes)
    if not data:
        return None
    _check_type(request)
    return await decode_off_loop(data)


async def decode_off_loop(data: bytes) -> Any:
    """As `decode_strictly`; a long one beside other requests."""
    return decode_strictly(data) if len(data) < LONG else await offload(decode_strictly, data)


def _check_type(request: Request) -> None:
    kind, _, rest = request.headers.get("content-type", "").partition(";")
    kind, charset = kind.strip().lower(), rest.replace('"', "").strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    # What `curl -d` and bare clients send by default. The door has turned away writes of other sites before this.
    is_json = is_json or kind in ("", "application/x-www-form-urlencoded")
    if not is_json or (charset.startswith("charset=") and charset not in ("charset=utf-8", "charset=utf8")):
        raise Refused(
            415,
            f"the body is declared as {kind[:100] or 'nothing'}",
            code="unsupported_media_type",
            hint="send UTF-8 JSON with the header Content-Type: application/json",
        )


async def read_bytes(request: Request, max_bytes: int) -> bytes:
    """At most `max_bytes`, whatever Content-Length says; the rest is not kept."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > max_bytes:
        raise _too_large(max_bytes)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_large(max_bytes: int) -> Refused:
    return Refused(
        413,
        f"the body has more than {max_bytes} bytes",
        code="body_too_large",
        hint="send less at once, or raise api.max_body_bytes",
    )


def decode_strictly(data: bytes) -> Any:
    """UTF-8 JSON without NaN, lone surrogates, doubled names, numbers that others would round, or absurd nesting."""
    try:
        value = _decode_pieces(data)
    except RecursionError as error:
        raise _too_deep("JSON") from error
    except UnicodeDecodeError as error:
        raise _bad_json("there is text that is not UTF-8", "send UTF-8, without lone surrogates") from error
    except msgspec.DecodeError as error:
        raise _malformed(data, str(error)) from error
    except ValueError as error:  # more digits than Python reads
        raise _bad_json("a number is out of range", "send whole numbers of at most 64 bits") from error
    check_tree(value, "JSON", has_odd_numbers=_LONG_NUMBER.search(data) is not None)
    return value


def _decode_pieces(data: bytes | msgspec.Raw) -> Any:
    """A call into C holds the whole process, so one never gets much more than `PIECE` bytes to decode."""
    if len(memoryview(data)) <= PIECE:
        return _decode_whole(bytes(data))
    match bytes(memoryview(data)[:100]).lstrip()[:1]:
        case b"{":
            parts = _decode_object(data)
            _check_names(bytes(data), parts)
            return {name: _decode_pieces(part) for name, part in parts.items()}
        case b"[":
            return [item for piece in pieces_of(_decode_list(data)) for item in _decode_piece(piece)]
    return _decode(data)


def pieces_of(parts: list[msgspec.Raw]) -> Iterator[bytes]:
    """Lists of neighbours that are small enough to be decoded with one call; a large one by itself."""
    group: list[msgspec.Raw] = []
    size = 0
    for part in parts:
        length = len(memoryview(part)) + 1  # with its comma
        if group and size + length > PIECE:
            yield _list(group)
            group, size = [], 0
        group.append(part)
        size += length
    if group:
        yield _list(group)


def _list(parts: list[msgspec.Raw]) -> bytes:
    return b"[%s]" % b",".join(bytes(part) for part in parts)


def _decode_piece(piece: bytes) -> list[Any]:
    if len(piece) <= PIECE * 2:
        found: list[Any] = _decode_whole(piece)
        return found
    (only,) = _decode_list(piece)
    return [_decode_pieces(only)]


def _decode_whole(data: bytes) -> Any:
    value = _decode(data)
    json.loads(data, object_pairs_hook=_no_doubles)  # msgspec would silently keep the last of two
    return value


def _check_names(data: bytes, parts: Mapping[str, msgspec.Raw]) -> None:
    """Follows the names of a long object through its text; where they part, one stands twice."""
    at = data.index(b"{") + 1
    for part in parts.values():
        start = _NAME.match(data, at)
        if start is None or not data.startswith(memoryview(part).tobytes()[:64], start.end()):
            json.loads(data, object_pairs_hook=_no_doubles)  # says which
            return
        at = start.end() + len(memoryview(part))
        at = _COMMA.match(data, at).end()  # type: ignore[union-attr]
    if data[at : at + 1] != b"}":
        json.loads(data, object_pairs_hook=_no_doubles)


def check_tree(value: Any, kind: str, *, has_odd_numbers: bool = True) -> None:
    """Raises Refused when it is nested too deeply, or has a number that not everybody can keep. `kind`: JSON or YAML;
    `has_odd_numbers`: whether there may be any."""
    level = [value]
    for _ in range(MAX_DEPTH):
        if has_odd_numbers and any(_is_odd(item) for item in level):
            raise _bad_body(kind, "a number is out of range", "send whole numbers of at most 64 bits, or send text")
        level = [
            inner
            for item in level
            if type(item) in (dict, list)
            for inner in (item.values() if type(item) is dict else item)
        ]
        if not level:
            return
    raise _too_deep(kind)


def _is_odd(item: Any) -> bool:
    return item not in _INT_RANGE if type(item) is int else type(item) is float and not math.isfinite(item)


def _no_doubles(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _bad_json(f"the name {name[:64]!r} stands twice in one object", "give each name once")


def _malformed(data: bytes, message: str) -> Refused:
    if not data.strip():
        return Refused(400, "the body is empty", code="bad_json", hint="send strict JSON")
    found = _BYTE.search(message)
    what = _BYTE.sub("", message).removeprefix("JSON is malformed: ").lower()
    if found is not None:
        before = data[: int(found[1])]
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        hint = f"look at byte {found[1]} (line {line}, column {column})"
    elif "truncated" in what:
        hint = "look at the end"
        if _SURROGATE.search(data):  # the decoder runs over the end in search of the other half
            hint += ", and for a lone surrogate such as \\ud800"
    else:
        hint = "send strict JSON"
    return _bad_json(what, hint)


def _too_deep(kind: str) -> Refused:
    return _bad_body(kind, "it is nested too deeply", f"nest at most {MAX_DEPTH} levels")


def _bad_json(what: str, hint: str) -> Refused:
    return _bad_body("JSON", what, hint)


def _bad_body(kind: str, what: str, hint: str) -> Refused:
    return Refused(400, f"the body is not valid {kind}: {what}", code=f"bad_{kind.lower()}", hint=hint)


async def read_object(request: Request, max_bytes: int, known: frozenset[str]) -> dict[str, Any]:
    """A JSON object with no other fields than these. Raises Refused and Invalid."""
    return check_object(await read_json(request, max_bytes), known)


def check_object(value: Any, known: frozenset[str]) -> dict[str, Any]:
    """Raises Invalid unless it is an object with no other fields than these."""
    if not isinstance(value, dict):
        problem = Problem("not_an_object", "$", "give an object")
        raise Invalid("the body is not a JSON object", code=problem.code, hint=problem.hint, problems=[problem])
    listed = ", ".join(sorted(known))
    problems = Problems()
    for name in unknown_words(value, known, problems):
        problems.append(Problem("unknown_field", name[:64], f"known fields: {listed}"))
    if problems:
        raise Invalid("the body has unknown fields", code="unknown_field", hint="see problems", problems=problems)
    return value


def too_many(given: Mapping[str, Any], most: int = MOST_ITEMS) -> list[Problem]:
    """Lists that are longer than anybody needs: to be refused before anybody goes through them."""
    return [
        Problem("too_many", name, f"{len(each)} are too many: at most {most} at once")
        for name, each in given.items()
        if isinstance(each, list) and len(each) > most
    ]


def check_query(request: Request, known: frozenset[str], repeated: frozenset[str] = frozenset()) -> None:
    """A misspelt filter must not silently match everything."""
    names = [name for name, _ in request.query_params.multi_items()]
    problems = Problems()
    listed = ", ".join(sorted(known)) or "none"
    for name in unknown_words(dict.fromkeys(names), known, problems):
        problems.append(Problem("unknown_parameter", name[:64], f"known parameters: {listed}"))
    problems += [
        Problem("doubled_parameter", name, "give it once") for name in known - repeated if names.count(name) > 1
    ]
    if problems:
        raise Invalid("the query is not valid", hint=problems[0].hint, problems=problems)


def query_number(request: Request, name: str, low: float, high: float) -> float | None:
    """None when absent. Raises Invalid."""
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        value = read_number(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        problem = Problem("out_of_range", name, f"give a number from {low:g} to {high:g}")
        raise Invalid("the query is not valid", hint=problem.hint, problems=[problem])
    return value


def query_limit(request: Request, high: int, default: int = 50) -> int:
    value = query_number(request, "limit", 1, high)
    if value is not None and not value.is_integer():
        problem = Problem("out_of_range", "limit", "give a whole number")
        raise Invalid("the query is not valid", hint=problem.hint, problems=[problem])
    return default if value is None else int(value)

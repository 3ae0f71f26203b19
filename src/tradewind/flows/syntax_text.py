"""JSON or YAML text of a flow as a plain dict, or an error with its line and column.

YAML is read as JSON with comments: `on`, `no`, `1:30` and dates stay text, keys are always text, and a document cannot
grow by aliases of aliases. A key that stands twice in one object is an error in both.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tradewind.errors import Invalid, Problem

#: So many values may a YAML document hold once its aliases are written out.
MAX_VALUES = 3_000_000
MAX_DEPTH = 100

_TAG = "tag:yaml.org,2002:"
_CORE = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map")}
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, but not everywhere


class _Loader(_Base):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 — the name and shape that yaml looks for
    yaml_constructors = {  # noqa: RUF012
        tag: maker for tag, maker in _Base.yaml_constructors.items() if tag is None or tag in _CORE
    }


for _name, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _keys = ["" if first == "\0" else first for first in _first]
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _keys)


def read_text(text: str | bytes, filename: str = "") -> dict[str, Any]:
    """The document of a flow, not checked. Raises Invalid; `not_an_object` when it is none."""
    document = read_any(text, filename)
    if not isinstance(document, dict):
        kind = "nothing" if document is None else f"a {type(document).__name__}"
        raise _invalid(
            filename, "not_an_object", f"it holds {kind}; a flow is an object with interval, nodes and edges"
        )
    return document


def read_any(text: str | bytes, filename: str = "") -> Any:
    """The value that the text holds. JSON or YAML: the end of the file name decides, else the text. Raises Invalid."""
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _invalid(filename, "bad_text", f"byte {error.start} is not UTF-8") from error
    text = text.removeprefix("\ufeff")
    lower = filename.lower()
    if lower.endswith(".json") or (text.lstrip()[:1] == "{" and not lower.endswith((".yaml", ".yml"))):
        return _read_json(text, filename)
    return _read_yaml(text, filename)


def _read_json(text: str, filename: str) -> Any:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise _invalid(filename, "doubled_key", f"the key {twice[:64]!r} stands twice in one object")
        return made

    def constant(word: str) -> Any:
        raise _invalid(filename, "not_finite", f"{word} is not JSON")

    try:
        return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        reason = f"line {error.lineno}, column {error.colno}: {error.msg}"
        raise _invalid(filename, "bad_json", reason) from error
    except (RecursionError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise _invalid(filename, "bad_json", str(error)) from error


def _read_yaml(text: str, filename: str) -> Any:
    loader = None
    try:
        _check_depth(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_nodes(node)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        code = "doubled_key" if isinstance(error, _DoubledKey) else "bad_yaml"
        raise _invalid(filename, code, f"{where}{error.problem or error.context}") from error
    except yaml.reader.ReaderError as error:
        before = text[: max(0, text.find(chr(error.character)))]  # its position counts bytes or characters, as it likes
        where = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
        raise _invalid(filename, "bad_yaml", f"{where}: {error.reason}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split()) or "it cannot be read"
        raise _invalid(filename, "bad_yaml", reason[:200]) from error
    finally:
        if loader is not None:
            loader.dispose()


def _check_depth(text: str) -> None:
    """libyaml builds nodes by recursion in C, so a document of a few kilobytes of `[` would end the process."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _marked(event, f"nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _DoubledKey(yaml.MarkedYAMLError):  # type: ignore[misc]
    pass


def _check_nodes(root: yaml.Node) -> None:
    """Keys become text and must differ; aliases may neither hold themselves nor blow the document up."""
    sizes: dict[int, int] = {}  # by id(): an aliased node is one object, reached several times
    open_nodes: set[int] = set()
    todo: list[tuple[yaml.Node, bool]] = [(root, False)]
    while todo:
        node, is_left = todo.pop()
        if id(node) in sizes:
            continue
        children = _children(node)
        if is_left:
            open_nodes.discard(id(node))
            size = 1 + sum(sizes[id(child)] for child in children)
            if size > MAX_VALUES:
                raise _marked(node, f"more than {MAX_VALUES} values once its aliases are written out")
            sizes[id(node)] = size
            continue
        open_nodes.add(id(node))
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
        todo.append((node, True))
        for child in children:
            if id(child) in open_nodes:
                raise _marked(child, "an alias that holds itself")
            todo.append((child, False))


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _check_keys(node: yaml.MappingNode) -> None:
    seen = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _marked(key, "a key must be text")
        if key.tag != _TAG + "merge":
            key.tag = _TAG + "str"
        if key.value in seen:
            raise _marked(key, f"the key {key.value[:64]!r} stands twice in one object", _DoubledKey)
        seen.add(key.value)


def _marked(place: Any, problem: str, kind: type[yaml.MarkedYAMLError] = yaml.MarkedYAMLError) -> Exception:
    error: Exception = kind(problem=problem, problem_mark=place.start_mark)
    return error


def _invalid(filename: str, code: str, reason: str) -> Invalid:
    hint = reason
    return Invalid(
        f"{filename or 'the flow'} cannot be read: {reason}", code=code, hint=hint, problems=[Problem(code, "$", hint)]
    )

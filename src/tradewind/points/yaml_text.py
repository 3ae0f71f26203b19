"""YAML read as JSON with comments, knowing the line of every value.

Only `true` and `false` are booleans, dates and `1:30` stay text, keys are text and stand once. Built from parser events
without recursion, so neither depth nor aliases of aliases can hurt.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from tradewind.errors import Invalid
from tradewind.points.tables import FileProblem

MAX_DEPTH = 100
#: So many values may a document hold once its aliases are written out.
MAX_VALUES = 5_000_000

_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is ten times as fast, but not everywhere
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {"": None, "~": None} | {
    spelled: value
    for word, value in (("null", None), ("true", True), ("false", False))
    for spelled in (word, word.capitalize(), word.upper())
}
_STEP = re.compile(r'\["?([^"\]]+)"?\]|([^.\[]+)')


@dataclass(slots=True)
class YamlText:
    """A document. `lines`: by `id` of each object and list, the line of each key or index."""

    value: Any = None
    lines: dict[int, dict[str | int, int]] = field(default_factory=dict)

    def line_of(self, path: str) -> int:
        """The line of `channels[2].parameters.port`, or of the nearest thing around it."""
        value, line = self.value, 1
        for match in _STEP.finditer(path):
            step: str | int = match[1] or match[2]
            if isinstance(value, list):
                step = int(step) if str(step).isdigit() else -1
            known = self.lines.get(id(value), {})
            if step not in known:
                break
            line = known[step]
            value = value[step]
        return line


class _Bad(Exception):
    def __init__(self, event: Any, problem: str, code: str = "bad_yaml") -> None:
        super().__init__(problem)
        self.line = event.start_mark.line + 1
        self.code = code


@dataclass(slots=True)
class _Frame:
    value: Any
    lines: dict[str | int, int]
    anchor: str | None
    start: int
    key: str | None = None
    merged: list[Any] = field(default_factory=list)


def read_yaml(text: str | bytes, filename: str) -> YamlText:
    """Raises Invalid, whose one problem has the path `filename:line`."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return _build(text)
    except UnicodeDecodeError as error:
        raise _invalid(filename, error.object.count(b"\n", 0, error.start) + 1, "bad_text", "not UTF-8") from error
    except _Bad as error:
        raise _invalid(filename, error.line, error.code, str(error)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise _invalid(filename, line, "bad_yaml", str(error.problem or error.context)) from error
    except yaml.YAMLError as error:
        raise _invalid(filename, 1, "bad_yaml", " ".join(str(error).split())[:200]) from error


def _build(text: str) -> YamlText:
    made = YamlText()
    frames: list[_Frame] = []
    anchors: dict[str, tuple[Any, int]] = {}
    count = documents = 0
    for event in yaml.parse(text, Loader=_Parser):
        if isinstance(event, yaml.ScalarEvent):
            count += 1
            value: Any = event.value
            if not (frames and isinstance(frames[-1].value, dict) and frames[-1].key is None):
                value = _scalar(event)
            if event.anchor:
                anchors[event.anchor] = (value, 1)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise _Bad(event, f"no anchor &{event.anchor} before this")
            value, size = anchors[event.anchor]
            count += size
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(frames) >= MAX_DEPTH:
                raise _Bad(event, f"nested more than {MAX_DEPTH} deep")
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
            _place(made, frames, event, value)
            frames.append(_Frame(value, made.lines.setdefault(id(value), {}), event.anchor, count))
            count += 1
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            frame = frames.pop()
            for other in frame.merged:
                for key, one in other.items():
                    frame.lines.setdefault(key, made.lines.get(id(other), {}).get(key, 0))
                    frame.value.setdefault(key, one)
            if frame.anchor:
                anchors[frame.anchor] = (frame.value, count - frame.start)
            continue
        elif isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise _Bad(event, "a second document begins here; keep one per file")
            continue
        else:
            continue
        if count > MAX_VALUES:
            raise _Bad(event, f"more than {MAX_VALUES} values once its aliases are written out")
        _place(made, frames, event, value)
    return made


def _place(made: YamlText, frames: list[_Frame], event: Any, value: Any) -> None:
    """Put a value where it belongs: as a key, under the key that came before, at the end of a list, or on top."""
    if not frames:
        made.value = value
        return
    frame, line = frames[-1], event.start_mark.line + 1
    if isinstance(frame.value, list):
        frame.lines[len(frame.value)] = line
        frame.value.append(value)
    elif frame.key is None:
        if not isinstance(value, str):
            raise _Bad(event, "a key must be text")
        if value in frame.value:
            raise _Bad(event, f"the key {value[:64]!r} stands twice in one object", "doubled_key")
        frame.key = value
        frame.lines[value] = line
    elif frame.key == "<<":
        others = value if isinstance(value, list) else [value]
        if not all(isinstance(other, dict) for other in others) or not isinstance(event, yaml.AliasEvent):
            raise _Bad(event, "<< takes an alias of an object: <<: *name")
        frame.merged.extend(others)
        frame.key = None
    else:
        frame.value[frame.key] = value
        frame.key = None


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is not None and not event.tag.startswith("tag:yaml.org,2002:"):
        raise _Bad(event, f"the tag {event.tag[:64]} is not known here")
    if not event.implicit[0] or event.style not in (None, ""):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789":
        if _INT.fullmatch(text) and len(text) < 1000:
            return int(text)
        if _FLOAT.fullmatch(text):
            if not math.isfinite(float(text)):
                raise _Bad(event, f"{text[:40]} is too large a number", "not_finite")
            return float(text)
        if _HEX.fullmatch(text):
            return int(text, 16)
    return text


def _invalid(filename: str, line: int, code: str, reason: str) -> Invalid:
    where = f"{filename}:{line}"
    problem = FileProblem(code, where, reason, filename, line, "")
    return Invalid(f"{where}: {reason}", code=code, hint=reason, problems=[problem])

"""Reading a policy: every problem at once, with its path; masked secrets are filled in from what is stored. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import msgspec

from tradewind.errors import Invalid, Problem
from tradewind.http_guard import Guard
from tradewind.ids import ID
from tradewind.masking import MASK, masked_target
from tradewind.notify.message import LEVELS, level_of
from tradewind.notify.policy import Match, Policy, QuietHours, Route, Step, Target
from tradewind.problems import Problems, closest, unknown_words

T = TypeVar("T", bound=msgspec.Struct)
MAX_TARGETS = 200
MAX_ROUTES = 1000
MAX_STEPS = 20
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS = frozenset({"content-type", "content-length", "host", "idempotency-key", "transfer-encoding", "connection"})


def read_policy(document: Any, stored: Policy, guard: Guard) -> Policy:
    """The policy that a document means. Raises Invalid with all its problems."""
    policy, problems = _Reader(stored, guard).read(document)
    if problems:
        first = problems[0]
        more = f" (and {problems.total - 1} more)" if problems.total > 1 else ""
        message = f"the notification policy is wrong at {first.path}: {first.hint}{more}"
        raise Invalid(message, code="bad_policy", hint="correct what is listed", problems=problems)
    return policy


class _Reader:
    def __init__(self, stored: Policy, guard: Guard) -> None:
        self._stored = stored
        self._guard = guard
        self.problems = Problems()

    def read(self, document: Any) -> tuple[Policy, Problems]:
        whole = self._fields(
            Policy, document, "", {"targets": Any, "routes": Any, "quiet_hours": Any, "escalation": Any}
        )
        targets: dict[str, Target] = {}
        for name, item in self._object(whole.get("targets"), "targets", MAX_TARGETS).items():
            targets[name] = self._target(name, item)  # a bad one, too, so that its routes are not called wrong
        routes = [
            self._route(item, f"routes[{i}]", targets)
            for i, item in enumerate(self._list(whole.get("routes"), "routes", MAX_ROUTES))
        ]
        steps = [
            self._step(item, f"escalation[{i}]", targets)
            for i, item in enumerate(self._list(whole.get("escalation"), "escalation", MAX_STEPS))
        ]
        for i in range(1, len(steps)):
            if steps[i].after_s <= steps[i - 1].after_s:
                self._add("not_later", f"escalation[{i}].after_s", "each step comes later than the one before")
        whole |= {"targets": targets, "routes": tuple(routes), "escalation": tuple(steps)}
        if whole.get("quiet_hours") is not None:
            whole["quiet_hours"] = self._quiet(whole["quiet_hours"], "quiet_hours")
        return Policy(**whole), self.problems

    def _target(self, name: str, item: Any) -> Target:
        path = f"targets.{name}"
        if not ID.fullmatch(name):
            self._add("bad_name", path, "1 to 64 letters, digits, _ or -")
        target = self._made(Target, {"url": ""}, self._fields(Target, item, path))
        target = self._with_secrets(target, self._stored.targets.get(name), path)
        scheme = target.url.partition("://")[0].lower() if "://" in target.url else ""
        if target.url and not scheme:
            self._add("bad_url", f"{path}.url", "an address looks like https://… or mailto://…")
        if scheme in ("http", "https"):
            self._webhook(target, path)
        elif target.headers:
            self._add("no_headers", f"{path}.headers", "only a webhook (http or https) takes headers")
        for header, value in target.headers.items():
            if not _HEADER.fullmatch(header) or header.lower() in _OURS:
                self._add(
                    "bad_header", f"{path}.headers.{header}", "another name: letters, digits, -; none that we set"
                )
            if not value.isascii() or not value.isprintable():
                self._add("bad_header", f"{path}.headers.{header}", "printable ASCII only")
        return target

    def _with_secrets(self, target: Target, stored: Target | None, path: str) -> Target:
        """A masked part stands for the stored one, but never at another address: it would be sent there."""
        if MASK in target.url:
            if stored is None or target.url not in (MASK, masked_target(stored.url)):
                self._add("masked_secret", f"{path}.url", "write the whole address; *** keeps it only unchanged")
            else:
                target = msgspec.structs.replace(target, url=stored.url)
        kept = stored.headers if stored is not None and stored.url == target.url else {}
        headers = {name: kept.get(name, value) if value == MASK else value for name, value in target.headers.items()}
        for name, value in headers.items():
            if value == MASK:
                self._add(
                    "masked_secret", f"{path}.headers.{name}", "write its value; *** keeps it at the same url only"
                )
        return msgspec.structs.replace(target, headers=headers)

    def _webhook(self, target: Target, path: str) -> None:
        try:
            parts = urlsplit(target.url)
            host = parts.hostname or ""
            _ = parts.port
        except ValueError:
            host = ""
        if not host or not target.url.isprintable() or " " in target.url:
            self._add("bad_url", f"{path}.url", "give a host, and no blanks: https://example.com/hook")
            return
        try:
            ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return  # a name is looked up when it is called
        if not self._guard.allows(host) and self._guard.refuses(host):
            hint = f"{host} is {self._guard.words}; see notify.allow_hosts and notify.allow_private"
            self._add("refused_address", f"{path}.url", hint)

    def _route(self, item: Any, path: str, targets: Mapping[str, Target]) -> Route:
        found = self._fields(Route, item, path, {"match": Any, "quiet_hours": Any})
        if "match" in found:
            found["match"] = self._match(found["match"], f"{path}.match")
        if found.get("quiet_hours") is not None:
            found["quiet_hours"] = self._quiet(found["quiet_hours"], f"{path}.quiet_hours")
        self._level(found, "min_level", path)
        route = self._made(Route, {"targets": ()}, found)
        self._known(route.targets, targets, path, is_told="targets" in found)
        return route

    def _match(self, item: Any, path: str) -> Match:
        if isinstance(item, Mapping):
            item = {name: [value] if isinstance(value, str) else value for name, value in item.items()}
        match = Match(**self._fields(Match, item, path))
        levels = []
        for i, word in enumerate(match.level):
            level = level_of(word)
            if level is None:
                self._add("unknown_level", f"{path}.level[{i}]", f"one of {', '.join(LEVELS)}")
            levels.append(level or word)
        return msgspec.structs.replace(match, level=tuple(levels))

    def _step(self, item: Any, path: str, targets: Mapping[str, Target]) -> Step:
        found = self._fields(Step, item, path)
        self._level(found, "min_level", path)
        step = self._made(Step, {"after_s": float("inf"), "targets": ()}, found)
        self._known(step.targets, targets, path, is_told="targets" in found)
        return step

    def _quiet(self, item: Any, path: str) -> QuietHours:
        found = self._fields(QuietHours, item, path)
        for name, shown in (("start", "from"), ("end", "to")):
            if name in found and not _CLOCK.fullmatch(found[name]):
                self._add("bad_time", f"{path}.{shown}", "a time of day as HH:MM")
                del found[name]
        if found.get("start", "") == found.get("end", "-"):
            self._add("bad_time", f"{path}.to", "another time than `from`")
        if found.get("except_level") is not None:
            self._level(found, "except_level", path)
        try:
            ZoneInfo(found.get("timezone", "UTC"))
        except (ValueError, OSError, LookupError):
            self._add("unknown_timezone", f"{path}.timezone", "a name such as Europe/Berlin")
        return self._made(QuietHours, {"start": "00:00", "end": "00:00"}, found)

    def _known(self, names: Sequence[str], targets: Mapping[str, Target], path: str, *, is_told: bool) -> None:
        if is_told and not names:
            self._add("no_target", f"{path}.targets", "name at least one target")
        for i, name in enumerate(names):
            if name not in targets:
                close = closest(name, targets)
                hint = f"did you mean {close!r}?" if close else "there is no such target"
                self._add("unknown_target", f"{path}.targets[{i}]", hint)

    def _level(self, found: dict[str, Any], name: str, path: str) -> None:
        if name not in found:
            return
        level = level_of(found[name])
        if level is None:
            self._add("unknown_level", f"{path}.{name}", f"one of {', '.join(LEVELS)}")
            del found[name]
        else:
            found[name] = level

    def _made(self, kind: type[T], instead: Mapping[str, Any], found: Mapping[str, Any]) -> T:
        """With something in place of what is missing and reported, so that reading can go on."""
        return kind(**{**instead, **found})

    def _fields(self, kind: type[T], item: Any, path: str, types: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Fields that can be used, by the names of Python; the others are reported, also unknown and missing ones."""
        if not isinstance(item, Mapping):
            self._add("wrong_type", path or "document", "an object must stand here")
            return {}
        hints = get_type_hints(kind, include_extras=True) | dict(types or {})
        fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
        found: dict[str, Any] = {}
        for name in unknown_words(item, fields, self.problems):
            close = closest(str(name), fields)
            hint = f"did you mean {close!r}?" if close else f"known: {', '.join(fields)}"
            self._add("unknown_field", f"{path}.{name}" if path else str(name), hint)
        for name, field in fields.items():
            if name not in item:
                continue
            at = f"{path}.{name}" if path else name
            try:
                found[field.name] = msgspec.convert(item[name], hints[field.name])
            except msgspec.ValidationError as error:
                text, _, place = str(error).partition(" - at `$")
                self._add("bad_value", at + place.rstrip("`"), text)
        for name, field in fields.items():
            if field.required and name not in item:
                self._add("missing_field", f"{path}.{name}", "this field is needed")
        return found

    def _object(self, value: Any, path: str, most: int) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self._add("wrong_type", path, "an object must stand here")
            return {}
        if len(value) > most:
            self._add("too_many", path, f"at most {most}")
        return {str(name): item for name, item in list(value.items())[:most]}

    def _list(self, value: Any, path: str, most: int) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, (list, tuple)):
            self._add("wrong_type", path, "a list must stand here")
            return []
        if len(value) > most:
            self._add("too_many", path, f"at most {most}")
        return list(value[:most])

    def _add(self, code: str, path: str, hint: str) -> None:
        self.problems.append(Problem(code, path, hint))

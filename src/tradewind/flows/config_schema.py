"""A node's config against its type's JSON Schema (draft 2020-12): every error, each with its path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, UnknownType, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from tradewind import codec
from tradewind.flows.syntax_fields import Report, join

#: Errors of one node that are shown; a config of thousands of wrong items needs no more.
MAX_ERRORS = 50
#: A schema of these words alone is content with an empty config, so most nodes need no validation.
_SIMPLE = {"title", "description", "type", "properties", "additionalProperties", "$defs"}


class ConfigSchema:
    """A compiled schema. `properties`: the config fields that it names."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.problem = ""
        self.properties = frozenset(schema.get("properties") or ())
        self._takes_nothing = schema.keys() <= _SIMPLE and schema.get("type", "object") == "object"
        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            self.problem = f"its config schema is not valid: {_short(error.message)}"
        # An empty registry: a remote $ref must not make validation go to the network.
        self._validator = Draft202012Validator(schema, registry=Registry())

    def check(self, config: Mapping[str, Any], path: str, report: Report, *, hint_unknown: str = "") -> None:
        if self.problem:
            report.add("bad_node_type", path, self.problem)
            return
        if not config and self._takes_nothing:
            return
        seen: set[tuple[str, str]] = set()
        try:
            errors = sorted(
                self._validator.iter_errors(config), key=lambda error: [str(p) for p in error.absolute_path]
            )
        except (Unresolvable, UnknownType, re.error, RecursionError) as error:
            report.add("bad_node_type", path, f"its config schema cannot be used: {_short(str(error))}")
            return
        for wrong in errors[:MAX_ERRORS]:
            for code, where, hint in _told(wrong, path, report, hint_unknown):
                if (code, where) not in seen:
                    seen.add((code, where))
                    report.add(code, where, hint)


@lru_cache(maxsize=1024)
def _compiled(schema: bytes) -> ConfigSchema:
    return ConfigSchema(codec.decode(schema))


def compile_schema(schema: dict[str, Any]) -> ConfigSchema:
    """One compiled schema per content, kept for the next flow."""
    return _compiled(codec.encode(schema))


def _told(error: ValidationError, path: str, report: Report, hint_unknown: str) -> list[tuple[str, str, str]]:
    for step in error.absolute_path:
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, str(step))
    if error.validator == "required":
        missing = [name for name in error.validator_value if name not in error.instance]
        return [("missing_config", join(path, name), "this config field is required") for name in missing]
    if error.validator == "additionalProperties" and error.validator_value is False:
        known = error.schema.get("properties", {})
        extra = [name for name in error.instance if name not in known]
        if not error.schema.get("patternProperties"):
            return [("unknown_config", join(path, name), report.guess(name, known) + hint_unknown) for name in extra]
    hint = _short(error.message)
    if error.context:
        hint += ": " + "; ".join(_short(inner.message) for inner in error.context[:4])
    return [("bad_config", path, hint)]


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"

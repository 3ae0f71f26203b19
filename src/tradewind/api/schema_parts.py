"""The pieces that JSON schemas are put together from."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANY: Schema = {}
TIME: Schema = {"type": "string", "format": "date-time"}
MORE_PROBLEMS: dict[str, Schema] = {
    "more_problems": {**COUNT, "description": "how many further problems there are; only then"}
}
WORDS: Schema = {"type": "array", "items": TEXT}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def list_of(schema: Schema, about: str = "") -> Schema:
    return {"type": "array", "items": schema, **({"description": about} if about else {})}


def object_of(properties: dict[str, Schema], example: Any = None, needs: list[str] | None = None) -> Schema:
    """`needs` names the required properties; all of them when it is left out, as in answers."""
    found: Schema = {"type": "object", "properties": properties}
    required = list(properties) if needs is None else needs
    if required:
        found["required"] = required
    if example is not None:
        found["example"] = example
    return found


def items_of(name: str) -> Schema:
    return object_of({"items": list_of(ref(name))})

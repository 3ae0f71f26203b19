"""Models and their templates over HTTP: define, list, show with their values, replace, remove, one or many."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tradewind.api.body import check_query, query_limit
from tradewind.api.errors import listed
from tradewind.api.flow_request import YAML_TYPES, path_id, query_id, query_word, read_definition
from tradewind.api.model_change import is_change, read_change
from tradewind.api.paging import cut_page
from tradewind.api.point_request import BAD
from tradewind.api.point_room import PointServices, plain_views, read_model
from tradewind.api.routing import Endpoint, Parameter, json_response
from tradewind.errors import Conflict, Invalid, Problem
from tradewind.models.definitions import Definitions
from tradewind.models.spec import ModelSpec
from tradewind.offload import offload
from tradewind.points.values import ControlValue

TAG = "models"
MAX_LIMIT = 1000
#: Some ten thousand models at once.
MAX_BODY_BYTES = 16_000_000
BODY_TYPES = ("application/json", *YAML_TYPES[:1])
UNKNOWN = ("There is no such model", "Error")
UNKNOWN_TEMPLATE = ("There is no such template", "Error")


def model_glance(name: str, definitions: Definitions) -> dict[str, Any]:
    """A model as it stands in a list. One that is not valid any more has `problems` and computes nothing."""
    spec = definitions.specs.get(name)
    mine = [p for p in definitions.problems if p.path.partition(".")[0] == name]
    problems = [{"code": p.code, "path": p.path.partition(".")[2], "hint": p.hint} for p in mine]
    if spec is None:
        spec = ModelSpec(name=name, enabled=False)
    return {
        "name": name,
        "title": spec.title,
        "description": spec.description,
        "enabled": spec.enabled,
        "template": spec.template or None,
        "inputs": len(spec.inputs),
        "calculations": len(spec.calculations),
        "outputs": [output.field for output in spec.outputs],
        "controls": [control.field for control in spec.controls],
        "problems": problems,
    }


class ModelRoutes:
    def __init__(self, room: PointServices, max_body_bytes: int) -> None:
        self._room = room
        self._models = room.models
        self._max_body_bytes = max(max_body_bytes, MAX_BODY_BYTES)

    async def index(self, request: Request) -> Response:
        check_query(request, frozenset({"limit", "cursor", "config"}))
        has_config = query_word(request, "config", ("true", "false")) == "true"
        limit, after = query_limit(request, MAX_LIMIT, default=MAX_LIMIT), query_id(request, "cursor") or ""
        definitions = await self._models.load()
        names = [name for name in sorted(definitions.models) if name > after]

        def view(name: str) -> dict[str, Any]:
            config = {"config": definitions.models[name]} if has_config else {}
            return {**model_glance(name, definitions), **config}

        return cut_page(map(view, names), lambda item: str(item["name"]), limit)

    async def create(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        spec = await self._models.put(document, is_new=True)
        return await self._shown(spec.name, 201)

    async def replace(self, request: Request) -> Response:
        check_query(request, frozenset())
        name = path_id(request, "name")
        document = _named(await read_definition(request, self._max_body_bytes), name)
        spec = await self._models.validate(document)
        if spec.name != name:
            problem = Problem("id_mismatch", "name", f"the path says {name!r}")
            message = f"the model is called {spec.name!r} in its definition"
            raise Invalid(message, code=problem.code, hint=problem.hint, problems=[problem])
        is_new = name not in (await self._models.load()).models
        await self._models.put(document)
        return await self._shown(name, 201 if is_new else 200)

    async def change(self, request: Request) -> Response:
        """Many at once, all or none."""
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        change = await offload(read_change, document, await self._models.load())
        put = await self._models.apply(
            change.models,
            remove=change.remove,
            templates=change.templates,
            remove_templates=change.remove_templates,
        )
        return json_response(
            {
                "models": [spec.name for spec in put],
                "templates": [template["name"] for template in change.templates],
                "removed": change.remove,
                "removed_templates": change.remove_templates,
            }
        )

    async def validate(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        try:
            if is_change(document):
                change = await offload(read_change, document, await self._models.load())
                await self._models.validate_all(
                    change.models,
                    remove=change.remove,
                    templates=change.templates,
                    remove_templates=change.remove_templates,
                )
            else:
                await self._models.validate(document)
        except Invalid as error:
            return json_response({"valid": False, **listed(error)})
        return json_response({"valid": True, "problems": []})

    async def show(self, request: Request) -> Response:
        check_query(request, frozenset())
        return await self._shown(path_id(request, "name"))

    async def remove(self, request: Request) -> Response:
        check_query(request, frozenset())
        await self._models.remove(path_id(request, "name"))
        return Response(status_code=204)

    async def _shown(self, name: str, status: int = 200) -> Response:
        """Raises NotFound."""
        config = await self._models.get(name)
        definitions = await self._models.load()
        spec = definitions.specs.get(name)
        return json_response(
            {
                **model_glance(name, definitions),
                "config": config,
                "spec": msgspec.to_builtins(spec) if spec is not None else None,
                "values": plain_views(self._room, await read_model(self._room, name)),
                "control_values": {f: _control(v) for f, v in (await self._models.controls(name)).items()},
            },
            status,
        )

    async def templates(self, request: Request) -> Response:
        check_query(request, frozenset())
        found = await self._models.list_templates()
        return json_response({"items": list(found.values())})

    async def create_template(self, request: Request) -> Response:
        check_query(request, frozenset())
        document = await read_definition(request, self._max_body_bytes)
        name = document.get("name") if isinstance(document, dict) else None
        if isinstance(name, str) and name in await self._models.list_templates():
            raise Conflict(f"the template {name!r} exists", code="template_exists", hint="use PUT to replace it")
        await self._models.put_template(document)
        return json_response(document, 201)

    async def replace_template(self, request: Request) -> Response:
        check_query(request, frozenset())
        name = path_id(request, "name")
        document = _named(await read_definition(request, self._max_body_bytes), name)
        given = document.get("name", name) if isinstance(document, dict) else name
        if given != name:
            problem = Problem("id_mismatch", "name", f"the path says {name!r}")
            message = f"the template is called {str(given)[:64]!r} in its definition"
            raise Invalid(message, code=problem.code, hint=problem.hint, problems=[problem])
        is_new = name not in await self._models.list_templates()
        await self._models.put_template(document)
        return json_response(document, 201 if is_new else 200)

    async def show_template(self, request: Request) -> Response:
        check_query(request, frozenset())
        return json_response(await self._models.get_template(path_id(request, "name")))

    async def remove_template(self, request: Request) -> Response:
        check_query(request, frozenset())
        await self._models.remove_template(path_id(request, "name"))
        return Response(status_code=204)

    def endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/models", "/api/v1/models/{name}"
        model, exists = ("The model with its values", "Model"), ("It exists already", "Error")
        needed = ("Another model needs it", "Error")
        paging = (
            Parameter("cursor", "`next_cursor` of the page before", {"type": "string"}),
            Parameter(
                "limit",
                "Models on a page",
                {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": MAX_LIMIT},
            ),
            Parameter("config", "Also the definition of each", {"type": "boolean", "default": False}),
        )
        about = "As JSON or YAML. Checked together with all other models: names, units, circles."
        return [
            Endpoint(
                "GET", every, self.index, "List models by name", {200: ("A page", "ModelPage"), 422: BAD}, TAG,
                query=paging,
            ),
            Endpoint(
                "POST", every, self.create, "Define a model",
                {201: ("It is new; it is computed from now on", "Model"), 409: exists, 422: BAD}, TAG, about,
                body="ModelDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "PUT", every, self.change, "Define, replace and remove many models and templates",
                {200: ("All of it is done", "ModelsChanged"), 422: BAD}, TAG,
                "All or nothing. They are checked together, so their order is no matter. A list is a list of models.",
                body="ModelsChange", body_types=BODY_TYPES,
            ),
            Endpoint(
                "POST", f"{every}/validate", self.validate, "Check a model, or many; nothing is stored",
                {200: ("All that is wrong", "Validation")}, TAG, "Takes what `POST` and `PUT` take.",
                body="ModelDefinition", body_types=BODY_TYPES,
            ),
            Endpoint("GET", one, self.show, "Show a model", {200: model, 404: UNKNOWN, 422: BAD}, TAG),
            Endpoint(
                "PUT", one, self.replace, "Define or replace a model",
                {200: model, 201: ("It is new", "Model"), 422: BAD}, TAG, f"{about} It need not say its name.",
                body="ModelDefinition", body_types=BODY_TYPES,
            ),
            Endpoint(
                "DELETE", one, self.remove, "Remove a model, its values and its memory",
                {204: ("Gone", None), 404: UNKNOWN, 422: needed}, TAG,
            ),
            *self._template_endpoints(),
        ]  # fmt: skip

    def _template_endpoints(self) -> list[Endpoint]:
        every, one = "/api/v1/model-templates", "/api/v1/model-templates/{name}"
        template = ("The template", "ModelTemplate")
        exists, needed = ("It exists already", "Error"), ("It has instances", "Error")
        return [
            Endpoint(
                "GET", every, self.templates, "List templates by name", {200: ("Templates", "ModelTemplates")}, TAG
            ),
            Endpoint(
                "POST", every, self.create_template, "Define a template",
                {201: template, 409: exists, 422: BAD}, TAG, "A model with `{property}` in it.",
                body="ModelTemplate", body_types=BODY_TYPES,
            ),
            Endpoint("GET", one, self.show_template, "Show a template", {200: template, 404: UNKNOWN_TEMPLATE}, TAG),
            Endpoint(
                "PUT", one, self.replace_template, "Define or replace a template",
                {200: template, 201: template, 422: BAD}, TAG, "Its instances change with it, or it is refused.",
                body="ModelTemplate", body_types=BODY_TYPES,
            ),
            Endpoint(
                "DELETE", one, self.remove_template, "Remove a template",
                {204: ("Gone", None), 404: UNKNOWN_TEMPLATE, 422: needed}, TAG,
            ),
        ]  # fmt: skip


def _named(document: Any, name: str) -> Any:
    """A definition that does not say what it is called is called as the path says."""
    if isinstance(document, dict) and not document.keys() & {"id", "name"}:
        return {**document, "name": name}
    return document


def _control(value: ControlValue) -> dict[str, Any]:
    return {"value": value.value, "ts": value.ts_ms, "source": value.source}

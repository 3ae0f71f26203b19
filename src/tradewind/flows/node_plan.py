"""Reads a node class once, when it is decorated, into a plan, so that a run has nothing left to find out."""

from __future__ import annotations

import copy
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET

from tradewind.errors import Invalid
from tradewind.flows.handles_sdk import Input, InputOptions, Output, OutputOptions, OutputSlot
from tradewind.flows.node_base import Node
from tradewind.flows.node_values import Reader, as_json, kinds_of, reader_of, show_type, type_name
from tradewind.flows.spec import Handle, NodeType
from tradewind.ids import ID, is_id
from tradewind.signals.signal import SignalType

ConfigType = type[msgspec.Struct]


class InputPlan(msgspec.Struct, frozen=True):
    """One declared input. `make_default` is None when it is required; `hook`: its `_on_{handle}_received`."""

    attribute: str
    name: str
    options: InputOptions
    read: Reader | None
    shown: str
    type_name: str
    make_default: Callable[[], Any] | None
    is_list: bool = False
    hook: str = ""


class OutputPlan(msgspec.Struct, frozen=True):
    name: str
    options: OutputOptions
    kinds: frozenset[type] | None
    shown: str
    type_name: str
    signal_type: str


class NodePlan(msgspec.Struct):
    """What a run needs to know of a node type. `call_function` is set for function nodes only."""

    type: str
    description: NodeType
    inputs: tuple[InputPlan, ...]
    outputs: dict[str, OutputPlan]
    config: ConfigType
    config_fields: tuple[str, ...] = ()
    #: The config cannot be left alone even when the flow gives none: a field is required, or its default is mutable.
    config_always: bool = False
    names: frozenset[str] = frozenset()
    has_hooks: bool = False
    has_async_hooks: bool = False
    has_many_outputs: bool = False
    call_function: Callable[[Node, list[Any]], Any] | None = None


class NodeOptions(msgspec.Struct, frozen=True):
    """What `@node(…)` was given."""

    type: str
    category: str = "general"
    timeout: float = 0
    retries: int = 0
    description: str = ""
    inline: bool = False
    open_inputs: bool = False
    open_outputs: bool = False


RESERVED = frozenset(name for name in dir(Node) if not name.startswith("__")) | set(Node.__annotations__)


def plan_class(cls: type[Node], options: NodeOptions, local_names: Mapping[str, Any]) -> NodePlan:
    """The plan of a class node. Raises Invalid for what cannot work, with the class and the name in the message."""
    check_options(options)
    if cls.execute is Node.execute:
        raise Invalid(f"node {cls.__qualname__} has no execute", hint="define `async def execute(self)`")
    if inspect.isasyncgenfunction(cls.execute) or inspect.isgeneratorfunction(cls.execute):
        raise Invalid(
            f"execute of node {cls.__qualname__} is a generator", hint="use self.<output>.send instead of yield"
        )
    hints = read_hints(cls, local_names)
    inputs, outputs, fields = [], {}, []
    declarations = (getattr(cls, attribute, None) for attribute in hints)
    updated = {d.options.auto_update_attr for d in declarations if isinstance(d, Input)}
    for attribute, hint in hints.items():
        origin = typing.get_origin(hint) or hint
        if attribute.startswith("_") or origin is ClassVar:
            continue
        if attribute in RESERVED:
            raise Invalid(
                f"node {cls.__qualname__} declares {attribute!r}, which every node has already",
                hint="rename it; a handle may keep its name: Input(name=…), Output(name=…)",
            )
        inner = next(iter(typing.get_args(hint)), Any)
        declared = getattr(cls, attribute, UNSET)
        if origin is Input:
            given = declared.options if isinstance(declared, Input) else InputOptions()
            inputs.append(plan_input(cls, attribute, inner, given))
        elif origin is Output:
            told = declared.options if isinstance(declared, (Output, OutputSlot)) else OutputOptions()
            made = plan_output(told.name or attribute, inner, told)
            setattr(cls, attribute, OutputSlot(attribute, made.name, told))
            outputs[made.name] = made
        elif attribute not in updated:
            fields.append((attribute, hint, declared))
    plan = make_plan(options, inputs, outputs, fields, cls.__qualname__)
    hooks = [getattr(cls, i.hook) for i in inputs if i.hook]
    plan.has_async_hooks = any(inspect.iscoroutinefunction(hook) for hook in hooks)
    plan.has_hooks = bool(hooks) or any(i.options.auto_update_attr for i in inputs)
    return plan


def read_hints(owner: Any, local_names: Mapping[str, Any]) -> dict[str, Any]:
    """The annotations of a class or a function; `local_names`: of the place where it is defined. Raises Invalid."""
    parts = [base for base in reversed(owner.__mro__) if base is not Node] if isinstance(owner, type) else [owner]
    hints: dict[str, Any] = {}
    try:
        for part in parts:
            hints.update(inspect.get_annotations(part, locals=local_names, eval_str=True))
        return hints
    except Exception as error:  # the fence around users' annotations, which are arbitrary code
        raise Invalid(
            f"an annotation of node {owner.__qualname__} cannot be read: {error}",
            hint="import its types at run time, too, not only under TYPE_CHECKING",
        ) from error


def plan_input(cls: type[Node], attribute: str, annotation: Any, options: InputOptions) -> InputPlan:
    name = options.name or attribute
    shape = typing.get_origin(annotation) or annotation
    if options.aggregate and shape not in (dict, list, Any):
        raise Invalid(
            f"aggregate input {attribute!r} of {cls.__qualname__} is {show_type(annotation)}",
            hint="annotate it as Input[dict] or Input[list]",
        )
    if options.max_age is not None and not options.max_age > 0:
        raise Invalid(f"max_age of input {attribute!r} of {cls.__qualname__} is not above 0", hint="give seconds")
    hook = f"_on_{name.replace('-', '_')}_received"
    return InputPlan(
        attribute=attribute,
        name=name,
        options=options,
        read=reader_of(annotation),
        shown=show_type(annotation),
        type_name=type_name(annotation),
        make_default=None if options.default is UNSET else _default_maker(options.default),
        is_list=options.aggregate and shape is list,
        hook=hook if callable(getattr(cls, hook, None)) else "",
    )


def _default_maker(default: Any) -> Callable[[], Any]:
    if isinstance(default, (list, dict, set)):
        if not default:
            return type(default)
        return lambda: copy.deepcopy(default)
    return lambda: default


def plan_output(name: str, annotation: Any, options: OutputOptions) -> OutputPlan:
    if options.signal_type not in SignalType.__members__:
        known = ", ".join(SignalType.__members__)
        raise Invalid(f"output {name!r} has the signal type {options.signal_type!r}", hint=f"one of {known}")
    return OutputPlan(
        name, options, kinds_of(annotation), show_type(annotation), type_name(annotation), options.signal_type
    )


def make_plan(
    options: NodeOptions,
    inputs: list[InputPlan],
    outputs: dict[str, OutputPlan],
    fields: list[tuple[str, Any, Any]],
    where: str,
) -> NodePlan:
    """`fields`: the config as (name, annotation, default or UNSET)."""
    names = [i.name for i in inputs]
    for name in [*names, *outputs]:
        if not ID.fullmatch(name):
            raise Invalid(f"{name!r} of {where} cannot be a handle", hint="letters, digits, _ and -, at most 64")
    both = set(names) & {name for name, _, _ in fields}
    if len(set(names)) < len(names) or both:
        raise Invalid(f"{where} has two inputs or config fields of one name: {', '.join(sorted(both) or names)}")
    config, schema = _config_type(where, fields)
    return NodePlan(
        type=options.type,
        description=NodeType(
            type=options.type,
            description=options.description,
            category=options.category,
            inputs=tuple(_input_handle(i) for i in inputs),
            outputs=tuple(
                Handle(o.name, o.type_name, unit=o.options.unit, description=o.options.description)
                for o in outputs.values()
            ),
            config_schema=schema,
            open_inputs=options.open_inputs,
            open_outputs=options.open_outputs,
            timeout_s=options.timeout,
            retries=options.retries,
        ),
        inputs=tuple(inputs),
        outputs=outputs,
        config=config,
        config_fields=tuple(name for name, _, _ in fields),
        config_always=any(not isinstance(d, (int, float, str, bool, tuple, type(None))) for _, _, d in fields),
        names=frozenset(names),
    )


def _input_handle(plan: InputPlan) -> Handle:
    o = plan.options
    return Handle(
        name=plan.name,
        type=plan.type_name,
        required=plan.make_default is None,
        aggregate=o.aggregate,
        unit=o.unit,
        description=o.description,
        default=None if o.default is UNSET else as_json(o.default, "the default of input %r", plan.name),
        external=o.external,
        max_age_s=o.max_age,
    )


def _config_type(where: str, fields: list[tuple[str, Any, Any]]) -> tuple[ConfigType, dict[str, Any]]:
    made: list[Any] = []
    for name, hint, default in fields:
        if default is UNSET:
            made.append((name, hint))
        elif isinstance(default, (list, dict, set)):
            made.append((name, hint, msgspec.field(default_factory=_default_maker(default))))
        else:
            made.append((name, hint, default))
    struct_name = re.sub(r"\W", "_", where.rpartition(".")[2]) + "Config"
    try:
        config = msgspec.defstruct(struct_name, made, kw_only=True, forbid_unknown_fields=True)
        _, parts = msgspec.json.schema_components([config], ref_template="#/$defs/{name}")
        msgspec.convert({}, config) if all(len(field) == 3 for field in made) else None
    except (TypeError, msgspec.MsgspecError) as error:
        raise Invalid(f"the config of {where} cannot be described: {error}", hint="use types that JSON has") from error
    schema = parts.pop(struct_name)
    if parts:
        schema["$defs"] = parts
    return config, schema


def check_options(options: NodeOptions) -> None:
    """Raises Invalid for a bad type name, timeout or number of retries."""
    if not is_id(options.type):
        raise Invalid(
            f"{options.type!r} cannot be a node type", hint="letters, digits, _ and -, at most 64, no reserved word"
        )
    if not 0 <= options.timeout <= 7 * 86_400:
        raise Invalid(f"the timeout of node {options.type!r} is {options.timeout}", hint="seconds, at most a week")
    if not 0 <= options.retries < 1000:
        raise Invalid(f"the retries of node {options.type!r} are {options.retries}", hint="a number from 0 to 999")


def summary(doc: str | None) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(inspect.cleandoc(doc or "").partition("\n\n")[0].split())

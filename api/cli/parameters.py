"""Makes command-line options from the models of `api.options`.

A command has a parameter of a model's type; typer sees one option per field. `memory_limit_bytes` becomes
`--memory-limit 80GiB`, `time_limit_s` becomes `--time-limit 10`, a flag becomes `--schedule`, or `--verify/--no-verify`
where it is on by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from api.units import parse_bytes
from planner.documents.schemas import validate_document
from planner.documents.strict_model import StrictModel
from planner.errors import InvalidDocument, InvalidRequest

UNITS = ("_bytes", "_s")
"""Endings of field names that option names omit."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: replace each parameter of a model's type by one option per field of the model."""
    signature = inspect.signature(command, eval_str=True)
    models = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if _is_model(parameter.annotation)
    }
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in models:
            parameters += [_make_parameter(*field) for field in models[name].model_fields.items()]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(command)
    def expanded(**values: Any) -> None:
        for name, model in models.items():
            values[name] = _build_model(model, {field: values.pop(field) for field in model.model_fields})
        command(**values)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del expanded.__wrapped__  # typer would read the command's own signature
    return expanded


def option_name(field: str) -> str:
    """Return the option of a field, such as `--memory-limit` for `memory_limit_bytes`."""
    for unit in UNITS:
        field = field.removesuffix(unit)
    return f"--{field.replace('_', '-')}"


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, StrictModel)


def _make_parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    spelled = option_name(name)
    names = f"{spelled}/--no-{spelled[2:]}" if field.annotation is bool and field.default else spelled
    kind, metavar = _shown_type(name, field)
    default = inspect.Parameter.empty if field.is_required() else field.default
    option = typer.Option(names, help=field.description, metavar=metavar)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def _shown_type(name: str, field: FieldInfo) -> tuple[Any, str | None]:
    """Return the type that typer parses, and the name that help shows for it.

    Bounds are left to the model, whose messages name the value that was given.
    """
    if name.endswith("_bytes"):
        return str | None, "<size, e.g. 80GiB>"
    words = next(
        (each for each in (field.annotation, *get_args(field.annotation)) if get_origin(each) is Literal), None
    )
    if words is not None:
        return str if field.annotation is words else str | None, f"<{'|'.join(get_args(words))}>"
    return field.annotation, None


def _build_model(model: type[StrictModel], texts: Mapping[str, Any]) -> StrictModel:
    """Return the model of the given options. Raises InvalidRequest with the option that is out of bounds."""
    values = {name: _parse_size(name, value) if name.endswith("_bytes") else value for name, value in texts.items()}
    try:
        return validate_document(model, values, "")
    except InvalidDocument as error:
        name = option_name((error.pointer or "/")[1:])
        raise InvalidRequest(name, got=error.got, wanted=error.wanted) from None


def _parse_size(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_bytes(text)
    except InvalidRequest as error:
        raise error.at(option_name(name)) from None

"""An option is declared once: command line, HTTP and Python have one name, default and meaning for it."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from api.cli.main import load_command
from api.cli.parameters import option_name
from api.http.plan_intake import PlanQuery
from api.http.requests_capacity import CapacityRequest
from api.http.requests_reshard import ReshardRequest
from api.http.schemas import ValidationRequest
from api.options import (
    CapacityOptions,
    ModelOptions,
    PlanOptions,
    ProblemOptions,
    ReshardOptions,
    RunOptions,
    TransferOptions,
    ValidationOptions,
)
from planner.documents.strict_model import StrictModel
from planner.planning.plan_types import Request
from tests.testing.command_line import refused, shardplan

# command, model, what HTTP makes of it
COMMANDS: list[tuple[str, type[StrictModel], type[StrictModel] | None]] = [
    ("plan", PlanOptions, PlanQuery),
    ("plan", RunOptions, None),
    ("validate", ValidationOptions, ValidationRequest),
    ("reshard", ReshardOptions, ReshardRequest),
    ("migrate", TransferOptions, None),
    ("capacity", CapacityOptions, CapacityRequest),
    ("solve", ProblemOptions, None),
    ("import zoo", ModelOptions, None),
]
WAITED_FOR = {"plan_time_limit_s", "time_limit_s"}
"""Of a capacity question, as the caller of HTTP waits for the answer."""

# words on the command line, the message
REFUSED = [
    (["reshard", "--mesh", "2", "--memory-limit", "0"], "--memory-limit (got 0; wanted greater than or equal to 1)"),
    (["reshard", "--mesh", "2", "--memory-limit", "much"], "--memory-limit: memory size (got much"),
    (["capacity", "gpt2", "--hardware", "cpu", "--devices", "2", "--axes", "4"], "--axes (got 4; wanted less than"),
    (["solve", "none.json", "--gap", "1"], "--gap (got 1.0; wanted less than 1)"),
    (["migrate", "a.json", "b.json", "--objective", "fun"], "--objective (got \"fun\"; wanted 'time' or 'bytes')"),
    (["import", "zoo", "gpt2", "-o", "none.json", "--layers", "0"], "--layers (got 0"),
    (["migrate", "a.json", "b.json", "--no-validate"], "migrate: --no-validate is now --no-verify"),
]


def command_options(command: str) -> dict[str, Any]:
    name, *inner = command.split()
    found = load_command(name)
    for each in inner:
        found = found.commands[each]
    return {spelled: option for option in found.params for spelled in option.opts}


@pytest.mark.parametrize(("command", "model", "request_model"), COMMANDS)
def test_an_option_of_the_command_line_is_the_field_of_a_model(
    command: str, model: type[StrictModel], request_model: type[StrictModel] | None
) -> None:
    options = command_options(command)
    listed: dict[str, FieldInfo] = model.model_fields
    for name, field in listed.items():
        option = options[option_name(name)]
        assert field.description, name
        assert option.help == field.description
        assert option.required is field.is_required()
        assert field.is_required() or option.default == field.default
        if request_model is not None and name not in WAITED_FOR:
            assert request_model.model_fields[name].default == field.default


def test_the_python_request_has_the_fields_and_defaults_of_the_options() -> None:
    assert {each.name for each in fields(Request)} == set(PlanOptions.model_fields)
    assert PlanOptions().to_request() == Request()


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_a_value_out_of_bounds_is_refused_by_the_option(words: list[str], message: str) -> None:
    refused(shardplan(*words), message)

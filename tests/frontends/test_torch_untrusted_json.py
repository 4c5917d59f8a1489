"""A hostile file of torch.export.save runs no code: each of these texts is evaluated, executed or imported by torch."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InvalidGraph
from planner.frontends.torch import import_serialized
from tests.testing.command_line import ROOT

torch = pytest.importorskip("torch", reason="torch is not installed: pip install shardplan[torch]")

pytestmark = pytest.mark.frameworks("torch")

Program = dict[str, Any]


def exported() -> Program:
    written = io.BytesIO()
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.zeros(8, 16),)), written)
    with zipfile.ZipFile(written) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("models/model.json"))
        program: Program = json.loads(archive.read(name))
    return program


def replaced(value: Any, old: str, new: str) -> Any:
    """Return a JSON value with one text, also as a key, replaced by another."""
    if isinstance(value, dict):
        return {(new if key == old else key): replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, old, new) for inner in value]
    return new if value == old else value


def with_size(program: Program, size: object) -> Program:
    program["graph_module"]["graph"]["tensor_values"]["input"]["sizes"][0] = {"as_expr": size}
    return program


def with_node(program: Program, **more: object) -> Program:
    program["graph_module"]["graph"]["nodes"][0] |= more
    return program


def with_signature(program: Program, **more: object) -> Program:
    program["graph_module"]["module_call_graph"][0]["signature"] |= more
    return program


def hidden_in_a_name(program: Program, code: str) -> Program:
    """Return a program one of whose values has the name of a key, and a size that is code."""
    values = program["graph_module"]["graph"]["tensor_values"]
    values["metadata"] = with_size(program, {"expr_str": code})["graph_module"]["graph"]["tensor_values"].pop("input")
    renamed: Program = replaced(program, "input", "metadata")
    return renamed


ATTACKS: dict[str, tuple[str, Callable[[Program, str], Program]]] = {
    "size": ("expr_str", lambda program, code: with_size(program, {"expr_str": code, "hint": {"as_int": 8}})),
    "list as a size": ("expr_str", lambda program, code: with_size(program, {"expr_str": [code]})),
    "size under another name": ("expr_str", hidden_in_a_name),
    "default of an argument": ("name", lambda program, code: replaced(program, "input", f"x={code}")),
    "result": ("name", lambda program, code: replaced(program, "relu", f"x\n{code}\ny")),
    "target": ("target", lambda program, code: with_node(program, target="torch.os.system")),
    "operator": (
        "as_operator",
        lambda program, code: with_node(
            program, inputs=[{"name": "self", "arg": {"as_operator": "torch.os.system"}, "kind": 1}]
        ),
    ),
    "argument": ("forward_arg_names", lambda program, code: with_signature(program, forward_arg_names=[f"x={code}"])),
    "module": (
        "in_spec",
        lambda program, code: with_signature(
            program, in_spec='[1, {"type": "collections.defaultdict", "context": "{}", "children_spec": []}]'
        ),
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_torch_would_run_is_refused_and_not_run(attack: str, tmp_path: Path) -> None:
    key, change = ATTACKS[attack]
    code = f"open({str(tmp_path / 'ran')!r}, 'w')"
    with pytest.raises(InvalidGraph, match=f"not an exported program .*{key}"):
        import_serialized(json.dumps(change(exported(), code)).encode(), "hostile")
    assert not (tmp_path / "ran").exists()


def test_guards_of_a_program_are_not_run(tmp_path: Path) -> None:
    program = exported() | {"guards_code": [f"open({str(tmp_path / 'ran')!r}, 'w')"]}
    assert len(import_serialized(json.dumps(program).encode(), "hostile")["nodes"]) == 1
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["models/model.json", "weights/model_weights_config.json"])
def test_a_file_that_inflates_beyond_its_limit_is_refused_unread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.frontends.torch.saved_json.MAX_JSON_BYTES", 100_000)
    monkeypatch.setattr("planner.frontends.torch.saved_json.MAX_TABLE_BYTES", 100_000)
    files = {"models/model.json": json.dumps(exported()), "weights/model_weights_config.json": '{"config": {}}'}
    files[name] = " " * 100_000 + files[name]
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, text in files.items():
            archive.writestr(f"hostile/{each}", text)
    with pytest.raises(InvalidGraph, match=f"hostile/{name} of 10[0-9]+ bytes, more than 100000"):
        import_serialized(written.getvalue(), "hostile")


def test_a_graph_of_too_many_values_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.frontends.torch.saved_json.MAX_JSON_VALUES", 1000)
    monkeypatch.setattr("planner.frontends.torch.saved_json.json.loads", None)  # calling it would fail otherwise
    with pytest.raises(InvalidGraph, match="a graph of more than 1000 values"):
        import_serialized(json.dumps([0] * 1001).encode(), "hostile")


def test_what_is_no_program_is_refused_without_loading_torch() -> None:
    code = """
import sys
from planner.errors import InvalidGraph
from planner.frontends.torch import import_serialized
for data in (b"[" * 100_000, b"9" * 10_000, b'{"target": "os.system"}', b"[0, 1]", b"0"):
    try:
        import_serialized(data, "hostile")
    except InvalidGraph as error:
        assert "not an exported program" in str(error)
    else:
        raise AssertionError(data)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)

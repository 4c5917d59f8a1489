"""Pages of the reference, written when the site is built: each from what the code itself says."""

from __future__ import annotations

import ast
import json
import math
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from textwrap import dedent
from typing import Any

import mkdocs_gen_files

from api.cli.main import COMMANDS, load_command
from examples.clients.generate import description
from planner.frontends.zoo import MODELS, OPTIMIZERS, import_zoo
from planner.ops import FAMILIES, OpDef, OpSignature
from planner.ops.attributes import Attribute
from tests.testing.op_cases import CASES

ROOT = Path(__file__).resolve().parents[1]
FRONTENDS = {
    "PyTorch (ATen)": ("torch", "ATEN"),
    "PyTorch, fused while a model is captured": ("torch", "FUSED"),
    "StableHLO, and so JAX": ("stablehlo", "OP_TABLE"),
    "ONNX": ("onnx", "OPERATORS"),
    "ONNX Runtime's own": ("onnx", "CONTRIB_OPS"),
}
LOSS = re.compile(r"loss|cross_entropy|log_softmax")
Schema = Mapping[str, Any]


def write(page: str, lines: Iterable[str]) -> None:
    with mkdocs_gen_files.open(f"reference/{page}.md", "w") as file:
        file.write("\n".join(lines) + "\n")


def cell(text: object) -> str:
    """As one cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").replace("<", "&lt;").strip()


def code(text: object) -> str:
    return f"`{cell(text)}`"


def list_commands() -> Iterator[str]:
    yield "# Command line\n"
    yield "Bad input and wrong usage end in one message on standard error and exit code 1."
    for name, home in COMMANDS.items():
        yield f"\n## shardplan {name}\n\n{home.summary}\n"
        command = load_command(name)
        if hasattr(command, "commands"):
            for inner, each in command.commands.items():
                yield f"\n### shardplan {name} {inner}\n"
                yield from describe_command(each)
        else:
            yield from describe_command(command)


def describe_command(command: Any) -> Iterator[str]:
    if command.help:
        yield "\n\n".join(map(describe_paragraph, command.help.split("\n\n"))) + "\n"
    yield "| parameter | default | |\n|---|---|---|"
    for each in command.params:
        is_argument = each.param_type_name == "argument"
        spelled = (each.metavar or each.name) if is_argument else ", ".join((*each.opts, *each.secondary_opts))
        default = "required" if each.required else "" if each.default in (None, False, ()) else code(each.default)
        yield f"| {code(spelled)} | {default} | {cell(getattr(each, 'help', None) or '')} |"


def describe_paragraph(text: str) -> str:
    """A paragraph of help; one that begins with a backspace is shown as it is written."""
    return f"```text\n{dedent(text[1:].strip(chr(10)))}\n```" if text.startswith("\b") else cell(text)


def list_operations(paths: Schema) -> Iterator[str]:
    yield "# HTTP\n"
    yield "Errors are RFC 9457 problems (`application/problem+json`) with a JSON pointer to the fault."
    yield "A running service describes itself in full at `/openapi.json`.\n"
    for path, methods in paths.items():
        for method, each in methods.items():
            yield f"\n## {method.upper()} {path}\n\nOperation `{each['operationId']}`.\n"
            if each.get("description"):
                yield f"{each['description']}\n"
            if each.get("parameters"):
                yield "| parameter | in | |\n|---|---|---|"
            for entry in each.get("parameters", ()):
                yield f"| {code(entry['name'])} | {entry['in']} | {cell(entry.get('description', ''))} |"
            answers = [
                f"{status} ({cell(answer['description'])})" for status, answer in sorted(each["responses"].items())
            ]
            yield f"\nAnswers: {', '.join(answer for answer in answers if answer < '4')}."
            yield f"Problems: {', '.join(answer[:3] for answer in answers if answer >= '4')}.\n"


def list_documents() -> Iterator[str]:
    yield "# Documents\n"
    yield "From the JSON Schemas in `planner/schemas`. [Documents](../concepts/documents.md) says what holds for all."
    for path in sorted(resources.files("planner.schemas").iterdir(), key=lambda path: path.name):
        if path.name.endswith(".json"):
            schema = json.loads(path.read_text(encoding="utf-8"))
            yield from describe_object(f"## {path.name.removesuffix('.json')}", schema)
            for name, part in schema.get("$defs", {}).items():
                if "properties" in part:
                    yield from describe_object(f"### {path.name.removesuffix('.json')}: {name}", part)


def describe_object(heading: str, schema: Schema) -> Iterator[str]:
    yield f"\n{heading}\n\n{cell(schema.get('description', ''))}\n"
    yield "| key | type | required | |\n|---|---|---|---|"
    for key, each in schema.get("properties", {}).items():
        required = "yes" if key in schema.get("required", ()) else ""
        yield f"| {code(key)} | {code(spell_type(each))} | {required} | {cell(each.get('description', ''))} |"


def spell_type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rsplit("/", 1)[-1])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(map(spell_type, schema[key]))
    if schema.get("type") == "array":
        return f"list of {spell_type(schema['items'])}" if "items" in schema else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {spell_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def list_ops() -> Iterator[str]:
    rows = sum(len(family.OP_DEFS) for family in FAMILIES)
    yield f"# Ops\n\nThe op table has {rows} rows. [Rules notation](../concepts/rules.md) explains the rules."
    yield "Where a rule depends on ranks or attributes, it is that of an example."
    yield "An attribute without a default is required. A dim counts from 0, or from the end where it is negative."
    for family in FAMILIES:
        title = family.__name__.rsplit(".", 1)[-1].replace("_", " ")
        yield f"\n## {title}\n\n| op | rule | attributes |\n|---|---|---|"
        for row in family.OP_DEFS:
            attributes = "<br>".join(map(describe_attribute, row.attrs))
            yield f"| {code(row.name)} | {code(example_rule(row))} | {attributes} |"


def describe_attribute(attribute: Attribute[Any]) -> str:
    default = "" if attribute.is_required else f" = {json.dumps(attribute.default)}"
    return f"{code(attribute.name + default)}: {cell(attribute.type.kind)}"


def example_rule(row: OpDef) -> str:
    """The rule as the table has it, or that of the first example of the tests."""
    if isinstance(row.rule, str):
        return row.rule
    case = next(case for case in CASES if case.op == row.name)
    return row.rule(OpSignature(case.operands, case.results, case.attrs))


def list_frontends() -> Iterator[str]:
    yield "# Ops per framework\n"
    yield "An op that is not listed is planned replicated and named in a warning."
    for title, (package, table) in FRONTENDS.items():
        names = read_keys(package, table)
        yield f"\n## {title}\n\n{len(names)} ops: " + ", ".join(map(code, names)) + "."
        if losses := [name for name in names if LOSS.search(name)]:
            yield f"\nOf these, losses: {', '.join(map(code, losses))}."


def list_optimizers() -> Iterator[str]:
    yield "# Optimizers\n"
    yield "What `--train` of `import torch`, `import zoo` and `capacity`, and `train` over HTTP and in Python accept,"
    yield "alone or with hyperparameters: `adamw:lr=3e-4,weight_decay=0.1`. States are of f32, or of f64 for parameters"
    yield "of f64. `auto` is what `--master auto` does for parameters narrower than f32: keep a copy of f32, or not.\n"
    yield "| name | | hyperparameters | states of a parameter [m, n] | of [n] | auto |\n|---|---|---|---|---|---|"
    for name, row in OPTIMIZERS.items():
        numbers = ", ".join(code(f"{key}={number:g}") for key, number in row.numbers.items())
        states = (describe_states(row.states(shape)) for shape in (MATRIX, VECTOR))
        matrix, vector = states if row.rank is None else (next(states), f"as {code(row.others)}")
        master = "f32" if row.has_master else "none"
        yield f"| {code(name)} | {row.about} | {numbers} | {matrix} | {vector} | {master} |"


def list_models() -> Iterator[str]:
    yield "# Named models\n"
    yield "What `import zoo` and `capacity` know by name, in their published sizes; an option changes any of them."
    yield "A model with experts dispatches by capacity in groups of tokens, so that all sizes are static.\n"
    yield "| name | parameters | layers | width | heads | longest sequence | source |\n|---|---|---|---|---|---|---|"
    for name, model in MODELS.items():
        inputs = import_zoo(name, seq=1)["inputs"]
        count = sum(math.prod(entry["shape"]) for entry in inputs if entry["kind"] == "parameter")
        heads = f"{model.heads}" if model.heads == model.kv_heads else f"{model.heads}, {model.kv_heads} of keys"
        sizes = f"{count:,} | {model.layers} | {model.width} | {heads} | {model.positions:,}"
        yield f"| {code(name)} | {sizes} | {model.source} |"


MATRIX, VECTOR = (2, 3), (3,)
LETTERS = {2: "m", 3: "n"}


def describe_states(states: Mapping[str, Iterable[int]]) -> str:
    return ", ".join(
        f"{code(name)} [{', '.join(LETTERS.get(size, str(size)) for size in shape)}]" for name, shape in states.items()
    )


def read_keys(package: str, table: str) -> list[str]:
    """The words of a frontend's table, read from its source, so that the framework need not be installed."""
    for path in sorted((ROOT / "planner" / "frontends" / package).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
                literals = [each for each in ast.walk(node) if isinstance(each, ast.Dict)]
                keys = [key.value for each in literals for key in each.keys if isinstance(key, ast.Constant)]
                return sorted({str(key) for key in keys})
    raise LookupError(f"planner/frontends/{package}: no table {table}")


def main() -> None:
    write("command-line", list_commands())
    with tempfile.TemporaryDirectory() as folder:
        write("http", list_operations(description(Path(folder))["paths"]))
    write("documents", list_documents())
    write("ops", list_ops())
    write("frontends", list_frontends())
    write("optimizers", list_optimizers())
    write("models", list_models())


main()

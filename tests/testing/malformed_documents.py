"""Graph documents with one fault each, and words of the expected error message."""

from __future__ import annotations

import json

from tests.testing.small_documents import GRAPH, LEFT_OUT, Document, changed, typed

NO_INTEGERS: tuple[object, ...] = (True, "8", 8.0, None, [], {})
# What is at a place instead, and words of the message.
CHANGES: list[tuple[str, object, str]] = [
    *((f"inputs.0.shape.{dim}", value, f"inputs[0].shape[{dim}]") for dim in (0, 1) for value in (0, -1, 2**41)),
    *(("inputs.0.shape.0", value, "wanted a valid integer") for value in NO_INTEGERS),
    ("inputs.0.shape.0", 10**400, "inputs[0].shape[0]"),
    ("inputs.0.shape", [2**40, 2**40], "tensor too large"),
    ("inputs.0.shape", [1] * 17, "at most 16"),
    ("inputs.0.shape", None, "wanted a valid list"),
    ("inputs.0.dtype", "float32", "wanted 'f64', 'f32'"),
    ("inputs.0.kind", "weight", "wanted 'parameter'"),
    ("inputs", [], "'a': use of an undefined value"),
    *((key, LEFT_OUT, f"{key}: missing key") for key in ("format", "version", "name", "inputs", "nodes", "outputs")),
    *((f"nodes.0.{key}", LEFT_OUT, f"nodes[0].{key}: missing key") for key in ("id", "op", "inputs", "outputs")),
    *(("format", value, "wanted 'shardplan.graph'") for value in ("shardplan.plan", "", None, 1)),
    *(("version", value, "version: value does not fit") for value in (0, 2, 99, "1", True, 1.0, None)),
    ("colour", "red", "colour: unknown key"),
    ("nodes.0.colour", "red", "nodes[0].colour: unknown key"),
    ("nodes.1.inputs", ["nowhere"], "node 'b': use of an undefined value (got nowhere"),
    ("nodes.1.inputs", ["a:1"], "got a:1"),
    ("outputs", ["nowhere"], "outputs: use of an undefined value (got nowhere"),
    ("outputs", [], "at least 1 item"),
    ("nodes.1.inputs", ["b"], "node 'b': the graph has a cycle"),
    ("nodes.1.id", "a", "id 'a': id used twice"),
    ("nodes.1.id", "x", "id 'x': id used twice"),
    ("inputs.1.id", "x", "id 'x': id used twice"),
    ("nodes.0.outputs.0.shape", [8, 33], "node 'a' (linear)"),
    ("nodes.0.outputs.0.shape", [8], "node 'a' (linear)"),
    ("nodes.0.outputs", [], "at least 1 item"),
    ("nodes.0.outputs", [typed(8, 32)] * 2, "number of results (got 2; wanted 1)"),
    ("nodes.0.outputs.0.dtype", "bf16", "dtype mismatch (got ['f32[8,16]'"),
    ("nodes.1.op", "frobnicate", "unknown op without a rule (got frobnicate"),
    ("nodes.1.attrs", {"colour": 1}, "unknown attribute (got colour"),
    ("nodes.1.attrs", [], "wanted a valid dictionary"),
    ("nodes.0.inputs", ["x"] * 5000, "at most 4096"),
    ("nodes.0.phase", "sideways", "wanted 'forward'"),
    ("nodes.0.rule", "b k, k n -> b n", "rule 'b k, k n -> b n'"),
    ("annotations", [{"value": "x"}], "annotations[0].sharding: missing key"),
]


MYSTERY = {"id": "b", "op": "mystery", "inputs": ["a"], "outputs": [typed(8, 32)], "rule": "a b -> a b"}


RULES = [
    ("", "no single '->'"),
    ("a b", "no single '->'"),
    ("a b -> a b -> a b", "no single '->'"),
    ("a b -> (a b", "brackets do not match"),
    ("A b -> A b", "not a loop name (got A"),
    ("a a -> a a", "loop repeated in one term"),
    ("a b -> b", "rank (got (8, 32); wanted 1 dims)"),
    ("a b, c -> a b", "number of operands (got 1; wanted 2)"),
    ("a b -> a b, a", "number of results (got 1; wanted 2)"),
    ("a b -> a b; shuffle a", "unknown modifier (got shuffle"),
    ("a b -> a b; linear 7", "linear group (got 7"),
    ("a b -> a b; size a=9", "shape contradicts the rule (got 8; wanted 9)"),
    ("a b -> a b; blocked z", "modifier names no loop (got z"),
    ("(p q) b -> (p q) b", "loop size cannot be told"),
    ("{p|q} b -> {p|q} b", "loop size cannot be told"),
    ("... ... -> ...", "loop repeated"),
    ("b a -> a b", "shape contradicts the rule"),
    (" ".join(f"a{i}" for i in range(800)) + " -> a", "rank"),
    ("(" * 4000, "no single '->'"),
    ("(" * 2000 + "->" + ")" * 2000, "brackets do not match"),
    ("x" * 4097, "at most 4096"),
]


TEXTS: list[tuple[str | bytes, str]] = [
    ("", "not JSON"),
    ("{", "not JSON"),
    ("null", "got null; wanted an object"),
    ("[]", "got an array; wanted an object"),
    ("{}{}", "Extra data"),
    (json.dumps(GRAPH)[:-20], "not JSON"),
    (json.dumps(GRAPH).encode("utf-16"), "not UTF-8"),
    (b"\xff", "not UTF-8"),
    ('{"format": 1, "format": 1}', "key repeated in one object (got format"),
    *((json.dumps(changed(GRAPH, "version", 7)).replace("7", text), words) for text, words in (
        ("NaN", "NaN or infinity not representable in JSON (got NaN"),
        ("Infinity", "NaN or infinity not representable in JSON (got Infinity"),
        ("-Infinity", "NaN or infinity not representable in JSON (got -Infinity"),
        ("1" * 5000, "number too long"),
        ("1e999", "value does not fit"),
    )),
]  # fmt: skip


# Attributes that no op of that name can have.
ATTRIBUTES: list[tuple[str, list[Document], Document, Document, str]] = [
    ("sum", [typed(4, 6)], typed(4), {"dims": "x"}, "attribute 'dims'"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [2]}, "attribute 'dims' (got [2]"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [True]}, "attribute 'dims'"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [1, -1]}, "different dims"),
    ("sum", [typed(4, 6)], typed(4), {"dims": [1], "keepdim": 1}, "attribute 'keepdim'"),
    ("transpose", [typed(4, 6)], typed(4, 6), {"permutation": [0, 0]}, "each once"),
    ("transpose", [typed(4, 6)], typed(4, 6), {"permutation": [0]}, "all 2 dims"),
    ("layer_norm", [typed(4, 6)], typed(4, 6), {"normalized_dims": 99}, "normalized_dims"),
    ("layer_norm", [typed(4, 6)], typed(4, 6), {"eps": "small"}, "attribute 'eps'"),
    ("softmax", [typed(4, 6)], typed(4, 6), {"dim": 99}, "attribute 'dim' (got 99"),
    ("softmax", [typed(4, 6)], typed(4, 6), {}, "attribute 'dim'"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 5, "stop": 8}, "slice bounds"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 0, "stop": 5}, "slice bounds"),
    ("slice", [typed(4, 6)], typed(4, 3), {"dim": 1, "start": 0.5, "stop": 3}, "attribute 'start'"),
    ("reshape", [typed(4, 6)], typed(5, 5), {}, "reshape changes the number of elements"),
    ("expand", [typed(4, 6)], typed(6), {}, "wanted those of expand"),
    ("concat", [typed(4, 6)] * 2, typed(4, 6), {"dim": 0}, "concat"),
    ("split", [typed(4, 6)], typed(3, 6), {"dim": 0}, "split"),
    ("add", [typed(4, 6)], typed(4, 6), {"scalar": "one"}, "attribute 'scalar'"),
    ("add", [typed(4, 6)] * 2, typed(4, 6), {"reversed": True}, "attribute 'reversed'"),
    ("gelu", [typed(4, 6)], typed(4, 6), {"approximate": 3}, "attribute 'approximate'"),
    ("full", [], typed(4), {}, "attribute 'value'"),
    ("full", [], typed(4), {"value": []}, "attribute 'value'"),
    ("arange", [], typed(4, 4), {}, "arange makes one dim"),
    ("embedding", [typed(4, 6), typed(4)], typed(4, 6), {}, "dtype mismatch"),
    ("matmul", [typed(4), typed(4, 6)], typed(6), {}, "matmul of vectors"),
]  # fmt: skip

"""Edits of graph documents: some that change no cost, and some that make a plan slower, with the ops they touch."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Edit = Callable[[Document, random.Random], "Edited | None"]
WIDE = "f32"
BLOCKED = "abcdefgh"


@dataclass(frozen=True)
class Edited:
    """A graph after an edit; `touched` names the ops that were edited, or the value that was pinned or returned."""

    document: Document
    touched: frozenset[str]


def types(document: Document) -> dict[str, Document]:
    """Return the type (shape and dtype) of every value."""
    found = {entry["id"]: {key: entry[key] for key in ("shape", "dtype")} for entry in document["inputs"]}
    for node in document["nodes"]:
        found |= {f"{node['id']}:{k}" if k else node["id"]: made for k, made in enumerate(node["outputs"])}
    return found


def resized(document: Document, wider: Document) -> Edited:
    """Return the graph with some sizes changed; the ops that read an input of changed shape are touched."""
    shapes = {entry["id"]: entry["shape"] for entry in document["inputs"]}
    other = {entry["id"] for entry in wider["inputs"] if entry["shape"] != shapes[entry["id"]]}
    return Edited(wider, frozenset(node["id"] for node in wider["nodes"] if not other.isdisjoint(node["inputs"])))


def renamed(document: Document, draw: random.Random) -> Edited:
    """Rename every value and op."""
    made = [name for node in document["nodes"] for name in _values(node)]
    ids = [*(entry["id"] for entry in document["inputs"]), *(node["id"] for node in document["nodes"])]
    names = dict(zip(ids, draw.sample([f"v{k}" for k in range(len(ids))], len(ids)), strict=True))
    for value in made:
        head, colon, number = value.partition(":")
        names[value] = names[head] + colon + number

    def entry(one: Document) -> Document:
        following = {"next": names[one["next"]]} if "next" in one else {}
        return {**one, "id": names[one["id"]], **following}

    nodes = [{**n, "id": names[n["id"]], "inputs": [names[v] for v in n["inputs"]]} for n in document["nodes"]]
    outputs = [names[value] for value in document["outputs"]]
    asked = [
        {**one, "value": names[one["value"]], "user": names.get(one["user"], one["user"])}
        for one in document.get("annotations", [])
    ]
    told = {"inputs": [entry(one) for one in document["inputs"]], "nodes": nodes, "outputs": outputs}
    return Edited({**document, **told, "annotations": asked}, frozenset())


def reordered(document: Document, draw: random.Random) -> Edited:
    """Reorder inputs and ops, keeping definitions before uses."""
    inputs = draw.sample(document["inputs"], len(document["inputs"]))
    known, waiting, nodes = {entry["id"] for entry in inputs}, list(document["nodes"]), []
    while waiting:
        node = draw.choice([each for each in waiting if {value.partition(":")[0] for value in each["inputs"]} <= known])
        waiting.remove(node)
        nodes.append(node)
        known.add(node["id"])
    return Edited({**document, "inputs": inputs, "nodes": nodes}, frozenset())


def exported_again(document: Document, draw: random.Random) -> Edited:
    """Return the graph as another framework version would export it: other names, order, scope root and producer."""
    found = reordered(renamed(document, draw).document, draw).document
    nodes = [{**node, "scope": f"module.{node.get('scope', '')}".rstrip(".")} for node in found["nodes"]]
    inputs = [{**entry, "name": f"module.{entry['name']}"} for entry in found["inputs"]]
    return Edited(
        {**found, "inputs": inputs, "nodes": nodes, "producer": {"name": "other", "version": "9"}}, frozenset()
    )


def retuned(document: Document, draw: random.Random) -> Edited:
    """Change a constant on which no cost depends, in a graph exported again: a new request with the same plan."""
    found = exported_again(document, draw).document
    tuned = [node for node in found["nodes"] if "eps" in node["attrs"]]
    node = draw.choice(tuned)
    nodes = [{**n, "attrs": {**n["attrs"], "eps": 2e-6}} if n is node else n for n in found["nodes"]]
    return Edited({**found, "nodes": nodes}, frozenset())


def blocked(document: Document, draw: random.Random) -> Edited | None:
    """Insert a framework's own op, none of whose loops can be split."""
    value = _activation(document, draw)
    kind = types(document)[value]
    dims = " ".join(BLOCKED[: len(kind["shape"])])
    node = {"op": "custom", "rule": f"{dims} -> {dims}; blocked {dims}", "outputs": [kind]}
    return _between(document, value, [node])


def widened(document: Document, draw: random.Random) -> Edited | None:
    """Store a weight in f32 and cast it where it is read."""
    found = copy.deepcopy(document)
    wide = [entry for entry in found["inputs"] if entry["kind"] == "parameter" and len(entry["shape"]) == 2]
    entry = draw.choice(wide)
    if "next" in entry or entry["dtype"] == WIDE:
        return None
    narrow, entry["dtype"] = entry["dtype"], WIDE
    made = {"shape": entry["shape"], "dtype": narrow}
    return _between(found, entry["id"], [{"op": "cast", "outputs": [made]}])


def in_f32(document: Document, draw: random.Random) -> Edited | None:
    """Compute a matrix product in f32, between casts."""
    found, kinds = copy.deepcopy(document), types(document)
    node = draw.choice([each for each in found["nodes"] if each["op"] in ("addmm", "linear")])
    casts: list[Document] = []
    for value in dict.fromkeys(node["inputs"]):
        if kinds[value]["dtype"] != WIDE:
            made = {"shape": kinds[value]["shape"], "dtype": WIDE}
            casts.append(_node(f"{node['id']}_wide{len(casts)}", "cast", [value], [made]))
            node["inputs"] = [casts[-1]["id"] if value == read else read for read in node["inputs"]]
    if not casts:
        return None
    narrow = node["outputs"][0]
    node["outputs"] = [{"shape": narrow["shape"], "dtype": WIDE}]
    place = found["nodes"].index(node)
    found["nodes"][place:place] = casts
    told = _between(found, node["id"], [{"op": "cast", "outputs": [narrow]}])
    return told and Edited(told.document, told.touched | {node["id"], *(cast["id"] for cast in casts)})


def pinned(document: Document, draw: random.Random) -> Edited:
    """Pin a value to be replicated on every device."""
    value = _activation(document, draw)
    whole: Document = {"split_axes": [[] for _ in types(document)[value]["shape"]]}
    asked = {"value": value, "sharding": whole, "required": True, "user": None}
    pins = [*document.get("annotations", []), asked]
    return Edited({**document, "annotations": pins}, frozenset({value}))


def returned(document: Document, draw: random.Random) -> Edited | None:
    """Return an activation from the graph, so that it stays live until the end."""
    value = _activation(document, draw)
    if value in document["outputs"]:
        return None
    return Edited({**document, "outputs": [*document["outputs"], value]}, frozenset({value}))


def twice(document: Document, draw: random.Random) -> Edited | None:
    """Compute a matrix product twice and add the results; renaming hides which of the two is new."""
    found = copy.deepcopy(document)
    node = draw.choice([each for each in found["nodes"] if each["op"] in ("addmm", "linear", "einsum", "matmul")])
    again = {**node, "id": f"{node['id']}_twice"}
    found["nodes"].insert(found["nodes"].index(node) + 1, again)
    told = _between(found, node["id"], [{"op": "add", "more": [again["id"]], "outputs": node["outputs"]}], again["id"])
    return told and Edited(told.document, told.touched | {node["id"], again["id"]})


def _activation(document: Document, draw: random.Random) -> str:
    """Return a random floating-point op result of rank 3 or more that some op reads."""
    read = {value for node in document["nodes"] for value in node["inputs"]}
    kinds = types(document)
    made = [v for node in document["nodes"] for v in _values(node) if v in read and len(kinds[v]["shape"]) >= 3]
    return draw.choice([value for value in made if "f" in kinds[value]["dtype"]])


def _between(document: Document, value: str, chain: list[Document], besides: str = "") -> Edited | None:
    """A chain of ops between a value and all who read it but `besides`, the first of whom it stands before; None where
    nobody does."""
    found = copy.deepcopy(document)
    readers = [node for node in found["nodes"] if value in node["inputs"] and node["id"] != besides]
    made, last = [], value
    for number, part in enumerate(chain):
        name = f"{value.replace(':', '_')}_{part['op']}{number}"
        more = part.get("more", [])
        made.append(_node(name, part["op"], [last, *more], part["outputs"], part.get("attrs"), part.get("rule")))
        last = name
    for node in readers:
        node["inputs"] = [last if read == value else read for read in node["inputs"]]
    place = min((k for k, node in enumerate(found["nodes"]) if node in readers), default=0)
    found["nodes"][place:place] = made
    return Edited(found, frozenset(node["id"] for node in made)) if readers else None


def _node(
    name: str,
    op: str,
    inputs: list[str],
    outputs: list[Document],
    attrs: Document | None = None,
    rule: str | None = None,
) -> Document:
    node = {"id": name, "op": op, "inputs": inputs, "attrs": attrs or {}, "outputs": outputs, "scope": "injected"}
    return node if rule is None else {**node, "rule": rule}


def _values(node: Document) -> list[str]:
    return [f"{node['id']}:{k}" if k else node["id"] for k in range(len(node["outputs"]))]


NEUTRAL: dict[str, Edit] = {
    "renamed": renamed,
    "reordered": reordered,
    "exported again": exported_again,
    "exported again, retuned": retuned,
}
DEARER: dict[str, Edit] = {
    "op that cannot be split": blocked,
    "weight widened to f32": widened,
    "product in f32": in_f32,
    "pinned whole": pinned,
    "returned as well": returned,
    "product done twice": twice,
}

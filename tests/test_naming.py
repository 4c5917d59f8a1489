"""Rules for names: one meaning per class name, parameters by keyword, no private words.

Every file of the packages is parsed, none is run. A rule returns a list of `file:line: what is wrong`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.testing.source_files import PACKAGES, assert_none, parsed, python_files, relative

MAX_POSITIONAL = 3
# What decides how a function is called is not ours: numba's kernels know no keywords.
COMPILED = re.compile(r"njit|overload|intrinsic")

# Words that no practitioner knows, as a part of a name between underscores or capitals.
BANNED_WORDS = {
    "again", "asks", "beside", "brought", "dearest", "elsewhere", "forget", "haggle", "haggling", "house", "lookalike",
    "lookalikes", "nursery", "patient", "patiently", "say", "says", "told", "together", "treesearch",
}  # fmt: skip
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Definition(NamedTuple):
    """A class or a function, where it stands, and whether a class holds it."""

    path: Path
    node: ast.ClassDef | Function
    owner: ast.ClassDef | None

    @property
    def place(self) -> str:
        return f"{relative(self.path)}:{self.node.lineno}"


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: parsed(path) for path in python_files(*PACKAGES)}


def definitions() -> Iterator[Definition]:
    """Those of modules and of classes; functions inside functions are private to these."""
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef | Function):
                yield Definition(path, node, None)
            if isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.ClassDef | Function):
                        yield Definition(path, each, node)


@cache
def called_by_position() -> frozenset[str]:
    """Names that are passed on as values, or called with a tuple of arguments."""
    loaded = set()
    for tree in trees().values():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        called = {id(node.func) for node in calls if not any(isinstance(each, ast.Starred) for each in node.args)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called:
                loaded.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(loaded)


def positional(one: Definition) -> list[ast.arg]:
    assert isinstance(one.node, Function)
    given = [*one.node.args.posonlyargs, *one.node.args.args]
    is_static = any(ast.unparse(each) == "staticmethod" for each in one.node.decorator_list)
    return given[1:] if one.owner is not None and not is_static else given


def is_called_by_others(one: Definition) -> bool:
    """Whether its caller is numba, Python itself, or code that was given the function."""
    assert isinstance(one.node, Function)
    name, marks = one.node.name, [ast.unparse(each) for each in one.node.decorator_list]
    decorated = [each for each in marks if each not in ("staticmethod", "classmethod", "cache", "contextmanager")]
    return name.startswith("__") or name in called_by_position() or bool(decorated) or one.node.args.vararg is not None


def test_no_class_name_stands_for_two_things() -> None:
    places = defaultdict(list)
    for one in definitions():
        if isinstance(one.node, ast.ClassDef):
            places[one.node.name].append(one.place)
    assert len(places) > 100
    assert_none([f"{name} is a class at {' and at '.join(at)}" for name, at in places.items() if len(at) > 1])


def test_what_follows_the_third_parameter_is_given_by_name() -> None:
    functions = [one for one in definitions() if isinstance(one.node, Function)]
    assert len(functions) > 1000
    assert_none(
        [
            f"{one.place}: {one.node.name} takes {len(positional(one))} parameters by position (wanted at most"
            f" {MAX_POSITIONAL}, the others after *)"
            for one in functions
            if len(positional(one)) > MAX_POSITIONAL and not is_called_by_others(one)
        ]
    )


def words(name: str) -> set[str]:
    return {part.lower() for part in PART.findall(name)}


def test_no_name_has_private_words() -> None:
    names = [(relative(path), path.stem) for path in trees()]
    names += [(one.place, one.node.name) for one in definitions()]
    assert_none([f"{place}: {name}" for place, name in names if words(name) & BANNED_WORDS])

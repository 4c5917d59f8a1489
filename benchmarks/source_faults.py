"""Small faults of a Python source: one operator, index, sign, call, order, constant or test is changed.

A fault replaces the text of one expression, so that lines keep their numbers. Annotations, decorators, docstrings,
f-strings, raised errors, `__repr__`, `__str__` and `if TYPE_CHECKING` are left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Fault(NamedTuple):
    """A fault: `was` at byte `start` of a file becomes `now`; `function` is the enclosing function's qualified name."""

    path: str
    line: int
    function: str
    kind: str
    start: int
    was: str
    now: str

    def plant(self, source: bytes) -> bytes:
        was = self.was.encode()
        assert source[self.start :].startswith(was), f"{self.path}:{self.line} has changed"
        return source[: self.start] + self.now.encode() + source[self.start + len(was) :]


class Edit(NamedTuple):
    """A range of bytes of the source and its replacement."""

    start: int
    end: int
    now: str


@dataclass(frozen=True)
class Source:
    """A file's bytes, and the positions of its syntax nodes."""

    path: str
    text: bytes
    lines: tuple[int, ...]
    counters: frozenset[str]
    """Names of loop counters."""
    modules: frozenset[str]
    """Names of modules, and of parameters that stand for numpy."""

    @classmethod
    def of(cls, path: str, text: bytes, tree: ast.Module) -> Source:
        lines = (0, *(found.end() for found in re.finditer(rb"\n", text)))
        return cls(path, text, lines, frozenset(counters(tree)), frozenset(modules(tree)) | {"xp"})

    def start(self, node: ast.expr) -> int:
        return self.lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.lines[node.end_lineno - 1] + node.end_col_offset

    def of_node(self, node: ast.expr) -> str:
        return self.text[self.start(node) : self.end(node)].decode()

    def replace(self, node: ast.expr, now: str) -> Edit:
        """Replace an expression, in parentheses and with the same number of lines."""
        missing = self.of_node(node).count("\n") - now.count("\n")
        return Edit(self.start(node), self.end(node), f"({now}{chr(10) * missing})")

    def between(self, left: ast.expr, right: ast.expr, was: str, now: str) -> Iterator[Edit]:
        """Yield the replacement of an operator between two operands."""
        start = self.end(left)
        if found := re.search(was.encode(), self.text[start : self.start(right)]):
            yield Edit(start + found.start(), start + found.end(), now)


def modules(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.asname or alias.name for alias in node.names)


def counters(tree: ast.Module) -> Iterator[str]:
    """Yield the counter names of `for i in range(...)` and `for i, x in enumerate(...)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Call):
            by, target = node.iter.func, node.target
            if isinstance(by, ast.Name) and by.id == "enumerate" and isinstance(target, ast.Tuple):
                target = target.elts[0]
            if isinstance(by, ast.Name) and by.id in ("range", "enumerate") and isinstance(target, ast.Name):
                yield target.id


ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: (r"\*\*", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
COMPARISON: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
}
LEAST = {"min": "max", "minimum": "maximum", "argmin": "argmax", "fmin": "fmax"}
EXTREMES = LEAST | {most: least for least, most in LEAST.items()}
UNORDERED = {*EXTREMES, "isinstance", "issubclass", "gcd", "lcm", "cast", "getattr", "hasattr"}
"""Calls in which swapping arguments changes nothing or raises at once."""
STRUCTURAL = {"isinstance", "issubclass", "cast", "super", "field", "getattr", "hasattr"}


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def arithmetic(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        yield from source.between(node.left, node.right, *ARITHMETIC[type(node.op)])
    elif isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield from source.between(node.target, node.value, *ARITHMETIC[type(node.op)])


def comparison(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, op, right in zip(operands, node.ops, operands[1:], strict=False):
            yield from source.between(left, right, *COMPARISON[type(op)])


def is_index(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub) and is_index(source, node.operand)
    if isinstance(node, ast.Constant):
        return type(node.value) is int
    return isinstance(node, ast.Name) and node.id in source.counters


def index(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Slice):
        for bound in (node.lower, node.upper):
            if bound is not None:
                yield source.replace(bound, f"{source.of_node(bound)} + 1")
    elif isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for part in parts:
            if is_index(source, part):
                yield source.replace(part, f"{source.of_node(part)} + 1")


def sign(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield Edit(source.start(node), source.start(node) + 1, "+")


def dropped_call(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield source.replace(node.value, "None")
    elif isinstance(node, ast.Call) and called(node) not in STRUCTURAL:
        for left in _left(source, node):
            if not isinstance(left, ast.Starred):
                yield source.replace(node, source.of_node(left))


def _left(source: Source, node: ast.Call) -> list[ast.expr]:
    """Return what may replace a call: the object whose method it is, or the function's first argument."""
    held = node.func.value if isinstance(node.func, ast.Attribute) else None
    return [held] if held and ast.unparse(held) not in source.modules else node.args[:1]


def swapped(source: Source, node: ast.AST) -> Iterator[Edit]:
    ordered: list[ast.expr] = []
    if isinstance(node, ast.Call) and called(node) not in UNORDERED:
        ordered = node.args[:2]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        ordered = node.slice.elts[:2]
    if len(ordered) == 2 and not any(isinstance(each, ast.Starred | ast.Slice) for each in ordered):
        first, second = ordered
        gap = source.text[source.end(first) : source.start(second)].decode()
        now = f"{source.of_node(second)}{gap}{source.of_node(first)}"
        yield Edit(source.start(first), source.end(second), now)


def constant(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield source.replace(node, f"{source.of_node(node)} + 1")


def negation(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        yield source.replace(node.test, f"not ({source.of_node(node.test)})")
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield source.replace(test, f"not ({source.of_node(test)})")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.replace(node, source.of_node(node.operand))
    elif isinstance(node, ast.BoolOp):
        was, now = (r"\band\b", "or") if isinstance(node.op, ast.And) else (r"\bor\b", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from source.between(left, right, was, now)


def extreme(source: Source, node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and called(node) in EXTREMES:
        end = source.end(node.func)
        yield Edit(end - len(called(node)), end, EXTREMES[called(node)])


KINDS: dict[str, Callable[[Source, ast.AST], Iterator[Edit]]] = {
    "arithmetic": arithmetic,
    "comparison": comparison,
    "index": index,
    "sign": sign,
    "dropped call": dropped_call,
    "swapped": swapped,
    "constant": constant,
    "negation": negation,
    "min or max": extreme,
}
UNTOUCHED = (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)
SPELLED = {"__repr__", "__str__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def reachable(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yield the syntax nodes that may be changed, each with the qualified name of its function."""
    yield node, function
    untouched: list[ast.AST | None] = list(getattr(node, "decorator_list", []))
    untouched += [getattr(node, name, None) for name in ("annotation", "returns")]
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        function += node.name + (".<locals>." if isinstance(node, FUNCTIONS) else ".")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant | ast.UnaryOp):
        untouched.append(node.slice)  # an index, not a constant
    for child in ast.iter_child_nodes(node):
        hidden = isinstance(child, FUNCTIONS) and child.name in SPELLED
        hidden |= isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        if not hidden and not isinstance(child, UNTOUCHED) and all(child is not each for each in untouched):
            yield from reachable(child, function)


def changes(fault: Fault, text: bytes) -> bool:
    """Return whether the fault changes the meaning of the file."""
    return ast.dump(ast.parse(fault.plant(text))) != ast.dump(ast.parse(text))


def faults(path: str, text: bytes) -> Iterator[Fault]:
    """Yield all faults that can be planted in a file."""
    tree = ast.parse(text)
    source = Source.of(path, text, tree)
    for node, function in reachable(tree):
        for kind, edits in KINDS.items():
            for edit in edits(source, node):
                line = text[: edit.start].count(b"\n") + 1
                was = text[edit.start : edit.end].decode()
                holder = function.removesuffix(".").removesuffix(".<locals>")
                yield Fault(path, line, holder, kind, edit.start, was, edit.now)

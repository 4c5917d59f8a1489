"""Which result of a step is the next value of which argument, by the structure of their trees.

A tree of the results is the next value of a tree of the arguments if both have the same structure, shapes and dtypes.
Whole arguments come before trees within them, and large trees before small ones. Trees that are alike are paired in
order if arguments and results have equally many of them; otherwise the pairs are ambiguous and none is made. Single
arrays are not paired, because a function often returns an array of the shape of its input.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from planner.errors import InvalidRequest

Signature = tuple[Any, tuple[tuple[tuple[int, ...], str], ...]]
"""The structure of a tree, and shape and dtype of its leaves."""
MAX_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Subtree:
    """A tree within the arguments or the results: `leaves` are the numbers of its leaves, `depth` counts its keys."""

    name: str
    depth: int
    leaves: range
    signature: Signature


@dataclass(frozen=True, slots=True)
class NextValues:
    """`outputs` maps leaves of the arguments to leaves of the results; `remarks` say what is ambiguous."""

    outputs: dict[int, int] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def pair(self, argument: Subtree, result: Subtree) -> None:
        self.outputs.update(zip(argument.leaves, result.leaves, strict=True))


def recognize_next_values(arguments: tuple[Any, ...], results: Any) -> NextValues:
    """Return the next values of trees of arguments, a tuple, among the results."""
    found = NextValues()
    free = dict.fromkeys(_list_subtrees(results, "result"))
    levels: dict[int, list[Subtree]] = defaultdict(list)
    for subtree in _list_subtrees(arguments, "argument"):
        levels[subtree.depth].append(subtree)
    done: set[int] = set()
    for depth in sorted(levels.keys() - {0}):
        for alike in _group_alike([each for each in levels[depth] if done.isdisjoint(each.leaves)]):
            matches = [each for each in free if each.signature == alike[0].signature]
            if not matches:
                continue
            if len(matches) == len(alike):
                for pair in zip(alike, matches, strict=True):
                    found.pair(*pair)
            else:
                found.remarks.append(_describe_ambiguous(alike, matches))
            done.update(*(each.leaves for each in alike))
            taken = {leaf for each in matches for leaf in each.leaves}
            free = {each: None for each in free if taken.isdisjoint(each.leaves)}
    return found


def resolve_next_values(asked: Mapping[int, int], arguments: tuple[Any, ...], results: Any) -> NextValues:
    """Return the next values that `asked` names: numbers of results by number of argument. Raises InvalidRequest."""
    returned = results if isinstance(results, tuple | list) else (results,)
    ours, theirs = ([*_list_children(tree, name)] for tree, name in ((arguments, "argument"), (returned, "result")))
    found = NextValues()
    if not isinstance(asked, Mapping):
        wanted = "a dict, {number of the argument: number of the result}"
        raise InvalidRequest("next", got=asked, wanted=wanted)
    if len(set(asked.values())) < len(asked):
        raise InvalidRequest("next", got=dict(asked), wanted="another result for every argument")
    for argument, result in asked.items():
        for number, listed, noun in ((argument, ours, "argument"), (result, theirs, "result")):
            if number not in range(len(listed)):
                wanted = f"the number of one of {len(listed)} {noun}s"
                raise InvalidRequest(f"next: {noun}", got=number, wanted=wanted)
        now, later = ours[argument], theirs[result]
        if now.signature != later.signature:
            where = f"next: result {result} as argument {argument}"
            got, wanted = _describe(later.signature), f"{_describe(now.signature)}, as the argument is"
            raise InvalidRequest("structure, shapes or dtypes differ", where=where, got=got, wanted=wanted)
        found.pair(now, later)
    return found


def describe_unpaired(arguments: tuple[Any, ...], results: Any, paired: Mapping[int, int]) -> list[str]:
    """Return a remark for the results that no pair has but that have shape and dtype of an argument without a pair."""
    unread, remarks = defaultdict(list), []
    for number, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(arguments)):
        if number not in paired and len(leaf.shape) > 0:
            unread[_leaf_type(leaf)].append(_format_name("argument", path))
    for number, (path, leaf) in enumerate(jax.tree_util.tree_leaves_with_path(results)):
        if number not in paired.values() and (names := unread.get(_leaf_type(leaf))):
            remarks.append(f"{_format_name('result', path)} (as large as {_shorten(names)})")
    if not remarks:
        return []
    return [
        f"taken for no argument's next value: {_shorten(remarks)}; a next value is laid out as its argument only if "
        "next={argument: result} names it; next={} says that there is none"
    ]


def _describe_ambiguous(arguments: Sequence[Subtree], results: Sequence[Subtree]) -> str:
    ours, theirs = (_shorten([each.name for each in side]) for side in (arguments, results))
    return (
        f"{theirs} may be the next value of {ours}: more than one pair fits, and none is made; next={{argument: "
        "result} names the pair, next={} says that there is none"
    )


def _group_alike(subtrees: Sequence[Subtree]) -> list[list[Subtree]]:
    """Return the subtrees by signature, those of most leaves first."""
    groups: dict[Signature, list[Subtree]] = defaultdict(list)
    for each in subtrees:
        groups[each.signature].append(each)
    return sorted(groups.values(), key=lambda alike: -len(alike[0].leaves))


def _list_subtrees(tree: Any, noun: str) -> Iterator[Subtree]:
    """Yield a tree and the trees within it that have leaves but are not single leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    pending = [(jax.tree.structure(tree), 0, 0)]
    while pending:
        structure, depth, start = pending.pop()
        if structure.num_leaves and not jax.tree_util.treedef_is_leaf(structure):
            yield _make_subtree(leaves, structure, start=start, depth=depth, noun=noun)
            children = []
            for child in structure.children():
                children.append((child, depth + 1, start))
                start += child.num_leaves
            pending += reversed(children)


def _list_children(tree: Any, noun: str) -> Iterator[Subtree]:
    """Yield what a tuple consists of, single leaves and empty trees too."""
    leaves, start = jax.tree_util.tree_leaves_with_path(tree), 0
    for child in jax.tree.structure(tree).children():
        yield _make_subtree(leaves, child, start=start, depth=1, noun=noun)
        start += child.num_leaves


def _make_subtree(leaves: Sequence[Any], structure: Any, *, start: int, depth: int, noun: str) -> Subtree:
    numbers = range(start, start + structure.num_leaves)
    types = tuple(_leaf_type(leaves[number][1]) for number in numbers)
    path = leaves[start][0][:depth] if numbers else ()
    return Subtree(_format_name(noun, path), depth, numbers, (structure, types))


def _leaf_type(leaf: Any) -> tuple[tuple[int, ...], str]:
    return tuple(leaf.shape), str(leaf.dtype)


def _format_name(noun: str, path: Sequence[Any]) -> str:
    """Return `argument 0['w']`, `result 1.mu`, or `the result`."""
    if path and isinstance(path[0], jax.tree_util.SequenceKey):
        return f"{noun} {path[0].idx}{jax.tree_util.keystr(tuple(path[1:]))}"
    return f"{noun} {jax.tree_util.keystr(tuple(path))}" if path else f"the {noun}"


def _describe(signature: Signature) -> str:
    structure, types = signature
    return _shorten([f"{dtype}{list(shape)}" for shape, dtype in types]) + f" in {structure}"


def _shorten(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more

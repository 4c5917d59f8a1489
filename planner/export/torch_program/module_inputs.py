"""Arguments of a module by path, however they are given: by position or name, alone or in tuples, lists and dicts.

torch.export numbers the leaves of an example's arguments and names those that are tensors. A path such as
`['batch'][0]` is the same for every way to call the module.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten

PlainValue = int | float | bool | str | None
"""An argument that is no tensor: the program is planned for this one."""


@dataclass(frozen=True, slots=True)
class InputName:
    """The name in the graph of an argument that is a tensor."""

    name: str


class _Leaf:
    """Stands for an argument of an example: no two are equal."""


def order_arguments(
    module: torch.nn.Module, given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the same arguments in the order of the module's parameters, by position as far as they can be."""
    bound = inspect.signature(module.forward).bind(*given, **named)
    return bound.args, bound.kwargs


def flatten_arguments(signature: inspect.Signature, given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a call's arguments by path, defaults included."""
    bound = signature.bind(*given, **named)
    bound.apply_defaults()
    return {keystr(path): leaf for path, leaf in tree_flatten_with_path(dict(bound.arguments))[0]}


def name_arguments(
    module: torch.nn.Module, given: tuple[Any, ...], named: Mapping[str, Any], *, leaves: Sequence[Any]
) -> dict[str, InputName | PlainValue]:
    """Return names by path of an example's tensors, and its other values; `leaves` are those of torch.export."""
    values, tree = tree_flatten((given, dict(named)))
    stand_ins = [_Leaf() for _ in values]
    known = {
        id(leaf): InputName(name) if isinstance(value, torch.Tensor) else value
        for leaf, value, name in zip(stand_ins, values, leaves, strict=True)
    }
    args, kwargs = tree_unflatten(stand_ins, tree)
    flat = flatten_arguments(inspect.signature(module.forward), args, kwargs)
    return {path: known.get(id(leaf), leaf) for path, leaf in flat.items()}

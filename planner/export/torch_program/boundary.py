"""Arguments and results of a program: what every process holds of whole tensors."""

from __future__ import annotations

from planner.ir.program import Program
from planner.ir.sharding import Reduction, Sharding, held_bounds

LOCAL = '''def local(*arrays):
    """What this process holds of whole arguments, in the order of ARGUMENTS."""
    return tuple(part_of(array, *held[RANK]) for array, held in zip(arrays, ARGUMENTS.values()))'''
PART = '''def part_of(array, term, neutral, bounds):
    """A part of an array; of a term that is not the first, what changes nothing; beyond the ends, zeros."""
    inside = [(max(start, 0), min(stop, size)) for (start, stop), size in zip(bounds, array.shape)]
    part = array[tuple(slice(*ends) for ends in inside)].clone()
    if term and neutral is not None:
        part.fill_(neutral)
    sides = [(low - start, stop - high) for (start, stop), (low, high) in zip(bounds, inside)]
    return torch.nn.functional.pad(part, [side for pair in reversed(sides) for side in pair])'''
WHOLE = '''def whole(*results):
    """The whole results on every process, in the order of RESULTS."""
    shards = [None] * dist.get_world_size()
    # As bytes: not every dtype can be pickled. The elements of a broadcast tensor are not there one by one.
    tensors = [waited(each).detach().cpu().clone(memory_format=torch.contiguous_format) for each in results]
    dist.all_gather_object(shards, [(each.reshape(-1).view(torch.uint8), each.dtype, each.shape) for each in tensors])
    parts = [[raw.view(dtype).reshape(shape) for raw, dtype, shape in each] for each in shards]
    return tuple(joined([each[k] for each in parts], *held) for k, held in enumerate(RESULTS.values()))'''
JOIN = '''def waited(tensor):
    """The tensor, when the collective that makes it is done."""
    return funcol.wait_tensor(tensor) if isinstance(tensor, funcol.AsyncCollectiveTensor) else tensor


def joined(shards, shape, combine, held):
    """The whole of the shards of all processes."""
    terms = {}
    for shard, (term, bounds) in zip(shards, held):
        array = terms.setdefault(term, shard.new_zeros(shape))
        inside = [(max(start, 0), min(stop, size)) for (start, stop), size in zip(bounds, shape)]
        cut = tuple(slice(low - start, high - start) for (start, _), (low, high) in zip(bounds, inside))
        array[tuple(slice(*ends) for ends in inside)] = shard[cut]
    total, *others = (terms[term] for term in sorted(terms))
    for other in others:
        total = combine(total, other)
    return total'''
BOUNDARY = "\n\n\n".join([LOCAL, PART, WHOLE, JOIN])
COMBINE = {
    Reduction.SUM: "torch.add",
    Reduction.AVERAGE: "torch.add",
    Reduction.MAX: "torch.maximum",
    Reduction.MIN: "torch.minimum",
    Reduction.PRODUCT: "torch.mul",
    Reduction.BITWISE_AND: "torch.bitwise_and",
    Reduction.BITWISE_OR: "torch.bitwise_or",
    Reduction.BITWISE_XOR: "torch.bitwise_xor",
}


def write_argument(program: Program, value: str) -> str:
    """Return the text of what every rank holds of an argument: term, what changes nothing, and bounds by dim.

    Data of several micro-batches have those in a first dim of their own.
    """
    sharding, terms, bounds = _holdings(program, value)
    neutral = sharding.reduction.neutral if sharding.partial else None
    first = [[0, program.graph.microbatches]] if value in program.stacked else []
    ranks = [f"({term}, {neutral}, {_write_ends(first + ends)})" for term, ends in zip(terms, bounds, strict=True)]
    return f"    {value!r}: {_write_table(ranks)},\n"


def write_result(program: Program, value: str, name: str) -> str:
    """Return the text of what every rank holds of a result: shape, how terms combine, terms and bounds."""
    sharding, terms, bounds = _holdings(program, value)
    shape = program.values[value].type.shape
    ranks = [f"({term}, {_write_ends(ends)})" for term, ends in zip(terms, bounds, strict=True)]
    return f"    {name!r}: ({shape!r}, {COMBINE[sharding.reduction]}, {_write_table(ranks)}),\n"


def _write_ends(ends: list[list[int]]) -> str:
    return repr(tuple(map(tuple, ends)))


def _write_table(ranks: list[str]) -> str:
    if len(set(ranks)) == 1:
        return f"({ranks[0]},) * {len(ranks)}"
    return f"({', '.join(ranks)})"


def _holdings(program: Program, value: str) -> tuple[Sharding, list[int], list[list[list[int]]]]:
    held, mesh = program.values[value], program.mesh
    bounds = held_bounds(held.sharding, held.type.shape, mesh).tolist()
    return held.sharding, mesh.group_index(held.sharding.partial).tolist(), bounds

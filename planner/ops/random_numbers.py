"""Random numbers that depend on a seed and on the position in the whole tensor, so that no sharding changes them.

    word(seed, position) = Threefry-2x32 with 20 rounds, of key (seed, stream) and counter position
    dropout   x / (1 - p) where word / 2^32 >= p, else 0; its gradient is the same dropout of the gradient
    random    uniform in [0, 1) from 24 bits of a word, or normal from both words (G. Box, M. Muller, 1958)

A counter-based generator computes each number from its position alone: a device draws those of its part, and an op
that is computed again draws the same. The position is row-major, in two words: trailing dims of fewer than 2^32
elements are the low one. The stream keeps apart the seeds of dropouts from those of other draws.

J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the rotations are those
of their Random123 library, which JAX uses too.

Programs of JAX hold keys of their own: `threefry` is the generator on arrays of counters, and `random_bits` the word
that JAX draws for each position of a tensor, the xor of both words of counter position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.errors import InvalidGraph
from planner.ops import attribute_types as types
from planner.ops.attributes import Attribute
from planner.ops.op_def import Array, OpContext, OpDef, OpSignature, Span, any_float, float_dtype

P = Attribute("p", types.NUMBER)
SEED = Attribute("seed", types.whole_number(0), 0)
DISTRIBUTION = Attribute("distribution", types.one_of("uniform", "normal"), "uniform")
DRAW_FLOPS = 25
"""Operations per draw: kernels draw four words with about 100, as Philox-4x32-10 does."""

WORD = 1 << 32
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
DROPOUTS, DRAWS = 0, 1
"""Streams."""


def threefry(key: tuple[Array, Array], high: Array, low: Array) -> tuple[Array, Array]:
    """Return two random words per counter. All are uint32 arrays of at least one dim, which broadcast."""
    word = low.dtype.type
    keys = (*key, key[0] ^ key[1] ^ word(PARITY))
    first, second = high + key[0], low + key[1]
    for number in range(5):
        for bits in ROTATIONS[number % 2]:
            first = first + second
            second = ((second << word(bits)) | (second >> word(32 - bits))) ^ first
        first = first + keys[(number + 1) % 3]
        second = second + (keys[(number + 2) % 3] + word(number + 1))
    return first, second


def draw_words(local: OpContext, spans: Sequence[Span], stream: int) -> tuple[Array, Array]:
    """Return two words of the op's seed for each position of a device's part; `spans` are those of its dims."""
    seed = local.read(SEED)
    first, second = (
        local.xp.full((1,), number, "uint32") for number in (seed % WORD, (seed // WORD * 2 + stream) % WORD)
    )
    return _draw_from_key(local, spans, (first, second))


def _draw_from_key(local: OpContext, spans: Sequence[Span], key: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return two words for each position of a device's part, in its shape; the key is two arrays of shape [1]."""
    count = len(spans)
    while count and math.prod(span.size for span in spans[count - 1 :]) < WORD:
        count -= 1
    shape = tuple(span.length for span in spans)
    high, low = (_count_positions(local, spans, dims, shape=shape) for dims in (range(count), range(count, len(spans))))
    words = threefry(key, high, low)
    return words[0].reshape(shape), words[1].reshape(shape)


def _count_positions(local: OpContext, spans: Sequence[Span], dims: range, *, shape: tuple[int, ...]) -> Array:
    """Return the row-major positions along some dims as a flat array, modulo 2^32."""
    total = local.xp.zeros((1,) * len(shape), "uint32")
    for dim in dims:
        stride = math.prod(spans[later].size for later in dims if later > dim)
        along = local.xp.arange(spans[dim].start, spans[dim].stop).astype("uint32")
        along = along * along.dtype.type(stride % WORD)
        total = total + along.reshape(-1, *(1,) * (len(shape) - 1 - dim))
    return local.xp.broadcast_to(total, shape).reshape(-1)


def draw_mask(local: OpContext, spans: Sequence[Span], p: float) -> Array:
    """Return which elements of a device's part a dropout keeps; each is dropped with probability p."""
    word, _ = draw_words(local, spans, DROPOUTS)
    return word >= word.dtype.type(min(round(p * WORD), WORD - 1))


def keep_scale(p: float) -> float:
    """Return the factor of the elements that are kept."""
    return 1 / (1 - p) if p < 1 else 0.0


def _dropout(local: OpContext, x: Array) -> Array:
    p = local.read(P)
    spans = [local.spans[f"_{dim}"] for dim in reversed(range(x.ndim))]
    return local.xp.where(draw_mask(local, spans, p), x * x.dtype.type(keep_scale(p)), x.dtype.type(0))


def check_probability(signature: OpSignature, attribute: Attribute[float]) -> None:
    """Raise InvalidGraph for a probability that is none."""
    if not 0 <= (p := signature.read(attribute)) <= 1:
        raise InvalidGraph(f"attribute {attribute.name!r}", got=p, wanted="0 to 1")


def _dropout_rule(signature: OpSignature) -> str:
    check_probability(signature, P)
    return "... -> ...; linear 0"


def _loops(rank: int) -> list[str]:
    return [f"d{dim}" for dim in range(rank)]


def _random_rule(signature: OpSignature) -> str:
    return "-> " + (" ".join(_loops(len(signature.results[0].shape))) or "[]")


def _random(local: OpContext) -> Array:
    dtype = local.dtypes[0]
    spans = [local.spans[loop] for loop in _loops(len(local.shapes[0]))]
    first, second = (_fraction(word, dtype) for word in draw_words(local, spans, DRAWS))
    if local.read(DISTRIBUTION) == "uniform":
        return first
    xp = local.xp
    return xp.sqrt(-2 * xp.log(1 - first)) * xp.cos(2 * math.pi * second)


def _fraction(word: Array, dtype: Array) -> Array:
    """Return a number in [0, 1) for each word: 24 bits, which f32 holds."""
    return (word >> word.dtype.type(8)).astype(dtype) * dtype.type(2.0**-24)


def _threefry(local: OpContext, *operands: Array) -> tuple[Array, Array]:
    first_key, second_key, high, low = (each if each.ndim else each.reshape(1) for each in operands)
    words = threefry((first_key, second_key), high, low)
    return words[0].reshape(local.shapes[0]), words[1].reshape(local.shapes[1])


def _random_bits_rule(signature: OpSignature) -> str:
    return "[], [] " + _random_rule(signature)


def _random_bits(local: OpContext, first_key: Array, second_key: Array) -> Array:
    spans = [local.spans[loop] for loop in _loops(len(local.shapes[0]))]
    first, second = _draw_from_key(local, spans, (first_key.reshape(1), second_key.reshape(1)))
    return first ^ second


def words_of_32_bits(signature: OpSignature) -> str | None:
    """Check that operands and results are u32."""
    return None if {kind.dtype for kind in (*signature.operands, *signature.results)} == {"u32"} else "u32"


OP_DEFS = (
    OpDef("dropout", _dropout_rule, _dropout, DRAW_FLOPS + 2, float_dtype, attrs=(P, SEED)),
    OpDef("random", _random_rule, _random, DRAW_FLOPS + 2, any_float, attrs=(DISTRIBUTION, SEED)),
    OpDef("threefry", "..., ..., ..., ... -> ..., ...", _threefry, DRAW_FLOPS, words_of_32_bits),
    OpDef("random_bits", _random_bits_rule, _random_bits, DRAW_FLOPS, words_of_32_bits),
)

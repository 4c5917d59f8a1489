"""The networks of the public instances: graph networks, U-Nets, diffusion, Gemma 1 and 2, in training and inference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solvers import Problem
from tests.testing.synthetic_instances.shardings import Sizes
from tests.testing.synthetic_instances.step import Step

Build = Callable[[Step, int], int]


def _mlp(step: Step, x: int, letters: str, hidden: str, out: str) -> int:
    """Add a product, bias, activation, product and norm; x's last dim is contracted."""
    batch, last = letters[:-1], letters[-1]
    up = step.einsum(batch + hidden, x, step.parameter(last + hidden))
    up = step.pointwise(step.add_bias(up, hidden), ops=3)
    down = step.einsum(batch + out, up, step.parameter(hidden + out))
    return step.norm(down)


def graph_network(step: Step, depth: int) -> int:
    """Add message passing over e edges and n nodes: gathers, an MLP on edges, a scatter, an MLP on nodes."""
    nodes = _mlp(step, step.parameter("ni", False), "ni", "h", "d")
    edges = _mlp(step, step.parameter("ej", False), "ej", "h", "d")
    senders, receivers = (step.parameter("en", False) for _ in range(2))
    for _ in range(depth):
        sent, received = (step.einsum("ed", nodes, ends) for ends in (senders, receivers))
        message = _mlp(step, step.pointwise(edges, sent, received, ops=2), "ed", "h", "d")
        edges = step.pointwise(edges, message)
        gathered = step.einsum("nd", message, receivers)
        nodes = step.pointwise(nodes, _mlp(step, step.pointwise(gathered, nodes), "nd", "h", "d"))
    return step.einsum("n", _mlp(step, nodes, "nd", "h", "o"))


def _convolved(step: Step, x: int, time: int, letters: str, out: str, blocks: int) -> int:
    """Add residual blocks of convolutions with a time embedding; the first may change the channels."""
    for block in range(blocks):
        inner = step.norm(x, ops=3)
        last = step.letters(x)[-1]
        inner = step.einsum(letters[:-1] + out, inner, step.parameter(last + out))
        inner = step.pointwise(inner, step.einsum("b" + out, time, step.parameter("t" + out)), ops=2)
        copy = step.renamed(inner, letters[:-1] + out.upper())
        inner = step.einsum(letters[:-1] + out, copy, step.parameter(out.upper() + out))
        same = x if last == out else step.einsum(letters[:-1] + out, x, step.parameter(last + out))
        x = step.pointwise(same, inner, ops=1 + block % 2)
    return x


def _attended(step: Step, x: int, letters: str) -> int:
    """Add self-attention over the pixels of a small image, per head."""
    image, last = letters[:-1], letters[-1]
    normal = step.norm(x)
    queries, keys, values = (step.einsum(image + "g", normal, step.parameter(last + "g")) for _ in range(3))
    keys, values = (step.renamed(v, letters[0] + "uv" + "g") for v in (keys, values))
    weights = step.pointwise(step.einsum(letters[0] + image[1] + "ug", queries, keys), ops=5)
    mixed = step.einsum(image + "g", weights, values)
    return step.pointwise(x, step.einsum(letters, mixed, step.parameter("g" + last)))


def _scales(step: Step, depth: int, blocks: int, attention: bool) -> int:
    """Add a U-Net's path down through the scales and up again, with a skip connection per scale."""
    time = step.pointwise(step.einsum("bt", step.parameter("bi", False), step.parameter("it")), ops=3)
    images, channels = ("bxyc", "bpqk", "bzwl", "bfhm")[:depth], "cklm"
    x = step.einsum("bxyc", step.parameter("bxyj", False), step.parameter("jc"))
    skips = []
    for place, image in enumerate(images):
        x = _convolved(step, x, time, image, channels[place], blocks)
        x = _attended(step, x, image) if attention and place >= depth - 2 else x
        skips.append(x)
        if place + 1 < depth:
            wider = images[place + 1]
            x = step.renamed(step.einsum(image, x), wider[:-1] + channels[place].upper())
            x = step.einsum(wider, x, step.parameter(channels[place].upper() + channels[place + 1]))
    for place in reversed(range(depth)):
        image = images[place]
        x = step.pointwise(x, skips[place], ops=2)
        x = _convolved(step, x, time, image, channels[place], blocks)
        if place:
            narrower = images[place - 1]
            x = step.einsum(image[:-1] + channels[place - 1].upper(), x, step.parameter(
                channels[place] + channels[place - 1].upper()))  # fmt: skip
            x = step.renamed(x, narrower)
    return step.einsum("bxyj", x, step.parameter("cj"))


def unet(step: Step, depth: int) -> int:
    """Add a U-Net of four scales with `depth` residual blocks each."""
    return step.einsum("b", _scales(step, 4, depth, False))


def diffusion(step: Step, depth: int) -> int:
    """Add `depth` denoising steps: a U-Net with attention at its small scales, and the update of the image."""
    x = _scales(step, 3, 2, True)
    for _ in range(depth - 1):
        x = step.pointwise(x, _scales(step, 3, 2, True), ops=3)
    return step.einsum("b", x)


def _layer(step: Step, x: int, soft: int, sandwiched: bool) -> int:
    """Add a transformer layer with one shared head of keys and values; sandwiched: norms after both halves too."""
    normal = step.norm(x, ops=4)
    queries = step.pointwise(step.einsum("bsha", normal, step.parameter("dha")), ops=4)
    keys = step.renamed(step.pointwise(step.einsum("bsa", normal, step.parameter("da")), ops=4), "bta")
    values = step.renamed(step.einsum("bsa", normal, step.parameter("da")), "bta")
    scores = step.pointwise(step.einsum("bhst", queries, keys), ops=soft)
    weights = step.pointwise(scores, step.einsum("bhs", scores), ops=2)
    mixed = step.einsum("bsha", weights, values)
    mixed = step.einsum("bsd", mixed, step.parameter("had"))
    x = step.pointwise(x, step.norm(mixed) if sandwiched else mixed)
    normal = step.norm(x, ops=4)
    gate = step.pointwise(step.einsum("bsf", normal, step.parameter("df")), ops=5)
    up = step.pointwise(gate, step.einsum("bsf", normal, step.parameter("df")))
    down = step.einsum("bsd", up, step.parameter("fd"))
    return step.pointwise(x, step.norm(down) if sandwiched else down)


def _transformer(step: Step, depth: int, soft: int, sandwiched: bool) -> int:
    table = step.parameter("vd")
    x = step.pointwise(step.einsum("bsd", step.parameter("bsv", False), table), ops=2)
    for _ in range(depth):
        x = _layer(step, x, soft, sandwiched)
    logits = step.pointwise(step.einsum("bsv", step.norm(x), table), ops=3)
    return step.einsum("bs", logits)


def gemma1(step: Step, depth: int) -> int:
    """Add `depth` layers."""
    return _transformer(step, depth, 4, False)


def gemma2(step: Step, depth: int) -> int:
    """Add `depth` layers with norms on both sides of each half and capped scores."""
    return _transformer(step, depth, 8, True)


@dataclass(frozen=True, slots=True)
class Look:
    """A network, its size, and how it is turned into a problem."""

    build: Build
    depth: int
    trained: bool
    sizes: Sizes
    tied: bool = True
    constants: float = 1.0


def _sizes(mesh: tuple[int, int], **loops: int) -> Sizes:
    return Sizes(mesh, tuple(sorted(loops.items())))


def _images(mesh: tuple[int, int], b: int) -> Sizes:
    loops = {"x": 128, "y": 128, "c": 128, "p": 64, "q": 64, "k": 256, "z": 32, "w": 32, "l": 512}
    deepest = {"f": 16, "h": 16, "m": 1024, "C": 128, "K": 256, "L": 512, "M": 1024}
    return _sizes(mesh, b=b, t=512, i=128, j=4, u=64, v=64, g=512, **loops, **deepest)


def _text(mesh: tuple[int, int], b: int, s: int, d: int, h: int, f: int) -> Sizes:
    return _sizes(mesh, b=b, s=s, t=s, d=d, h=h, a=256, f=f, v=256_000)


GRAPHS = _sizes((4, 8), n=4096, e=65536, i=32, j=8, h=512, d=512, o=4)

LOOKS: dict[str, Look] = {
    "graph network, inference": Look(graph_network, 6, False, GRAPHS),
    "graph network, training": Look(graph_network, 16, True, GRAPHS, constants=2.0),
    "graph network, untied": Look(graph_network, 10, True, GRAPHS, tied=False),
    "U-Net, inference": Look(unet, 3, False, _images((2, 16), 8)),
    "U-Net, training": Look(unet, 6, True, _images((2, 16), 64), constants=2.0),
    "U-Net, untied": Look(unet, 3, True, _images((4, 4), 32), tied=False),
    "diffusion, inference": Look(diffusion, 4, False, _images((4, 8), 8)),
    "diffusion, training": Look(diffusion, 2, True, _images((2, 16), 32), constants=2.0),
    "diffusion, untied": Look(diffusion, 2, True, _images((4, 8), 32), tied=False),
    "Gemma 1, inference": Look(gemma1, 18, False, _text((2, 16), 4, 1024, 2048, 8, 16384)),
    "Gemma 1, training": Look(gemma1, 18, True, _text((8, 8), 64, 1024, 2048, 8, 16384), constants=2.0),
    "Gemma 1, untied": Look(gemma1, 18, True, _text((8, 8), 64, 1024, 2048, 8, 16384), tied=False),
    "Gemma 2, inference": Look(gemma2, 26, False, _text((4, 8), 4, 2048, 2304, 8, 9216)),
    "Gemma 2, training": Look(gemma2, 42, True, _text((8, 16), 32, 2048, 3584, 16, 14336), constants=3.0),
    "Gemma 2, untied": Look(gemma2, 26, True, _text((4, 16), 64, 1024, 2304, 8, 9216), tied=False),
}


def look_alike(name: str, seed: int, depth: int | None = None) -> Problem:
    """Return one of LOOKS, at another depth if one is given."""
    look = LOOKS[name]
    step = Step(look.sizes, seed, look.tied, look.constants)
    loss = look.build(step, look.depth if depth is None else depth)
    if look.trained:
        step.train(loss)
    return step.problem()

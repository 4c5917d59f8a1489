"""Every text format of export, with words that its output contains."""

from __future__ import annotations

# format, what its text has
WORDS = [
    ("mesh", "mesh.mesh @mesh"),
    ("shard", "shard.grid @mesh"),
    ("sdy", "sdy.mesh @mesh"),
    ("dtensor", '"values"'),
    ("partition-spec", '"values"'),
    ("shard-map", "def mapped(mesh):"),
    ("torch", "torch.distributed._functional_collectives"),
    ("model-explorer", '"graphs"'),
]

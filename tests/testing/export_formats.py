"""Every text format of export, and words that its text has."""

from __future__ import annotations

# format, what its text has
WORDS = [
    ("mesh", "mesh.mesh @mesh"),
    ("shard", "shard.grid @mesh"),
    ("sdy", "sdy.mesh @mesh"),
    ("dtensor", '"values"'),
    ("partition-spec", '"values"'),
    ("shard-map", "def mapped(mesh):"),
    ("model-explorer", '"graphs"'),
]

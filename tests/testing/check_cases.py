"""Graph documents for `check` to compare."""

from __future__ import annotations

from tests.testing.small_documents import GRAPH, Document, changed

IDENTITY = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false"]


NEVER = "f" * 64


def wider() -> Document:
    """Return the small graph with a layer twice as wide."""
    document = changed(GRAPH, "inputs.1.shape", [4096, 16])
    for node in range(2):
        document = changed(document, f"nodes.{node}.outputs.0.shape", [8, 4096])
    return document

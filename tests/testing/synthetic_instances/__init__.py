"""Synthetic instances like the public ones of every class: networks as a compiler's sharding pass poses them."""

from __future__ import annotations

from tests.testing.synthetic_instances.networks import LOOKS, look_alike

__all__ = ["LOOKS", "look_alike"]

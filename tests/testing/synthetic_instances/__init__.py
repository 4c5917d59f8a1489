"""Synthetic instances that resemble the public ones: networks as problems of a compiler's sharding pass."""

from __future__ import annotations

from tests.testing.synthetic_instances.networks import LOOKS, look_alike

__all__ = ["LOOKS", "look_alike"]

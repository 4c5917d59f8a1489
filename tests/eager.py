"""A device slow at products and quick to start, on which small tensors are worth splitting."""

from __future__ import annotations

from dataclasses import replace

from planner.choose.hardware import Hardware, load

EAGER: Hardware = replace(load("h100-sxm"), compute_efficiency=1e-4, launch_s=1e-8, collective_launch_s=1e-8)

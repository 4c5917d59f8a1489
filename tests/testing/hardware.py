"""A hardware profile with slow matrix products and low latency, on which splitting small tensors pays.

No device is like it, so that the roofline prices its ops.
"""

from __future__ import annotations

from dataclasses import replace

from planner.choose.hardware import Hardware, load_profile
from planner.choose.hardware.network import Link

KNOWN = load_profile("h100-sxm")
EAGER: Hardware = replace(
    KNOWN,
    compute_efficiency=1e-4,
    efficiency={},
    op_times=None,
    launch_s=1e-8,
    links={name: Link(1e-8, link.bandwidth, 6e-7) for name, link in KNOWN.links.items()},
)

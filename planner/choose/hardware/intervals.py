"""Intervals of measured over predicted time where no residuals say them, and factors that widen those that do.

All are judged, not fitted.
"""

from __future__ import annotations

UNMEASURED_DEVICE, OUT_OF_RANGE = 1.4, 2.0
"""Factors by which an interval widens on both sides: on a device without measurements, outside the measured shapes."""
NETWORK_INTERVAL = (0.7, 1.5)
"""Of collectives that a profile's links price."""
UNMEASURED_OP = (1 / 1.4, 1.4)
"""Of ops and copies that the roofline, a cited efficiency or a curve of an op prices."""

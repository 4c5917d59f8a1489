"""Intervals of measured over predicted time where no residuals say them, and factors that widen those that do.

All are judged, not fitted. Where a measured device is predicted by the others, 88 % or more of the rows of every group
of classes lie within the interval of a device without measurements.
"""

from __future__ import annotations

UNMEASURED_DEVICE, OUT_OF_RANGE = 1.6, 2.0
"""Factors by which an interval widens on both sides: on a device without measurements, outside the measured shapes."""
NETWORK_INTERVAL = (0.7, 1.5)
"""Of collectives that a profile's links price."""
UNMEASURED_OP = (1 / 1.4, 1.4)
"""Of ops and copies that the roofline, a cited efficiency or a curve of an op prices."""

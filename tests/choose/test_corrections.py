"""A correction brings own measurements closer on rows that it was not fitted to, or is refused."""

from __future__ import annotations

import numpy as np
import pytest

from planner.choose.hardware.corrections import MIN_SHAPES, TimeCorrection, fit_correction
from planner.errors import InvalidHardware

PREDICTED = np.geomspace(1e-5, 1e-2, 40)


@pytest.mark.parametrize(("offset", "scale"), [(0.0, 1.3), (5e-6, 0.8), (2e-5, 1.0)])
def test_a_line_is_found_again_and_one_wild_row_does_not_move_it(offset: float, scale: float) -> None:
    measured = offset + scale * PREDICTED
    measured[7] *= 5
    found = fit_correction("gemm.bf16", PREDICTED, measured)
    assert found.fitted.scale == pytest.approx(scale, rel=0.02)
    assert found.fitted.offset_s == pytest.approx(offset, abs=2e-7)
    assert found.after < 0.02 < found.before


def test_no_offset_is_negative() -> None:
    measured = np.maximum(2 * PREDICTED - 8e-6, 1e-6)
    assert fit_correction("gemm.bf16", PREDICTED, measured).fitted.offset_s == 0


def test_a_fit_that_does_not_generalize_is_refused() -> None:
    measured = PREDICTED.copy()
    measured[::3] *= 3
    with pytest.raises(InvalidHardware, match=r"does not generalize.*rows kept out"):
        fit_correction("gemm.bf16", PREDICTED, measured)


def test_too_few_shapes_are_refused_however_often_measured() -> None:
    few = np.repeat(PREDICTED[: MIN_SHAPES - 1], 10)
    with pytest.raises(InvalidHardware, match="too few measured shapes"):
        fit_correction("gemm.bf16", few, few * 2)


@pytest.mark.parametrize("figures", [(0.0, 0.0, 1.0, 1.0), (1.0, -1.0, 1.0, 1.0), (1.0, 0.0, 2.0, 1.0)])
def test_figures_that_no_device_has_are_refused(figures: tuple[float, float, float, float]) -> None:
    with pytest.raises(InvalidHardware, match="correction"):
        TimeCorrection(*figures)

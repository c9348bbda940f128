"""What to tell users whose draws contradict the gradients there, and of which variable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_geodesic.tuning.metric import Metric
from pymc_geodesic.tuning.stationarity import Stationarity, StationarityError

__all__ = ["complaint_about"]

_REMEDY_OF_MEAN = (
    "Give it more tuning draws, start nearer to the posterior, or use GMC or NUTS, which correct "
    "each step."
)
_REMEDY_OF_VARIANCE = (
    "Use a larger batch_size or more tuning draws; if it is a scale that other variables depend "
    "on, write those as a product with it (non-centred) or as they are (centred), whichever it is "
    "not; GMC and NUTS correct each step."
)


def _coordinate_of_model(
    stationarity: Stationarity, metric: Metric, worst: StationarityError
) -> int:
    """Coordinate of the model that an error in the coordinates of a metric shows most in."""
    place, d = worst.coordinate, metric.centre.size
    if place >= d or not metric.is_dense:
        return place
    factor = np.asarray(metric.factor)
    lengths = np.sqrt(np.sum(factor**2, axis=1))
    if worst.kind == "mean":
        shift = factor @ stationarity.mean_gradient[:d] / lengths
        return int(np.argmax(np.abs(shift)))
    return int(np.argmax(np.abs(factor[:, place]) / lengths))


def complaint_about(stationarity: Stationarity, metric: Metric, names: Sequence[str]) -> str | None:
    """Say what is wrong with the draws, of which variable; None if nothing is.

    Parameters
    ----------
    stationarity : Stationarity
        What was seen in the coordinates of the metric.
    metric : Metric
    names : list of str, one for each number of a position
    """
    worst = stationarity.worst()
    if worst is None:
        return None
    if worst.kind == "all temperatures":
        return (
            f"the variances of its variables are off together: their mean configurational "
            f"temperature is {worst.value:.2f} instead of 1 (standard error {worst.error:.2f}). "
            f"{_REMEDY_OF_VARIANCE}"
        )
    name = names[_coordinate_of_model(stationarity, metric, worst)]
    if worst.kind == "mean":
        return (
            f"the mean of {name!r} is {abs(worst.value):.2f} posterior standard "
            f"deviations off (standard error {worst.error:.2f}). {_REMEDY_OF_MEAN}"
        )
    return (
        f"the variance of {name!r} is off: its configurational temperature is "
        f"{worst.value:.2f} instead of 1 (standard error {worst.error:.2f}). "
        f"{_REMEDY_OF_VARIANCE}"
    )

"""What to tell users whose draws contradict the gradients there, and of which variable."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pymc_geodesic.tuning.metric import Metric
from pymc_geodesic.tuning.noise import LangevinSettings
from pymc_geodesic.tuning.noise_over_places import heat_in_doubt
from pymc_geodesic.tuning.stationarity import Stationarity, StationarityError

__all__ = ["MOST_NAMES", "complaint_about", "complaint_about_noise", "complaint_in_the_model"]

LARGER = "larger minibatches"

_REMEDY_OF_MEAN = (
    "Give it more tuning draws, start nearer to the posterior, or use GMC or NUTS, which correct "
    "each step."
)
_REMEDY_OF_VARIANCE = (
    "Use {minibatches} or more tuning draws; if it is a scale that other variables depend "
    "on, write those as a product with it (non-centred) or as they are (centred), whichever it is "
    "not; GMC and NUTS correct each step."
)


MOST_NAMES = 20
"""Coordinates that a warning names; of more it gives the number."""

_STANDSTILL = 0.05
"""Largest standard deviation of the draws along a coordinate, in posterior standard deviations, of
a chain that does not move."""

_REMEDY_OF_STANDSTILL = (
    "Discard it: its gradient noise is too large for any step size. Use a larger batch_size, more "
    "tuning draws, or GMC or NUTS."
)


_DOUBTFUL_HEAT = 0.1
"""Error of a temperature, for noise that is known badly, that is worth a word."""


def complaint_about_noise(
    settings: LangevinSettings, error: np.ndarray, metric: Metric, names: Sequence[str]
) -> str | None:
    """Say that gradient noise which is taken off was measured badly; None if it was not.

    Parameters
    ----------
    settings : LangevinSettings
    error : ndarray, shape (size,)
        Standard error of the variance of the noise in the coordinates of the metric.
    metric : Metric
    names : list of str, one for each number of a position

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.complaint import complaint_about_noise
    >>> from pymc_geodesic.tuning.metric import Metric
    >>> from pymc_geodesic.tuning.noise import langevin_settings
    >>> noise, metric = np.array([9.0, 9.0]), Metric(np.zeros(2), np.ones(2))
    >>> settings = langevin_settings(noise)
    >>> complaint_about_noise(settings, 0.1 * noise, metric, ["a", "b"]) is None
    True
    >>> complaint_about_noise(settings, np.array([0.9, 6.0]), metric, ["a", "b"])[:40]
    "the gradient noise of 'b' is known badly"
    """
    heat = heat_in_doubt(settings, error)
    worst = int(np.argmax(heat))
    if not heat[worst] > _DOUBTFUL_HEAT:
        return None
    found = sorted(np.flatnonzero(heat > _DOUBTFUL_HEAT), key=lambda i: -heat[i])
    places = [_place_of_model(metric, int(i)) for i in found]
    part = error[worst] / settings.noise[worst]
    return (
        f"the gradient noise of {names[places[0]]!r} is known badly, to {part:.0%}, for few "
        "minibatches make most of it, such as those that hold one of a few rows: its variance may "
        f"be off by {heat[worst]:.0%}. {_list_coordinates(places, names)}"
        "Use a larger batch_size, or a step that sees all rows (SubgradientHMC, GMC or NUTS)"
    )


def _list_coordinates(places: Sequence[int], names: Sequence[str]) -> str:
    """Name all coordinates that a warning concerns, with their number; empty for a single one.

    Examples
    --------
    >>> from pymc_geodesic.tuning.complaint import _list_coordinates
    >>> _list_coordinates([2, 0, 2], ["b[0]", "b[1]", "b[2]"])
    "This concerns 2 of 3 coordinates: 'b[2]', 'b[0]'. "
    """
    concerned = list(dict.fromkeys(places))
    if len(concerned) < 2:
        return ""
    listed = ", ".join(repr(names[place]) for place in concerned[:MOST_NAMES])
    left_out = len(concerned) - MOST_NAMES
    more = f" and {left_out} more" if left_out > 0 else ""
    return f"This concerns {len(concerned)} of {len(names)} coordinates: {listed}{more}. "


def _place_of_model(metric: Metric, place: int) -> int:
    """Coordinate of the model that one of the metric is most of."""
    if place >= metric.centre.size or not metric.is_dense:
        return place
    factor = np.asarray(metric.factor)
    return int(np.argmax(np.abs(factor[:, place]) / np.sqrt(np.sum(factor**2, axis=1))))


def _coordinates_of_model(
    stationarity: Stationarity, metric: Metric, errors: Sequence[StationarityError]
) -> list[int]:
    """Coordinates of the model in which errors of one kind show most, the largest first."""
    d = metric.centre.size
    if not metric.is_dense:
        return [error.coordinate for error in errors]
    places = [_place_of_model(metric, error.coordinate) for error in errors]
    if errors[0].kind == "mean" and errors[0].coordinate < d:
        factor = np.asarray(metric.factor)
        lengths = np.sqrt(np.sum(factor**2, axis=1))
        shift = np.abs(factor @ stationarity.mean_gradient[:d] / lengths)
        places = [int(np.argmax(shift)), *places]
    return places


def complaint_about(stationarity: Stationarity, metric: Metric, names: Sequence[str]) -> str | None:
    """Say what is wrong with the draws, of which variable; None if nothing is.

    Parameters
    ----------
    stationarity : Stationarity
        What was seen in the coordinates of the metric.
    metric : Metric
    names : list of str, one for each number of a position
    """
    largest_sd = stationarity.largest_sd
    if largest_sd < _STANDSTILL:
        return (
            "the chain does not move: no standard deviation of its draws exceeds "
            f"{largest_sd:.1g} posterior standard deviations. {_REMEDY_OF_STANDSTILL}"
        )
    errors = stationarity.errors()
    if not errors:
        return None
    worst = errors[0]
    if worst.kind == "all temperatures":
        return _complaint_about_all(worst)
    errors = [error for error in errors if error.kind == worst.kind]
    places = _coordinates_of_model(stationarity, metric, errors)
    if worst.kind == "mean":
        return (
            f"the mean of {names[places[0]]!r} is {abs(worst.value):.2f} posterior standard "
            f"deviations off (standard error {worst.error:.2f}). "
            f"{_list_coordinates(places, names)}{_REMEDY_OF_MEAN}"
        )
    return _complaint_about_variance(worst, places, names)


def complaint_in_the_model(
    stationarity: Stationarity, names: Sequence[str], *, minibatches: str = LARGER
) -> str | None:
    """Say the same of what was seen in the coordinates of the model; None if nothing is wrong.

    There a gradient that is not zero in the mean says of which variable, or of which others that
    it is correlated with, the mean is off, and not by how much.

    Parameters
    ----------
    stationarity : Stationarity
        What was seen, each coordinate in standard deviations of the draws.
    names : list of str, one for each number of a position
    minibatches : str
        Remedy for much gradient noise.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.tuning.complaint import complaint_in_the_model
    >>> from pymc_geodesic.tuning.stationarity import Stationarity
    >>> seen = Stationarity(1, 1, 400)
    >>> for x in np.random.default_rng(1).normal(0.5, 1.0, size=(400, 1)):
    ...     seen.look(x, -x)
    >>> complaint_in_the_model(seen, ["b"])[:49]
    "the draws of 'b' are not where the gradients say:"
    """
    errors = stationarity.errors()
    if not errors:
        return None
    worst = errors[0]
    if worst.kind == "all temperatures":
        return _complaint_about_all(worst, minibatches)
    places = [error.coordinate for error in errors if error.kind == worst.kind]
    if worst.kind == "mean":
        return (
            f"the draws of {names[places[0]]!r} are not where the gradients say: these are "
            f"{worst.value:.2f} per standard deviation in the mean instead of 0 "
            f"(standard error {worst.error:.2f}). "
            f"{_list_coordinates(places, names)}{_REMEDY_OF_MEAN}"
        )
    return _complaint_about_variance(worst, places, names, minibatches)


def _complaint_about_all(worst: StationarityError, minibatches: str = LARGER) -> str:
    return (
        "the variances of its variables are off together: their mean configurational "
        f"temperature is {worst.value:.2f} instead of 1 (standard error {worst.error:.2f}). "
        f"{_REMEDY_OF_VARIANCE.format(minibatches=minibatches)}"
    )


def _complaint_about_variance(
    worst: StationarityError,
    places: Sequence[int],
    names: Sequence[str],
    minibatches: str = LARGER,
) -> str:
    return (
        f"the variance of {names[places[0]]!r} is off: its configurational temperature is "
        f"{worst.value:.2f} instead of 1 (standard error {worst.error:.2f}). "
        f"{_list_coordinates(places, names)}{_REMEDY_OF_VARIANCE.format(minibatches=minibatches)}"
    )

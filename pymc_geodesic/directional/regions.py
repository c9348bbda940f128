"""Credible caps, highest-density regions and shortest arcs."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from arviz_base import rcParams
from numpy.typing import ArrayLike

from pymc_geodesic.directional.coordinates import units_per_radian, warn_of_degrees
from pymc_geodesic.directional.density import (
    MOST_CENTRES,
    SphericalDensity,
    directional_density,
    evenly,
    thinned,
)
from pymc_geodesic.directional.mean_direction import (
    PACKAGE,
    Centre,
    centre_of,
    frame_centre,
    looks_axial,
    unit_rows,
)

_DRAWS_FOR_AREA = 6000

_DRAWS_FOR_LEVEL = 10_000

_SQUARE_DEGREES = (180.0 / np.pi) ** 2


class Cap(NamedTuple):
    """All directions within `radius` of `centre`."""

    centre: np.ndarray
    radius: float


def probability(ci_prob: float | None) -> float:
    """Return a probability, ArviZ's ``rcParams["stats.ci_prob"]`` by default.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import probability
    >>> probability(0.94)
    0.94
    """
    value = rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
    if not 0.0 < value < 1.0:
        raise ValueError(f"`ci_prob` must lie between 0 and 1, got {value}.")
    return float(value)


def percent(prob: float) -> str:
    """Write a probability in percent, as in the names of columns.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import percent
    >>> percent(0.58), percent(0.995)
    ('58', '99.5')
    """
    return f"{100.0 * prob:.6g}"  # 100 · 0.58 is 57.99… in floating point


def probabilities(ci_probs: ArrayLike | None) -> list[float]:
    """Return one or several probabilities, by default 0.5 and that of ArviZ.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import probabilities
    >>> probabilities(0.8), probabilities(())
    ([0.8], [])
    """
    if ci_probs is None:
        return [0.5, probability(None)]
    return [probability(each) for each in np.atleast_1d(ci_probs)]


def credible_cap(
    points: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    unit: Literal["deg", "rad"] = "deg",
) -> Cap:
    r"""Geodesic ball around the mean direction that holds a share of the draws.

    .. math:: \{x : \arccos(x \cdot m) \le \rho\}

    with the mean direction m, and ρ the quantile of the angles of the draws to it. For axes m is
    the principal axis and the angle :math:`\arccos|x \cdot m|`. A posterior that is symmetric
    around m and falls off from it has no smaller region of that probability.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors.
    ci_prob : float, optional
        Probability of the cap; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether x and −x are the same.
    unit : {"deg", "rad"}
        Unit of the radius.

    Returns
    -------
    centre : numpy.ndarray, shape (d,)
        The mean direction or principal axis.
    radius : float

    Raises
    ------
    ValueError
        If the points are not unit vectors, or `ci_prob` is no probability.

    Warns
    -----
    UserWarning
        If the mean vanishes while the points lie along an axis, and `axial` is false, or there are
        too few points for the probability.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import credible_cap
    >>> angle = np.radians(np.linspace(-10.0, 10.0, 2001))
    >>> cap = credible_cap(np.stack([np.cos(angle), np.sin(angle)], axis=-1), ci_prob=0.9)
    >>> round(cap.radius, 2)
    9.01
    """
    rows = unit_rows(points)
    if not axial and looks_axial(rows):
        warnings.warn(
            "The mean of the points vanishes and they lie along an axis, so that a cap around the "
            "mean says little: `axial=True` takes x and −x for the same.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    return cap_around(rows, centre_of(rows, axial), probability(ci_prob), units_per_radian(unit))


def cap_around(rows: np.ndarray, centre: Centre, prob: float, scale: float) -> Cap:
    """Return the cap around a known centre; see `credible_cap`."""
    difference = np.linalg.norm(rows - centre.mean, axis=1)
    if centre.axial:
        difference = np.minimum(difference, np.linalg.norm(rows + centre.mean, axis=1))
    # From the chord: the inverse cosine loses half of the digits near zero.
    angle = 2.0 * np.arcsin(np.minimum(0.5 * difference, 1.0))
    return Cap(centre.mean, scale * upper_quantile(angle, prob))


def upper_quantile(values: np.ndarray, prob: float) -> float:
    """Return the least value that one more draw stays below with at least this probability.

    That is the ⌈(n + 1) prob⌉-th smallest, or the largest.
    """
    rank = rank_of(prob, len(values)) - 1
    return float(np.partition(values, rank)[rank])


def rank_of(prob: float, n: int) -> int:
    """Return which of n ordered draws one more stays below with at least this probability.

    Warns
    -----
    UserWarning
        If there is none, so that the last has to do.
    """
    rank = int(np.ceil((n + 1) * prob - 1e-9))
    if rank > n:
        enough = int(np.ceil(prob / (1.0 - prob) - 1e-9))
        warnings.warn(
            f"{n} draws are too few for {100 * prob:g} %: take at least {enough}. The largest "
            "distance among them stands in, and the region is too small.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    return min(rank, n)


def frame_cap(frames: np.ndarray, prob: float, scale: float) -> Cap:
    r"""Return the ball in :math:`\arccos(\operatorname{tr}(X^\top M) / p)` around the mean M."""
    mean = frame_centre(frames).mean
    p = mean.shape[1]
    difference = np.linalg.norm((frames - mean).reshape(len(frames), -1), axis=1) / np.sqrt(p)
    angle = 2.0 * np.arcsin(np.minimum(0.5 * difference, 1.0))
    return Cap(mean, scale * upper_quantile(angle, prob))


@dataclass(frozen=True)
class HighestDensityRegion:
    """The directions where the density of draws is above a level.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import directional_hdr
    >>> angle = np.random.default_rng(1).vonmises(0.0, 20.0, size=1000)
    >>> region = directional_hdr(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    >>> region.contains([[1.0, 0.0], [-1.0, 0.0]]).tolist()
    [True, False]
    """

    density: SphericalDensity
    """Density with respect to surface measure."""
    level: float
    """Its value along the edge of the region, per radian or steradian."""
    ci_prob: float
    """Probability of the region."""
    random_seed: int | np.random.Generator | None = 0
    """Seed of the draws that measure the area."""

    @cached_property
    def area(self) -> float:
        """Steradians on the sphere, radians on the circle."""
        values = self.density(self.density.draw(_DRAWS_FOR_AREA, self.random_seed))
        return float(np.sum(1.0 / values[values >= self.level]) / len(values))

    @property
    def area_deg2(self) -> float:
        """Area in square degrees, or on the circle the length in degrees."""
        d = self.density.centres.shape[1]
        return self.area * (_SQUARE_DEGREES if d == 3 else np.sqrt(_SQUARE_DEGREES))

    def contains(self, points: ArrayLike) -> np.ndarray:
        """Say which unit vectors, shape (..., d), lie in the region."""
        return self.density(points) >= self.level


def directional_hdr(
    points: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    concentration: float | None = None,
    random_seed: int | np.random.Generator | None = 0,
) -> HighestDensityRegion:
    r"""Highest-density region of draws on the circle or the sphere, and its area.

    The region is :math:`\{x : \hat p(x) \ge c\}` (Hyndman 1996, *The American Statistician* 50,
    120) with the kernel density of `directional_density`; c is the quantile of the density at each
    draw made of the other draws, so that one more draw from the posterior lies in it with the
    probability asked for. Its area is the mean of :math:`1 / \hat p` within it, over draws from
    :math:`\hat p`, to about one per cent.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors, d = 2 or 3.
    ci_prob : float, optional
        Probability of the region; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether x and −x are the same; the area counts both.
    concentration : float, optional
        κ of the kernels.
    random_seed : int or numpy.random.Generator, optional
        Seed of the draws that measure the area.

    Returns
    -------
    HighestDensityRegion

    Raises
    ------
    ValueError
        If the points are not unit vectors in the plane or in space, or `ci_prob` is no probability.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import directional_hdr
    >>> x = np.random.default_rng(1).normal([0.0, 0.0, 10.0], 1.0, size=(1000, 3))
    >>> region = directional_hdr(x / np.linalg.norm(x, axis=1, keepdims=True), ci_prob=0.9)
    >>> bool(0.13 < region.area < 0.16)  # 2π / 10² log 10 = 0.145 steradians in the plane
    True
    """
    density = directional_density(points, axial=axial, concentration=concentration)
    return regions_of(density, unit_rows(points), [probability(ci_prob)], random_seed)[0]


def regions_of(
    density: SphericalDensity,
    rows: np.ndarray,
    probs: Sequence[float],
    random_seed: int | np.random.Generator | None = 0,
) -> list[HighestDensityRegion]:
    """Return regions of several probabilities of the draws that a density was made of."""
    beside = thinned(np.delete(rows, evenly(len(rows), MOST_CENTRES), axis=0), _DRAWS_FOR_LEVEL)
    heights = np.concatenate([density.at_centres(), density(beside)])
    return [
        HighestDensityRegion(density, -upper_quantile(-heights, prob), prob, random_seed)
        for prob in probs
    ]


def directional_hdi(
    angles: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    unit: Literal["deg", "rad"] = "rad",
) -> np.ndarray:
    """Shortest arc that holds a share of the angles.

    Parameters
    ----------
    angles : array_like, shape (...)
        Angles, of any turn.
    ci_prob : float, optional
        Probability of the arc; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether opposite angles are the same; the arc is then one of its two halves.
    unit : {"rad", "deg"}
        Unit of the angles and of the result: radians by default, as models have angles, unlike
        tables, caps and coordinates.

    Returns
    -------
    numpy.ndarray, shape (2,)
        Where the arc begins and ends, counterclockwise, each in (−π, π]; where it crosses π the
        end is less than the beginning. For axes in (−π/2, π/2].

    Raises
    ------
    ValueError
        If there is no angle, the angles are unit vectors, or `ci_prob` is no probability.

    Warns
    -----
    UserWarning
        If there are too few angles for the probability, or radians go beyond two turns, as if they
        were degrees.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import directional_hdi
    >>> directional_hdi(np.arange(170.0, 191.0), ci_prob=0.9, unit="deg").tolist()
    [170.0, -171.0]
    """
    scale_of_unit = units_per_radian(unit)
    scale = scale_of_unit * (0.5 if axial else 1.0)
    given = np.asarray(angles, dtype=float)
    if given.ndim > 1 and len(given) > 1 and np.allclose((given**2).sum(axis=-1), 1.0, atol=1e-6):
        raise ValueError(
            "`angles` hold unit vectors along the last axis; in the plane np.arctan2(y, x) makes "
            "angles of them, in space use `credible_cap` or `directional_hdr`."
        )
    if scale_of_unit == 1.0:
        warn_of_degrees("angles", given)
    turn = np.sort((given.ravel() / scale) % (2 * np.pi))
    n = len(turn)
    if n == 0 or not np.isfinite(turn).all():
        raise ValueError("`angles` must hold at least one value, all of them finite.")
    count = rank_of(probability(ci_prob), n)
    ends = np.concatenate([turn, turn + 2 * np.pi])[count - 1 : count - 1 + n]
    first = int(np.argmin(ends - turn))
    arc = np.array([turn[first], ends[first]])
    return scale * (np.pi - (np.pi - arc) % (2 * np.pi))

"""Credible caps, highest-density regions and highest-density intervals of angles."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from arviz_base import rcParams
from numpy.typing import ArrayLike

from pymc_geodesic.directional.coordinates import units_per_radian, warn_if_degrees
from pymc_geodesic.directional.density import (
    MAX_CENTERS,
    SphericalDensity,
    even_indices,
    kernel_density,
    thin,
)
from pymc_geodesic.directional.mean_direction import (
    PACKAGE,
    DirectionalMean,
    appears_axial,
    directional_mean,
    mean_frame,
    unit_rows,
)

_DRAWS_FOR_AREA = 6000
"""Number of draws from the density estimate in the Monte Carlo estimate of an area."""

_DRAWS_FOR_LEVEL = 10_000
"""Maximum number of draws, other than the kernels, that set the level of a region."""

_SQUARE_DEGREES = (180.0 / np.pi) ** 2


class Cap(NamedTuple):
    """Directions within the angle `radius` of `center`."""

    center: np.ndarray
    radius: float


def resolve_probability(ci_prob: float | None) -> float:
    """Validate a probability; ``rcParams["stats.ci_prob"]`` by default.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import resolve_probability
    >>> resolve_probability(0.94)
    0.94
    """
    value = rcParams["stats.ci_prob"] if ci_prob is None else ci_prob
    if not 0.0 < value < 1.0:
        raise ValueError(f"`ci_prob` must lie between 0 and 1, got {value}.")
    return float(value)


def format_percent(prob: float) -> str:
    """Format a probability in percent, as in the names of columns.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import format_percent
    >>> format_percent(0.58), format_percent(0.995)
    ('58', '99.5')
    """
    return f"{100.0 * prob:.6g}"  # 100 · 0.58 is 57.99… in floating point


def resolve_probabilities(ci_probs: ArrayLike | None) -> list[float]:
    """Validate one or several probabilities; 0.5 and ``rcParams["stats.ci_prob"]`` by default.

    Examples
    --------
    >>> from pymc_geodesic.directional.regions import resolve_probabilities
    >>> resolve_probabilities(0.8), resolve_probabilities(())
    ([0.8], [])
    """
    if ci_probs is None:
        return [0.5, resolve_probability(None)]
    return [resolve_probability(each) for each in np.atleast_1d(ci_probs)]


def credible_cap(
    points: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    unit: Literal["deg", "rad"] = "deg",
) -> Cap:
    r"""Geodesic ball around the mean direction that contains a proportion of the draws.

    .. math:: \{x : \arccos(x \cdot m) \le \rho\}

    with the mean direction m and the quantile ρ of the angles between draws and m. For axes m is
    the principal axis and the angle is :math:`\arccos|x \cdot m|`. If the posterior is rotationally
    symmetric about m and unimodal, the cap is the highest-density region.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors.
    ci_prob : float, optional
        Probability of the cap; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether x and −x are equivalent.
    unit : {"deg", "rad"}
        Unit of the radius.

    Returns
    -------
    center : numpy.ndarray, shape (d,)
        The mean direction or principal axis.
    radius : float

    Raises
    ------
    ValueError
        If the points are not unit vectors, or `ci_prob` is not between 0 and 1.

    Warns
    -----
    UserWarning
        If the mean vanishes while the points lie along an axis and `axial` is false, or there are
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
    if not axial and appears_axial(rows):
        warnings.warn(
            "The mean of the points vanishes and they lie along an axis, so that the cap is not "
            "informative. Set `axial=True` to treat x and −x as equivalent.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    return cap_about_mean(
        rows, directional_mean(rows, axial), resolve_probability(ci_prob), units_per_radian(unit)
    )


def cap_about_mean(rows: np.ndarray, center: DirectionalMean, prob: float, scale: float) -> Cap:
    """Return the cap around a given mean; see `credible_cap`."""
    difference = np.linalg.norm(rows - center.mean, axis=1)
    if center.axial:
        difference = np.minimum(difference, np.linalg.norm(rows + center.mean, axis=1))
    # From the chord: the arc cosine loses half of the digits near zero.
    angle = 2.0 * np.arcsin(np.minimum(0.5 * difference, 1.0))
    return Cap(center.mean, scale * upper_quantile(angle, prob))


def upper_quantile(values: np.ndarray, prob: float) -> float:
    """Return the split-conformal upper quantile, the ⌈(n + 1) prob⌉-th smallest value."""
    rank = conformal_rank(prob, len(values)) - 1
    return float(np.partition(values, rank)[rank])


def conformal_rank(prob: float, n: int) -> int:
    """Return the rank ⌈(n + 1) prob⌉ of the split-conformal upper quantile of n draws.

    Warns
    -----
    UserWarning
        If the rank exceeds n; the result is n.
    """
    rank = int(np.ceil((n + 1) * prob - 1e-9))
    if rank > n:
        enough = int(np.ceil(prob / (1.0 - prob) - 1e-9))
        warnings.warn(
            f"{n} draws are too few for {100 * prob:g} %: take at least {enough}. The region "
            "extends to the largest distance among them and is too small.",
            UserWarning,
            skip_file_prefixes=(PACKAGE,),
        )
    return min(rank, n)


def frame_cap(frames: np.ndarray, prob: float, scale: float) -> Cap:
    r"""Return the ball in :math:`\arccos(\operatorname{tr}(X^\top M) / p)` around the mean M."""
    mean = mean_frame(frames).mean
    p = mean.shape[1]
    difference = np.linalg.norm((frames - mean).reshape(len(frames), -1), axis=1) / np.sqrt(p)
    angle = 2.0 * np.arcsin(np.minimum(0.5 * difference, 1.0))
    return Cap(mean, scale * upper_quantile(angle, prob))


@dataclass(frozen=True)
class HighestDensityRegion:
    """Directions where the density estimate exceeds a level.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import hdr
    >>> angle = np.random.default_rng(1).vonmises(0.0, 20.0, size=1000)
    >>> region = hdr(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    >>> region.contains([[1.0, 0.0], [-1.0, 0.0]]).tolist()
    [True, False]
    """

    density: SphericalDensity
    """Density with respect to surface measure."""
    level: float
    """Density on the boundary of the region, per radian or steradian."""
    ci_prob: float
    """Probability of the region."""
    random_seed: int | np.random.Generator | None = 0
    """Seed of the Monte Carlo estimate of the area."""

    @cached_property
    def area(self) -> float:
        """Area in steradians on the sphere, length in radians on the circle."""
        values = self.density(self.density.draw(_DRAWS_FOR_AREA, self.random_seed))
        return float(np.sum(1.0 / values[values >= self.level]) / len(values))

    @property
    def area_deg2(self) -> float:
        """Area in square degrees, or on the circle the length in degrees."""
        d = self.density.centers.shape[1]
        return self.area * (_SQUARE_DEGREES if d == 3 else np.sqrt(_SQUARE_DEGREES))

    def contains(self, points: ArrayLike) -> np.ndarray:
        """Return which unit vectors, shape (..., d), lie in the region."""
        return self.density(points) >= self.level


def hdr(
    points: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    concentration: float | None = None,
    random_seed: int | np.random.Generator | None = 0,
) -> HighestDensityRegion:
    r"""Highest-density region of draws on the circle or the sphere, and its area.

    The region is :math:`\{x : \hat p(x) \ge c\}` (Hyndman 1996, *The American Statistician* 50,
    120). The density estimate has von Mises–Fisher kernels, whose concentration maximizes the
    leave-one-out likelihood (Hall, Watson and Cabrera 1987, *Biometrika* 74, 751). The level c is
    the split-conformal quantile of the leave-one-out densities, so that a new draw from the
    posterior lies in the region with probability `ci_prob`. The area is the mean of
    :math:`1 / \hat p` within the region over draws from :math:`\hat p`, with a relative error of
    about 1 %.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors, d = 2 or 3.
    ci_prob : float, optional
        Probability of the region; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether x and −x are equivalent; the area includes both.
    concentration : float, optional
        κ of the kernels; by cross-validation by default.
    random_seed : int or numpy.random.Generator, optional
        Seed of the Monte Carlo estimate of the area.

    Returns
    -------
    HighestDensityRegion
        ``contains(points)``, ``area``, ``area_deg2``, ``density`` and ``level``.

    Raises
    ------
    ValueError
        If the points are not unit vectors in the plane or in space, or `ci_prob` is not between 0
        and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import hdr
    >>> x = np.random.default_rng(1).normal([0.0, 0.0, 10.0], 1.0, size=(1000, 3))
    >>> region = hdr(x / np.linalg.norm(x, axis=1, keepdims=True), ci_prob=0.9)
    >>> bool(0.13 < region.area < 0.16)  # 2π / 10² log 10 = 0.145 steradians in the plane
    True
    """
    density = kernel_density(points, axial=axial, concentration=concentration)
    return highest_density_regions(
        density, unit_rows(points), [resolve_probability(ci_prob)], random_seed
    )[0]


def highest_density_regions(
    density: SphericalDensity,
    rows: np.ndarray,
    probs: Sequence[float],
    random_seed: int | np.random.Generator | None = 0,
) -> list[HighestDensityRegion]:
    """Return regions of several probabilities from the draws of a density estimate."""
    others = thin(np.delete(rows, even_indices(len(rows), MAX_CENTERS), axis=0), _DRAWS_FOR_LEVEL)
    heights = np.concatenate([density.leave_one_out(), density(others)])
    return [
        HighestDensityRegion(density, -upper_quantile(-heights, prob), prob, random_seed)
        for prob in probs
    ]


def hdi(
    angles: ArrayLike,
    *,
    ci_prob: float | None = None,
    axial: bool = False,
    unit: Literal["deg", "rad"] = "rad",
) -> np.ndarray:
    """Highest-density interval of angles: the shortest arc that contains a proportion of them.

    Parameters
    ----------
    angles : array_like, shape (...)
        Angles, modulo 2π.
    ci_prob : float, optional
        Probability of the arc; ``rcParams["stats.ci_prob"]`` by default.
    axial : bool
        Whether opposite angles are equivalent; the result is one of two opposite arcs.
    unit : {"rad", "deg"}
        Unit of the angles and of the result: radians by default, as in models. Tables, caps and
        coordinates are in degrees by default.

    Returns
    -------
    numpy.ndarray, shape (2,)
        Lower and upper end of the arc, counterclockwise, in (−π, π]; the upper end is less than
        the lower if the arc crosses π. For axes in (−π/2, π/2].

    Raises
    ------
    ValueError
        If there is no angle, the angles are unit vectors, or `ci_prob` is not between 0 and 1.

    Warns
    -----
    UserWarning
        If there are too few angles for the probability, or angles in radians exceed 4π in absolute
        value, as angles in degrees do.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import hdi
    >>> hdi(np.arange(170.0, 191.0), ci_prob=0.9, unit="deg").tolist()
    [170.0, -171.0]
    """
    scale_of_unit = units_per_radian(unit)
    scale = scale_of_unit * (0.5 if axial else 1.0)
    given = np.asarray(angles, dtype=float)
    if given.ndim > 1 and len(given) > 1 and np.allclose((given**2).sum(axis=-1), 1.0, atol=1e-6):
        raise ValueError(
            "`angles` hold unit vectors along the last axis. In the plane convert them with "
            "np.arctan2(y, x), in space use `credible_cap` or `hdr`."
        )
    if scale_of_unit == 1.0:
        warn_if_degrees("angles", given)
    turn = np.sort((given.ravel() / scale) % (2 * np.pi))
    n = len(turn)
    if n == 0 or not np.isfinite(turn).all():
        raise ValueError("`angles` must hold at least one value, all of them finite.")
    count = conformal_rank(resolve_probability(ci_prob), n)
    ends = np.concatenate([turn, turn + 2 * np.pi])[count - 1 : count - 1 + n]
    first = int(np.argmin(ends - turn))
    arc = np.array([turn[first], ends[first]])
    return scale * (np.pi - (np.pi - arc) % (2 * np.pi))

"""Kernel density estimates on the circle and the sphere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import i0e

from pymc_geodesic.directional.mean_direction import unit_rows

MAX_CENTERS = 2000
"""Maximum number of kernels; more draws are thinned evenly."""

_MAX_COMPARED = 600
"""Maximum number of draws in the cross-validation of the concentration."""

_CONCENTRATIONS = 24
"""Number of concentrations on the grid of the cross-validation."""

_MAX_ENTRIES = 2_000_000
"""Maximum number of entries of a matrix of inner products."""


def thin(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most `most` rows, evenly spaced.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import thin
    >>> thin(np.arange(5), 3).tolist()
    [0, 2, 4]
    """
    return rows[even_indices(len(rows), most)] if len(rows) > most else rows


def even_indices(n: int, most: int) -> np.ndarray:
    """Return at most `most` of n indices, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(int)


def kernel(inner: np.ndarray, concentration: float, d: int) -> np.ndarray:
    """Return the von Mises–Fisher density for inner products with its mean, d = 2 or 3."""
    height = np.exp(concentration * (inner - 1.0))
    if d == 2:
        return height / (2 * np.pi * i0e(concentration))
    return height * concentration / (2 * np.pi * -np.expm1(-2.0 * concentration))


@dataclass(frozen=True)
class SphericalDensity:
    r"""Mixture of von Mises–Fisher kernels on the circle or the sphere.

    .. math:: \hat p(x) = \frac1n \sum_i C(\kappa) \exp(\kappa\, x \cdot x_i)

    with respect to surface measure: it integrates to one over 2π radians or 4π steradians. For
    axes the kernels at :math:`x_i` and :math:`-x_i` have the same weight.

    Parameters
    ----------
    centers : ndarray, shape (n, d)
        Unit vectors, d = 2 or 3.
    concentration : float
        κ of the kernels; their width is :math:`1/\sqrt\kappa` radians.
    axial : bool
        Whether x and −x are equivalent.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import SphericalDensity
    >>> density = SphericalDensity(np.array([[1.0, 0.0, 0.0]]), 1e-9)
    >>> float(1 / density([0.0, 1.0, 0.0]))  # uniform, 1 / 4π
    12.566
    """

    centers: np.ndarray = field(repr=False)
    concentration: float
    axial: bool = False

    def __call__(self, points: ArrayLike) -> np.ndarray:
        """Return the density at unit vectors, shape (..., d)."""
        if np.size(points) == 0:
            return np.empty(np.shape(points)[:-1])
        rows = unit_rows(points)
        result = np.empty(len(rows))
        step = max(1, _MAX_ENTRIES // len(self.centers))
        for start in range(0, len(rows), step):
            inner = rows[start : start + step] @ self.centers.T
            result[start : start + step] = self._kernels(inner).mean(axis=1)
        return result.reshape(np.shape(points)[:-1])

    def leave_one_out(self) -> np.ndarray:
        """Return the leave-one-out density at each center, shape (n,)."""
        n = len(self.centers)
        own = self._kernels(np.ones(1))[0]
        return (self(self.centers) * n - own) / max(n - 1, 1)

    def draw(self, n: int, random_seed: int | np.random.Generator | None = None) -> np.ndarray:
        """Draw from the density, stratified over the kernels.

        Parameters
        ----------
        n : int
            Number of draws.
        random_seed : int or numpy.random.Generator, optional
            Seed.

        Returns
        -------
        numpy.ndarray, shape (n, d)
        """
        rng = np.random.default_rng(random_seed)
        count = len(self.centers)
        mean = self.centers[np.arange(n) % count] if n >= count else thin(self.centers, n)
        draws = _draw_von_mises_fisher(mean, self.concentration, rng)
        if self.axial:
            draws *= rng.choice([-1.0, 1.0], size=(n, 1))
        return draws

    def _kernels(self, inner: np.ndarray) -> np.ndarray:
        d = self.centers.shape[1]
        value = kernel(inner, self.concentration, d)
        return 0.5 * (value + kernel(-inner, self.concentration, d)) if self.axial else value


def _draw_von_mises_fisher(
    mean: np.ndarray, concentration: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw one von Mises-Fisher direction around each mean, shape (n, 2 or 3)."""
    n, d = mean.shape
    if d == 2:
        angle = np.arctan2(mean[:, 1], mean[:, 0]) + rng.vonmises(0.0, concentration, size=n)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # 1 - x·μ has a truncated exponential distribution, drawn by inversion.
    deficit = -np.log1p(rng.random(n) * np.expm1(-2.0 * concentration)) / concentration
    tangent = rng.standard_normal((n, d))
    tangent -= (tangent * mean).sum(axis=1, keepdims=True) * mean
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    return (1.0 - deficit)[:, None] * mean + np.sqrt(deficit * (2.0 - deficit))[:, None] * tangent


def kernel_density(
    points: ArrayLike, *, axial: bool = False, concentration: float | None = None
) -> SphericalDensity:
    r"""Estimate the density of draws on the circle or the sphere with von Mises–Fisher kernels.

    The concentration κ of the kernels maximizes the leave-one-out likelihood (likelihood
    cross-validation: Hall, Watson and Cabrera 1987, *Biometrika* 74, 751) of at most 600 draws and
    is extrapolated to all n with the rate of the optimal bandwidth, :math:`n^{-1/(d+3)}`.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors, d = 2 or 3.
    axial : bool
        Whether x and −x are equivalent.
    concentration : float, optional
        κ of the kernels; by cross-validation by default.

    Returns
    -------
    SphericalDensity
        Callable on unit vectors; density with respect to surface measure.

    Raises
    ------
    ValueError
        If the points are not unit vectors in the plane or in space.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import kernel_density
    >>> rng = np.random.default_rng(1)
    >>> angle = rng.vonmises(0.0, 20.0, size=2000)
    >>> density = kernel_density(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    >>> density([[1.0, 0.0], [-1.0, 0.0]]).round(1).tolist()  # exact: 1.77 and 0
    [1.7, 0.0]
    """
    rows = unit_rows(points)
    if rows.shape[1] not in (2, 3):
        raise ValueError(
            f"Density estimates need directions in the plane and in space; these have "
            f"{rows.shape[1]} components. Project them, or use `mean_direction`."
        )
    centers = thin(rows, MAX_CENTERS)
    if concentration is None:
        concentration = _cross_validated_concentration(centers, axial)
    return SphericalDensity(centers, float(concentration), axial)


def _cross_validated_concentration(centers: np.ndarray, axial: bool) -> float:
    """Return the concentration of the kernels by likelihood cross-validation."""
    d = centers.shape[1]
    # Repeated draws of rejected proposals would favor the narrowest kernels.
    few = np.unique(thin(centers, _MAX_COMPARED), axis=0)
    if len(few) < 4:
        return 1e4
    inner = few @ few.T
    pairs = inner[np.triu_indices(len(few), 1)]
    gap = 1.0 - (np.abs(pairs) if axial else pairs)
    near, middle = np.maximum(np.quantile(gap, [0.05, 0.5]), 1e-14)
    best = (-np.inf, 1.0)
    for each in np.geomspace(0.3 / middle, 5.0 / near, _CONCENTRATIONS):
        value = SphericalDensity(few, each, axial).leave_one_out()
        score = np.log(np.maximum(value, 1e-300)).mean()
        best = max(best, (score, float(each)))
    return best[1] * (len(centers) / len(few)) ** (2.0 / (d + 3))

"""Kernel density of draws on the circle and the sphere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import i0e

from pymc_geodesic.directional.mean_direction import unit_rows

MOST_CENTRES = 2000
"""Kernels at most; draws beyond are thinned evenly."""

_MOST_COMPARED = 600

_CONCENTRATIONS = 24

_BLOCK = 2_000_000


def thinned(rows: np.ndarray, most: int) -> np.ndarray:
    """Return at most this many rows, evenly spaced.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import thinned
    >>> thinned(np.arange(5), 3).tolist()
    [0, 2, 4]
    """
    return rows[evenly(len(rows), most)] if len(rows) > most else rows


def evenly(n: int, most: int) -> np.ndarray:
    """Return at most this many of n indices, evenly spaced."""
    return np.linspace(0, n - 1, min(n, most)).round().astype(int)


def kernel(inner: np.ndarray, concentration: float, d: int) -> np.ndarray:
    """Von Mises-Fisher density at inner products with its mean, on the circle or the sphere."""
    height = np.exp(concentration * (inner - 1.0))
    if d == 2:
        return height / (2 * np.pi * i0e(concentration))
    return height * concentration / (2 * np.pi * -np.expm1(-2.0 * concentration))


@dataclass(frozen=True)
class SphericalDensity:
    r"""Density of directions on the circle or the sphere, or of axes, as a sum of kernels.

    .. math:: \hat p(x) = \frac1n \sum_i C(\kappa) \exp(\kappa\, x \cdot x_i)

    with respect to surface measure: it integrates to one over 2π radians or 4π steradians. For
    axes :math:`-x_i` counts as much as :math:`x_i`.

    Parameters
    ----------
    centres : ndarray, shape (n, d)
        Unit vectors, d = 2 or 3.
    concentration : float
        κ of the kernels; their width is :math:`1/\sqrt\kappa` radians.
    axial : bool
        Whether x and −x are the same.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.density import SphericalDensity
    >>> density = SphericalDensity(np.array([[1.0, 0.0, 0.0]]), 1e-9)
    >>> float(1 / density([0.0, 1.0, 0.0]))  # uniform, 1 / 4π
    12.566
    """

    centres: np.ndarray
    concentration: float
    axial: bool = False

    def __call__(self, points: ArrayLike) -> np.ndarray:
        """Return the density at unit vectors, shape (..., d)."""
        if np.size(points) == 0:
            return np.empty(np.shape(points)[:-1])
        rows = unit_rows(points)
        result = np.empty(len(rows))
        step = max(1, _BLOCK // len(self.centres))
        for start in range(0, len(rows), step):
            inner = rows[start : start + step] @ self.centres.T
            result[start : start + step] = self._kernels(inner).mean(axis=1)
        return result.reshape(np.shape(points)[:-1])

    def at_centres(self) -> np.ndarray:
        """Return the density at each centre made of the other centres alone, shape (n,)."""
        n = len(self.centres)
        own = self._kernels(np.ones(1))[0]
        return (self(self.centres) * n - own) / max(n - 1, 1)

    def draw(self, n: int, random_seed: int | np.random.Generator | None = None) -> np.ndarray:
        """Draw from the density, as many from each centre as the others but one.

        Parameters
        ----------
        n : int
            How many.
        random_seed : int or numpy.random.Generator, optional
            Seed.

        Returns
        -------
        numpy.ndarray, shape (n, d)
        """
        rng = np.random.default_rng(random_seed)
        count = len(self.centres)
        mean = self.centres[np.arange(n) % count] if n >= count else thinned(self.centres, n)
        draws = _around(mean, self.concentration, rng)
        if self.axial:
            draws *= rng.choice([-1.0, 1.0], size=(n, 1))
        return draws

    def _kernels(self, inner: np.ndarray) -> np.ndarray:
        d = self.centres.shape[1]
        value = kernel(inner, self.concentration, d)
        return 0.5 * (value + kernel(-inner, self.concentration, d)) if self.axial else value


def _around(mean: np.ndarray, concentration: float, rng: np.random.Generator) -> np.ndarray:
    """Draw one von Mises-Fisher direction around each mean, shape (n, 2 or 3)."""
    n, d = mean.shape
    if d == 2:
        angle = np.arctan2(mean[:, 1], mean[:, 0]) + rng.vonmises(0.0, concentration, size=n)
        return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    # 1 - x·μ has a truncated exponential law, whose distribution function is inverted.
    below = -np.log1p(rng.random(n) * np.expm1(-2.0 * concentration)) / concentration
    tangent = rng.standard_normal((n, d))
    tangent -= (tangent * mean).sum(axis=1, keepdims=True) * mean
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    return (1.0 - below)[:, None] * mean + np.sqrt(below * (2.0 - below))[:, None] * tangent


def directional_density(
    points: ArrayLike, *, axial: bool = False, concentration: float | None = None
) -> SphericalDensity:
    r"""Density of draws on the circle or the sphere by von Mises–Fisher kernels.

    The concentration κ of the kernels is the one under which draws are most likely given the other
    draws (likelihood cross-validation: Hall, Watson and Cabrera 1987, *Biometrika* 74, 751), sought
    on at most 600 of them and carried over to all n by the rate at which the best width falls,
    :math:`n^{-1/(d+3)}`. No shape is assumed: several modes of different width are found.

    Parameters
    ----------
    points : array_like, shape (..., d)
        Unit vectors, d = 2 or 3.
    axial : bool
        Whether x and −x are the same.
    concentration : float, optional
        κ of the kernels, if it shall be another.

    Returns
    -------
    SphericalDensity
        A function of unit vectors, with respect to surface measure.

    Raises
    ------
    ValueError
        If the points are not unit vectors in the plane or in space.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional import directional_density
    >>> rng = np.random.default_rng(1)
    >>> angle = rng.vonmises(0.0, 20.0, size=2000)
    >>> density = directional_density(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    >>> density([[1.0, 0.0], [-1.0, 0.0]]).round(1).tolist()  # the law has 1.77 and 0
    [1.7, 0.0]
    """
    rows = unit_rows(points)
    if rows.shape[1] not in (2, 3):
        raise ValueError(
            f"Densities are known for directions in the plane and in space; these have "
            f"{rows.shape[1]} components. Project them, or look at `mean_direction`."
        )
    centres = thinned(rows, MOST_CENTRES)
    if concentration is None:
        concentration = _most_likely(centres, axial)
    return SphericalDensity(centres, float(concentration), axial)


def _most_likely(centres: np.ndarray, axial: bool) -> float:
    """Choose the concentration of the kernels by cross-validation."""
    d = centres.shape[1]
    # A chain that stayed where it was would make the narrowest kernels the most likely.
    few = np.unique(thinned(centres, _MOST_COMPARED), axis=0)
    if len(few) < 4:
        return 1e4
    inner = few @ few.T
    pairs = inner[np.triu_indices(len(few), 1)]
    gap = 1.0 - (np.abs(pairs) if axial else pairs)
    near, middle = np.maximum(np.quantile(gap, [0.05, 0.5]), 1e-14)
    best = (-np.inf, 1.0)
    for each in np.geomspace(0.3 / middle, 5.0 / near, _CONCENTRATIONS):
        value = SphericalDensity(few, each, axial).at_centres()
        score = np.log(np.maximum(value, 1e-300)).mean()
        best = max(best, (score, float(each)))
    return best[1] * (len(centres) / len(few)) ** (2.0 / (d + 3))

"""Estimation of the mass matrix from draws and gradients, in expanding windows.

The metric whitens the coordinates by x = c + L z; L Lᵀ is the inverse mass matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.gradients.metric import Factor, LowRank, Metric, diagonal_metric
from pymc_geodesic.monitoring.funnels import Funnel, find_funnel


@dataclass(frozen=True)
class MassMatrixSettings:
    """Constants of the estimation.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    max_dense : int
        Maximum number of Euclidean coordinates for which ``metric="auto"`` is dense.
    max_directions : int
        Maximum number of directions of a low-rank factor. With them a normal distribution of 1,000
        coordinates with five strong directions has a condition number of 1, without them 15,736
        (`benchmarks.many_coordinates`).
    max_proposed : int
        Maximum number of directions that are tested.
    draws_per_direction : int
        Number of draws for each direction that is tested.
    min_variance_ratio : float
        Minimum ratio of the variance along a direction to the typical variance, or its inverse, for
        the direction to be kept.
    max_angle_scale : float
        Upper bound on the scale of an angle, in radians: half of the circle.
    regularization : float
        Constant added to variances in units of the diagonal scales, which are used along directions
        without draws; the default of ``mass_matrix_gamma`` in nutpie.
    max_ratio : float
        Upper bound on the ratio of a diagonal scale to the standard deviation of the draws. The
        gradient is constant on one side of a Laplace distribution, and nearly constant in other
        exponential tails; if all draws of a window are there, the ratio diverges. With 8 Laplace
        or ex-Gaussian variables R-hat was 1.01 with 3, up to 1.17 with 30, and above 1.5 without a
        bound; with 600 Laplace variables the largest of their standard deviations in a chain was
        1.3 times the exact one with 3, and 2 to 7 times with 10. Sixteen posteriors were the same
        with 3 as without a bound (`benchmarks.adaptation`).
    scale_range : (float, float)
        Bounds on the diagonal scales, which prevent overflow.
    first_window : int
        Number of draws of the first window.
    window_growth : float
        Ratio of the lengths of successive windows.
    discarded_fraction : float
        Fraction of the draws that is discarded at the end of a window, since the chain may not have
        reached the posterior yet.
    min_draws : int
        Minimum number of draws from which a factor is estimated.
    """

    max_dense: int = 500
    max_directions: int = 10
    max_proposed: int = 20
    draws_per_direction: int = 6
    min_variance_ratio: float = 1.5
    max_angle_scale: float = math.pi
    regularization: float = 1e-5
    max_ratio: float = 3.0
    scale_range: tuple[float, float] = (1e-150, 1e150)
    first_window: int = 10
    window_growth: float = 1.5
    discarded_fraction: float = 0.5
    min_draws: int = 3


SETTINGS = MassMatrixSettings()

_ROUNDING = 1e-9
"""Relative rounding error of a ratio of standard deviations."""


def geometric_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Compute the factor F of the geometric mean FᵀF of A and B⁻¹, with A = aᵀa and B = bᵀb.

    The geometric mean is the positive definite X with X B X = A. With the singular value
    decomposition :math:`b a^\top = U S V^\top` it is :math:`a^\top V S^{-1} V^\top a`. The factors
    a and b are used because the condition number of a product of A and B is the square of that of
    b aᵀ, and can exceed the floating-point precision for draws far from the posterior.

    Parameters
    ----------
    a, b : ndarray, shape (d, d)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.mass_matrix import geometric_mean
    >>> factor = geometric_mean(np.diag([2.0, 1.0]), np.diag([1 / 3, 1.0]))
    >>> factor.T @ factor
    array([[6., 0.],
           [0., 1.]])
    """
    _, values, right = np.linalg.svd(b @ a.T)
    rounding = len(a) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.maximum(values, max(rounding, np.finfo(float).tiny))
    return (right @ a) / np.sqrt(values)[:, np.newaxis]


def _root(rows: np.ndarray) -> np.ndarray:
    """Compute the triangular R with RᵀR the regularized second moment of rows, shape (n, d)."""
    n, d = rows.shape
    ridge = math.sqrt(SETTINGS.regularization) * np.eye(d)
    return np.linalg.qr(np.concatenate([rows / math.sqrt(n), ridge]), mode="r")


def diagonal_scale(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Compute diagonal scales sqrt(sd(x) / sd(g)), with an upper bound; see `whitening_factor`."""
    sd, gradient_sd = x.std(axis=0), gradients.std(axis=0)
    scale = np.where(sd > 0.0, SETTINGS.max_ratio * sd, 1.0)
    known = (sd > 0.0) & (gradient_sd > 0.0)
    scale[known] = np.minimum(scale[known], np.sqrt(sd[known] / gradient_sd[known]))
    return np.clip(scale, *SETTINGS.scale_range)


def _scaled(
    x: np.ndarray, gradients: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Center positions and gradients, in units of the diagonal scales.

    Gradients along coordinates with the largest scale are replaced by those of N(0, scale²).
    """
    positions, scores = (x - x.mean(axis=0)) / scale, (gradients - gradients.mean(axis=0)) * scale
    sd = positions.std(axis=0)
    is_largest = (sd > 0.0) & (SETTINGS.max_ratio * sd <= 1.0 + _ROUNDING)
    scores[:, is_largest] = -positions[:, is_largest]
    return positions, scores


def _stretches(positions: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute variances and directions of the geometric mean of the two covariances."""
    _, scales, directions = np.linalg.svd(geometric_mean(_root(positions), _root(scores)))
    return np.maximum(scales**2, np.finfo(float).tiny), directions.T


def whitening_factor(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    r"""Estimate the factor L of the metric from draws and their gradients.

    The normal distribution that minimizes the Fisher divergence, the mean squared difference
    between its scores and the gradients in the metric of its covariance, has

    .. math:: L L^\top = \operatorname{cov}(x) \,\#\, \operatorname{cov}(g)^{-1} ,

    the geometric mean. For a normal posterior this is exactly its covariance for any d + 1 points,
    because g = −Σ⁻¹(x − μ) everywhere, unless the bound ``max_ratio`` on scales is reached. The
    covariance of the draws alone is accurate only after the draws have explored the posterior.

    Parameters
    ----------
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    ndarray, shape (d, d)

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence.
    """
    n, d = x.shape
    scale = diagonal_scale(x, gradients)
    if n < SETTINGS.min_draws or d == 0:
        return np.diag(scale)
    positions, scores = _scaled(x, gradients, scale)
    basis = np.eye(d)
    if 2 * n < d + 2:  # other directions keep the diagonal scale
        basis, _ = np.linalg.qr(np.concatenate([positions, scores]).T)
    values, vectors = _stretches(positions @ basis, scores @ basis)
    directions = basis @ vectors
    stretch = (directions * (np.sqrt(values) - 1.0)) @ directions.T
    return scale[:, np.newaxis] * (np.eye(d) + stretch)


def low_rank_factor(x: np.ndarray, gradients: np.ndarray) -> LowRank:
    """Estimate a diagonal factor with a low-rank correction.

    The draws with even index propose directions, those that `whitening_factor` would stretch most.
    The draws with odd index determine the variance along them, and which directions are kept, so
    that spurious correlations of few draws in many dimensions are discarded. Then the diagonal is
    estimated again from the components orthogonal to these directions, and after that the
    directions.

    Parameters
    ----------
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    LowRank
        Factor with at most ten directions, and none for fewer than twelve draws.

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence, section 3.3.
    """
    n, d = x.shape
    scale = diagonal_scale(x, gradients)
    n_proposed = min(SETTINGS.max_proposed, n // SETTINGS.draws_per_direction, d)
    if n_proposed < 2:
        return LowRank(scale, np.empty((d, 0)), np.empty(0))
    positions, scores = _scaled(x, gradients, scale)
    _, directions, _ = _unusual_directions(positions, scores, n_proposed)
    if directions.size:
        orthogonal = [each - (each @ directions) @ directions.T for each in (positions, scores)]
        scale = scale * diagonal_scale(*orthogonal)
        positions, scores = _scaled(x, gradients, scale)
    level, directions, values = _unusual_directions(positions, scores, n_proposed)
    return LowRank(math.sqrt(level) * scale, directions, np.sqrt(values / level))


def _unusual_directions(
    positions: np.ndarray, scores: np.ndarray, n_proposed: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Find the typical variance, directions whose variance differs from it, and their variances."""
    basis, _ = np.linalg.qr(np.concatenate([positions[::2], scores[::2]]).T)
    values, vectors = _stretches(positions[::2] @ basis, scores[::2] @ basis)
    level = float(np.exp(np.median(np.log(values))))
    proposed = basis @ vectors[:, np.argsort(np.abs(np.log(values / level)))[-n_proposed:]]
    values, vectors = _stretches(positions[1::2] @ proposed, scores[1::2] @ proposed)
    unusual = np.abs(np.log(values / level))
    kept = np.argsort(unusual)[-SETTINGS.max_directions :]
    kept = kept[unusual[kept] > math.log(SETTINGS.min_variance_ratio)]
    return level, proposed @ vectors[:, kept], values[kept]


def length_scale(x: np.ndarray, gradients: np.ndarray, dim: int, longest: float = 1.0) -> float:
    r"""Estimate the length scale s of a posterior on a manifold.

    It is the equivalent of `whitening_factor` with the same scale in all directions,

    .. math:: s^4 = \frac{E|x - \bar x|^2}{E|g|^2} .

    Parameters
    ----------
    x, gradients : ndarray, shape (n, size)
        Points, and tangential gradients of the log-density there.
    dim : int
        Dimension of the manifold.
    longest : float
        Upper bound on the length; 1 on compact manifolds.
    """
    variance = np.mean(np.sum((x - x.mean(axis=0)) ** 2, axis=1)) / dim
    square = np.mean(np.sum(gradients**2, axis=1)) / dim
    if not (np.isfinite(variance) and np.isfinite(square)) or variance == 0.0 or square == 0.0:
        return 1.0
    return float(min((variance / square) ** 0.25, longest))


# --- estimators ------------------------------------------------------------------------------

_ESTIMATES: dict[str, Callable[[np.ndarray, np.ndarray], Factor]] = {
    "dense": whitening_factor,
    "low rank": low_rank_factor,
    "diag": diagonal_scale,
}


@dataclass(frozen=True, eq=False)
class FactorEstimator:
    """Estimator of the factor L of a metric.

    Parameters
    ----------
    kind : {"dense", "low rank", "diag"}
    fixed : ndarray, optional
        User-specified factor, which is used instead of an estimate.
    angles : ndarray of int
        Coordinates that are angles, which are not wrapped in chains.
    """

    kind: str
    fixed: np.ndarray | None = None
    angles: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def is_dense(self) -> bool:
        """Whether every whitened coordinate may depend on every coordinate of the model."""
        return self.kind == "dense"

    def initial_metric(self, center: np.ndarray, gradient: np.ndarray) -> Metric:
        """Create the metric before there are draws; see `diagonal_metric`."""
        if self.fixed is not None:
            return Metric(np.array(center), self.fixed)
        return diagonal_metric(center, gradient)

    def factor(self, x: np.ndarray, gradients: np.ndarray) -> Factor:
        """Estimate the factor from positions and gradients, both of shape (n, d)."""
        if self.fixed is not None:
            return self.fixed
        if not self.angles.size:
            return _ESTIMATES[self.kind](x, gradients)
        x = x.copy()
        x[:, self.angles] = wrapped(x[:, self.angles])
        return self._bounded(_ESTIMATES[self.kind](x, gradients))

    def _bounded(self, factor: Factor) -> Factor:
        """Bound the scales of angles."""
        rows = factor.dense() if isinstance(factor, LowRank) else factor
        scale = np.linalg.norm(rows, axis=1) if rows.ndim == 2 else rows
        ratio = np.ones(len(scale))
        ratio[self.angles] = np.minimum(
            1.0, SETTINGS.max_angle_scale / np.maximum(scale[self.angles], 1e-300)
        )
        if isinstance(factor, LowRank):
            return LowRank(factor.scale * ratio, factor.directions, factor.stretch)
        return factor * (ratio[:, None] if factor.ndim == 2 else ratio)


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Wrap angles to within π of the mean direction of their column, shape (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.mass_matrix import wrapped
    >>> wrapped(np.array([[3.0], [3.2 - 2 * np.pi], [3.1 + 4 * np.pi]])).round(2).ravel().tolist()
    [3.0, 3.2, 3.1]
    """
    mean = np.angle(np.exp(1j * angles).mean(axis=0))
    away = angles - mean
    return mean + away - 2.0 * np.pi * np.round(away / (2.0 * np.pi))


def factor_estimator(
    metric: str | np.ndarray, names: Sequence[str], angles: Collection[str] = ()
) -> FactorEstimator:
    """Create the estimator for the argument ``metric`` of a step.

    Parameters
    ----------
    metric : {"auto", "dense", "diag"} or ndarray
        An array is the covariance of the posterior, shape (d, d), or its diagonal.
    names : list of str
        Name of the variable of each of the d Euclidean coordinates.
    angles : collection of str
        Names of the variables that are angles.

    Raises
    ------
    ValueError
        If the array has the wrong size.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.mass_matrix import factor_estimator
    >>> factor_estimator("auto", ["b"] * 3).kind, factor_estimator("auto", ["b"] * 1000).kind
    ('dense', 'low rank')
    >>> factor_estimator(np.array([4.0, 9.0]), ["a", "b"]).fixed
    array([2., 3.])
    """
    d = len(names)
    if isinstance(metric, np.ndarray):
        if len(metric) != d:
            raise ValueError(
                f"metric= is a covariance of {len(metric)} coordinates, but this step has {d} "
                f"Euclidean coordinates: {_listed(names)}. Pass the covariance of the "
                "unconstrained values in this order"
            )
        if metric.ndim == 1:
            return FactorEstimator("diag", np.sqrt(metric))
        return FactorEstimator("dense", np.linalg.cholesky(metric))
    if metric == "auto":
        metric = "dense" if d <= SETTINGS.max_dense else "low rank"
    return FactorEstimator(metric, angles=np.flatnonzero([name in angles for name in names]))


def _listed(names: Sequence[str]) -> str:
    """List each name once, with the number of its coordinates."""
    counts = {name: list(names).count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "none"


# --- windows ---------------------------------------------------------------------------------


def window_ends(n: int, first: int = SETTINGS.first_window) -> list[int]:
    """List the numbers of draws after which the metric is updated, in a phase of ``n`` draws.

    Each window is 1.5 times as long as the previous one: early windows are short, because the chain
    may not have reached the posterior. The last window ends with the phase. The first one has
    ``first`` draws.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.mass_matrix import window_ends
    >>> window_ends(200)
    [10, 25, 47, 80, 200]
    >>> window_ends(5)
    [5]
    """
    ends, end = [], first
    width = float(end)
    while end + SETTINGS.window_growth * width <= n:
        ends.append(end)
        width *= SETTINGS.window_growth
        end += int(width)
    if ends and n - ends[-1] < width:
        ends.pop()
    return [*ends, n]


class MassMatrixWindows:
    """Draws and gradients of the current window, from which the metric is estimated.

    Parameters
    ----------
    n_draws : int
        Number of draws of the phase.
    estimator : FactorEstimator
    first : int
        Number of draws of the first window.
    """

    def __init__(
        self, n_draws: int, estimator: FactorEstimator, first: int = SETTINGS.first_window
    ) -> None:
        self._ends = set(window_ends(n_draws, first))
        self._estimator = estimator
        self._positions: list[np.ndarray] = []
        self._gradients: list[np.ndarray] = []
        self._n_draws = 0

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def state(self) -> dict[str, Any]:
        """Draws and gradients of the current window."""
        return {
            "n_draws": self._n_draws,
            "positions": self.positions,
            "gradients": self.gradients,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._n_draws = state["n_draws"]
        self._positions = list(state["positions"])
        self._gradients = list(state["gradients"])

    def add(self, position: np.ndarray, gradient: np.ndarray) -> bool:
        """Add a draw; return whether a window ends with it.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            Position in the coordinates of the model, and gradient, projected onto the tangent
            space. A draw that is not finite is not added.
        """
        self._n_draws += 1
        if np.isfinite(position).all() and np.isfinite(gradient).all():
            self._positions.append(position.copy())
            self._gradients.append(gradient.copy())
        return self._n_draws in self._ends

    def discard_early(self) -> None:
        """Discard the earlier draws, since the chain may not have reached the posterior."""
        first = int(SETTINGS.discarded_fraction * len(self._positions))
        self._positions = self._positions[first:]
        self._gradients = self._gradients[first:]

    def factor(self, d: int) -> Factor | None:
        """Estimate the factor of the first ``d`` coordinates.

        Return None if there are too few draws, or if all proposals were rejected.
        """
        if len(self) < SETTINGS.min_draws or not np.ptp(self._positions, axis=0).any():
            return None
        factor = self._estimator.factor(self.positions[:, :d], self.gradients[:, :d])
        values = factor.times(np.ones(d)) if isinstance(factor, LowRank) else factor
        return factor if np.isfinite(values).all() else None

    def length(self, part: slice, dim: int, longest: float = 1.0) -> float:
        """Estimate the length scale of a variable that is not Euclidean; see `length_scale`."""
        return length_scale(self.positions[:, part], self.gradients[:, part], dim, longest)

    def funnel(self, parts: Mapping[str, slice]) -> Funnel | None:
        """Find a variable that sets the scale of another; see `find_funnel`."""
        return find_funnel(self.positions, self.gradients, parts)

    @property
    def positions(self) -> np.ndarray:
        """Draws of the current window, shape (n, size)."""
        return np.array(self._positions)

    @property
    def gradients(self) -> np.ndarray:
        """Gradients at these draws, shape (n, size)."""
        return np.array(self._gradients)

    @property
    def mean(self) -> np.ndarray:
        """Mean of these draws."""
        return np.mean(self._positions, axis=0)

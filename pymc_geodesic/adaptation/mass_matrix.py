"""Scales and correlations that draws and their gradients ask for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pymc_geodesic.gradients.metric import Factor, LowRank, Metric, diagonal_metric
from pymc_geodesic.monitoring.funnels import Funnel, find_funnel

_LEAST_VARIANCE = 1e-5
"""Added to variances in units of the diagonal scales: directions that were not seen keep theirs."""

_SMALLEST, _LARGEST = 1e-150, 1e150

MOST_DIRECTIONS, MOST_PROPOSED = 10, 20
"""Directions that a diagonal factor is corrected in, and such as are looked at."""

DRAWS_PER_DIRECTION = 6
"""Draws from which one more direction is proposed."""

UNUSUAL = 1.5
"""Ratio of variances from which a direction counts."""


def geometric_mean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    r"""Factor F of the geometric mean FᵀF of A and B⁻¹, with A = aᵀa and B = bᵀb.

    It is the positive definite X with X B X = A. With a singular value decomposition
    :math:`b a^\top = U S V^\top` it is :math:`a^\top V S^{-1} V^\top a`. Products of A and B
    have the fourth power of a long way that draws came, which leaves nothing of the directions
    across it; those of their factors have the square.

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
    _, values, turned = np.linalg.svd(b @ a.T)
    rounding = len(a) * np.finfo(float).eps * values.max(initial=0.0)
    values = np.maximum(values, max(rounding, np.finfo(float).tiny))
    return (turned @ a) / np.sqrt(values)[:, np.newaxis]


def _root(rows: np.ndarray) -> np.ndarray:
    """Triangle R whose RᵀR is the mean square of rows of shape (n, d), and a little more."""
    n, d = rows.shape
    ridge = math.sqrt(_LEAST_VARIANCE) * np.eye(d)
    return np.linalg.qr(np.concatenate([rows / math.sqrt(n), ridge]), mode="r")


def diagonal_scale(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    """Scale of every coordinate by itself, sqrt(sd(x) / sd(g)); see `whitening_factor`."""
    spread, steepness = x.std(axis=0), gradients.std(axis=0)
    known = (spread > 0.0) & (steepness > 0.0)
    scale = np.where(spread > 0.0, spread, 1.0)  # what a constant gradient leaves to the draws
    scale[known] = np.sqrt(spread[known] / steepness[known])
    return np.clip(scale, _SMALLEST, _LARGEST)


def _scaled(
    x: np.ndarray, gradients: np.ndarray, scale: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Deviations of positions and gradients in units of the diagonal scales."""
    return (x - x.mean(axis=0)) / scale, (gradients - gradients.mean(axis=0)) * scale


def _stretches(positions: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Variances and directions of the geometric mean of the two covariances."""
    _, scales, directions = np.linalg.svd(geometric_mean(_root(positions), _root(scores)))
    return np.maximum(scales**2, np.finfo(float).tiny), directions.T


def whitening_factor(x: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    r"""Factor L of the metric that draws and their gradients ask for.

    The Gaussian law whose scores are closest to the gradients seen, in mean squares measured by
    its own covariance, has

    .. math:: L L^\top = \operatorname{cov}(x) \,\#\, \operatorname{cov}(g)^{-1} ,

    the geometric mean. For a normal posterior that is its covariance exactly, however badly the
    draws have explored it, because g = −Σ⁻¹(x − μ) everywhere: d + 1 points of a trajectory
    suffice. Draws alone would need to have explored it already.

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
    if n < 3 or d == 0:
        return np.diag(scale)
    positions, scores = _scaled(x, gradients, scale)
    basis = np.eye(d)
    if 2 * n < d + 2:  # what was not seen stays as it is
        basis, _ = np.linalg.qr(np.concatenate([positions, scores]).T)
    values, vectors = _stretches(positions @ basis, scores @ basis)
    directions = basis @ vectors
    stretch = (directions * (np.sqrt(values) - 1.0)) @ directions.T
    return scale[:, np.newaxis] * (np.eye(d) + stretch)


def low_rank_factor(x: np.ndarray, gradients: np.ndarray) -> LowRank:
    """Diagonal factor with a few directions in which scales differ much from it.

    Every other draw proposes directions: those in which `whitening_factor` would stretch most. The
    draws in between say how much, and whether at all: a direction that a few draws of many numbers
    have by chance is not one of others. Then the diagonal is found again from what is left beside
    these directions, which made the scales of single coordinates larger, and once more directions.

    Parameters
    ----------
    x, gradients : ndarray, shape (n, d)
        Positions and gradients of the log-density there.

    Returns
    -------
    LowRank
        With ten directions at most, and none from fewer than a dozen draws.

    References
    ----------
    Seyboldt, Carlson, Carpenter (2024), Preconditioning Hamiltonian Monte Carlo by minimizing
    Fisher divergence, section 3.3.
    """
    n, d = x.shape
    scale = diagonal_scale(x, gradients)
    n_proposed = min(MOST_PROPOSED, n // DRAWS_PER_DIRECTION, d)
    if n_proposed < 2:
        return LowRank(scale, np.empty((d, 0)), np.empty(0))
    positions, scores = _scaled(x, gradients, scale)
    _, directions, _ = _unusual_directions(positions, scores, n_proposed)
    if directions.size:
        beside = [each - (each @ directions) @ directions.T for each in (positions, scores)]
        scale = scale * diagonal_scale(*beside)
        positions, scores = _scaled(x, gradients, scale)
    level, directions, values = _unusual_directions(positions, scores, n_proposed)
    return LowRank(math.sqrt(level) * scale, directions, np.sqrt(values / level))


def _unusual_directions(
    positions: np.ndarray, scores: np.ndarray, n_proposed: int
) -> tuple[float, np.ndarray, np.ndarray]:
    """Variance of most directions, directions whose variance is another, and their variances."""
    basis, _ = np.linalg.qr(np.concatenate([positions[::2], scores[::2]]).T)
    values, vectors = _stretches(positions[::2] @ basis, scores[::2] @ basis)
    level = float(np.exp(np.median(np.log(values))))
    proposed = basis @ vectors[:, np.argsort(np.abs(np.log(values / level)))[-n_proposed:]]
    values, vectors = _stretches(positions[1::2] @ proposed, scores[1::2] @ proposed)
    unusual = np.abs(np.log(values / level))
    kept = np.argsort(unusual)[-MOST_DIRECTIONS:]
    kept = kept[unusual[kept] > math.log(UNUSUAL)]
    return level, proposed @ vectors[:, kept], values[kept]


def length_scale(x: np.ndarray, gradients: np.ndarray, dim: int, longest: float = 1.0) -> float:
    r"""Length s in which a posterior on a manifold varies.

    What `whitening_factor` is to a matrix, with one number for all directions,

    .. math:: s^4 = \frac{E|x - \bar x|^2}{E|g|^2} .

    Parameters
    ----------
    x, gradients : ndarray, shape (n, size)
        Points, and tangential gradients of the log-density there.
    dim : int
        Dimension of the manifold.
    longest : float
        Bound of the length; 1 on compact manifolds.
    """
    spread = np.mean(np.sum((x - x.mean(axis=0)) ** 2, axis=1)) / dim
    steepness = np.mean(np.sum(gradients**2, axis=1)) / dim
    if not (np.isfinite(spread) and np.isfinite(steepness)) or spread == 0.0 or steepness == 0.0:
        return 1.0
    return float(min((spread / steepness) ** 0.25, longest))


LARGEST_DENSE = 500
"""Euclidean coordinates up to which a metric takes all correlations into account by default."""

LONGEST_ARC = np.pi
"""Largest scale of an angle, in radians: half of the circle."""

_ESTIMATES: dict[str, Callable[[np.ndarray, np.ndarray], Factor]] = {
    "dense": whitening_factor,
    "low rank": low_rank_factor,
    "diag": diagonal_scale,
}


@dataclass(frozen=True, eq=False)
class FactorRule:
    """Says what factor draws ask for.

    Parameters
    ----------
    kind : {"dense", "low rank", "diag"}
    given : ndarray, optional
        Factor that stays as it is, whatever draws say.
    angles : ndarray of int
        Coordinates that are angles, which chains do not wrap.
    """

    kind: str
    given: np.ndarray | None = None
    angles: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def mixes(self) -> bool:
        """Whether a coordinate of the metric belongs to no coordinate of the model."""
        return self.kind == "dense"

    def first(self, centre: np.ndarray, gradient: np.ndarray) -> Metric:
        """Metric before there are draws; see `diagonal_metric`."""
        if self.given is not None:
            return Metric(np.array(centre), self.given)
        return diagonal_metric(centre, gradient)

    def factor(self, x: np.ndarray, gradients: np.ndarray) -> Factor:
        """Factor for positions and gradients there, both of shape (n, d)."""
        if self.given is not None:
            return self.given
        if not self.angles.size:
            return _ESTIMATES[self.kind](x, gradients)
        x = x.copy()
        x[:, self.angles] = wrapped(x[:, self.angles])
        return self._bounded(_ESTIMATES[self.kind](x, gradients))

    def _bounded(self, factor: Factor) -> Factor:
        """Return the factor with scales of angles of at most `LONGEST_ARC`."""
        rows = factor.dense() if isinstance(factor, LowRank) else factor
        scale = np.linalg.norm(rows, axis=1) if rows.ndim == 2 else rows
        by = np.ones(len(scale))
        by[self.angles] = np.minimum(1.0, LONGEST_ARC / np.maximum(scale[self.angles], 1e-300))
        if isinstance(factor, LowRank):
            return LowRank(factor.scale * by, factor.directions, factor.stretch)
        return factor * (by[:, None] if factor.ndim == 2 else by)


def wrapped(angles: np.ndarray) -> np.ndarray:
    """Return angles within π of their mean direction, shape (n, d), for each column.

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


def factor_rule(
    metric: str | np.ndarray, names: Sequence[str], angles: Collection[str] = ()
) -> FactorRule:
    """Rule that an argument asks for.

    Parameters
    ----------
    metric : {"auto", "dense", "diag"} or ndarray
        An array is the covariance of the posterior, shape (d, d), or its diagonal.
    names : list of str
        One for each of the d Euclidean coordinates.
    angles : collection of str
        Those that are angles.

    Raises
    ------
    ValueError
        If the array is of another size.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.mass_matrix import factor_rule
    >>> factor_rule("auto", ["b"] * 3).kind, factor_rule("auto", ["b"] * 1000).kind
    ('dense', 'low rank')
    >>> factor_rule(np.array([4.0, 9.0]), ["a", "b"]).given
    array([2., 3.])
    """
    d = len(names)
    if isinstance(metric, np.ndarray):
        if len(metric) != d:
            raise ValueError(
                f"metric= is a covariance of {len(metric)} coordinates, but the Euclidean ones of "
                f"this step are {d}: {_listed(names)}, in this order and unconstrained"
            )
        if metric.ndim == 1:
            return FactorRule("diag", np.sqrt(metric))
        return FactorRule("dense", np.linalg.cholesky(metric))
    if metric == "auto":
        metric = "dense" if d <= LARGEST_DENSE else "low rank"
    return FactorRule(metric, angles=np.flatnonzero([name in angles for name in names]))


def _listed(names: Sequence[str]) -> str:
    """Each name once, with the number of its coordinates."""
    counts = {name: list(names).count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "none"


FIRST_WINDOW = 10
GROWTH = 1.5
FORGOTTEN = 0.5
"""Part of the draws so far that is dropped when a window ends: they come from the way there."""


def window_ends(n: int) -> list[int]:
    """Draws after which the metric changes, in a phase of ``n`` draws.

    Windows grow by half: early ones are short, because what the first draws show is the way to
    the posterior. The last window ends with the phase.

    Examples
    --------
    >>> from pymc_geodesic.adaptation.mass_matrix import window_ends
    >>> window_ends(200)
    [10, 25, 47, 80, 200]
    >>> window_ends(5)
    [5]
    """
    ends, width = [], float(FIRST_WINDOW)
    end = FIRST_WINDOW
    while end + GROWTH * width <= n:
        ends.append(end)
        width *= GROWTH
        end += int(width)
    if ends and n - ends[-1] < width:
        ends.pop()
    return [*ends, n]


class MetricWindows:
    """Collects draws with their gradients, and says what metric they ask for.

    Parameters
    ----------
    n_draws : int
        Draws of the phase.
    rule : FactorRule
    """

    def __init__(self, n_draws: int, rule: FactorRule) -> None:
        self._ends = set(window_ends(n_draws))
        self._rule = rule
        self._positions: list[np.ndarray] = []
        self._gradients: list[np.ndarray] = []
        self._seen = 0

    @property
    def state(self) -> dict[str, Any]:
        """What was collected."""
        return {
            "seen": self._seen,
            "positions": np.array(self._positions),
            "gradients": np.array(self._gradients),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._seen = state["seen"]
        self._positions = list(state["positions"])
        self._gradients = list(state["gradients"])

    def observe(self, position: np.ndarray, gradient: np.ndarray) -> bool:
        """Take in one draw; return whether a window ends with it.

        Parameters
        ----------
        position, gradient : ndarray, shape (size,)
            In the coordinates of the model, the gradient projected on the tangent space. What is
            not finite is left out.
        """
        self._seen += 1
        if np.isfinite(position).all() and np.isfinite(gradient).all():
            self._positions.append(position.copy())
            self._gradients.append(gradient.copy())
        return self._seen in self._ends

    def __len__(self) -> int:
        return len(self._positions)

    def forget(self) -> None:
        """Drop the earlier draws, which come from the way to the posterior."""
        first = int(FORGOTTEN * len(self._positions))
        self._positions = self._positions[first:]
        self._gradients = self._gradients[first:]

    def factor(self, d: int) -> Factor | None:
        """Factor that the rule makes of the first ``d`` coordinates; None if nothing was learned.

        That is so where there are too few draws, or where all proposals were rejected.
        """
        if len(self._positions) < 3 or not np.ptp(self._positions, axis=0).any():
            return None
        x, gradients = np.array(self._positions)[:, :d], np.array(self._gradients)[:, :d]
        factor = self._rule.factor(x, gradients)
        numbers = factor.times(np.ones(d)) if isinstance(factor, LowRank) else factor
        return factor if np.isfinite(numbers).all() else None

    def length(self, part: slice, dim: int, longest: float = 1.0) -> float:
        """Length scale of a variable that is not Euclidean; see `length_scale`."""
        x, gradients = np.array(self._positions)[:, part], np.array(self._gradients)[:, part]
        return length_scale(x, gradients, dim, longest)

    def funnel(
        self, parts: Mapping[str, slice], in_model: Collection[tuple[str, str]] = ()
    ) -> Funnel | None:
        """Look for a variable that sets the scale of another; see `find_funnel`."""
        positions, gradients = np.array(self._positions), np.array(self._gradients)
        return find_funnel(positions, gradients, parts, in_model)

    @property
    def positions(self) -> np.ndarray:
        """Draws that are remembered, shape (n, size)."""
        return np.array(self._positions)

    @property
    def gradients(self) -> np.ndarray:
        """Gradients of the draws that are remembered, shape (n, size)."""
        return np.array(self._gradients)

    @property
    def mean(self) -> np.ndarray:
        """Mean of the draws that are remembered."""
        return np.mean(self._positions, axis=0)

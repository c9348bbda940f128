"""How the factor of a metric comes about: given, or from draws, with all correlations or few."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from pymc_geodesic.tuning.metric import Factor, LowRank, Metric, diagonal_metric
from pymc_geodesic.tuning.whitening import diagonal_scale, low_rank_factor, whitening_factor

__all__ = ["FactorRule", "factor_rule"]

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
    >>> from pymc_geodesic.tuning.factor_rule import wrapped
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
    >>> from pymc_geodesic.tuning.factor_rule import factor_rule
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

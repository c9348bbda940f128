"""How the factor of a metric comes about: given, or from draws, with all correlations or few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from pymc_geodesic.tuning.metric import Factor, Metric, diagonal_metric
from pymc_geodesic.tuning.whitening import diagonal_scale, low_rank_factor, whitening_factor

__all__ = ["FactorRule", "factor_rule"]

LARGEST_DENSE = 500
"""Euclidean coordinates up to which a metric takes all correlations into account by default."""

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
    """

    kind: str
    given: np.ndarray | None = None

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
        return _ESTIMATES[self.kind](x, gradients)


def factor_rule(metric: str | np.ndarray, names: Sequence[str]) -> FactorRule:
    """Rule that an argument asks for.

    Parameters
    ----------
    metric : {"auto", "dense", "diag"} or ndarray
        An array is the covariance of the posterior, shape (d, d), or its diagonal.
    names : list of str
        One for each of the d Euclidean coordinates.

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
        return FactorRule("dense" if d <= LARGEST_DENSE else "low rank")
    return FactorRule(metric)


def _listed(names: Sequence[str]) -> str:
    """Each name once, with the number of its coordinates."""
    counts = {name: list(names).count(name) for name in dict.fromkeys(names)}
    return ", ".join(f"{name} ({count})" for name, count in counts.items()) or "none"

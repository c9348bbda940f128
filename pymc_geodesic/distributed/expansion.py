"""What the rows of a shard say around a place: log-likelihood, gradient and Hessian."""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np

from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.gradients.full_gradient import RowCurvature
from pymc_geodesic.steps.step import GeodesicStep

ROWS_OF_OUTER_PRODUCTS = 2000
"""Rows whose gradients tell the curvature where a Hessian says little of it."""

HIDDEN, LOOKED_AT = 0.2, 3.0
"""Part of the curvature by outer products that a Hessian may miss, over so many posterior sds."""


class Expansion(NamedTuple):
    """A function around a place.

    Attributes
    ----------
    value : float
        Up to a constant.
    gradient : ndarray, shape (size,)
    hessian : ndarray, shape (size, size)
        Zero where it was not asked for.
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray

    def plus(self, other: Expansion) -> Expansion:
        """Expansion of the sum."""
        return Expansion(
            self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian
        )


class Expansions:
    """Expansions of the parts of the log-density of a step, in the coordinates it moves.

    Parameters
    ----------
    step : GeodesicStep
        Its minibatches are taken from rows in memory.
    share : float
        The step counts each row as often as its inverse says.

    Raises
    ------
    ValueError
        If there is no gradient of any number of rows.
    """

    def __init__(self, step: GeodesicStep, share: float) -> None:
        estimator = cast(GradientEstimate, step.estimator)
        total = estimator.total_gradient()
        if total is None:
            raise ValueError(
                f"{type(step).__name__} has no gradient of all rows, from which surrogates of the "
                "shards could be made; pass conducive=False"
            )
        self._total, self._estimator = total, estimator
        self._size = step.product.size
        self._scale = share
        self._curvature: RowCurvature | None = None
        self._may_have_kinks = estimator.has_kinks

    def likelihood(
        self, x: np.ndarray, n_rows: int | None, *, curvature: bool, far: bool = False
    ) -> Expansion:
        """Expand the log-likelihood of the shard.

        Parameters
        ----------
        x : ndarray, shape (size,)
        n_rows : int, optional
            Rows that stand for all of them; all by default. The Hessian is made of as many.
        curvature : bool
            Whether the Hessian is wanted.
        far : bool
            Whether the place may be far from the mode, where no kink may be near although there are
            some: outer products take the place of the Hessian then.
        """
        parts, scale = self._parts(n_rows)
        output = self._scale * scale * self._total.sum_over(x, parts, rest=0.0)
        hessian = np.zeros((self._size, self._size))
        if curvature:
            if self._may_have_kinks and far:
                hessian = self._minus_outer_products(x)
            else:
                hessian = self._scale * scale * self._hessian(x, parts, rest=0.0)
            if self._may_have_kinks and not far:
                hessian = self._unless_kinks_hide_it(x, hessian)
        return Expansion(float(output[-1]), output[:-1], hessian)

    def rest(self, x: np.ndarray, *, curvature: bool) -> Expansion:
        """Expand what is no row: the prior, and what was added to it."""
        parts, _ = self._parts(1)
        output = self._total.sum_over(x, parts) - self._total.sum_over(x, parts, rest=0.0)
        hessian = np.zeros((self._size, self._size))
        if curvature:
            hessian = self._hessian(x, parts, rest=1.0) - self._hessian(x, parts, rest=0.0)
        return Expansion(float(output[-1]), output[:-1], hessian)

    def seen(self, x: np.ndarray) -> np.ndarray:
        """Gradient of the log-density of the step, all rows of the shard counted."""
        return self._total.sum_over(x, self._parts(None)[0])[:-1]

    def _parts(self, n_rows: int | None) -> tuple[list, float]:
        source = self._estimator.source
        if n_rows is None or n_rows >= source.n_rows:
            return list(source.all_rows() or ()), 1.0
        return [source.sample_rows(n_rows)], source.n_rows / n_rows

    def _hessian(self, x: np.ndarray, parts: list, *, rest: float) -> np.ndarray:
        if self._curvature is None:
            self._curvature = self._estimator.row_curvature()
        if self._curvature is None:
            return np.zeros((self._size, self._size))
        hessian = self._curvature.hessian(x, parts, rest=rest)
        return 0.5 * (hessian + hessian.T)

    def _unless_kinks_hide_it(self, x: np.ndarray, hessian: np.ndarray) -> np.ndarray:
        """Hessian, or minus outer products where gradients change by what it does not say."""
        instead = self._minus_outer_products(x)
        direction = np.random.default_rng(0).standard_normal(self._size)
        expected = float(-direction @ instead @ direction)
        if not expected > 0.0:
            return hessian
        step = LOOKED_AT / np.sqrt(expected) * direction
        rows = self._parts(None)[0]
        here, there = (self._total.sum_over(place, rows, rest=0.0) for place in (x, x + step))
        change = self._scale * float(step @ (there - here)[:-1])
        missed = abs(change - step @ hessian @ step)
        return instead if missed > HIDDEN * LOOKED_AT**2 else hessian

    def _minus_outer_products(self, x: np.ndarray) -> np.ndarray:
        """Minus the summed outer products of row gradients about their mean."""
        n_all = self._estimator.source.n_rows
        n = min(ROWS_OF_OUTER_PRODUCTS, n_all)
        arrays, _ = self._estimator.source.sample_rows(n)
        gradients = np.empty((n, self._size))
        for i in range(n):
            one = {name: array[i : i + 1] for name, array in arrays.items()}
            gradients[i] = self._scale * self._total.sum_over(x, [(one, 1)], rest=0.0)[:-1]
        away = gradients - gradients.mean(axis=0)
        return -(n_all / n) * away.T @ away

r"""Quadratic surrogates of the likelihoods of shards, and the conducive gradient.

The surrogate of shard s is a normal density, or on a sphere a Fisher–Bingham density, that
approximates its likelihood around an expansion point c,

.. math::

    \log q_s(x) = g_s^\top (x - c) + \tfrac{1}{2} (x - c)^\top A_s (x - c) ,

with the gradient g_s and the Hessian A_s of the log-likelihood of its rows at c. A chain that
visits shard s with probability f_s adds to the gradient of the shard

.. math::

    \sum_t \nabla \log q_t(x) - \frac{1}{f_s} \nabla \log q_s(x) ,

which is zero on average over the visits, and approximates the gradient of the other shards.

References
----------
El Mekkaoui, Mesquita, Blomstedt, Kaski (2021), Federated stochastic gradient Langevin dynamics,
section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.full_gradient import RowCurvature
from pymc_geodesic.steps.step import GeodesicStep

ROWS_OF_OUTER_PRODUCTS = 2000
"""Rows whose gradients estimate the curvature where the Hessian does not."""

MAX_UNEXPLAINED, CHECK_DISTANCE = 0.2, 3.0
"""Fraction of the outer-product curvature by which the Hessian may fail to predict a change of the
gradient, over a distance of so many posterior standard deviations."""


class Quadratic(NamedTuple):
    """A quadratic function, slope·(x − center) + ½ (x − center)ᵀ curvature (x − center).

    Attributes
    ----------
    center, slope : ndarray, shape (size,)
    curvature : ndarray, shape (size, size)
    """

    center: np.ndarray
    slope: np.ndarray
    curvature: np.ndarray


def conducive_terms(
    surrogates: Sequence[Quadratic], probabilities: Sequence[float]
) -> list[Quadratic]:
    """Terms that are added to the log-density of each shard.

    Parameters
    ----------
    surrogates : sequence of Quadratic
        log q_s of each shard, with a common center.
    probabilities : sequence of float
        f_s, with which each shard is visited.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.distributed.surrogates import Quadratic, conducive_terms
    >>> one = Quadratic(np.zeros(1), np.array([1.0]), np.array([[-2.0]]))
    >>> other = Quadratic(np.zeros(1), np.array([4.0]), np.array([[-2.0]]))
    >>> [float(term.slope[0]) for term in conducive_terms([one, other], [0.5, 0.5])]
    [3.0, -3.0]
    """
    slope = np.sum([q.slope for q in surrogates], axis=0)
    curvature = np.sum([q.curvature for q in surrogates], axis=0)
    return [
        Quadratic(q.center, slope - q.slope / f, curvature - q.curvature / f)
        for q, f in zip(surrogates, probabilities, strict=True)
    ]


class ConduciveTerm:
    """A quadratic term of the log-density of a model, zero until it is set.

    Parameters
    ----------
    model : pymc.Model
        The term is added to it as a potential.
    variables : list of ManifoldVariable
        In the order of the coordinates.
    """

    def __init__(self, model: pm.Model, variables: Sequence[ManifoldVariable]) -> None:
        size = sum(variable.rows * variable.manifold.size for variable in variables)
        zero = Quadratic(np.zeros(size), np.zeros(size), np.zeros((size, size)))
        self._shared: list[Any] = [
            pytensor.shared(value, name=f"conducive_{name}", shape=value.shape)
            for name, value in zero._asdict().items()
        ]
        center, slope, curvature = self._shared
        offset = pt.concatenate([_coordinates(model, each) for each in variables]) - center
        with model:
            pm.Potential("conducive", pt.dot(slope + 0.5 * pt.dot(curvature, offset), offset))

    def set(self, term: Quadratic) -> None:
        """Set the term. Compiled functions read it when they next refresh their data."""
        for shared, value in zip(self._shared, term, strict=True):
            shared.set_value(value)


def _coordinates(model: pm.Model, variable: ManifoldVariable) -> TensorVariable:
    """Coordinates that the dynamics move, as a function of the random variable."""
    rv, transform = variable.rv, model.rvs_to_transforms[variable.rv]
    if variable.on_manifold or transform is None:
        return rv.ravel()
    return transform.forward(rv, *rv.owner.inputs).ravel()


class Expansion(NamedTuple):
    """Second-order Taylor expansion of a function at a point.

    Attributes
    ----------
    value : float
        Up to a constant.
    gradient : ndarray, shape (size,)
    hessian : ndarray, shape (size, size)
        Zero if it was not requested.
    """

    value: float
    gradient: np.ndarray
    hessian: np.ndarray

    def plus(self, other: Expansion) -> Expansion:
        """Expansion of the sum of two functions."""
        return Expansion(
            self.value + other.value, self.gradient + other.gradient, self.hessian + other.hessian
        )


class ShardDensity:
    """Expansions of the likelihood and the prior of a shard, in the coordinates of its step.

    Parameters
    ----------
    step : GeodesicStep
        With minibatches of rows in memory.
    share : float
        Inverse of the weight of each row in the log-density of the step.

    Raises
    ------
    ValueError
        If the step has no gradient of any number of rows.
    """

    def __init__(self, step: GeodesicStep, share: float) -> None:
        estimator = cast(GradientEstimator, step.estimator)
        total = estimator.total_gradient()
        if total is None:
            raise ValueError(
                f"{type(step).__name__} has no gradient of all rows, which the surrogates "
                "need; pass conducive=False"
            )
        self._total, self._estimator = total, estimator
        self._size = step.product.size
        self._share = share
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
            Size of the random subsample of rows, for the Hessian too; by default all rows.
        curvature : bool
            Whether to compute the Hessian.
        far : bool
            Whether `x` may be far from the mode. A log-likelihood with kinks may have none near
            such a point, so that outer products of gradients replace the Hessian.
        """
        parts, scale = self._rows(n_rows)
        output = self._share * scale * self._total.sum_over(x, parts, rest=0.0)
        hessian = np.zeros((self._size, self._size))
        if curvature:
            if self._may_have_kinks and far:
                hessian = self._minus_outer_products(x)
            else:
                hessian = self._share * scale * self._hessian(x, parts, rest=0.0)
            if self._may_have_kinks and not far:
                hessian = self._replace_if_kinks_hide_curvature(x, hessian)
        return Expansion(float(output[-1]), output[:-1], hessian)

    def prior(self, x: np.ndarray, *, curvature: bool) -> Expansion:
        """Expand the part of the log-density that does not depend on rows: prior and potentials."""
        parts, _ = self._rows(1)
        output = self._total.sum_over(x, parts) - self._total.sum_over(x, parts, rest=0.0)
        hessian = np.zeros((self._size, self._size))
        if curvature:
            hessian = self._hessian(x, parts, rest=1.0) - self._hessian(x, parts, rest=0.0)
        return Expansion(float(output[-1]), output[:-1], hessian)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient of the log-density of the step, with all rows of the shard."""
        return self._total.sum_over(x, self._rows(None)[0])[:-1]

    def _rows(self, n_rows: int | None) -> tuple[list, float]:
        source = self._estimator.source
        if n_rows is None or n_rows >= source.n_rows:
            return list(source.all_rows() or ()), 1.0
        return [source.sample_rows(n_rows)], source.n_rows / n_rows

    def _hessian(self, x: np.ndarray, parts: list, *, rest: float) -> np.ndarray:
        if self._curvature is None:
            self._curvature = self._estimator.row_curvature(with_other_terms=True)
        if self._curvature is None:
            return np.zeros((self._size, self._size))
        hessian = self._curvature.hessian(x, parts, rest=rest).rows
        return 0.5 * (hessian + hessian.T)

    def _replace_if_kinks_hide_curvature(self, x: np.ndarray, hessian: np.ndarray) -> np.ndarray:
        """Hessian, or minus outer products if it does not predict a change of the gradient."""
        replacement = self._minus_outer_products(x)
        direction = np.random.default_rng(0).standard_normal(self._size)
        expected = float(-direction @ replacement @ direction)
        if not expected > 0.0:
            return hessian
        step = CHECK_DISTANCE / np.sqrt(expected) * direction
        rows = self._rows(None)[0]
        first, last = (self._total.sum_over(point, rows, rest=0.0) for point in (x, x + step))
        change = self._share * float(step @ (last - first)[:-1])
        unexplained = abs(change - step @ hessian @ step)
        return replacement if unexplained > MAX_UNEXPLAINED * CHECK_DISTANCE**2 else hessian

    def _minus_outer_products(self, x: np.ndarray) -> np.ndarray:
        """Minus the sum of outer products of row gradients about their mean."""
        n_all = self._estimator.source.n_rows
        n = min(ROWS_OF_OUTER_PRODUCTS, n_all)
        arrays, _ = self._estimator.source.sample_rows(n)
        gradients = np.empty((n, self._size))
        for i in range(n):
            one = {name: array[i : i + 1] for name, array in arrays.items()}
            gradients[i] = self._share * self._total.sum_over(x, [(one, 1)], rest=0.0)[:-1]
        centered = gradients - gradients.mean(axis=0)
        return -(n_all / n) * centered.T @ centered

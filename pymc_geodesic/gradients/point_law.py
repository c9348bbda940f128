"""The law of one point on a sphere or of one frame: its gradient at many, and draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.transforms import _default_transform
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_geodesic.densities.graphs import interpreting
from pymc_geodesic.densities.variables import natural_manifold
from pymc_geodesic.manifolds import Manifold, Sphere, Stiefel


class PointLaw:
    """A distribution of unit vectors or frames whose parameters are numbers.

    Parameters
    ----------
    distribution : TensorVariable, shape (d,) or (n, p)
        As ``dist`` of the distribution makes it.

    Attributes
    ----------
    manifold : Manifold

    Raises
    ------
    TypeError
        If it is not a distribution on one of these manifolds.
    ValueError
        If it is a batch of points, or its parameters are random.
    """

    def __init__(self, distribution: Any) -> None:
        self.manifold = _manifold_of(distribution)
        self._distribution = distribution
        value = pt.tensor("x", dtype="float64", shape=(None, *distribution.type.shape))
        density = pm.logp(distribution, value)
        if any(
            node.owner is not None and isinstance(node.owner.op, RandomVariable)
            for node in ancestors([density])
        ):
            raise ValueError(
                "the parameters of the distribution are random; pass numbers, such as posterior "
                "means, or look at the posterior itself with ksd"
            )
        gradient = pt.grad(density.sum(), value, disconnected_inputs="ignore")
        with interpreting():
            self._gradient = pytensor.function(
                [value], gradient, mode="FAST_COMPILE", on_unused_input="ignore"
            )

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """Return ∇log p in ambient coordinates, not projected, of the shape of the points."""
        return self._gradient(points)

    def draws(self, n: int, repetitions: int, rng: np.random.Generator) -> np.ndarray:
        """Draw samples of n points, shape (repetitions, n, ...)."""
        many = change_dist_size(self._distribution, (repetitions, n))
        with interpreting():
            return np.asarray(pm.draw(many, random_seed=rng, mode="FAST_COMPILE"), dtype=float)


def _manifold_of(distribution: Any) -> Manifold:
    """Return the sphere or Stiefel manifold of one point."""
    owner = getattr(distribution, "owner", None)
    if owner is not None and isinstance(owner.op, RandomVariable | SymbolicRandomVariable):
        kind = natural_manifold(_default_transform(owner.op, distribution))
        shape = tuple(int(length) for length in distribution.shape.eval(mode="FAST_COMPILE"))
        if kind in (Sphere, Stiefel):
            if len(shape) != (1 if kind is Sphere else 2):
                raise ValueError(
                    "the distribution is to be the law of one point, without a batch, but its "
                    f"shape is {shape}"
                )
            return kind(*shape)
    raise TypeError(
        "distribution must be one of unit vectors or frames of pymc_geodesic, made by its dist, as "
        f"in VonMisesFisher.dist(mu, kappa), got {distribution!r}"
    )

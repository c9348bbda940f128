"""Distributions whose variables have user-specified or random initial values.

PyMC's ``initval=`` does the same, but a model with one cannot be cloned, which `pymc.do`,
`pymc.observe` and `pymc.compute_log_likelihood` need. A `support_point` is cloned with its
distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Distribution
from pytensor.tensor.random.basic import BetaRV, DirichletRV, LogNormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.distributions.rotationally_symmetric import VonMisesFisher, VonMisesFisherRV
from pymc_geodesic.distributions.unit_sphere import UniformSphere, UniformSphereRV


class DrawnDirichletRV(DirichletRV):
    """Random variable Op of `DrawnDirichlet`."""


class DrawnDirichlet(pm.Dirichlet):
    """Proportions that begin at a draw from the uniform distribution on the simplex.

    A draw from a sparse prior has zeros, and its mean is the same for all.
    """

    rv_op = DrawnDirichletRV()

    def support_point(rv: TensorVariable, size: TensorVariable, a: TensorVariable) -> Any:
        """Return a uniform draw."""
        return pm.Dirichlet.dist(pt.ones_like(a), size=rv.shape[:-1])


class DrawnVonMisesFisherRV(VonMisesFisherRV):
    """Random variable Op of `DrawnVonMisesFisher`."""


class DrawnVonMisesFisher(VonMisesFisher):
    """Directions that begin at a draw from their distribution."""

    rv_op = DrawnVonMisesFisherRV()

    def support_point(rv: TensorVariable, size: TensorVariable, *parameters: TensorVariable) -> Any:
        """Return the variable itself."""
        return rv


class BegunOp:
    """What Ops have in common whose variables begin at given values.

    Attributes
    ----------
    start : ndarray
        Values, of the shape of the variable.
    """

    start: np.ndarray


class Begun(Distribution):
    """Base of distributions that take ``start=``, where chains begin."""

    rv_type = BegunOp

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model, with an Op that knows the start."""
        start = kwargs.pop("start")
        drawn = super().dist(*parameters, **kwargs)
        op = type(drawn.owner.op)(**drawn.owner.op._props_dict())
        op.start = np.asarray(start, dtype=drawn.dtype)
        return op.make_node(*drawn.owner.inputs).outputs[1]

    def support_point(rv: TensorVariable, *parameters: TensorVariable) -> TensorVariable:
        """Return the start."""
        return pt.constant(rv.owner.op.start)


class BegunSphereRV(BegunOp, UniformSphereRV):
    """Random variable Op of `BegunSphere`."""


class BegunSphere(Begun, UniformSphere):
    """`UniformSphere` with a start."""

    rv_op = BegunSphereRV()


class BegunLogNormalRV(BegunOp, LogNormalRV):
    """Random variable Op of `BegunLogNormal`."""


class BegunLogNormal(Begun, pm.LogNormal):
    """`pymc.LogNormal` with a start."""

    rv_op = BegunLogNormalRV()


class BegunBetaRV(BegunOp, BetaRV):
    """Random variable Op of `BegunBeta`."""


class BegunBeta(Begun, pm.Beta):
    """`pymc.Beta` with a start."""

    rv_op = BegunBetaRV()


_BEGUN = {UniformSphere: BegunSphere, pm.LogNormal: BegunLogNormal, pm.Beta: BegunBeta}


def beginning_at(distribution: type[Distribution], start: Any) -> Callable[..., TensorVariable]:
    """Return a distribution whose variables begin at given values; itself where there are none.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.initial_values import beginning_at
    >>> with pm.Model() as model:
    ...     x = beginning_at(pm.Beta, 0.25)("x", 1.0, 1.0, default_transform=None)
    >>> pm.do(model, {}).initial_point()
    {'x': array(0.25)}
    """
    return distribution if start is None else partial(_BEGUN[distribution], start=start)

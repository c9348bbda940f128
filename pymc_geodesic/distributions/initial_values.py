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


class DirichletFromDrawRV(DirichletRV):
    """Random variable Op of `DirichletFromDraw`."""


class DirichletFromDraw(pm.Dirichlet):
    """Dirichlet variable whose initial value is a uniform draw from the simplex.

    A draw from a sparse prior has zeros, and its mean is the same for all rows.
    """

    rv_op = DirichletFromDrawRV()

    def support_point(rv: TensorVariable, size: TensorVariable, a: TensorVariable) -> Any:
        """Return a uniform draw."""
        return pm.Dirichlet.dist(pt.ones_like(a), size=rv.shape[:-1])


class VonMisesFisherFromDrawRV(VonMisesFisherRV):
    """Random variable Op of `VonMisesFisherFromDraw`."""


class VonMisesFisherFromDraw(VonMisesFisher):
    """von Mises–Fisher variable whose initial value is a draw from its distribution."""

    rv_op = VonMisesFisherFromDrawRV()

    def support_point(rv: TensorVariable, size: TensorVariable, *parameters: TensorVariable) -> Any:
        """Return the variable itself."""
        return rv


class WithInitialValueRV:
    """Base class of random variable Ops with an initial value.

    Attributes
    ----------
    start : ndarray
        Initial value, of the shape of the variable.
    """

    start: np.ndarray


class WithInitialValue(Distribution):
    """Base class of distributions with the argument ``start=``, the initial value."""

    rv_type = WithInitialValueRV

    @classmethod
    def dist(cls, *parameters: Any, **kwargs: Any) -> TensorVariable:
        """Create the variable outside a model, with an Op that stores the initial value."""
        start = kwargs.pop("start")
        drawn = super().dist(*parameters, **kwargs)
        op = type(drawn.owner.op)(**drawn.owner.op._props_dict())
        op.start = np.asarray(start, dtype=drawn.dtype)
        return op.make_node(*drawn.owner.inputs).outputs[1]

    def support_point(rv: TensorVariable, *parameters: TensorVariable) -> TensorVariable:
        """Return the initial value."""
        return pt.constant(rv.owner.op.start)


class UniformSphereFromValueRV(WithInitialValueRV, UniformSphereRV):
    """Random variable Op of `UniformSphereFromValue`."""


class UniformSphereFromValue(WithInitialValue, UniformSphere):
    """`UniformSphere` with an initial value."""

    rv_op = UniformSphereFromValueRV()


class LogNormalFromValueRV(WithInitialValueRV, LogNormalRV):
    """Random variable Op of `LogNormalFromValue`."""


class LogNormalFromValue(WithInitialValue, pm.LogNormal):
    """`pymc.LogNormal` with an initial value."""

    rv_op = LogNormalFromValueRV()


class BetaFromValueRV(WithInitialValueRV, BetaRV):
    """Random variable Op of `BetaFromValue`."""


class BetaFromValue(WithInitialValue, pm.Beta):
    """`pymc.Beta` with an initial value."""

    rv_op = BetaFromValueRV()


_WITH_INITIAL_VALUE = {
    UniformSphere: UniformSphereFromValue,
    pm.LogNormal: LogNormalFromValue,
    pm.Beta: BetaFromValue,
}


def with_initial_value(
    distribution: type[Distribution], start: Any
) -> Callable[..., TensorVariable]:
    """Return a distribution whose variables have an initial value; itself if that is None.

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.distributions.initial_values import with_initial_value
    >>> with pm.Model() as model:
    ...     x = with_initial_value(pm.Beta, 0.25)("x", 1.0, 1.0, default_transform=None)
    >>> pm.do(model, {}).initial_point()
    {'x': array(0.25)}
    """
    return (
        distribution if start is None else partial(_WITH_INITIAL_VALUE[distribution], start=start)
    )

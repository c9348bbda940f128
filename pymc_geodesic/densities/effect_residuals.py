"""Residuals and prior standard deviations of group effects, for monitors of their scales."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.model import Model
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.effect_priors import (
    is_correlated,
    prior_parameters,
    with_fixed_shapes,
)
from pymc_geodesic.densities.graphs import unoptimized_function
from pymc_geodesic.densities.variables import ManifoldVariable


class EffectResiduals:
    """Residuals and prior standard deviations of group effects.

    Group effects are arrays with a `Normal`, `MvNormal` or `ZeroSumNormal` prior whose scale
    depends on variables. Groups are along the longest axis along which the scale is constant, or
    the longest axis; the other axes are those of columns.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable

    Attributes
    ----------
    columns : list of str
        Name of each vector, or of each column of another array, as in ``b[:, 1]``.
    """

    def __init__(self, model: Model, variables: Sequence[ManifoldVariable]) -> None:
        model = with_fixed_shapes(model)
        effects = _effects_with_variable_scale(model, [v.in_model(model) for v in variables])
        graphs = model.replace_rvs_by_values([each for v in effects for each in _mean_and_sd(v)])
        outputs, self.columns, self._axes = [], [], []
        for v, mean, sd in zip(effects, graphs[::2], graphs[1::2], strict=True):
            whole = pt.zeros(v.value_shape)
            outputs += [v.value - (mean + whole), sd + whole]
            self._axes.append(_axis_of_groups(v, sd))
            self.columns += _column_names(v, self._axes[-1])
        values = [v for v in model.value_vars if v in set(ancestors(outputs))]
        self._inputs = [value.name for value in values]
        self._function = unoptimized_function(values, outputs)

    def __call__(self, point: Mapping[str, np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Residuals e − m and prior standard deviations of each column, at PyMC's values."""
        found = self._function(*(point[name] for name in self._inputs))
        columns = [
            np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1).T
            for each, axis in zip(found, np.repeat(self._axes, 2), strict=True)
        ]
        return [
            pair
            for residual, sd in zip(columns[::2], columns[1::2], strict=True)
            for pair in zip(residual, sd, strict=True)
        ]


def other_variable_scales(model: Model, variables: Sequence[ManifoldVariable]) -> list[str]:
    """Names of variables whose prior depends on others, without those of `EffectResiduals`.

    Variables without data and means of normal priors do not count.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable

    Examples
    --------
    >>> import pymc as pm
    >>> from pymc_geodesic.densities.effect_residuals import other_variable_scales
    >>> from pymc_geodesic.densities.variables import manifold_variables
    >>> with pm.Model() as model:
    ...     tau = pm.HalfNormal("tau")
    ...     u, t = pm.Normal("u", 0.0, tau, shape=2), pm.Laplace("t", 0.0, tau, shape=2)
    ...     level = pm.Normal("level", pm.Normal("mean of level"))
    ...     y = pm.Normal("y", level + u + t, observed=[0.0, 1.0])
    >>> other_variable_scales(model, manifold_variables(model, None, None))
    ['t']
    """
    model = with_fixed_shapes(model)
    variables = [v.in_model(model) for v in variables]
    effects = {v.name for v in _effects_with_variable_scale(model, variables)}
    return [
        v.name
        for v in _with_data(model, variables)
        if v.name not in effects and _depends_on_variables(model, v, _parameters_but_mean(v))
    ]


def _effects_with_variable_scale(
    model: Model, variables: Sequence[ManifoldVariable]
) -> list[ManifoldVariable]:
    """Select the group effects; their prior must not depend on variables of other steps."""
    own = {v.rv for v in variables}
    others = {rv for rv in model.free_RVs if rv not in own}
    return [
        v
        for v in _with_data(model, variables)
        if _may_have_groups(model, v)
        and _depends_on_variables(model, v, _parameters_but_mean(v))
        and others.isdisjoint(ancestors(_mean_and_sd(v)))
    ]


def _with_data(model: Model, variables: Sequence[ManifoldVariable]) -> list[ManifoldVariable]:
    """Omit variables without data, such as groups to predict: they have the prior's sd."""
    data = [*model.observed_RVs, *model.potentials]
    informed = set(ancestors(data))
    return [v for v in variables if v.rv in informed or not data]


def _may_have_groups(model: Model, variable: ManifoldVariable) -> bool:
    owner = variable.rv.owner
    if owner is None or variable.on_manifold or None in variable.value.type.shape:
        return False
    if isinstance(owner.op, ZeroSumNormalRV):
        return True
    if model.rvs_to_transforms[variable.rv]:
        return False
    if isinstance(owner.op, MvNormalRV):
        covariance = prior_parameters(variable)[1].type
        has_one = covariance.ndim == 2 or covariance.shape[:-2] == (1,) * (covariance.ndim - 2)
        return has_one and len(variable.shape) > 1
    return isinstance(owner.op, NormalRV) and len(variable.shape) > 0


def _parameters_but_mean(variable: ManifoldVariable) -> list[TensorVariable]:
    """Parameters of a prior, without the mean of a normal one."""
    owner = variable.rv.owner
    if owner is None:
        return []
    if isinstance(owner.op, NormalRV | MvNormalRV):
        return prior_parameters(variable)[1:]
    return list(owner.inputs)


def _depends_on_variables(
    model: Model, variable: ManifoldVariable, parameters: Sequence[TensorVariable]
) -> bool:
    return not (set(model.free_RVs) - {variable.rv}).isdisjoint(ancestors(parameters))


def _mean_and_sd(variable: ManifoldVariable) -> list[TensorVariable]:
    """Prior mean and standard deviations, which can be broadcast to the shape of the value."""
    owner = variable.rv.owner
    if isinstance(owner.op, ZeroSumNormalRV):  # the value is an isometric function of the effects
        return [pt.zeros(()), owner.inputs[2]]
    mean, sd = prior_parameters(variable)
    if is_correlated(variable):
        sd = pt.sqrt(pt.diagonal(sd, axis1=-2, axis2=-1))
    return [mean, sd]


def _axis_of_groups(variable: ManifoldVariable, sd: TensorVariable) -> int:
    """Return the longest axis along which the scale is constant; the longest axis if it is not."""
    n_axes = len(variable.value_shape)
    varies = [False] * (n_axes - sd.type.ndim) + [n != 1 for n in sd.type.shape]
    axes = [axis for axis in range(n_axes) if not varies[axis]] or list(range(n_axes))
    return max(axes, key=lambda axis: variable.value_shape[axis])


def _column_names(variable: ManifoldVariable, axis: int) -> list[str]:
    shape = variable.value_shape
    if len(shape) == 1:
        return [variable.name]
    indices = [[":"] if i == axis else map(str, range(n)) for i, n in enumerate(shape)]
    return [f"{variable.name}[{', '.join(index)}]" for index in product(*indices)]

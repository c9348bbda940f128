r"""Normal priors of group effects: mean, precision, and scale of the non-centered form.

The prior of an effect e given the parameters θ of the model is N(m(θ), 1/p(θ)). Columns of
correlated effects have conditional priors, given the columns before them. An effect that the model
writes non-centered, as ``scale * offset`` or ``offsets @ chol.T``, is e = m + q x, with the
standard normal offset x, the scale q, and the mean m given the columns before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import Normal
from pymc.distributions.multivariate import ZeroSumNormalRV
from pymc.distributions.transforms import ZeroSumTransform
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors, graph_inputs, io_toposort
from pytensor.tensor.linalg import cholesky, solve_triangular
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.rows_by_index import Scale, is_ravel, raveled
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.minibatches.model_rows import model_with


def with_fixed_shapes(model: Model) -> Model:
    """Return a copy of a model with dims in which their lengths are constants.

    Value variables of the copy are new; they have the same names.
    """
    values = [model.rvs_to_values[rv] for rv in model.free_RVs]
    if all(None not in value.type.shape for value in values):
        return model
    lengths = {
        length: pt.constant(length.eval(mode="FAST_COMPILE"), dtype=length.type.dtype)
        for length in model.dim_lengths.values()
        if not isinstance(length, Constant)
    }
    variables = [*model.basic_RVs, *model.potentials]
    fixed = dict(zip(variables, rebuild_graphs(variables, lengths), strict=True))
    shapes = model.eval_rv_shapes()
    for value in values:  # variables that PyMC defines by a graph, as HalfCauchy, have no lengths
        fixed[value] = value.type.clone(shape=shapes[value.name])(value.name)
    return model_with(model, fixed, model.data_vars)


def is_zero_sum(variable: ManifoldVariable) -> bool:
    """Whether a variable is a vector of normal effects that sum to zero."""
    owner = variable.rv.owner
    is_vector = variable.rv.type.ndim == 1 and variable.value_shape > (0,)
    return owner is not None and is_vector and isinstance(owner.op, ZeroSumNormalRV)


def with_normal_effects(model: Model, zero_sums: Collection[ManifoldVariable]) -> Model:
    """Return a copy of a model in which effects that sum to zero have a plain normal prior.

    Values of these variables are the effects, which are functions of the values of the model. Up
    to a constant the prior density is the same, since this function is an isometry.
    """
    if not zero_sums:
        return model
    normal = {}
    for each in zero_sums:
        _, _, sd, _ = each.rv.owner.inputs
        shape = (each.value_shape[0] + 1,)
        normal[each.rv] = Normal.dist(0.0, sd[0] if sd.type.ndim else sd, shape=shape)
    variables = [*model.basic_RVs, *model.potentials]
    replaced = dict(zip(variables, rebuild_graphs(variables, normal), strict=True)) | normal
    values = dict.fromkeys(model.rvs_to_values[rv] for rv in normal)
    return model_with(model, replaced | values, model.data_vars, dict.fromkeys(normal))


def may_be_effect(variable: ManifoldVariable) -> bool:
    """Whether a variable is a vector or matrix with a normal prior of its rows."""
    owner = variable.rv.owner
    if owner is None or not isinstance(owner.op, NormalRV | MvNormalRV):
        return False
    if isinstance(owner.op, MvNormalRV):
        covariance = prior_parameters(variable)[1].type
        if covariance.ndim == 3 and covariance.shape[0] != 1:
            return False  # a covariance for each group
    n_axes = (1, 2) if isinstance(owner.op, NormalRV) else (2,)
    return len(variable.shape) in n_axes and None not in variable.value.type.shape


@dataclass(frozen=True, eq=False)
class GroupVariable:
    """A variable that may be an effect.

    Attributes
    ----------
    variable : ManifoldVariable
    value : TensorVariable
        Its value, with groups along the first axis.
    is_transposed, is_flat : bool
        Whether ``value`` is the transpose or the flat copy of the value variable. In the second
        case each entry of a matrix is a group.
    zero_sum : TensorVariable or None
        Value variable of an effect that sums to zero, which has one entry fewer than
        ``value``.
    """

    variable: ManifoldVariable
    value: TensorVariable
    is_transposed: bool = False
    is_flat: bool = False
    zero_sum: TensorVariable | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of ``value``."""
        if self.is_flat:
            return (math.prod(self.variable.shape),)
        return self.variable.shape[::-1] if self.is_transposed else self.variable.shape

    @property
    def width(self) -> int:
        """Number of columns."""
        return 1 if len(self.shape) == 1 else self.shape[1]

    @property
    def in_variable(self) -> TensorVariable:
        """``value`` as a function of the value variable."""
        if self.zero_sum is not None:
            return ZeroSumTransform([-1]).backward(self.zero_sum)
        return self.by_group(self.variable.value)

    def by_group(self, matrix: TensorVariable) -> TensorVariable:
        """Rearrange an array in the shape of the value variable like ``value``."""
        if self.is_flat:
            return raveled(matrix)
        return matrix.T if self.is_transposed else matrix

    @property
    def in_value(self) -> TensorVariable:
        """The value variable as a function of ``value``."""
        if self.is_flat:
            return self.value.reshape(self.variable.shape)
        return self.value.T if self.is_transposed else self.value

    def by_coordinate(self, parameter: TensorVariable) -> TensorVariable:
        """Return a parameter of the prior of each entry, in the order of coordinates."""
        if self.zero_sum is not None:
            return parameter[:-1]  # equal for all entries
        return pt.flatten(parameter.T if self.is_transposed else parameter)

    def transposed(self) -> GroupVariable:
        """Return the same variable with groups along the last axis."""
        value = pt.TensorType("float64", self.variable.shape[::-1])(self.variable.value.name)
        return GroupVariable(self.variable, value, is_transposed=True)

    def raveled(self) -> GroupVariable:
        """Return the same variable with a group for each entry."""
        shape = (math.prod(self.variable.shape),)
        value = pt.TensorType("float64", shape)(self.variable.value.name)
        return GroupVariable(self.variable, value, is_flat=True)


def by_group(
    graphs: Sequence[TensorVariable], effects: Sequence[GroupVariable]
) -> list[TensorVariable]:
    """Replace value variables by functions of those with groups along the first axis."""
    rearranged = [each for each in effects if each.is_transposed or each.is_flat]
    graphs = rebuild_graphs(graphs, {each.variable.value: each.in_value for each in rearranged})
    flat = {each.value for each in rearranged if each.is_flat}
    raveled_flat = {
        node.outputs[0]: found
        for node in (io_toposort([], graphs) if flat else ())
        if is_ravel(node) and (found := raveled(node.inputs[0])) in flat
    }
    return rebuild_graphs(graphs, raveled_flat)


def prior_parameters(variable: ManifoldVariable) -> list[TensorVariable]:
    """Return mean and standard deviation, or covariance, as functions of random variables."""
    return list(variable.rv.owner.op.dist_params(variable.rv.owner))


def is_normal(rv: TensorVariable) -> bool:
    """Whether a prior is normal, with or without correlations."""
    return isinstance(rv.owner.op, NormalRV | MvNormalRV)


def scale_parameters(rv: TensorVariable) -> list[TensorVariable]:
    """Return all parameters of a prior, without the mean of a normal prior."""
    node = rv.owner
    return list(node.op.dist_params(node))[1:] if is_normal(rv) else list(node.inputs)


def is_correlated(variable: ManifoldVariable) -> bool:
    """Whether the prior of a column depends on the columns before it."""
    return isinstance(variable.rv.owner.op, MvNormalRV)


def may_be_offset(model: Model, variable: ManifoldVariable) -> bool:
    """Whether the prior of a variable may be that of the offsets of a non-centered effect."""
    mean, sd = prior_parameters(variable)
    depends = any(each in set(ancestors([mean, sd])) for each in model.free_RVs)
    return not depends and not is_correlated(variable) and _is_constant(mean, 0.0)


def _is_constant(graph: TensorVariable, number: float) -> bool:
    """Whether a graph is a constant with the same value everywhere."""
    if any(not isinstance(each, Constant) for each in graph_inputs([graph])):
        return False
    return bool(np.all(np.asarray(graph.eval(mode="FAST_COMPILE")) == number))


def positive_scale(scales: Sequence[Scale], size: int) -> Scale | None:
    """Return the last of the scales that is positive.

    Parameters
    ----------
    scales : list of Scale
    size : int
        Number of columns of offsets, of groups if there is one column, or of coefficients.
    """
    return next((each for each in reversed(scales) if _is_positive(each, size)), None)


def _is_positive(scale: Scale, size: int) -> bool:
    """Whether a scale is positive, at zero and at random values of variables.

    A factor that changes its sign, such as a loading with a normal prior, is not a scale. A matrix
    is lower triangular with a positive diagonal.
    """
    values = [
        v for v in graph_inputs([scale.graph]) if not isinstance(v, Constant | SharedVariable)
    ]
    if any(None in v.type.shape for v in values):
        return False
    function = unoptimized_function(values, scale.graph)
    rng = np.random.default_rng(0)
    drawn = [
        function(*(sd * rng.normal(size=v.type.shape) for v in values)) for sd in [0.0, *30 * [3.0]]
    ]
    if scale.matrix is None:
        return all(each.size in (1, size) and np.all(each > 0.0) for each in drawn)
    return all(
        each.shape == (size, size)
        and np.all(np.diagonal(each) > 0.0)
        and not np.triu(each, 1).any()
        for each in drawn
    )


@dataclass(frozen=True, eq=False)
class EffectPrior:
    """Prior of the entries of an effect, given the columns before, in the shape of the variable.

    Attributes
    ----------
    mean, log_p, log_q : TensorVariable
        m, log p and log q.
    shift : TensorVariable
        The mean with coefficients ``at_center`` of the columns before, minus m.
    mean_at_scales : TensorVariable
        The mean with the present covariance as a constant, where the value is e instead of x.
    regressions : TensorVariable or None
        For correlated columns, the change of L from its present value, divided by L_kk in row k,
        where L is the Cholesky factor of the covariance. Row k has the coefficients of a regression
        of column k on the columns before it.
    coefficients : TensorVariable or None
        Those of a regression of each column on the columns before it.
    at_center : SharedVariable or None
        Their value at the center of the coordinates.
    """

    mean: TensorVariable
    log_p: TensorVariable
    log_q: TensorVariable
    shift: TensorVariable
    mean_at_scales: TensorVariable
    regressions: TensorVariable | None = None
    coefficients: TensorVariable | None = None
    at_center: SharedVariable | None = None


def effect_prior(
    effect: GroupVariable, parameters: Sequence[TensorVariable], scale: Scale | None
) -> EffectPrior:
    """Build the graphs of the prior of an effect.

    Parameters
    ----------
    effect : GroupVariable
    parameters : (mean, standard deviation or covariance)
        Functions of the values of variables.
    scale : Scale, optional
        The identity by default.
    """
    whole = pt.zeros(effect.shape)
    mean, sd = parameters
    lower = None if scale is None else scale.matrix
    if is_correlated(effect.variable):
        lower = cholesky(sd[0] if sd.type.ndim == 3 else sd)
        sd = pt.diagonal(lower)
    elif effect.is_transposed or effect.is_flat:
        all_entries = pt.zeros(effect.variable.shape)
        mean, sd = (effect.by_group(each + all_entries) for each in (mean, sd))
    log_q = whole if scale is None else pt.log(scale.diagonal) + whole
    log_p = -2.0 * (pt.log(sd) + log_q)
    if lower is None:
        return EffectPrior(mean + whole, log_p, log_q, whole, mean + whole)

    before = pt.tril(lower, -1)
    coefficients = solve_triangular(lower.T, before.T, lower=False).T
    residual, effects = effect.value - mean, effect.value
    if scale is None:
        conditional_mean = mean + residual @ coefficients.T
    else:
        conditional_mean, effects = effect.value @ before.T, scale.times(effect.value)
    at_center = pytensor.shared(np.zeros((effect.width, effect.width)))
    shift = mean + (effects - mean) @ at_center.T - conditional_mean
    change = pt.tril(lower - disconnected_grad(lower), -1)
    return EffectPrior(
        conditional_mean,
        log_p,
        log_q,
        shift,
        mean_at_scales=mean + residual @ disconnected_grad(coefficients).T,
        regressions=change / disconnected_grad(pt.diagonal(lower))[:, None],
        coefficients=coefficients,
        at_center=at_center,
    )

r"""Group effects of a model: precision matrix of the posterior, and parameters of the priors.

A group effect is a variable with a normal prior of which each row of the observations takes one
entry by an index, as ``effect[group]`` in ``effect[group] + X @ beta``. A row then depends on a few
entries, so that the Hessian is sparse, and each of its entries is a sum over the rows of a group.

An effect that is written non-centered, ``scale * offset[group]`` or ``(offsets @ chol.T)[group]``
with standard normal offsets, is the effect e = M x of the offsets x of each group, where M is
diagonal or lower triangular; a number M may differ between groups. Curvature and priors here are
those of e; for one that is written centered M is the identity. With q_k = M_kk and the prior mean
m_k = Σ_{j<k} M_kj x_j of a column given those before it, e_k = m_k + q_k x_k.

Vectors and matrices with a normal prior of unknown scale that rows use in another way, such as the
coefficients a of ``X @ a``, are effects too. Their priors are those of effects, but rows depend on
all of their entries, so that curvature is computed as for any other variable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import disconnected_grad, grad
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.densities.compilation import (
    ArrayInput,
    CompiledGradient,
    FixedArray,
    compile_gradient,
    mode_of,
)
from pymc_geodesic.densities.effect_curvature import (
    Effect,
    EffectGraphs,
    NormalCurvature,
    PrecisionSum,
    TermCurvature,
)
from pymc_geodesic.densities.effect_priors import (
    GroupVariable,
    by_group,
    effect_prior,
    is_correlated,
    is_normal,
    prior_parameters,
    scale_parameters,
)
from pymc_geodesic.densities.graphs import MAX_CONSTANT_SIZE, rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.model_terms import logp_terms
from pymc_geodesic.densities.rows_by_index import NotByIndexError, RowsByIndex, Scale
from pymc_geodesic.densities.sufficient_statistics import NormalStatistics
from pymc_geodesic.densities.variables import ManifoldVariable


class FoundEffects(NamedTuple):
    """Variables that are effects, and the observations as functions of the entries they take.

    Parameters
    ----------
    model : pymc.Model
        Model with known shapes, in which effects that sum to zero have a plain normal prior.
    effects : list of GroupVariable
        First those that rows and prior means take by an index, then coefficients: other vectors and
        matrices with a normal prior of unknown scale.
    scales : list of Scale or None
        Scale of each effect, for those that are written non-centered.
    rows : RowsByIndex
    graphs : dict
        Elementwise log-density of the observations by name, with placeholders for entries of
        effects.
    n_by_index : int
        Number of effects that are taken by an index.
    """

    model: Model
    effects: Sequence[GroupVariable]
    scales: Sequence[Scale | None]
    rows: RowsByIndex
    graphs: Mapping[str, TensorVariable]
    n_by_index: int


class GroupEffects:
    r"""Group effects of a model: precision matrix of the posterior, and parameters of the priors.

    Parameters
    ----------
    found : FoundEffects
    variables : list of ManifoldVariable
        All variables, in the order of a position.
    statistics : dict
        Sufficient statistics that replace rows of observations, by name.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Attributes
    ----------
    size : int
        Length of a position.
    effects : list of Effect
    others, transformed : ndarray of int
        Coordinates of all other variables, and of variables that have a transform.
    scales_of_others : ndarray of int
        Those of the other coordinates on which priors of others depend, such as the scale of
        coefficients with a Laplace prior, but not means of normal priors.
    n_dependent : int
        Number of the other coordinates whose prior is multivariate, such as `pymc.ICAR`.
    prior : CompiledGradient
        Function of a position x and of coefficients a, b, c, d, each with one number per entry of
        the effects, whose output is the gradient of Σ (a m + b log p + c log q + d δ) in x, and m,
        log p, log q and δ. There m and p are mean and precision of the prior of the effects e,
        which are m + q x for offsets x, and m + δ is the mean with the regressions of correlated
        columns at the center.
    is_offset : ndarray of bool
        Of each entry of the effects, whether its coordinate is an offset.
    n_zero_sums : int
        Number of effects that sum to zero. Among "entries" above, they have one for each
        coordinate.
    """

    def __init__(
        self,
        found: FoundEffects,
        variables: Sequence[ManifoldVariable],
        statistics: Mapping[str, NormalStatistics],
        compile_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self._model, effects, scales = found.model, found.effects, found.scales
        self._kwargs = dict(compile_kwargs or {})
        self._shapes = [v.value_shape for v in variables]
        starts = np.cumsum([0, *(int(np.prod(shape, dtype=int)) for shape in self._shapes)])
        self._parts = {
            v.name: slice(int(start), int(stop))
            for v, (start, stop) in zip(variables, pairwise(starts), strict=True)
        }
        self.size = int(starts[-1])
        names = {each.variable.name for each in effects}
        others = [v for v in variables if v.name not in names]
        names_by_index = {each.variable.name for each in effects[: found.n_by_index]}
        not_by_index = [v for v in variables if v.name not in names_by_index]
        self._graphs = EffectGraphs(
            [v.value for v in variables],
            [v.value for v in not_by_index],
            [v.value_shape for v in not_by_index],
            effects,
            scales,
            found.n_by_index,
        )
        self.others = self._coordinates_of(others)
        self._not_by_index = self._coordinates_of(not_by_index)
        self.transformed = self._coordinates_of(
            [v for v in variables if self._model.rvs_to_transforms[self._model[v.name]]]
        )
        self.scales_of_others = self._scales_of_others(others)
        self.n_dependent = self._coordinates_of([v for v in others if self._is_dependent(v)]).size
        zero_sums = [each for each in effects if each.zero_sum is not None]
        self.n_zero_sums = len(zero_sums)
        last = {each.variable.name: self.size + k for k, each in enumerate(zero_sums)}
        self._set_priors(effects)
        self.effects = [
            self._effect(each, scale, last.get(each.variable.name))
            for each, scale in zip(effects, scales, strict=True)
        ]
        self.is_offset = np.concatenate(
            [
                np.full(each.part.stop - each.part.start, not each.is_centered)
                for each in self.effects
            ]
        )
        self.prior = self._compile_priors()
        self._terms = self._compile_terms(found.rows, found.graphs, statistics)
        self._rest = self._compile_rest(names)
        self._regressions = self._compile_regressions()
        coefficients = [p.coefficients for p in self._priors if p.coefficients is not None]
        self._coefficients = unoptimized_function(
            self._graphs.values, self._graphs.in_variables(coefficients)
        )
        self.refresh_data()

    def _coordinates_of(self, variables: Sequence[ManifoldVariable]) -> np.ndarray:
        every = np.arange(self.size)
        found = [every[self._parts[v.name]] for v in variables]
        return np.concatenate([np.empty(0, dtype=np.int64), *found])

    def _is_dependent(self, variable: ManifoldVariable) -> bool:
        """Whether a variable without a transform has a multivariate prior."""
        rv = self._model[variable.name]
        return self._model.rvs_to_transforms[rv] is None and rv.owner.op.ndim_supp > 0

    @property
    def are_hierarchical(self) -> bool:
        """Whether the prior of an effect depends on other variables."""
        return any(
            not isinstance(each, Constant | SharedVariable)
            for prior, effect in zip(self._priors, self._graphs.effects, strict=True)
            for each in graph_inputs([prior.mean, prior.log_p, prior.log_q])
            if each is not effect.value
        )

    @property
    def n_entries(self) -> int:
        """Number of entries of all effects."""
        return sum(each.part.stop - each.part.start for each in self.effects)

    def _effect(self, effect: GroupVariable, scale: Scale | None, last: int | None) -> Effect:
        """Describe an effect; see `Effect` for ``last``."""
        return Effect(
            effect.variable.name,
            self._parts[effect.variable.name],
            effect.width,
            effect.is_transposed,
            scale is None,
            is_correlated(effect.variable) or (scale is not None and scale.matrix is not None),
            self._parents(effect, scale),
            last,
        )

    def _scales_of_others(self, others: Sequence[ManifoldVariable]) -> np.ndarray:
        """Coordinates of the scales of variables without a transform among these variables."""
        of_normal: set[Variable] = set()
        of_any: set[Variable] = set()
        is_transformed = {v: self._model.rvs_to_transforms[self._model[v.name]] for v in others}
        for v in others:
            if not is_transformed[v]:
                inputs = set(ancestors(scale_parameters(v.rv)))
                of_any |= inputs
                of_normal |= inputs if is_normal(v.rv) else set()
        return self._coordinates_of(
            [v for v in others if v.rv in of_normal or (v.rv in of_any and is_transformed[v])]
        )

    # --- graphs ----------------------------------------------------------------------------------

    def _parents(self, effect: GroupVariable, scale: Scale | None) -> tuple[str, ...]:
        """Name the effects on which the prior of an effect depends, with its scale."""
        inputs = set(ancestors(prior_parameters(effect.variable)))
        if scale is not None:
            inputs |= set(graph_inputs([scale.graph]))
        variables = [(each.variable, each.value) for each in self._graphs.effects]
        return tuple(
            v.name for v, value in variables if not inputs.isdisjoint({v.rv, v.value, value})
        )

    def _set_priors(self, effects: Sequence[GroupVariable]) -> None:
        """Graphs of m, log p and log q of each effect, in the shape with groups first."""
        parameters = self._model.replace_rvs_by_values(
            [each for effect in effects for each in prior_parameters(effect.variable)]
        )
        parameters = by_group(parameters, effects)
        self._priors = [
            effect_prior(effect, parameters[2 * i : 2 * i + 2], self._graphs.scales[i])
            for i, effect in enumerate(effects)
        ]

    def _compile_priors(self) -> CompiledGradient:
        values = [
            pt.TensorType("float64", shape)(f"{value.name}_coordinates")
            for value, shape in zip(self._graphs.values, self._shapes, strict=True)
        ]
        n = self.n_entries
        parts = [
            pt.concatenate(
                [
                    effect.by_coordinate(getattr(prior, name))
                    for effect, prior in zip(self._graphs.effects, self._priors, strict=True)
                ]
            )
            for name in ("mean", "log_p", "log_q", "shift")
        ]
        parts = self._graphs.in_variables(parts)
        parts = rebuild_graphs(parts, dict(zip(self._graphs.values, values, strict=True)))
        inputs: list[ArrayInput] = []
        self._data: list[Variable] = []
        replacements: dict[Variable, Variable] = {}
        for each in graph_inputs(parts):
            is_long = isinstance(each, Constant) and np.size(each.data) > MAX_CONSTANT_SIZE
            if is_long or isinstance(each, SharedVariable):
                shape = _array_of(each).shape
                replacements[each] = pt.TensorType(each.type.dtype, shape)()
                inputs.append(FixedArray(replacements[each], shape))
                self._data.append(each)
        parts = rebuild_graphs(parts, replacements)
        weights = [pt.TensorType("float64", (n,))(name) for name in "abcd"]
        total = pt.add(*[pt.sum(w * part) for w, part in zip(weights, parts, strict=True)])
        gradients = grad(total, values, disconnected_inputs="ignore")
        return compile_gradient(
            [*values, *weights], inputs, [*gradients, *parts], None, self._kwargs
        )

    def refresh_data(self) -> None:
        """Read the present values of the data containers."""
        for i, each in enumerate(self._data):
            self.prior.point_at(i, np.ascontiguousarray(_array_of(each)))

    def set_center(self, x: np.ndarray) -> None:
        """Set the regressions of correlated columns to those at a position, in `prior`."""
        found = self._coefficients(*self.split(x))
        variables = [each.at_center for each in self._priors if each.at_center is not None]
        for variable, coefficients in zip(variables, found, strict=True):
            variable.get_value(borrow=True)[...] = np.nan_to_num(coefficients)

    def _compile_terms(
        self,
        rows: RowsByIndex,
        graphs: Mapping[str, TensorVariable],
        statistics: Mapping[str, NormalStatistics],
    ) -> list[TermCurvature | NormalCurvature]:
        """Compile second derivatives of the observations, and of the priors of effects."""
        terms: list[TermCurvature | NormalCurvature] = []
        for name, graph in graphs.items():
            if name in statistics:
                try:
                    terms.append(NormalCurvature(self._graphs, statistics[name]))
                    continue
                except NotByIndexError:
                    pass
            gathered = rows.gathered_in(graph)
            of_effects = self._graphs.of_effects(graph, gathered)
            terms.append(TermCurvature(self._graphs, gathered, of_effects, self._compiled))
        for i, (effect, prior) in enumerate(zip(self._graphs.effects, self._priors, strict=True)):
            own_rows = self._graphs.rows_by_index(own=i)
            entries = own_rows.every(effect.value)
            try:
                (mean,) = own_rows.replace([prior.mean_at_scales])
            except NotByIndexError:
                mean = pt.zeros(prior.mean.type.shape)
            others = [each for each in own_rows.gathered_in(mean) if each.effect != i]
            # the expected information, with the precision at the position
            residual = entries - self._graphs.of_effects(mean, others)
            log_density = -0.5 * disconnected_grad(pt.exp(prior.log_p)) * residual**2
            gathered = own_rows.gathered_in(log_density)
            terms.append(TermCurvature(self._graphs, gathered, log_density, unoptimized_function))
        return terms

    def _compile_rest(self, effects: Collection[str]) -> Any:
        """Compile the products of the diagonal blocks of the Hessian of all other priors."""
        terms = logp_terms(self._model)
        kept = {self._model[name] for name in effects}
        kept |= {*self._model.observed_RVs, *self._model.potentials}
        total = pt.add(pt.zeros(()), *[pt.sum(t) for rv, t in terms.items() if rv not in kept])
        direction = [value.type() for value in self._graphs.others]
        slopes = grad(total, self._graphs.others, disconnected_inputs="ignore")
        products = [
            grad(-pt.sum(slope * along), value, disconnected_inputs="ignore")
            for value, slope, along in zip(self._graphs.others, slopes, direction, strict=True)
        ]
        products = self._graphs.in_variables(products)
        return unoptimized_function([*self._graphs.values, *direction], products)

    def _compile_regressions(self) -> Any:
        """Compile the products of the information on correlations; None without correlations."""
        regressions = [each.regressions for each in self._priors if each.regressions is not None]
        if not regressions:
            return None
        weights = [each.type() for each in regressions]
        terms = [pt.sum(w * each**2) for w, each in zip(weights, regressions, strict=True)]
        total = -0.5 * pt.add(pt.zeros(()), *terms)
        self._changes_regressions = self._graphs.is_active(total)
        direction, products = self._graphs.curvature_along(total, self._graphs.others)
        inputs = [*self._graphs.values, *weights, *direction]
        return unoptimized_function(inputs, self._graphs.in_variables(products))

    def _compiled(self, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> Any:
        # compiled functions are kept on disk only if long constants are no part of them, for other
        # data too if only the axes of length one are part of their type
        shared = {
            each: pytensor.shared(
                each.data, borrow=True, shape=[1 if n == 1 else None for n in each.type.shape]
            )
            for each in graph_inputs(list(outputs))
            if isinstance(each, Constant) and np.size(each.data) > MAX_CONSTANT_SIZE
        }
        kwargs = dict(self._kwargs)
        return pymc_compile(
            list(inputs),
            rebuild_graphs(list(outputs), shared),
            mode=mode_of(kwargs),
            on_unused_input="ignore",
            trust_input=True,
            **kwargs,
        )

    # --- values ----------------------------------------------------------------------------------

    def split(self, x: np.ndarray) -> list[np.ndarray]:
        """Value of each variable at a position, in its shape."""
        parts = zip(self._parts.values(), self._shapes, strict=True)
        return [np.array(x[part]).reshape(shape) for part, shape in parts]

    def _curvature_of_priors(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Second derivatives of the priors of all other variables, in each coordinate θ.

        The product of a diagonal matrix and a vector v, divided by v, is the same for any v.
        """
        shapes, rng = self._graphs.shapes_of_others, np.random.default_rng(0)
        two = [[rng.uniform(1.0, 2.0, shape) for shape in shapes] for _ in range(2)]
        found = [
            [product / v for product, v in zip(self._rest(*values, *along), along, strict=True)]
            for along in two
        ]
        curvature = []
        for k, (first, second) in enumerate(zip(*found, strict=True)):
            is_diagonal = np.allclose(first, second, rtol=1e-8, atol=0.0, equal_nan=True)
            curvature.append(np.ravel(first if is_diagonal else self._diagonal(k, values)))
        return np.concatenate([*curvature, np.empty(0)])

    def _diagonal(self, variable: int, values: Sequence[np.ndarray]) -> np.ndarray:
        """Diagonal of the Hessian of the prior of one variable, by products with unit vectors."""
        along = [np.zeros(shape) for shape in self._graphs.shapes_of_others]
        diagonal = np.empty_like(along[variable])
        for k in range(diagonal.size):
            along[variable].flat[k] = 1.0
            diagonal.flat[k] = self._rest(*values, *along)[variable].flat[k]
            along[variable].flat[k] = 0.0
        return diagonal

    def precision(self, x: np.ndarray) -> sparse.csr_matrix:
        """Precision matrix of effects e and other coordinates.

        Effects that sum to zero have the precision matrix of all entries; the row of the last one,
        `Effect.last`, follows those of all coordinates.

        It is the sum of the observed curvature of the rows, whose negative parts are clipped, of
        the expected information of the priors of effects on these and their means, and of the
        absolute curvature of other priors. Variables with a transform, such as the scale of the
        observations, have no couplings with others, which are zero in expectation, and scales of
        effects no information from these.
        """
        values, size = self.split(x), self.size + self.n_zero_sums
        is_transformed = np.isin(self._not_by_index, self.transformed)
        total = PrecisionSum(self.effects, size, self._not_by_index, is_transformed)
        for term in self._terms:
            term.add_to(total, values)
        return total.matrix(self._curvature_of_priors(values))

    def information_on_correlations(
        self, x: np.ndarray, weights: Sequence[np.ndarray]
    ) -> np.ndarray:
        """Information of correlated effects on other coordinates, shape (n_others, n_others).

        Parameters
        ----------
        x : ndarray, shape (size,)
        weights : list of ndarray, shape (width, width)
            For each correlated effect, the information on the coefficient of a standardized column
            j in a regression of column k, in units of the residual variance of k.
        """
        if self._regressions is None:
            return np.zeros((len(self.others), len(self.others)))
        values, is_other = self.split(x), np.isin(self._not_by_index, self.others)
        information = np.zeros((len(is_other), len(is_other)))
        for i, direction in enumerate(self._graphs.directions()):
            if self._changes_regressions[i]:
                products = self._regressions(*values, *weights, *direction)
                information[i] = np.concatenate([np.ravel(each) for each in products])
        return information[np.ix_(is_other, is_other)]


def _array_of(variable: Variable) -> np.ndarray:
    """Value of a constant or of shared data."""
    if isinstance(variable, SharedVariable):
        return np.asarray(variable.get_value(borrow=True))
    return np.asarray(variable.data)

"""Detection of the effects of a model, and of the scales of those that are written non-centered."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pytensor.gradient import NullTypeGradError
from pytensor.graph.traversal import ancestors
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.effect_priors import (
    GroupVariable,
    by_group,
    is_correlated,
    is_zero_sum,
    may_be_effect,
    may_be_offset,
    positive_scale,
    prior_parameters,
    scale_parameters,
    with_fixed_shapes,
    with_normal_effects,
)
from pymc_geodesic.densities.group_effects import FoundEffects, GroupEffects
from pymc_geodesic.densities.model_terms import logp_terms
from pymc_geodesic.densities.rows_by_index import (
    NotByIndexError,
    RowsByIndex,
    Scale,
    factors_of,
    scales_of,
)
from pymc_geodesic.densities.sufficient_statistics import NormalStatistics
from pymc_geodesic.densities.variables import ManifoldVariable

_MOST_OTHERS = 300
"""Maximum number of coordinates that are not taken by an index: each costs a pass over the rows."""

_MOST_ZERO_SUM = 2000
"""Maximum number of entries of effects that sum to zero: their factor is dense."""


class NoEffectsError(ValueError):
    """Reason why a model has no effects for a sparse metric.

    Parameters
    ----------
    reason : str
    names : list of str
        Variables that are effects otherwise; empty if none was found.
    """

    def __init__(self, reason: str, names: Sequence[str] = ()) -> None:
        super().__init__(reason)
        self.names = list(names)


def find_effects(
    model: Model,
    variables: Sequence[ManifoldVariable],
    compile_kwargs: Mapping[str, Any] | None,
    statistics: Sequence[NormalStatistics] = (),
) -> GroupEffects:
    """Find the group effects of a model.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of a step, in the order of a position.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.
    statistics : list of NormalStatistics
        Sufficient statistics that replace rows of observations.

    Raises
    ------
    NoEffectsError
        If there are no effects, if a variable is on another manifold than a Euclidean space or is
        sampled by another step, if more than 300 coordinates are not taken by an index, or if the
        second derivatives of the log-density cannot be evaluated at the initial point.
    """
    _check_variables(model, variables)
    fixed = with_fixed_shapes(model)
    variables = [v.in_model(fixed) for v in variables]
    found = _find_variables(fixed, variables)
    if not found.effects:
        raise NoEffectsError(
            "no variable with a normal prior is used by an index, as in effect[group], or is a "
            "vector with an unknown scale"
        )
    names = [each.variable.name for each in found.effects]
    by_index = names[: found.n_by_index]
    sizes = {v.name: math.prod(v.value_shape) for v in variables if v.name not in by_index}
    if sum(sizes.values()) > _MOST_OTHERS:
        raise NoEffectsError(
            f"more than {_MOST_OTHERS} coordinates are not used by an index, as in effect[group], "
            f"most of them in {max(sizes, key=lambda name: sizes[name])!r}",
            names,
        )
    try:
        by_name = {each.name: each for each in statistics}
        effects = GroupEffects(found, variables, by_name, compile_kwargs)
        point = model.initial_point(random_seed=0)
        effects.precision(np.concatenate([np.ravel(point[v.value.name]) for v in variables]))
    except (
        MethodNotDefined,
        NotImplementedError,
        NullTypeGradError,
        TypeError,
        ValueError,
    ) as error:
        reason = str(error.args[-1]).split("\n", maxsplit=1)[0] if error.args else ""
        raise NoEffectsError(
            "the log-likelihood has no second derivatives with respect to the effects "
            f"({reason or type(error).__name__})",
            names,
        ) from error
    return effects


def names_with_unknown_scale(model: Model) -> list[str]:
    """Names of vectors and matrices whose prior has a scale that depends on other variables.

    The prior is normal or any other on the real numbers.
    """
    free = set(model.free_RVs)
    return [
        v.name
        for v in model.free_RVs
        if v.type.ndim
        and v.owner is not None
        and model.rvs_to_transforms[v] is None
        and not free.isdisjoint(ancestors(scale_parameters(v)))
    ]


def _check_variables(model: Model, variables: Sequence[ManifoldVariable]) -> None:
    """Check that one step samples all variables, which are Euclidean.

    Raises
    ------
    NoEffectsError
    """
    own = {v.name for v in variables}
    others = [rv.name for rv in model.free_RVs if rv.name not in own]
    if others:
        raise NoEffectsError(
            f"another step samples {', '.join(map(repr, others))}; let one step sample all "
            "variables"
        )
    for v in variables:
        if not v.manifold.is_flat or v.on_manifold:
            raise NoEffectsError(f"{v.name!r} is not a Euclidean variable")
        if v.is_angle:
            raise NoEffectsError(f"{v.name!r} is an angle")


def _find_variables(model: Model, variables: Sequence[ManifoldVariable]) -> FoundEffects:
    """Find variables that all rows and prior means take by an index, and coefficients.

    Parameters
    ----------
    model : pymc.Model
        Model with known shapes.
    variables : list of ManifoldVariable
    """
    zero_sums = [v for v in variables if is_zero_sum(v)]
    if sum(v.value_shape[0] for v in zero_sums) > _MOST_ZERO_SUM:
        zero_sums = []
    with_normal, candidates = _candidates(model, variables, zero_sums)
    while True:
        terms = logp_terms(with_normal)
        observed = [*with_normal.observed_RVs, *with_normal.potentials]
        correlated = [each.value for each in candidates if is_correlated(each.variable)]
        rows = RowsByIndex([each.value for each in candidates], correlated)
        try:
            graphs = rows.replace(by_group([terms[rv] for rv in observed], candidates))
            scales = _scales(with_normal, candidates, rows, graphs)
            _check_means(with_normal, candidates, scales)
        except NotByIndexError as error:
            candidates = _without(candidates, error.args)
            names = {each.variable.name for each in candidates}
            if any(v.name not in names for v in zero_sums):
                zero_sums = [v for v in zero_sums if v.name in names]
                with_normal, candidates = _candidates(model, variables, zero_sums)
        else:
            by_name = {rv.name: graph for rv, graph in zip(observed, graphs, strict=True)}
            coefficients, factors = _coefficients(with_normal, terms, variables, candidates)
            return FoundEffects(
                with_normal,
                [*candidates, *coefficients],
                [*scales, *factors],
                rows,
                by_name,
                len(candidates),
            )


def _coefficients(
    model: Model,
    terms: Mapping[TensorVariable, TensorVariable],
    variables: Sequence[ManifoldVariable],
    effects: Sequence[GroupVariable],
) -> tuple[list[GroupVariable], list[Scale | None]]:
    """Find vectors and matrices, other than ``effects``, with a normal prior of unknown scale.

    Return also the scale of each one that is written non-centered.
    """
    names = {each.variable.name for each in effects}
    found, scales = [], []
    for v in variables:
        own = v.in_model(model)
        is_normal = may_be_effect(own) and not is_correlated(own)
        if v.name in names or not is_normal or model.rvs_to_transforms[own.rv]:
            continue
        scale = None
        if may_be_offset(model, own):
            uses = [graph for rv, graph in terms.items() if rv is not own.rv]
            size = math.prod(own.shape)
            scale = positive_scale(factors_of(own.value, uses), size)
        is_centered = not set(model.free_RVs).isdisjoint(ancestors(scale_parameters(own.rv)))
        if is_centered or scale is not None:
            found.append(GroupVariable(own, own.value))
            scales.append(scale)
    return found, scales


def _candidates(
    model: Model, variables: Sequence[ManifoldVariable], zero_sums: Sequence[ManifoldVariable]
) -> tuple[Model, list[GroupVariable]]:
    """Variables that may be effects, in a model with normal effects instead of ``zero_sums``."""
    model = with_normal_effects(model, zero_sums)
    values = {v.name: v.value for v in zero_sums}
    candidates = []
    for v in variables:
        own = v.in_model(model)
        if v.name in values:
            own = replace(own, shape=own.value.type.shape)
        if may_be_effect(own) and not model.rvs_to_transforms[own.rv]:
            candidates.append(GroupVariable(own, own.value, zero_sum=values.get(v.name)))
    return model, candidates


def _without(
    candidates: Sequence[GroupVariable], values: Iterable[TensorVariable]
) -> list[GroupVariable]:
    """Omit variables that are not taken by an index of their first axis.

    Matrices are kept with an index of their last axis, and then with one of all entries.
    """
    kept = []
    for each in candidates:
        may_be_rearranged = len(each.shape) == 2 and not is_correlated(each.variable)
        if each.value not in values:
            kept.append(each)
        elif may_be_rearranged:
            kept.append(each.raveled() if each.is_transposed else each.transposed())
    return kept


def _scales(
    model: Model,
    effects: Sequence[GroupVariable],
    rows: RowsByIndex,
    graphs: Sequence[TensorVariable],
) -> list[Scale | None]:
    """Find the scales of the effects that are written non-centered.

    Raises
    ------
    NotByIndexError
        If rows take entries of a product with another matrix.
    """
    scales: list[Scale | None] = []
    for i, effect in enumerate(effects):
        gathered = [each for each in rows.gathered.values() if each.effect == i]
        is_non_centered = bool(gathered) and may_be_offset(model, effect.variable)
        factors = scales_of(gathered, graphs) if is_non_centered else []
        size = effect.shape[-1] if effect.zero_sum is None else 1  # the products sum to zero
        scales.append(positive_scale(factors, size))
    _check_products(rows, effects, scales)
    return scales


def _check_products(
    rows: RowsByIndex, effects: Sequence[GroupVariable], scales: Sequence[Scale | None]
) -> None:
    """Check that products with a matrix are those of offsets and their scale."""
    for i in rows.in_products:
        scale = scales[i]
        if scale is None or scale.matrix is None:
            raise NotByIndexError(effects[i].value)


def _check_means(
    model: Model, effects: Sequence[GroupVariable], scales: Sequence[Scale | None]
) -> None:
    """Check that prior means take entries of other effects by an index.

    Raises
    ------
    NotByIndexError
    """
    means = model.replace_rvs_by_values([prior_parameters(each.variable)[0] for each in effects])
    for effect, mean in zip(effects, means, strict=True):
        rows = RowsByIndex([each.value for each in effects])
        whole = effect.by_group(mean + pt.zeros(effect.variable.shape))
        rows.replace(by_group([whole], effects))
        _check_products(rows, effects, scales)

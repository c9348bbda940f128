r"""Centered form of group effects that a model writes as scale × offset.

With offsets z ~ N(0, s²), s constant, and a scale q that depends on other variables, the rows
depend on e = q z only. The minibatch gradient with respect to log q is then the sum of the
gradients of all effects times e, and control variates do not remove its noise: a change of q
changes all effects. In the coordinates (q, e) the likelihood does not depend on q. If groups
have many rows, e is nearly independent of q in the posterior, but z is not (Papaspiliopoulos,
Roberts and Sköld 2007).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pymc as pm
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.effect_priors import (
    may_be_effect,
    may_be_offset,
    positive_scale,
    with_fixed_shapes,
)
from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.model_terms import logp_terms
from pymc_geodesic.densities.rows_by_index import NotByIndexError, RowsByIndex, scales_of
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.minibatches.model_rows import model_with
from pymc_geodesic.minibatches.row_inputs import drawn_rows

_log = logging.getLogger("pymc")

MIN_ROWS = 50
"""Minimum average number of rows per group for the centered form. With 30 to 1,000 rows per group
and effects as large as the noise of a row, or a third of it, the ESS was 3 to 500 times that of the
offsets (`benchmarks/effects_of_minibatches.py`)."""


class CenteredEffects:
    """Map between the points of a model and those of its copy in which effects replace offsets.

    Parameters
    ----------
    scales : dict of str to TensorVariable
        q by name of the value variable of the offsets, a function of values of other variables.

    Attributes
    ----------
    names : list of str
        Names of the offsets, and of their value variables: offsets have no transform.
    """

    def __init__(self, scales: Mapping[str, TensorVariable]) -> None:
        self.names = list(scales)
        graphs = list(scales.values())
        values = [v for v in graph_inputs(graphs) if not isinstance(v, Constant)]
        self._inputs = [value.name for value in values]
        self._scales = unoptimized_function(values, graphs)

    def to_effects(self, point: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Replace the offsets of a point by the effects."""
        return {**point, **{name: point[name] * q for name, q in self._scales_at(point)}}

    def to_offsets(self, point: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Replace the effects of a point by the offsets."""
        return {**point, **{name: point[name] / q for name, q in self._scales_at(point)}}

    def _scales_at(self, point: Mapping[str, np.ndarray]) -> Iterable[tuple[str, np.ndarray]]:
        scales = self._scales(*(point[name] for name in self._inputs))
        return zip(self.names, scales, strict=True)


def with_centered_effects(
    model: Model, n_rows: int | None = None
) -> tuple[Model, CenteredEffects | None]:
    """Create a model in which offsets of groups with many rows are replaced by the effects.

    The variables keep their names, value variables and shapes; those of offsets z ~ N(0, s²) become
    effects e ~ N(0, (q s)²), and z becomes e / q everywhere else.

    Parameters
    ----------
    model : pymc.Model
    n_rows : int, optional
        Number of rows of the full data, if the model contains a sample of them; by default the
        length of the longest index into the offsets, in all rows if `pymc.Minibatch` draws it.

    Returns
    -------
    model : pymc.Model
        The same model if no offsets are replaced.
    effects : CenteredEffects or None
    """
    scales = _scales_of_offsets(model, n_rows)
    if not scales:
        return model, None
    variables = [*model.basic_RVs, *model.potentials]
    expression_of_value = {
        value: rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        for rv in model.free_RVs
        for value, transform in [(model.rvs_to_values[rv], model.rvs_to_transforms[rv])]
    }
    graph = FunctionGraph(
        outputs=[*variables, *rebuild_graphs(list(scales.values()), expression_of_value)],
        clone=True,
        copy_inputs=False,
        copy_orphans=False,
    )
    replaced: dict[Variable, Variable] = {}
    for i, rv in enumerate(scales):
        offsets, scale = graph.outputs[variables.index(rv)], graph.outputs[len(variables) + i]
        _, sd = offsets.owner.op.dist_params(offsets.owner)
        replaced[rv] = pm.Normal.dist(0.0, sd * scale, shape=rv.shape)
        replaced[rv].name = rv.name
        graph.replace(offsets, replaced[rv] / scale, import_missing=True)
    rewritten = dict(zip(variables, graph.outputs, strict=False)) | replaced
    copy = model_with(model, rewritten, model.data_vars)
    by_name = {model.rvs_to_values[rv].name: scale for rv, scale in scales.items()}
    return copy, CenteredEffects(by_name)


def _gather(
    offsets: list[ManifoldVariable], observed: Sequence[TensorVariable]
) -> tuple[list[ManifoldVariable], RowsByIndex, list[TensorVariable]]:
    """Select the offsets that the rows use by an index only, and move the indices to them."""
    while True:
        rows = RowsByIndex([v.value for v in offsets])
        try:
            return offsets, rows, rows.replace(observed)
        except NotByIndexError as error:
            offsets = [v for v in offsets if v.value not in error.args]


def _n_rows(index: TensorVariable, n_rows: int | None) -> int:
    """Return the number of rows of the full data with an index; see `with_centered_effects`."""
    drawn = drawn_rows([index])
    if drawn:
        return max(len(row.data) for row in drawn.values())
    return n_rows or int(unoptimized_function([], index.shape[0])())


def _scales_of_offsets(model: Model, n_rows: int | None) -> dict[TensorVariable, TensorVariable]:
    """Scale q of each variable whose groups have many rows, as a function of value variables."""
    fixed = with_fixed_shapes(model)
    offsets = [
        v
        for v in manifold_variables(fixed, None, None)
        if v.manifold.is_flat and not v.on_manifold and may_be_effect(v) and may_be_offset(fixed, v)
    ]
    terms = logp_terms(fixed)
    offsets, rows, graphs = _gather(
        offsets, [terms[rv] for rv in (*fixed.observed_RVs, *fixed.potentials)]
    )
    values = {value.name: value for value in model.value_vars}
    scales = {}
    for i, variable in enumerate(offsets):
        gathered = [each for each in rows.gathered.values() if each.effect == i]
        scale = positive_scale(scales_of(gathered, graphs), variable.shape[-1])
        if scale is not None and scale.matrix is not None:
            _log.info(
                "correlated group effects of %r stay non-centered with minibatches. Write them as "
                "pm.MvNormal(..., chol=...), or use GMC, which samples both forms",
                variable.name,
            )
        if scale is None or scale.matrix is not None or i in rows.in_products:
            continue
        inputs = [v for v in graph_inputs([scale.diagonal]) if not isinstance(v, Constant)]
        if any(isinstance(v, SharedVariable) or v.name not in values for v in inputs):
            continue
        if max(_n_rows(each.index, n_rows) for each in gathered) < MIN_ROWS * variable.shape[0]:
            continue
        rv = model[variable.name]
        (scales[rv],) = rebuild_graphs([scale.diagonal], {v: values[v.name] for v in inputs})
    return scales

"""Parts from which the constructors of SCIR and SGRLD compose their samplers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_geodesic.counts.estimate import CountEstimate
from pymc_geodesic.counts.model_check import CountProbe, Dependence
from pymc_geodesic.counts.priors import family_of, variables_of_families
from pymc_geodesic.counts.probed_points import probed_points
from pymc_geodesic.densities.variables import ManifoldVariable, manifold_variables
from pymc_geodesic.manifolds import FlatSimplex, HalfLine, Manifold
from pymc_geodesic.steps.pymc_parts import Model, SamplerWarning, TensorVariable, modelcontext

__all__ = ["COUNT_PROGRESS", "COUNT_STATS", "measure_dependence", "variables_with_counts"]

COUNT_STATS: dict[str, tuple[Any, list[int] | None]] = {
    "step_size": (np.float64, []),
    "variance_inflation": (np.float64, []),
    "diverging": (bool, []),
    "n_grad": (np.int64, []),
    "warning": (SamplerWarning, None),
}
"""Types and shapes of the sample stats."""

COUNT_PROGRESS = (
    ("step_size", ".2e", "Step size"),
    ("variance_inflation", ".3f", "Inflation"),
)
"""Columns of the progress bar."""


def variables_with_counts(
    name: str,
    model: Model | None,
    vars: Sequence[TensorVariable | str] | None,
    local: Sequence[TensorVariable | str] | TensorVariable | str | None,
    *,
    families: Sequence[str],
) -> tuple[list[TensorVariable], Mapping[str, type[Manifold]]]:
    """Find the variables to sample, without local ones, and their manifolds.

    Parameters
    ----------
    name : str
        Of the step.
    model : pymc.Model, optional
    vars, local
        See `pymc_geodesic.SCIR`.
    families : sequence of str
        Distributions that the step samples.

    Raises
    ------
    ValueError
        If there is none, or one of them has another distribution.
    """
    model = modelcontext(model)
    by_row = [] if local is None else manifold_variables(model, local, by_row=True)
    left_out = [variable.rv for variable in by_row]
    found = variables_of_families(model, vars, families, name)
    sampled = [rv for rv in found if rv not in left_out]
    return sampled, {
        rv.name: FlatSimplex if family_of(rv) == "Dirichlet" else HalfLine for rv in sampled
    }


def measure_dependence(
    model: Model,
    variables: Sequence[ManifoldVariable],
    estimate: CountEstimate,
    probe: CountProbe,
    *,
    needs_counts: bool,
) -> Dependence:
    """Measure which counts change with the point, at random points of a few minibatches.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
    estimate : CountEstimate
        Its minibatches begin anew.
    probe : CountProbe
    needs_counts : bool
        Whether counts must not be negative, and the sums of counts matter.

    Returns
    -------
    Dependence
        Where the estimates are random, the counts are said to change, and their sums not to.

    Raises
    ------
    ValueError
        If the likelihood has negative counts, or not the form of the prior, and must not.
    """
    unknown = Dependence(counts=True, sums=np.zeros(len(variables), dtype=bool))
    if not estimate.repeats:
        return unknown
    points = probed_points(model, variables)
    found = []
    for minibatch, point in zip(estimate.next_arguments(len(points)), points, strict=True):
        estimate.set_others(point)
        found.append(probe.dependence(int(minibatch), needs_counts=needs_counts))
    estimate.reset(0)
    sums = np.any([each.sums for each in found], axis=0) if needs_counts else unknown.sums
    return Dependence(counts=any(each.counts for each in found), sums=sums)

r"""Count estimates of a likelihood from gradients of minibatches.

If the likelihood of a probability vector ω is Π ωⱼ^{nⱼ}, or a mixture of such terms over latent
categories, then ω ∂ log p / ∂ω is the count n, or its conditional expectation (Fisher's identity).
This requires the likelihood as a function of unnormalized ω. A model may contain ω/Σω instead,
which has the same values on the simplex but the gradient n − ω Σn. Therefore sums over elements of
ω that are constant on the simplex are treated as constants in the differentiation; see
`pymc_geodesic.counts.constant_sums`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import disconnected_grad, grad
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.counts.constant_sums import constant_sums
from pymc_geodesic.counts.count_estimator import CountAllRows, CountEstimator
from pymc_geodesic.counts.layout import layout_table
from pymc_geodesic.densities.compilation import CompiledGradient, compile_gradient
from pymc_geodesic.densities.graphs import rebuild_graphs
from pymc_geodesic.densities.log_density import Density
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.minibatch_gradient import (
    MinibatchGradient,
    gradient_inputs,
    minibatch_log_density,
)
from pymc_geodesic.kernels.counts import SIMPLEX, CountsAt, estimate_counts
from pymc_geodesic.manifolds import FlatSimplex
from pymc_geodesic.minibatches.source import RowSource

# --- likelihood ---------------------------------------------------------------------------------


def likelihood_density(
    model: Model,
    variables: Sequence[ManifoldVariable],
    source: RowSource,
    total_size: int | None = None,
) -> RowDensity:
    """Build the log-density of all terms that depend on given variables, without their priors.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable
        Dirichlet, Gamma or LogNormal variables. Observed data, potentials and other variables
        count as likelihood.
    source : RowSource
        Source of the minibatches.
    total_size : int, optional
        N, if it is not the number of rows of the source.
    """

    def rewrite(density: Density) -> None:
        if not density.row_terms and not density.other_terms:
            density.other_terms.append(pt.zeros(()))
        _fix_constant_sums(model, variables, density)

    return RowDensity(
        model,
        variables,
        source,
        total_size,
        without=[variable.rv for variable in variables],
        rewrite=rewrite,
    )


def _fix_constant_sums(
    model: Model, variables: Sequence[ManifoldVariable], density: Density
) -> None:
    """Treat sums that are constant on the simplex as constants in the differentiation."""
    terms = density.graphs
    simplices = [
        coordinate
        for variable, coordinate in zip(variables, density.coordinates, strict=True)
        if isinstance(variable.manifold, FlatSimplex)
    ]
    examples = _example_inputs(model, variables, density)
    constants = [a for a, holder in density.arrays.items() if isinstance(holder, np.ndarray)]
    fixed_sums = [
        constant_sums(terms, simplices, coordinate, examples, constants)
        if coordinate in simplices
        else []
        for coordinate in density.coordinates
    ]
    if not any(fixed_sums):
        return
    # In one copy of the log-density per variable, the other variables are constants. The sum of the
    # copies has the required gradients, and PyTensor merges the copies.
    n_row_terms = len(density.row_terms)
    copies = []
    for own, sums in zip(density.coordinates, fixed_sums, strict=True):
        others: dict[Variable, Variable] = {
            other: disconnected_grad(other) for other in density.coordinates if other is not own
        }
        copy = rebuild_graphs(terms, {total: disconnected_grad(total) for total in sums})
        copies.append(rebuild_graphs(copy, others) if others else copy)
    density.row_terms = [
        replace(term, graph=graph)
        for copy in copies
        for term, graph in zip(density.row_terms, copy[:n_row_terms], strict=True)
    ]
    density.other_terms = [term for copy in copies for term in copy[n_row_terms:]]
    density.normal_terms = []


def _example_inputs(
    model: Model, variables: Sequence[ManifoldVariable], density: Density
) -> dict[TensorVariable, np.ndarray]:
    """Return one value for every input of a log-density."""
    point = model.initial_point(random_seed=0)
    rng = np.random.default_rng(0)
    values: dict[TensorVariable, np.ndarray] = {}
    for variable, coordinate in zip(variables, density.coordinates, strict=True):
        draws = rng.gamma(2.0, size=variable.shape)
        if isinstance(variable.manifold, FlatSimplex):
            draws /= draws.sum(axis=-1, keepdims=True)
        values[coordinate] = draws
    for name, other in density.others.items():
        values[other] = np.asarray(point[name], dtype=other.type.dtype)
    for array, holder in density.arrays.items():
        content = holder.get_value(borrow=True) if isinstance(holder, SharedVariable) else holder
        values[array] = np.asarray(content, dtype=array.type.dtype)
    for row in density.rows:
        n_rows = row.block.type.shape[0]
        indices = range(len(row.data) if n_rows is None else n_rows)
        rows = np.take(row.data, indices, axis=0, mode="wrap")  # there may be fewer rows
        values[row.block] = rows.astype(row.block.type.dtype)
    return values


# --- estimate -----------------------------------------------------------------------------------


class GradientCountEstimator(CountEstimator):
    """Counts from the gradient of the likelihood with respect to the untransformed variables.

    Parameters
    ----------
    density : RowDensity
        See `likelihood_density`.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Attributes
    ----------
    gradient : MinibatchGradient
        Gradient of the likelihood.
    source : RowSource
        Source of the minibatches.
    """

    is_deterministic = True

    def __init__(
        self, density: RowDensity, *, compile_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        self._density, self._compile_kwargs = density, compile_kwargs
        self.gradient = MinibatchGradient(density, compile_kwargs=compile_kwargs)
        self.source = density.source
        self._table = layout_table(density.variables)
        self._evaluations = 1 + int(np.sum(self._table[:, 0] != SIMPLEX))
        self._all_rows: tuple[CompiledGradient, Density] | None = None

    @property
    def logp_grad(self) -> CompiledGradient:
        """Compiled gradient of the log-likelihood of a minibatch, times N/n."""
        return self.gradient.logp_grad

    @property
    def evaluations(self) -> int:
        """Number of gradients of one estimate: one, plus one per Gamma or LogNormal variable."""
        return self._evaluations

    def share(self, minibatch: int) -> float:
        """Return 1, since all minibatches have the same number of rows; see `CountEstimator`."""
        return 1.0

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other steps sample."""
        self.gradient.set_others(point)

    def next_minibatches(self, n: int) -> np.ndarray:
        """First rows of the next ``n`` minibatches, shape (n,)."""
        return self.gradient.next_minibatches(n)

    def draw_context(self) -> AbstractContextManager[Any]:
        """Context of a draw; see `MinibatchGradient`."""
        return self.gradient.draw_context()

    def estimate(
        self,
        values: np.ndarray,
        minibatch: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate counts and exposures from one minibatch; see `CountEstimator.estimate`."""
        return self._estimate_by(self.logp_grad, minibatch, values, counts, exposures)

    def _estimate_by(
        self,
        logp_grad: CompiledGradient,
        minibatch: int,
        values: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        estimate = CountsAt(values, counts, exposures)
        failed = estimate_counts(logp_grad.callback, minibatch, self._table, estimate)
        logp_grad.raise_error()
        return failed

    # --- all rows --------------------------------------------------------------------------------

    def compile_all_rows(self) -> CountAllRows:
        """Compile the gradient of the likelihood of all rows.

        Raises
        ------
        ValueError
            If there are no minibatches, the rows are streamed, or the likelihood depends on
            variables that other steps sample.
        """
        minibatch = self._density.minibatch
        if not minibatch.rows:
            raise ValueError(
                "control_variates= applies to minibatches only. Set batch_size= and minibatch=, or "
                "omit control_variates="
            )
        if minibatch.others:
            raise ValueError(
                "control_variates= needs a likelihood of the sampled variables only, but it "
                f"depends on {sorted(minibatch.others)}, which other steps sample. Omit "
                "control_variates="
            )
        data = self._all_data()
        n_rows = len(next(iter(data.values())))
        if n_rows != self.source.n_rows:
            raise ValueError("control_variates= needs all rows in memory. Omit it with batches=")
        density = self._density.of_rows(n_rows, arrays=data)
        log_density = minibatch_log_density(density, self._density.total_size / n_rows)
        gradients = grad(log_density, density.coordinates, disconnected_inputs="ignore")
        logp_grad = compile_gradient(
            density.coordinates,
            gradient_inputs(density),
            gradients,
            compile_kwargs=self._compile_kwargs,
        )
        self._all_rows = logp_grad, density
        self.refresh_data()
        return partial(self._estimate_by, logp_grad, 0)

    def _all_data(self) -> dict[str, np.ndarray]:
        """Return all rows by container, with the current values of the containers."""
        rows, model = self._density.minibatch.rows, self._density.model
        if self.source.names:
            return {row.name: model[row.name].get_value(borrow=True) for row in rows}
        return {row.name: row.present for row in rows}

    def refresh_data(self) -> None:
        """Read the current values of the data containers."""
        self.gradient.refresh_data()
        if self._all_rows is None:
            return
        logp_grad, density = self._all_rows
        data = self._all_data()
        holders = [*density.arrays.values(), *(data[row.name] for row in density.rows)]
        for position, (holder, entry) in enumerate(
            zip(holders, gradient_inputs(density), strict=True)
        ):
            array = holder.get_value(borrow=True) if isinstance(holder, SharedVariable) else holder
            logp_grad.point_at(position, np.ascontiguousarray(array, dtype=entry.dtype))

r"""Expected counts of a likelihood, by its gradient.

Where the likelihood of a probability vector ω is Π ωⱼ^{nⱼ}, or a mixture of such terms over
something latent, ω ∂ log p / ∂ω is the count n, or its expectation over what is latent (Fisher's
identity). That is true of the likelihood written with ω that need not sum to one. A graph may
write it with ω/Σω instead, which is the same law but has the gradient n − ω Σn: so a sum over
entries of ω that is the same number wherever on the simplex ω lies counts as that number, and
is not differentiated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import disconnected_grad, grad
from pytensor.graph.basic import Variable
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.counts.constant_sums import constant_sums
from pymc_geodesic.counts.estimate import CountEstimate, CountKernels, EstimateOfAllRows
from pymc_geodesic.counts.priors import family_of
from pymc_geodesic.densities.compilation import CompiledField, compile_field
from pymc_geodesic.densities.log_density import Density, rebuilt
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.kernels.expected_counts import CountsAt, estimate_counts
from pymc_geodesic.kernels.positive_numbers import LOG_NORMAL, POSITIVE, SIMPLEX
from pymc_geodesic.manifolds import FlatSimplex

__all__ = ["CountEstimator", "LikelihoodDensity", "count_blocks"]


def count_blocks(variables: Sequence[ManifoldVariable]) -> np.ndarray:
    """Describe the variables to the kernels.

    Returns
    -------
    ndarray of int64, shape (n_variables, 4)
        Kind, first number, rows and numbers per row; see `pymc_geodesic.kernels.positive_numbers`.
    """
    blocks, start = [], 0
    for variable in variables:
        if isinstance(variable.manifold, FlatSimplex):
            block = SIMPLEX, start, variable.rows, variable.manifold.n
        else:
            kind = LOG_NORMAL if family_of(variable.rv) == "LogNormal" else POSITIVE
            block = kind, start, 1, variable.manifold.size
        blocks.append(block)
        start += block[2] * block[3]
    return np.array(blocks, dtype=np.int64)


class LikelihoodDensity(RowDensity):
    """Log-density of all that depends on some variables, without their own priors.

    Data, potentials and other variables count as likelihood. Takes the arguments of `RowDensity`.
    """

    @property
    def _left_out(self) -> list[TensorVariable]:
        """The variables themselves."""
        return [variable.rv for variable in self.variables]

    def of_rows(
        self,
        n_rows: int | None = None,
        *,
        scale: float | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> Density:
        """Build the log-density of another number of rows; see `RowDensity.of_rows`."""
        density = super().of_rows(n_rows, scale=scale, arrays=arrays)
        if not density.row_terms and not density.other_terms:
            density.other_terms.append(pt.zeros(()))
        self._hold_sums(density)
        return density

    def _hold_sums(self, density: Density) -> None:
        """Take sums that are constant on the simplex out of the differentiation."""
        terms = [*density.row_terms, *density.other_terms]
        simplices = [
            coordinate
            for variable, coordinate in zip(self.variables, density.coordinates, strict=True)
            if isinstance(variable.manifold, FlatSimplex)
        ]
        examples = self._example_inputs(density)
        never_changes = [a for a, held in density.arrays.items() if isinstance(held, np.ndarray)]
        held = [
            constant_sums(terms, simplices, coordinate, examples, never_changes)
            if coordinate in simplices
            else []
            for coordinate in density.coordinates
        ]
        if not any(held):
            return
        # One copy of the log-density per variable, of which the other copies are constants: their
        # sum has the gradients wanted, and PyTensor merges the copies.
        n_rows_terms = len(density.row_terms)
        copies = []
        for own, sums in zip(density.coordinates, held, strict=True):
            fixed: dict[Variable, Variable] = {
                other: disconnected_grad(other) for other in density.coordinates if other is not own
            }
            with_sums = rebuilt(terms, {total: disconnected_grad(total) for total in sums})
            copies.append(rebuilt(with_sums, fixed) if fixed else with_sums)
        density.row_terms = [term for copy in copies for term in copy[:n_rows_terms]]
        density.other_terms = [term for copy in copies for term in copy[n_rows_terms:]]

    def _example_inputs(self, density: Density) -> dict[TensorVariable, np.ndarray]:
        """Return one value for every input of the log-density."""
        point = self.model.initial_point(random_seed=0)
        rng = np.random.default_rng(0)
        values: dict[TensorVariable, np.ndarray] = {}
        for variable, coordinate in zip(self.variables, density.coordinates, strict=True):
            draws = rng.gamma(2.0, size=variable.shape)
            if isinstance(variable.manifold, FlatSimplex):
                draws /= draws.sum(axis=-1, keepdims=True)
            values[coordinate] = draws
        for name, other in density.others.items():
            values[other] = np.asarray(point[name], dtype=other.type.dtype)
        for array, holder in density.arrays.items():
            content = (
                holder.get_value(borrow=True) if isinstance(holder, SharedVariable) else holder
            )
            values[array] = np.asarray(content, dtype=array.type.dtype)
        for row in density.rows:
            n_rows = row.block.type.shape[0]
            places = range(len(row.data) if n_rows is None else n_rows)
            some = np.take(row.data, places, axis=0, mode="wrap")  # there may be fewer rows
            values[row.block] = some.astype(row.block.type.dtype)
        return values


class CountEstimator(GradientEstimator, CountEstimate):
    """Gradient of the likelihood alone, in the variables themselves.

    Parameters
    ----------
    density : LikelihoodDensity
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Attributes
    ----------
    blocks : ndarray of int64, shape (n_variables, 4)
        See `count_blocks`.
    """

    repeats = True
    _all_rows: tuple[CompiledField, Density] | None = None

    @cached_property
    def blocks(self) -> np.ndarray:
        """What the kernels know of the variables."""
        return count_blocks(self._density.variables)

    @cached_property
    def evaluations(self) -> int:
        """Gradient evaluations of one estimate: one more for each variable on no simplex."""
        return 1 + int(np.sum(self.blocks[:, 0] != SIMPLEX))

    def estimate(
        self,
        values: np.ndarray,
        argument: int,
        stream: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        """Estimate from one minibatch, without randomness; see `CountEstimate.estimate`."""
        return self._estimate_with(self.field, argument, values, counts, exposures)

    def share(self, argument: int) -> float:
        """Rows of a minibatch, divided by those of the largest one: all have the same number."""
        return 1.0

    def advance(
        self, kernels: CountKernels, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the kernel that calls the field; see `CountEstimate.advance`."""
        return kernels.run_gradient_kernel(self.field, minibatches, step_size)

    def _estimate_with(
        self,
        field: CompiledField,
        argument: int,
        values: np.ndarray,
        counts: np.ndarray,
        exposures: np.ndarray,
    ) -> int:
        found = CountsAt(values, counts, exposures)
        failed = estimate_counts(field.callback, argument, self.blocks, found)
        field.raise_error()
        return failed

    def compile_all_rows(self) -> EstimateOfAllRows:
        """Compile the gradient of the likelihood of all rows, at once; return what counts them.

        Raises
        ------
        ValueError
            If there are no minibatches, the rows are streamed, or the likelihood depends on
            variables that other steps change.
        """
        if not self._density_inputs.rows:
            raise ValueError("control_variates= is of use with minibatches only")
        if self._density_inputs.others:
            raise ValueError(
                "control_variates= needs a likelihood of the sampled variables alone, but it "
                f"depends on {sorted(self._density_inputs.others)}, which other steps sample"
            )
        data = self._present_rows()
        n_rows = len(next(iter(data.values())))
        if n_rows != self.source.n_rows:
            raise ValueError(
                "control_variates= needs all rows in memory; leave it out with batches="
            )
        density = self._density.of_rows(n_rows, scale=self.total_size / n_rows, arrays=data)
        inputs = self._field_inputs(density)
        gradients = grad(density.total, density.coordinates, disconnected_inputs="ignore")
        field = compile_field(
            density.coordinates, inputs, gradients, compile_kwargs=self._compile_kwargs
        )
        self._all_rows = field, density
        self.refresh_data()
        return partial(self._estimate_with, field, 0)

    def _present_rows(self) -> dict[str, np.ndarray]:
        """All rows by container, with the values that these have now."""
        rows, model = self._density_inputs.rows, self._density.model
        if self.source.names:
            return {row.name: model[row.name].get_value(borrow=True) for row in rows}
        return {row.name: row.present for row in rows}

    def refresh_data(self) -> None:
        """Point the contexts at the present values of the data containers."""
        super().refresh_data()
        if self._all_rows is None:
            return
        field, density = self._all_rows
        rows = self._present_rows()
        holders = [*density.arrays.values(), *(rows[row.name] for row in density.rows)]
        for position, (holder, entry) in enumerate(
            zip(holders, self._field_inputs(density), strict=True)
        ):
            array = holder.get_value(borrow=True) if isinstance(holder, SharedVariable) else holder
            field.point_at(position, np.ascontiguousarray(array, dtype=entry.dtype))

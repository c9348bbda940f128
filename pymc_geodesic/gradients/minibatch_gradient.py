"""Gradient of the log-density of a model, full or by minibatches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import NullTypeGradError, grad, pushforward
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.compilation import (
    CompiledField,
    FixedArray,
    ResizedArray,
    RowBlock,
    compile_field,
)
from pymc_geodesic.densities.log_density import Density, rebuilt
from pymc_geodesic.densities.row_density import RowDensity, averaged_terms
from pymc_geodesic.densities.smoothness import has_kinks
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.differentiable import gradients_of
from pymc_geodesic.gradients.estimate import GradientEstimate
from pymc_geodesic.gradients.fisher import for_each_row, sparse_variance, tangential_variance
from pymc_geodesic.gradients.full_gradient import RowCurvature, TotalGradient
from pymc_geodesic.minibatches.stratified_sample import shares_of_entries, shares_of_levels

_LARGEST_FISHER = 2**27
"""Numbers, a gibibyte of them, that the gradients of the rows of a minibatch may have."""


def _array_input(variable: TensorVariable) -> FixedArray:
    """Input for data that every gradient sees all of."""
    shape = variable.type.shape
    return (ResizedArray if shape[:1] == (None,) else FixedArray)(variable, shape)


def field_inputs(density: Density) -> list[FixedArray]:
    """List the inputs of a compiled gradient: values of other steps, data, and blocks of rows."""
    inputs: list[FixedArray] = [
        FixedArray(variable, variable.type.shape) for variable in density.others.values()
    ]
    inputs += [_array_input(variable) for variable in density.arrays]
    inputs += [RowBlock(row.block, row.block.type.shape) for row in density.rows]
    return inputs


class GradientEstimator(GradientEstimate):
    """Compiled gradient of a model with the rows it sees next.

    Parameters
    ----------
    density : RowDensity
        Log-density whose gradient, with respect to the kernel coordinates, is estimated.
    with_value : bool
        Whether the field also writes the log-density behind the gradient, if it sees all rows.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Attributes
    ----------
    field : CompiledField
    source : RowSource
    has_value : bool
        Whether the field writes the log-density.
    """

    def __init__(
        self,
        density: RowDensity,
        *,
        with_value: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._density = density
        self.source = density.source
        self._compile_kwargs = compile_kwargs
        self._resized = tuple(density.source.whole)
        minibatch = self._density_inputs = density.minibatch
        total = minibatch.total
        self.has_value = with_value and not minibatch.rows
        gradients = gradients_of(total, minibatch.coordinates, density.model, density.variables)
        self._inputs = field_inputs(minibatch)
        self.field = compile_field(
            minibatch.coordinates,
            self._inputs,
            gradients,
            pt.atleast_1d(total) if self.has_value else None,
            compile_kwargs,
        )
        self._fields = [self.field]
        self._other_values: dict[str, np.ndarray] = {}
        self.refresh_data()

    def refresh_data(self) -> None:
        """Point the context at the present values of the data containers."""
        self._density.check_data()
        density = self._density_inputs
        self._whole_inputs: dict[str, int] = {}
        position = 0
        for name, variable in density.others.items():
            shape = variable.type.shape
            if any(n is None for n in shape):
                raise ValueError(f"the shape {shape} of {name!r} must be known")
            buffer = np.zeros(shape, dtype=variable.type.dtype)
            self._other_values[name] = buffer
            self._point_all(position, buffer)
            position += 1
        for copy, holder in density.arrays.items():
            array = self.source.whole_array(holder)
            expected = self._inputs[position].shape
            if copy.name in self._resized:
                self._whole_inputs[copy.name] = position
            elif array.shape != expected:
                message = (
                    f"data container {copy.name!r} had shape {expected} when this step was made "
                    f"and has {array.shape} now; make the step again"
                )
                raise ValueError(see(message, "changed-data"))
            self._point_all(position, np.ascontiguousarray(array))
            position += 1
        self._first_row_input = position
        self._point_rows()

    def _point_all(self, position: int, array: np.ndarray) -> None:
        for field in self._fields:
            field.point_at(position, array)

    def _point_rows(self) -> None:
        for i, row in enumerate(self._density_inputs.rows):
            self._point_all(self._first_row_input + i, self.source.arrays[row.name])
        for name, position in self._whole_inputs.items():
            self._point_all(position, self.source.whole[name])

    @property
    def total_size(self) -> int:
        """N, the rows that the gradient stands for."""
        return self._density.total_size

    @property
    def is_exact(self) -> bool:
        """Whether there are no minibatches."""
        return self.source.is_everything

    def next_minibatches(self, n: int) -> np.ndarray:
        """Arguments of the field for the next ``n`` inner steps: first rows of minibatches."""
        starts = self.source.next_starts(n)
        if self.source.moves:
            self._point_rows()
        return starts

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the values of variables that other steps sample."""
        for name, buffer in self._other_values.items():
            buffer[...] = point[name]

    @property
    def depends_on_others(self) -> bool:
        """Whether the log-density depends on variables that other steps sample."""
        return bool(self._density_inputs.others)

    def total_gradient(self) -> TotalGradient | None:
        """Compile log-density and gradient of any number of rows.

        Returns
        -------
        TotalGradient or None
            None where rows are drawn in groups that are apart from each other.
        """
        graph = self._any_rows()
        if graph is None:
            return None
        total, inputs = graph
        density = self._density_inputs
        gradients = grad(total, density.coordinates, disconnected_inputs="ignore")
        field = compile_field(
            density.coordinates, inputs, gradients, pt.atleast_1d(total), self._compile_kwargs
        )
        self._fields.append(field)
        self.refresh_data()
        return TotalGradient(field, self._size, [row.name for row in density.rows])

    def row_curvature(self) -> RowCurvature | None:
        """Compile gradient, and Hessian times a vector, of any number of rows.

        Returns
        -------
        RowCurvature or None
            None where rows are drawn in groups that are apart from each other, and where PyTensor
            has no second derivative.
        """
        graph = self._any_rows()
        if graph is None:
            return None
        total, inputs = graph
        places = self._density_inputs.coordinates
        along = [place.type(name=f"{place.name}_direction") for place in places]
        try:
            gradients = grad(total, places, disconnected_inputs="ignore")
            products = pushforward(gradients, places, along, disconnected_outputs="ignore")
        except (NotImplementedError, NullTypeGradError, TypeError):
            return None
        field = compile_field(
            [*places, *along], inputs, [*gradients, *products], None, self._compile_kwargs
        )
        self._fields.append(field)
        self.refresh_data()
        return RowCurvature(
            field,
            self.field,
            self._size,
            [row.name for row in self._density_inputs.rows],
            self.source.batch_size,
            self.source.n_rows,
        )

    @property
    def row_names(self) -> list[str]:
        """Terms of the log-density that are sums over rows."""
        return self._density_inputs.row_names

    @property
    def has_kinks(self) -> bool:
        """Whether the gradient of a row may jump, so that its Hessian says little of it."""
        return has_kinks(self._density_inputs.row_terms, self._density_inputs.coordinates)

    def row_shares(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the share of each row in its rarest level; see `GradientEstimate.row_shares`."""
        n_rows, shares = self.source.n_rows, {}
        for name, array in arrays.items():
            columns = self.source.whole.get(f"{name.removesuffix('_rows')}_columns")
            if name.endswith("_rows") and columns is not None:
                shares[name] = shares_of_entries(array[:n_rows], columns)
        for names, levels in self._density.levels({k: a[:n_rows] for k, a in arrays.items()}):
            found = shares_of_levels(levels)
            for name in names:
                shares[name] = np.maximum(shares.get(name, 0.0), found)
        return shares

    @property
    def _size(self) -> int:
        """Length of a position."""
        coordinates = self._density_inputs.coordinates
        return sum(int(np.prod(q.type.shape, dtype=int)) for q in coordinates)

    def _any_rows(self) -> tuple[TensorVariable, list[FixedArray]] | None:
        """Log-density of any number of rows, and its inputs, which end with two weights.

        Those are of the rows and of what is no row. None where rows are drawn in groups that are
        apart from each other.
        """
        density = self._density_inputs
        if not density.rows or len({row.group for row in density.rows}) > 1:
            return None
        blocks = {
            row.block: pt.TensorType(row.block.type.dtype, (None, *row.block.type.shape[1:]))(
                row.block.name
            )
            for row in density.rows
        }
        terms = rebuilt(density.row_terms, blocks)
        count = next(iter(blocks.values())).shape[0]
        batch_size, n_rows = self.source.batch_size, self.source.n_rows
        averages = averaged_terms(
            self._density.model, self._density.variables, density, self.source
        )
        weights = [pt.scalar(name, dtype="float64") for name in ("row_weight", "other_weight")]
        parts = [
            pt.sum(term) * ((count if is_average else batch_size) / n_rows)
            for term, is_average in zip(terms, averages, strict=True)
        ]
        total = weights[0] * pt.add(*parts)
        if density.other_terms:
            total = total + weights[1] * pt.add(*[pt.sum(term) for term in density.other_terms])
        inputs = field_inputs(density)[: len(density.others) + len(density.arrays)]
        inputs += [RowBlock(block, block.type.shape) for block in blocks.values()]
        inputs += [FixedArray(weight, ()) for weight in weights]
        return total, inputs

    def compile_noise(self) -> CompiledField:
        r"""Compile the empirical Fisher estimate of the variance of the gradient estimate.

        With g_i the gradient of row i of the minibatch, times N, the estimate of each component
        is Var(g_i) / n · (1 − n / N), n the batch size (Ahn, Korattikara, Welling 2012); without
        the last factor for rows drawn with replacement. Gradients are projected on the tangent
        space, see `pymc_geodesic.gradients.fisher.tangential_variance`.

        Raises
        ------
        ValueError
            If there are no minibatches, or batches of one row.
        """
        batch_size, n_rows = self.source.batch_size, self.total_size
        if not self._density_inputs.rows or batch_size < 2:
            raise ValueError(
                'gradient_noise="fisher" needs minibatches of two rows or more; '
                "leave it out for full-data gradients, which have no noise"
            )
        if len({row.group for row in self._density_inputs.rows}) > 1:
            raise ValueError(
                'gradient_noise="fisher" needs rows that are drawn together, but '
                f"{[row.name for row in self._density_inputs.rows]} come from several "
                "pm.Minibatch; leave gradient_noise out, and tuning measures the noise"
            )
        single = self._density.of_rows(1, scale=float(n_rows))
        row_total = pt.add(*[pt.sum(term) for term in single.row_terms])
        row_gradients = grad(row_total, single.coordinates, disconnected_inputs="ignore")
        blocks: list[TensorVariable] = []
        replacements = {}
        for row, outer in zip(single.rows, self._density_inputs.rows, strict=True):
            block = outer.block.type(name=outer.block.name)
            blocks.append(block)
            replacements[row.block] = pt.expand_dims(block, 1)
        batched = for_each_row(row_gradients, replacements)
        scale = 1.0 / (batch_size - 1)
        if not self.source.with_replacement:
            scale *= 1.0 - batch_size / n_rows
        variances = []
        for variable, gradient, coordinate in zip(
            self._density.variables, batched, single.coordinates, strict=True
        ):
            if gradient.ndim == coordinate.ndim:
                variances.append(pt.zeros_like(coordinate))
                continue
            variance = sparse_variance(variable.manifold, gradient)
            if variance is None:
                size = batch_size * variable.manifold.size * variable.rows
                if size > _LARGEST_FISHER:
                    raise ValueError(
                        f'gradient_noise="fisher" needs the gradient in {variable.name!r} of each '
                        f"row, {size} numbers in all; leave gradient_noise out, or use a smaller "
                        "batch_size"
                    )
                centred = gradient - gradient.mean(axis=0)
                variance = tangential_variance(variable.manifold, coordinate, centred)
            variances.append(scale * variance)
        inputs: list[FixedArray] = [FixedArray(v, v.type.shape) for v in single.others.values()]
        inputs += [_array_input(variable) for variable in single.arrays]
        inputs += [RowBlock(block, block.type.shape) for block in blocks]
        field = compile_field(single.coordinates, inputs, variances, None, self._compile_kwargs)
        self._fields.append(field)
        self.refresh_data()
        return field

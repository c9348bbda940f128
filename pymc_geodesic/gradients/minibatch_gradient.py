r"""Gradient of the log-density of a model, for all data or minibatches.

The estimate from the n rows S of a minibatch of N rows is

.. math::

    \nabla \log p(\theta) + \frac{N}{n} \sum_{i \in S} \nabla \log p(x_i \mid \theta) ,

where log p(θ) is the sum of the terms that do not depend on rows, such as priors.
`minibatch_log_density` is the estimate of the log-density, whose gradient is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import rewrite_pregrad
from pytensor.gradient import NullTypeGradError, grad, pushforward
from pytensor.graph.replace import clone_replace
from pytensor.graph.utils import MethodNotDefined
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.compilation import (
    ArrayInput,
    CompiledGradient,
    FixedArray,
    ResizedArray,
    RowBlock,
    compile_gradient,
    runs_own_ops,
)
from pymc_geodesic.densities.graphs import (
    rebuild_graphs,
    split_at_transcendental,
    stable_function,
)
from pymc_geodesic.densities.log_density import Density
from pymc_geodesic.densities.model_terms import logp_terms
from pymc_geodesic.densities.row_density import RowDensity, find_averaging_terms
from pymc_geodesic.densities.smoothness import has_kinks
from pymc_geodesic.densities.sufficient_statistics import (
    NormalStatistics,
    count_entries,
    with_sufficient_statistics,
)
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.failure_modes import see
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.fisher import row_variances
from pymc_geodesic.gradients.full_gradient import RowCurvature, TotalGradient
from pymc_geodesic.gradients.structured_hessian import HessianStructure
from pymc_geodesic.minibatches.source import check_shape
from pymc_geodesic.minibatches.stratified_sample import shares_of_entries, shares_of_levels

# --- log-density and its inputs -----------------------------------------------------------------


def scaled_row_terms(density: Density, scale: float) -> list[TensorVariable]:
    """Multiply the terms of the rows of a minibatch by N/n, once each.

    Parameters
    ----------
    density : Density
    scale : float
        N/n. PyMC already multiplies the terms of variables with a ``total_size`` by it.
    """
    return [
        term.graph if term.is_scaled or scale == 1.0 else term.graph * scale
        for term in density.row_terms
    ]


def minibatch_log_density(density: Density, scale: float) -> TensorVariable:
    r"""Unbiased estimate of the log-density from a minibatch, a scalar.

    .. math:: \log p(\theta) + \frac{N}{n} \sum_{i \in S} \log p(x_i \mid \theta)

    Parameters
    ----------
    density : Density
        Terms of the n rows S of a minibatch, and terms that do not depend on rows.
    scale : float
        N/n.
    """
    terms = [*scaled_row_terms(density, scale), *density.other_terms]
    return pt.add(*[pt.sum(term) for term in terms])


def gradient_inputs(density: Density) -> list[ArrayInput]:
    """List the inputs of a compiled gradient: variables of other steps, data, blocks of rows."""
    inputs: list[ArrayInput] = [
        FixedArray(variable, variable.type.shape) for variable in density.others.values()
    ]
    for variable in density.arrays:
        shape = variable.type.shape
        inputs.append((ResizedArray if shape[:1] == (None,) else FixedArray)(variable, shape))
    inputs += [RowBlock(row.block, row.block.type.shape) for row in density.rows]
    return inputs


# --- gradient -----------------------------------------------------------------------------------


class MinibatchGradient(GradientEstimator):
    """Compiled gradient of a model, and the source of its minibatches.

    Without minibatches, transcendental functions of the data, such as the log-factorials of counts,
    are computed once, when the data are read. They take 8 bytes per value in each process.

    Parameters
    ----------
    density : RowDensity
        Log-density whose gradient, with respect to the kernel coordinates, is estimated.
    with_value : bool
        Whether the function also returns the log-density, without minibatches.
    compile_kwargs : mapping, optional
        Passed to `pymc.compile`.

    Attributes
    ----------
    logp_grad : CompiledGradient
    source : RowSource
    has_value : bool
        Whether the function returns the log-density.
    """

    def __init__(
        self,
        density: RowDensity,
        *,
        with_value: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._row_density = density
        self.source = density.source
        self._compile_kwargs = compile_kwargs
        self._resized = tuple(density.source.whole)
        self._density, self._statistics = density.minibatch, list[NormalStatistics]()
        if not self._density.rows and runs_own_ops(compile_kwargs):
            self._density, self._statistics = with_sufficient_statistics(
                density.minibatch, self.source.whole_array
            )
        self.has_value = with_value and not self._density.rows
        # ∇ log p(θ) + (N/n) Σ ∇ log p(x_i | θ)
        self._scale = density.total_size / density.source.batch_size
        log_density = minibatch_log_density(self._density, self._scale)
        if self.has_value:
            # with the value of log(1 - sigmoid(x)) in the same graph, PyTensor does not recognize
            # its gradient, which would be 0 or NaN for large x
            log_density = rewrite_pregrad(clone_replace(log_density))
        gradients = _gradients(
            log_density, self._density.coordinates, density.model, density.variables
        )
        outputs = [*gradients, *([pt.atleast_1d(log_density)] if self.has_value else [])]
        self._inputs = gradient_inputs(self._density)
        for statistics in self._statistics:
            self._inputs += statistics.inputs
        self._data_functions: Callable[..., list[np.ndarray]] | None = None
        if not self._density.rows:
            outputs = self._split_data_functions(outputs)
        self.logp_grad = compile_gradient(
            self._density.coordinates,
            self._inputs,
            outputs[: len(gradients)],
            outputs[-1] if self.has_value else None,
            compile_kwargs,
        )
        self._compiled = [self.logp_grad]
        self._other_values: dict[str, np.ndarray] = {}
        self.refresh_data()

    def _split_data_functions(self, outputs: Sequence[TensorVariable]) -> list[TensorVariable]:
        """Replace transcendental functions of the data in the outputs by further inputs."""
        density = self._density
        resized = [array for array in density.arrays if None in array.type.shape]
        statistics = [each.variable for of_term in self._statistics for each in of_term.inputs]
        varying = [*density.coordinates, *density.others.values(), *resized, *statistics]
        split = split_at_transcendental(outputs, varying)
        self._inputs += [FixedArray(variable, variable.type.shape) for variable in split.inputs]
        if split.fixed:
            self._data_functions = stable_function(list(density.arrays), split.fixed)
        return split.outputs

    @property
    def value_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of PyMC's value of each variable."""
        return {each.name: each.value_shape for each in self._row_density.variables}

    @property
    def total_size(self) -> int:
        """N, the number of rows that minibatches represent."""
        return self._row_density.total_size

    @property
    def is_exact(self) -> bool:
        """Whether the estimate uses all rows."""
        return self.source.has_all_rows

    @property
    def depends_on_others(self) -> bool:
        """Whether the log-density depends on variables that other steps sample."""
        return bool(self._density.others)

    @property
    def statistics(self) -> list[NormalStatistics]:
        """Sufficient statistics that replace rows."""
        return self._statistics

    def count_statistics(self) -> int | None:
        """Count entries of sufficient statistics; see `GradientEstimator.count_statistics`."""
        return count_entries(self._density, self.source.n_rows)

    @property
    def row_names(self) -> list[str]:
        """Names of the terms of the log-density that are sums over rows."""
        return list(dict.fromkeys(term.name for term in self._density.row_terms))

    @property
    def has_kinks(self) -> bool:
        """Whether the gradient of a row may be discontinuous; see `GradientEstimator`."""
        return has_kinks(self._density.row_graphs, self._density.coordinates)

    # --- data ------------------------------------------------------------------------------------

    def refresh_data(self) -> None:
        """Set the inputs of the compiled functions to the current values of the data containers."""
        self._row_density.check_data()
        self._whole_inputs: dict[str, int] = {}
        position = 0
        for name, variable in self._density.others.items():
            shape = variable.type.shape
            if any(n is None for n in shape):
                raise ValueError(
                    f"the shape {shape} of {name!r} is not static. Specify shape= or dims= of "
                    "known length"
                )
            buffer = np.zeros(shape, dtype=variable.type.dtype)
            self._other_values[name] = buffer
            self._point_all_at(position, buffer)
            position += 1
        for copy, holder in self._density.arrays.items():
            array = self.source.whole_array(holder)
            check_shape(str(copy.name), array, self._inputs[position].shape)
            if copy.name in self._resized:
                self._whole_inputs[copy.name] = position
            self._point_all_at(position, np.ascontiguousarray(array))
            position += 1
        for statistics in self._statistics:
            refreshed = statistics.refresh()
            if refreshed is not None:
                for i, array in enumerate(refreshed, start=position):
                    self._point_all_at(i, array)
            position += len(statistics.inputs)
        self._first_row_input = position
        self._point_at_rows()
        if self._data_functions is not None:
            arrays = map(self.source.whole_array, self._density.arrays.values())
            for i, value in enumerate(self._data_functions(*arrays), start=position):
                self._point_all_at(i, np.ascontiguousarray(value))

    def _point_all_at(self, position: int, array: np.ndarray) -> None:
        for function in self._compiled:
            function.point_at(position, array)

    def _point_at_rows(self) -> None:
        for i, row in enumerate(self._density.rows):
            self._point_all_at(self._first_row_input + i, self.source.arrays[row.name])
        for name, position in self._whole_inputs.items():
            self._point_all_at(position, self.source.whole[name])

    def next_minibatches(self, n: int) -> np.ndarray:
        """First rows of the minibatches of the next ``n`` inner steps, shape (n,)."""
        starts = self.source.next_starts(n)
        if self.source.replaces_arrays:
            self._point_at_rows()
        return starts

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other steps sample."""
        for name, buffer in self._other_values.items():
            buffer[...] = point[name]

    def row_shares(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the shares of rows in their rarest levels; see `GradientEstimator.row_shares`."""
        n_rows, shares = self.source.n_rows, {}
        for name, array in arrays.items():
            columns = self.source.whole.get(f"{name.removesuffix('_rows')}_columns")
            if name.endswith("_rows") and columns is not None:
                shares[name] = shares_of_entries(array[:n_rows], columns)
        for names, levels in self._row_density.levels({k: a[:n_rows] for k, a in arrays.items()}):
            found = shares_of_levels(levels)
            for name in names:
                shares[name] = np.maximum(shares.get(name, 0.0), found)
        return shares

    # --- sums over all rows ----------------------------------------------------------------------

    def total_gradient(self) -> TotalGradient | None:
        """Compile log-density and gradient of any number of rows.

        Returns
        -------
        TotalGradient or None
            None if there are no rows, or the rows come from several tables.
        """
        graph = self._any_rows(with_other_terms=True)
        if graph is None:
            return None
        total, inputs = graph
        coordinates = self._density.coordinates
        gradients = grad(total, coordinates, disconnected_inputs="ignore")
        function = compile_gradient(
            coordinates, inputs, gradients, pt.atleast_1d(total), self._compile_kwargs
        )
        self._compiled.append(function)
        self.refresh_data()
        return TotalGradient(function, self._size, [row.name for row in self._density.rows])

    def row_curvature(
        self, structure: HessianStructure | None = None, *, with_other_terms: bool = False
    ) -> RowCurvature | None:
        """Compile gradient and Hessian-vector product of any number of rows.

        Parameters
        ----------
        structure : HessianStructure, optional
            Structure of the Hessian; dense by default.
        with_other_terms : bool
            Whether the function includes the terms that do not depend on the rows.

        Returns
        -------
        RowCurvature or None
            None if there are no rows, the rows come from several tables, or PyTensor does not have
            the second derivatives.
        """
        graph = self._any_rows(with_other_terms=with_other_terms)
        if graph is None:
            return None
        total, inputs = graph
        coordinates = self._density.coordinates
        along = [each.type(name=f"{each.name}_direction") for each in coordinates]
        try:
            gradients = grad(total, coordinates, disconnected_inputs="ignore")
            products = pushforward(gradients, coordinates, along, disconnected_outputs="ignore")
        except (*_NO_GRADIENT, TypeError):
            return None
        function = compile_gradient(
            [*coordinates, *along], inputs, [*gradients, *products], None, self._compile_kwargs
        )
        self._compiled.append(function)
        self.refresh_data()
        return RowCurvature(
            function,
            self.logp_grad,
            self._size,
            [row.name for row in self._density.rows],
            self.source.batch_size,
            self.source.n_rows,
            structure,
        )

    @property
    def _size(self) -> int:
        """Length of a position."""
        return sum(int(np.prod(q.type.shape, dtype=int)) for q in self._density.coordinates)

    def _any_rows(
        self, *, with_other_terms: bool
    ) -> tuple[TensorVariable, list[ArrayInput]] | None:
        """Build the log-density of any number of rows, and its inputs.

        The last two inputs are the weights of the rows and of the other terms. Return None if there
        are no rows, or the rows come from several tables.
        """
        density = self._density
        if not density.rows or len({row.group for row in density.rows}) > 1:
            return None
        blocks = {row.block: row.resized(None) for row in density.rows}
        terms = rebuild_graphs(scaled_row_terms(density, self._scale), blocks)
        count = next(iter(blocks.values())).shape[0]
        batch_size, n_rows = self.source.batch_size, self.source.n_rows
        averages = find_averaging_terms(
            self._row_density.model, self._row_density.variables, density, self.source
        )
        weights = [pt.scalar(name, dtype="float64") for name in ("row_weight", "other_weight")]
        parts = [
            pt.sum(term) * ((count if is_average else batch_size) / n_rows)
            for term, is_average in zip(terms, averages, strict=True)
        ]
        total = weights[0] * pt.add(*parts)
        if density.other_terms and with_other_terms:
            total = total + weights[1] * pt.add(*[pt.sum(term) for term in density.other_terms])
        inputs = gradient_inputs(density)[: len(density.others) + len(density.arrays)]
        inputs += [RowBlock(block, block.type.shape) for block in blocks.values()]
        inputs += [FixedArray(weight, ()) for weight in weights]
        return total, inputs

    # --- noise -----------------------------------------------------------------------------------

    def compile_noise(self) -> CompiledGradient:
        r"""Compile the empirical Fisher estimate of the variance of the gradient estimate.

        With g_i the gradient of row i of the minibatch, times N, the estimate for each coordinate
        is Var(g_i) / n · (1 − n / N), where n is the batch size (Ahn, Korattikara, Welling 2012).
        With replacement the last factor is omitted. Gradients are projected onto the tangent space;
        see `pymc_geodesic.gradients.fisher.tangential_variance`.

        Raises
        ------
        ValueError
            If there are no minibatches, or minibatches of one row.
        """
        batch_size, n_rows = self.source.batch_size, self.total_size
        rows = self._density.rows
        if not rows or batch_size < 2:
            raise ValueError(
                'gradient_noise="fisher" needs minibatches of two or more rows. Omit it for '
                "full-data gradients, which have no noise"
            )
        if len({row.group for row in rows}) > 1:
            raise ValueError(
                'gradient_noise="fisher" needs rows that are drawn together, but '
                f"{[row.name for row in rows]} come from several pm.Minibatch. Omit "
                "gradient_noise=, and the noise is measured during tuning"
            )
        single = self._row_density.of_rows(1)
        row_total = pt.add(*[pt.sum(term) for term in scaled_row_terms(single, float(n_rows))])
        gradients = grad(row_total, single.coordinates, disconnected_inputs="ignore")
        blocks = [row.block.type(name=row.block.name) for row in rows]
        scale = 1.0 / (batch_size - 1)
        if not self.source.with_replacement:
            scale *= 1.0 - batch_size / n_rows
        variances = row_variances(
            gradients,
            {row.block: block for row, block in zip(single.rows, blocks, strict=True)},
            self._row_density.variables,
            single.coordinates,
            batch_size,
        )
        inputs = gradient_inputs(single)[: len(single.others) + len(single.arrays)]
        inputs += [RowBlock(block, block.type.shape) for block in blocks]
        function = compile_gradient(
            single.coordinates,
            inputs,
            [scale * variance for variance in variances],
            None,
            self._compile_kwargs,
        )
        self._compiled.append(function)
        self.refresh_data()
        return function


_NO_GRADIENT = (MethodNotDefined, NotImplementedError, NullTypeGradError)
"""Errors of PyTensor for an operation without a gradient."""


def _gradients(
    log_density: TensorVariable,
    coordinates: Sequence[TensorVariable],
    model: Model,
    variables: Sequence[ManifoldVariable],
) -> list[TensorVariable]:
    """Differentiate a log-density.

    Parameters
    ----------
    log_density : TensorVariable
        A scalar.
    coordinates : list of TensorVariable
    model : pymc.Model
    variables : list of ManifoldVariable
        Variables of the coordinates.

    Raises
    ------
    ValueError
        If an operation has no gradient; the message names the terms that contain it.
    """
    try:
        return grad(log_density, coordinates, disconnected_inputs="ignore")
    except _NO_GRADIENT as error:
        terms, names = _without_gradient(model, variables)
        message = (
            f"the log-density of {terms} has no gradient with respect to {names} ({error}), which "
            f"this step method needs. Sample {names} with a step method without gradients, such as "
            "pm.Slice or pm.DEMetropolisZ, or implement the gradient (pullback) of the operation"
        )
        raise ValueError(see(message, "no-gradient")) from error


def _without_gradient(model: Model, variables: Sequence[ManifoldVariable]) -> tuple[str, str]:
    """Names of the terms without a gradient, and of the variables of the missing gradients."""
    terms: dict[str, None] = {}
    names: dict[str, None] = {}
    for term, graph in logp_terms(model).items():
        for variable in variables:
            try:
                grad(pt.sum(graph), variable.value, disconnected_inputs="ignore")
            except _NO_GRADIENT:
                terms[repr(term.name)] = names[repr(variable.name)] = None
    return ", ".join(terms) or "the model", ", ".join(names) or "its variables"

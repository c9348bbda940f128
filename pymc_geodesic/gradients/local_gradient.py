"""Gradients of a model whose rows have latent variables of their own.

By Fisher's identity the gradient of the log-density with the local variables integrated out is
the conditional expectation of the joint gradient,

    ∇ log p(β | v) = E[∇ log p(β, θ | v)],  θ ~ p(θ | β, v),

which is estimated from draws of the local variables of one minibatch. The draws come from GMC with
Metropolis correction; rows are independent of each other given the global variables, so that every
row accepts by itself and rows run side by side over the cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pytensor.gradient import grad
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.compilation import FixedArray, compile_field, mode_of
from pymc_geodesic.densities.hoisting import split_at_frontier
from pymc_geodesic.densities.local_rows import check_rows, total_rows
from pymc_geodesic.densities.log_density import Density, density_of
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import gmc, probe
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import Workers, parts_of

__all__ = ["LocalGradientEstimator"]

CHUNK = 25
"""Rows that move together; the numbers drawn depend on it, and so not on the number of cores."""

JITTER = 0.2
_POWER_ITERATIONS = 10


def _inputs_of(density: Density) -> list[TensorVariable]:
    return [*density.others.values(), *density.arrays, *(row.block for row in density.rows)]


class LocalGradientEstimator:
    """Gradient with respect to global variables, averaged over draws of the local ones.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Global variables.
    local : list of ManifoldVariable
        Local variables, whose first axis counts the rows of the data.
    source : ShuffledRows or RandomRows
        Minibatches of the data; one serves for all inner steps of a draw.
    total_size : int, optional
        N, if it is not the number of rows of the source.
    n_draws, n_discarded, n_steps : int
        Draws that are averaged over, transitions before them, and leapfrog steps of each.
    with_value : bool
        Whether the field also writes the mean log-density behind the gradient.
    compile_kwargs : mapping, optional

    Attributes
    ----------
    field : CompiledField
        Gradient with respect to the global variables for the present draws of the local ones.
    total_size : int
        N.
    acceptance_rate : float
        Mean over the rows of the last minibatch.

    Raises
    ------
    ValueError
        If a local variable does not have one point, or several, for each row, if the log-density
        is no sum over rows that are independent given the global variables, or if the model and
        the step do not agree on N.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        local: Sequence[ManifoldVariable],
        *,
        source: RowSource,
        total_size: int | None,
        n_draws: int,
        n_discarded: int,
        n_steps: int,
        with_value: bool = False,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._variables = list(variables)
        self.local = list(local)
        self.source = source
        self._compile_kwargs = dict(compile_kwargs or {})
        self._n_draws, self._n_discarded, self._n_steps = n_draws, n_discarded, n_steps
        self.acceptance_rate = math.nan
        for variable in self.local:
            if variable.shape[0] != source.n_rows:
                raise ValueError(
                    f"local= names {variable.name!r} of shape {variable.shape}, but there are "
                    f"{source.n_rows} rows: its first axis must count the rows of the minibatch "
                    "containers"
                )
        self._points_per_row = [v.rows // source.n_rows for v in self.local]
        self.total_size = total_rows(model, self.local, source, total_size)
        self._scale = self.total_size / source.batch_size
        self._compile_rows()
        self._compile_gradient(with_value)
        self._chunks = self._plan_chunks()
        self._values: list[np.ndarray] = []
        self._other_values: dict[str, np.ndarray] = {}
        self.refresh_data()

    def _compile_function(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        kwargs = dict(self._compile_kwargs)
        mode = mode_of(kwargs)
        return pymc_compile(
            list(inputs),
            list(outputs),
            mode=mode,
            on_unused_input="ignore",
            trust_input=True,
            **kwargs,
        )

    def _compile_rows(self) -> None:
        """Compile the conditional of the local variables, row by row."""
        density = density_of(
            self._model, self._variables, minibatch=self.source.arrays, local=self.local
        )
        check_rows(self._model, density, [*self._variables, *self.local], self.source)
        n_global = len(self._variables)
        coordinates = density.coordinates[n_global:]
        terms = [
            term for term in density.row_terms if not set(coordinates).isdisjoint(ancestors([term]))
        ]
        log_density = pt.add(
            *[
                term if term.ndim == 1 else pt.sum(term, axis=tuple(range(1, term.ndim)))
                for term in terms
            ]
        )
        gradients = grad(pt.sum(log_density), coordinates)
        split = split_at_frontier([log_density, *gradients], coordinates)
        self._rows_inputs = density
        self._rows_frontier = split
        self._rows_fixed = self._compile_function(
            [*density.coordinates[:n_global], *_inputs_of(density)], split.fixed
        )
        self._rows_field = compile_field(
            coordinates,
            [FixedArray(variable, variable.type.shape) for variable in split.inputs],
            split.outputs[1:],
            split.outputs[0],
            self._compile_kwargs,
        )

    def _compile_gradient(self, with_value: bool) -> None:
        """Compile the gradient of the global variables, averaged over draws."""
        density = density_of(
            self._model,
            self._variables,
            minibatch=self.source.arrays,
            batch_size=self.source.batch_size,
            scale=self._scale,
            local=self.local,
        )
        n_global = len(self._variables)
        coordinates, local = density.coordinates[:n_global], density.coordinates[n_global:]
        draws = [
            pt.tensor(f"{q.name}_draws", dtype=q.type.dtype, shape=(self._n_draws, *q.type.shape))
            for q in local
        ]
        batched = vectorize_graph(density.row_terms, replace=dict(zip(local, draws, strict=True)))
        parts = []
        for term, original in zip(batched, density.row_terms, strict=True):
            total = pt.sum(term)
            parts.append(total / self._n_draws if term.ndim > original.ndim else total)
        total = pt.add(*parts, *[pt.sum(term) for term in density.other_terms])
        gradients = grad(total, coordinates, disconnected_inputs="ignore")
        outputs = [*gradients, pt.atleast_1d(total)] if with_value else list(gradients)
        split = split_at_frontier(outputs, coordinates)
        self._gradient_inputs = density
        self._gradient_fixed = self._compile_function([*draws, *_inputs_of(density)], split.fixed)
        self.field = compile_field(
            coordinates,
            [FixedArray(variable, variable.type.shape) for variable in split.inputs],
            split.outputs[:n_global],
            split.outputs[n_global] if with_value else None,
            self._compile_kwargs,
        )

    def _plan_chunks(self) -> list[slice]:
        size = self.source.batch_size
        return parts_of(size, math.ceil(size / CHUNK))

    def refresh_data(self) -> None:
        """Read the data containers that are not minibatched, and how many cores there are."""
        self.workers = Workers()
        self._fixed_data = {
            id(density): [self.source.whole_array(holder) for holder in density.arrays.values()]
            for density in (self._rows_inputs, self._gradient_inputs)
        }

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the values of variables that other steps sample."""
        names = {*self._rows_inputs.others, *self._gradient_inputs.others}
        self._other_values = {name: np.asarray(point[name]) for name in names}

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:
        """Take over the values of the local variables of all rows."""
        self._values = [np.array(point[v.value_name], dtype=float) for v in self.local]

    def write_local(self, point: dict[str, np.ndarray]) -> None:
        """Put the values of the local variables of all rows into a point."""
        for variable, values in zip(self.local, self._values, strict=True):
            point[variable.value_name] = values

    def _arguments(self, density: Density, start: int) -> list[np.ndarray]:
        stop = start + self.source.batch_size
        return [
            *(self._other_values[name] for name in density.others),
            *self._fixed_data[id(density)],
            *(self.source.arrays[row.name][start:stop] for row in density.rows),
        ]

    def next_minibatch(self) -> None:
        """Move to the next minibatch of rows."""
        self._start = int(self.source.next_starts(1)[0])
        self._rows = self.source.row_indices(self._start)
        self._coordinates = [
            variable.coordinates(values[self._rows])
            for variable, values in zip(self.local, self._values, strict=True)
        ]

    def sample_local(
        self, coordinates: Sequence[np.ndarray], step_size: float | None, stream: np.ndarray
    ) -> tuple[float, int]:
        """Draw the local variables of the minibatch and prepare the field for them.

        Parameters
        ----------
        coordinates : list of ndarray
            Global variables, kernel coordinates in their own shapes.
        step_size : float or None
            ε of GMC; None to choose one that resolves the curvature.
        stream : ndarray of uint64
            Random stream, advanced.

        Returns
        -------
        step_size : float
            The one that was used.
        n_grad : int
            Gradient evaluations, per row.
        """
        fixed = self._rows_fixed(*coordinates, *self._arguments(self._rows_inputs, self._start))
        fixed = [np.ascontiguousarray(array) for array in fixed]
        jobs = [self._chunk_job(chunk, fixed) for chunk in self._chunks]
        streams = split_stream(stream, len(jobs))
        if step_size is None:
            step_size = self._first_step_size(jobs[0], stream)
        draws = [
            np.empty((self._n_draws, self.source.batch_size, *v.shape[1:])) for v in self.local
        ]

        def run(i: int) -> tuple[float, int]:
            return self._run_chunk(self._chunks[i], *jobs[i], step_size, streams[i], draws)

        if self._rows_field.field.interpreted:  # functions of PyTensor are not safe in threads
            results = [run(i) for i in range(len(jobs))]
        else:
            results = self.workers.run(run, len(jobs))
        self._rows_field.raise_error()
        accepted = sum(total for total, _ in results)
        self.acceptance_rate = accepted / self.source.batch_size
        self._store()
        handed = self._gradient_fixed(*draws, *self._arguments(self._gradient_inputs, self._start))
        for i, array in enumerate(handed):
            self.field.point_at(i, np.ascontiguousarray(array))
        return step_size, results[0][1]

    def _chunk_job(
        self, chunk: slice, fixed: Sequence[np.ndarray]
    ) -> tuple[Product, np.ndarray, np.ndarray]:
        """Product manifold, packed position and context of some rows."""
        n = chunk.stop - chunk.start
        product = Product(
            [
                (v.name, v.manifold, n * points)
                for v, points in zip(self.local, self._points_per_row, strict=True)
            ]
        )
        position = np.concatenate(
            [q.reshape(self.source.batch_size, -1)[chunk].ravel() for q in self._coordinates]
        )
        context = np.zeros(max(len(fixed), 1), dtype=np.int64)
        for i, (array, variable) in enumerate(zip(fixed, self._rows_frontier.inputs, strict=True)):
            has_rows = variable.type.ndim > 0 and variable.type.shape[0] is None
            offset = chunk.start * array.strides[0] if has_rows else 0
            context[i] = array.ctypes.data + offset
        return product, position, context

    def _run_chunk(
        self,
        chunk: slice,
        product: Product,
        position: np.ndarray,
        context: np.ndarray,
        step_size: float,
        stream: np.ndarray,
        draws: Sequence[np.ndarray],
    ) -> tuple[float, int]:
        n = chunk.stop - chunk.start
        kept = np.empty((self._n_draws, position.size))
        acceptance = np.empty(n)
        _, n_grad = gmc(
            self._rows_field.address,
            context,
            n,
            product.blocks,
            product.scales,
            n,
            position,
            self._n_discarded,
            kept,
            step_size,
            self._n_steps,
            JITTER,
            stream,
            acceptance,
            np.empty((2, 0)),
            np.full(position.size + n, math.nan),
        )
        for i, (variable, part) in enumerate(zip(self.local, product.slices.values(), strict=True)):
            draws[i][:, chunk] = kept[:, part].reshape(self._n_draws, n, *variable.shape[1:])
            q = self._coordinates[i].reshape(self.source.batch_size, -1)
            q[chunk] = position[part].reshape(n, -1)
        return float(acceptance.sum()), n_grad

    def _first_step_size(
        self, job: tuple[Product, np.ndarray, np.ndarray], stream: np.ndarray
    ) -> float:
        product, position, context = job
        n = product.components[0][2] // self._points_per_row[0]
        direction = np.empty(position.size)
        refresh_velocity(product.blocks, position, direction, stream)
        curvature = 0.0
        for _ in range(_POWER_ITERATIONS):
            curvature = probe(
                self._rows_field.address,
                context,
                n,
                product.blocks,
                product.dims,
                position,
                direction,
                1e-6,
                np.empty(0),
                np.empty(len(self.local)),
                n,
            )
        self._rows_field.raise_error()
        return 0.5 / math.sqrt(max(abs(curvature), 1.0)) if math.isfinite(curvature) else 1e-3

    def _store(self) -> None:
        for variable, values, q in zip(self.local, self._values, self._coordinates, strict=True):
            moved = variable.values(q)
            values[self._rows] = moved.reshape(self.source.batch_size, *values.shape[1:])

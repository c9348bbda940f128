"""Conditional distribution of local variables given the global ones, sampled by GMC for each row.

Rows are independent given the global variables. Therefore each row has a separate Metropolis
correction, and rows are sampled in parallel threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pymc.pytensorf import compile as pymc_compile
from pytensor.gradient import grad
from pytensor.graph.traversal import ancestors

from pymc_geodesic.densities.compilation import (
    FixedArray,
    compile_ahead,
    compile_gradient,
    mode_of,
)
from pymc_geodesic.densities.graphs import split_at_frontier
from pymc_geodesic.densities.log_density import build_density
from pymc_geodesic.densities.row_density import check_independent_rows
from pymc_geodesic.densities.row_dependence import IndexCheck
from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import gmc, probe
from pymc_geodesic.kernels.gmc import Chains, Leapfrog, Record
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Product
from pymc_geodesic.minibatches.row_inputs import RowInputs
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.runtime.gradient_functions import Callback
from pymc_geodesic.runtime.streams import split_stream
from pymc_geodesic.runtime.threads import Workers, parts_of

CHUNK = 25
"""Number of rows with a common random stream, so that draws do not depend on the number of
threads."""

JITTER = 0.2
_POWER_ITERATIONS = 10


def compile_function(
    inputs: Sequence[Any], outputs: Sequence[Any], compile_kwargs: Mapping[str, Any]
) -> Any:
    """Compile a function of C-contiguous arrays that is called once per draw."""
    kwargs = dict(compile_kwargs)
    mode = mode_of(kwargs)
    function = pymc_compile(
        list(inputs),
        list(outputs),
        mode=mode,
        on_unused_input="ignore",
        trust_input=True,
        **kwargs,
    )
    compile_ahead(function)
    return function


class _Chunk(NamedTuple):
    """Rows of a minibatch that are sampled together.

    Parameters
    ----------
    rows : slice
    product : Product
        Manifolds of the local variables of these rows, one component for each variable.
    position : ndarray, shape (size,)
        Coordinates of the rows, updated in place.
    context : ndarray of int64
        Context of the function that returns the gradient of all rows, followed by the log-density
        of each row. Its argument is the number of rows.
    """

    rows: slice
    product: Product
    position: np.ndarray
    context: np.ndarray

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.rows.stop - self.rows.start)


class RowConditional:
    """Local variables of the rows of a minibatch, drawn by GMC.

    Parameters
    ----------
    model : pymc.Model
    variables, local : list of ManifoldVariable
        Global and local variables.
    source : RowSource
        Minibatches of the data.
    compile_kwargs : mapping
    n_draws, n_discarded, n_steps : int
        Number of draws, of transitions to discard before them, and of leapfrog steps of each
        transition.

    Attributes
    ----------
    density : Density
        Log-density of any number of rows.
    acceptance_rate : float
        Mean acceptance rate of the rows of the last minibatch.
    """

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        local: Sequence[ManifoldVariable],
        source: RowSource,
        compile_kwargs: Mapping[str, Any],
        *,
        n_draws: int,
        n_discarded: int,
        n_steps: int,
    ) -> None:
        self._local = list(local)
        self._size = source.batch_size
        self._points_per_row = [v.rows // source.n_rows for v in local]
        self._n_draws, self._n_discarded, self._n_steps = n_draws, n_discarded, n_steps
        self._parts = parts_of(self._size, math.ceil(self._size / CHUNK))
        self.acceptance_rate = math.nan
        self.density = build_density(model, variables, RowInputs(source.arrays), local=local)
        self._indices = IndexCheck(model, [*variables, *local], self.density, source)
        self.check_data()
        check_independent_rows(model, self.density, [*variables, *local], source)
        self._compile(len(variables), compile_kwargs)

    def check_data(self) -> None:
        """Check the bounds of indices in memory; see `IndexCheck`."""
        self._indices.check()

    def _compile(self, n_global: int, compile_kwargs: Mapping[str, Any]) -> None:
        """Compile the conditional log-density of each row, and its gradient."""
        density = self.density
        coordinates = density.coordinates[n_global:]
        terms = [
            term
            for term in density.row_graphs
            if not set(coordinates).isdisjoint(ancestors([term]))
        ]
        log_density = pt.add(
            *[
                term if term.ndim == 1 else pt.sum(term, axis=tuple(range(1, term.ndim)))
                for term in terms
            ]
        )
        gradients = grad(pt.sum(log_density), coordinates)
        blocks = [row.block for row in density.rows]
        split = split_at_frontier([log_density, *gradients], coordinates, blocks)
        self._frontier = split.inputs
        self._fixed = compile_function(
            [*density.coordinates[:n_global], *density.inputs], split.fixed, compile_kwargs
        )
        self._logp_grad = compile_gradient(
            coordinates,
            [FixedArray(variable, variable.type.shape) for variable in split.inputs],
            split.outputs[1:],
            split.outputs[0],
            compile_kwargs,
        )

    def draw(
        self,
        coordinates: Sequence[np.ndarray],
        arguments: Sequence[np.ndarray],
        local: Sequence[np.ndarray],
        step_size: float | None,
        stream: np.ndarray,
        workers: Workers,
    ) -> tuple[float, int, list[np.ndarray]]:
        """Draw the local variables of a minibatch.

        Parameters
        ----------
        coordinates : list of ndarray
            Kernel coordinates of the global variables, in the shapes of the variables.
        arguments : list of ndarray
            Values of `Density.inputs`.
        local : list of ndarray
            Coordinates of the local variables of the rows, updated in place.
        step_size : float or None
            ε; None to determine it from the curvature.
        stream : ndarray of uint64
            Random stream, advanced.
        workers : Workers
            Threads that sample rows.

        Returns
        -------
        step_size : float
            ε that was used.
        n_grad : int
            Number of gradient evaluations per row.
        draws : list of ndarray, shape (n_draws, batch_size, ...)
        """
        fixed = [np.ascontiguousarray(array) for array in self._fixed(*coordinates, *arguments)]
        chunks = [self._chunk(rows, fixed, local) for rows in self._parts]
        streams = split_stream(stream, len(chunks))
        step = self._first_step_size(chunks[0], stream) if step_size is None else step_size
        draws = [np.empty((self._n_draws, self._size, *v.shape[1:])) for v in self._local]

        def run(i: int) -> tuple[float, int]:
            return self._sample_chunk(chunks[i], step, streams[i], draws, local)

        if self._logp_grad.interpreted:  # functions of PyTensor are not thread-safe
            results = [run(i) for i in range(len(chunks))]
        else:
            results = workers.run(run, len(chunks))
        self._logp_grad.raise_error()
        self.acceptance_rate = sum(total for total, _ in results) / self._size
        return step, results[0][1], draws

    def _chunk(
        self, rows: slice, fixed: Sequence[np.ndarray], local: Sequence[np.ndarray]
    ) -> _Chunk:
        """Pack the coordinates of some rows, and point a context at their data."""
        n = rows.stop - rows.start
        product = Product(
            [
                (v.name, v.manifold, n * points)
                for v, points in zip(self._local, self._points_per_row, strict=True)
            ]
        )
        position = np.concatenate([q.reshape(self._size, -1)[rows].ravel() for q in local])
        context = np.zeros(max(len(fixed), 1), dtype=np.int64)
        for i, (array, variable) in enumerate(zip(fixed, self._frontier, strict=True)):
            has_rows = variable.type.ndim > 0 and variable.type.shape[0] is None
            offset = rows.start * array.strides[0] if has_rows else 0
            context[i] = array.ctypes.data + offset
        return _Chunk(rows, product, position, context)

    def _sample_chunk(
        self,
        chunk: _Chunk,
        step_size: float,
        stream: np.ndarray,
        draws: Sequence[np.ndarray],
        local: Sequence[np.ndarray],
    ) -> tuple[float, int]:
        """Draw the local variables of some rows, with a Metropolis correction for each row.

        Returns
        -------
        total : float
            Sum of the mean acceptance probabilities of the rows.
        n_grad : int
            Number of gradient evaluations.
        """
        n, position = chunk.n_rows, chunk.position
        kept, acceptance = np.empty((self._n_draws, position.size)), np.empty(n)
        _, n_grad = gmc(
            Callback(self._logp_grad.address, chunk.context),
            n,
            chunk.product.space,
            Chains(n, position, np.full(position.size + n, math.nan)),
            Leapfrog(step_size, self._n_steps, JITTER),
            stream,
            Record(self._n_discarded, kept, acceptance, np.empty((2, 0))),
        )
        parts = chunk.product.slices.values()
        for i, (variable, part) in enumerate(zip(self._local, parts, strict=True)):
            draws[i][:, chunk.rows] = kept[:, part].reshape(self._n_draws, n, *variable.shape[1:])
            q = local[i].reshape(self._size, -1)
            q[chunk.rows] = position[part].reshape(n, -1)
        return float(acceptance.sum()), n_grad

    def _first_step_size(self, chunk: _Chunk, stream: np.ndarray) -> float:
        """Choose a step size by the largest curvature, by power iterations."""
        direction = np.empty(chunk.position.size)
        refresh_velocity(chunk.product.blocks, chunk.position, direction, stream)
        curvature = 0.0
        for _ in range(_POWER_ITERATIONS):
            curvature = probe(
                Callback(self._logp_grad.address, chunk.context),
                chunk.n_rows,
                chunk.product.space,
                Line(chunk.position, direction, 1e-6),
                np.empty(0),
                np.empty(len(self._local)),
                chunk.n_rows,
            )
        self._logp_grad.raise_error()
        return 0.5 / math.sqrt(max(abs(curvature), 1.0)) if math.isfinite(curvature) else 1e-3

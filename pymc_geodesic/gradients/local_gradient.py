r"""Gradient of a model with local variables, latent variables of single rows of the data.

By Fisher's identity the gradient of the log-density with the local variables θ integrated out is
the conditional expectation of the joint gradient,

.. math::

    \nabla \log p(\beta \mid v) = E[\nabla \log p(\beta, \theta \mid v)] , \qquad
    \theta \sim p(\theta \mid \beta, v) .

It is estimated from draws of the local variables of one minibatch, by
`pymc_geodesic.gradients.row_conditional`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.model import Model
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.gradient import grad
from pytensor.graph.replace import vectorize_graph
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.compilation import FixedArray, compile_gradient
from pymc_geodesic.densities.graphs import split_at_frontier
from pymc_geodesic.densities.log_density import Density, build_density
from pymc_geodesic.densities.variables import ManifoldVariable, product_of
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.gradients.minibatch_gradient import scaled_row_terms
from pymc_geodesic.gradients.row_conditional import RowConditional, compile_function
from pymc_geodesic.kernels.dual_averaging import DualAveraging
from pymc_geodesic.minibatches.row_inputs import RowInputs
from pymc_geodesic.minibatches.source import RowSource, check_shape
from pymc_geodesic.runtime.threads import Workers

TARGET_ACCEPT = 0.8


class LocalGradient(GradientEstimator):
    """Gradient with respect to global variables, averaged over draws of the local ones.

    Parameters
    ----------
    model : pymc.Model
    variables : list of ManifoldVariable
        Global variables.
    local : list of ManifoldVariable
        Local variables, whose first axis is that of the rows of the data.
    source : ShuffledRows or RandomRows
        Minibatches of the data. All inner steps of a draw use the same one.
    total_size : int
        N, the number of rows that minibatches represent; see `local_total_size`.
    n_draws, n_discarded, n_steps : int
        Number of draws to average over, of transitions to discard before them, and of leapfrog
        steps of each transition.
    with_value : bool
        Whether the function also returns the mean log-density.
    compile_kwargs : mapping, optional

    Attributes
    ----------
    logp_grad : CompiledGradient
        Gradient with respect to the global variables for the current draws of the local ones.
    rows : RowConditional
        Conditional distribution of the local variables.
    acceptance_rate : float
        Mean acceptance rate of the rows of the last minibatch.

    Raises
    ------
    ValueError
        If a local variable does not have one point, or several, for each row, or the log-density is
        not a sum over rows that are independent given the global variables.
    """

    is_local = True

    def __init__(
        self,
        model: Model,
        variables: Sequence[ManifoldVariable],
        local: Sequence[ManifoldVariable],
        *,
        source: RowSource,
        total_size: int,
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
        self._n_draws, self._total_size = n_draws, total_size
        self.acceptance_rate = math.nan
        for variable in self.local:
            if variable.shape[0] != source.n_rows:
                raise ValueError(
                    f"local= names {variable.name!r} of shape {variable.shape}, but there are "
                    f"{source.n_rows} rows. The first axis of a local variable must have the "
                    "length of the rows of the minibatch containers"
                )
        self.rows = RowConditional(
            model,
            self._variables,
            self.local,
            source,
            self._compile_kwargs,
            n_draws=n_draws,
            n_discarded=n_discarded,
            n_steps=n_steps,
        )
        self._compile_gradient(with_value)
        self._values: list[np.ndarray] = []
        self._slices = product_of(self._variables).slices
        self._adaptation: DualAveraging | None = None
        self._other_values: dict[str, np.ndarray] = {}
        self.refresh_data()

    def _compile_gradient(self, with_value: bool) -> None:
        """Compile the gradient of the global variables, averaged over draws."""
        density = build_density(
            self._model,
            self._variables,
            RowInputs(self.source.arrays, n_rows=self.source.batch_size),
            local=self.local,
        )
        n_global = len(self._variables)
        coordinates, local = density.coordinates[:n_global], density.coordinates[n_global:]
        draws = [
            pt.TensorType(q.type.dtype, (self._n_draws, *q.type.shape))(f"{q.name}_draws")
            for q in local
        ]
        # N/n for each row, and 1 / n_draws for each draw of its local variables
        row_terms = scaled_row_terms(density, self.total_size / self.source.batch_size)
        batched = vectorize_graph(row_terms, replace=dict(zip(local, draws, strict=True)))
        parts = []
        for term, original in zip(batched, row_terms, strict=True):
            total = pt.sum(term)
            parts.append(total / self._n_draws if term.ndim > original.ndim else total)
        total = pt.add(*parts, *[pt.sum(term) for term in density.other_terms])
        gradients = grad(total, coordinates, disconnected_inputs="ignore")
        outputs = [*gradients, pt.atleast_1d(total)] if with_value else list(gradients)
        split = split_at_frontier(outputs, coordinates)
        self._density = density
        self._gradient_fixed = compile_function(
            [*draws, *density.inputs], split.fixed, self._compile_kwargs
        )
        self.logp_grad = compile_gradient(
            coordinates,
            [FixedArray(variable, variable.type.shape) for variable in split.inputs],
            split.outputs[:n_global],
            split.outputs[n_global] if with_value else None,
            self._compile_kwargs,
        )

    def refresh_data(self) -> None:
        """Read the data containers without minibatches, and the number of cores."""
        self.rows.check_data()
        self.workers = Workers()
        self._fixed_data = {
            id(density): [self._array_of(copy, holder) for copy, holder in density.arrays.items()]
            for density in (self.rows.density, self._density)
        }

    def _array_of(self, copy: TensorVariable, holder: np.ndarray | SharedVariable) -> np.ndarray:
        """Return the current value of data without minibatches, and check its shape."""
        array = self.source.whole_array(holder)
        check_shape(str(copy.name), array, copy.type.shape)
        return array

    @property
    def total_size(self) -> int:
        """N, the number of rows that minibatches represent."""
        return self._total_size

    @property
    def is_exact(self) -> bool:
        """Whether a minibatch contains each row exactly once."""
        return self.total_size == self.source.batch_size and not self.source.with_replacement

    @property
    def depends_on_others(self) -> bool:
        """Whether the log-density depends on variables that other steps sample."""
        return bool(self.rows.density.others or self._density.others)

    def reset(self, seed: int) -> None:
        """Start a chain; the first draw determines the step size of the local variables."""
        super().reset(seed)
        self._adaptation = None

    @property
    def state(self) -> dict[str, Any]:
        """Order of the minibatches, and adaptation of the local step size."""
        adaptation = None if self._adaptation is None else self._adaptation.state
        return super().state | {"adaptation": adaptation}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.source.state = state["rows"]
        self._adaptation = None
        if state["adaptation"] is not None:
            self._adaptation = DualAveraging(1.0, TARGET_ACCEPT)
            self._adaptation.state = state["adaptation"]

    @contextmanager
    def draw_context(self) -> Iterator[None]:
        """Limit BLAS to one thread, since rows are sampled in threads."""
        with super().draw_context(), self.workers.one_blas_thread():
            yield

    def stats(self) -> dict[str, Any]:
        """Return the acceptance rate of the local variables."""
        return {"acceptance_rate": self.acceptance_rate}

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the values of variables that other steps sample."""
        names = {*self.rows.density.others, *self._density.others}
        self._other_values = {name: np.asarray(point[name]) for name in names}

    def read_local(self, point: Mapping[str, np.ndarray]) -> None:
        """Set the local variables of all rows to the values of a point."""
        self._values = [np.array(point[v.value_name], dtype=float) for v in self.local]

    def write_local(self, point: dict[str, np.ndarray]) -> None:
        """Write the values of the local variables of all rows to a point."""
        for variable, values in zip(self.local, self._values, strict=True):
            point[variable.value_name] = values

    def _arguments(self, density: Density, start: int) -> list[np.ndarray]:
        stop = start + self.source.batch_size
        return [
            *(self._other_values[name] for name in density.others),
            *self._fixed_data[id(density)],
            *(self.source.arrays[row.name][start:stop] for row in density.rows),
        ]

    def next_minibatches(self, n: int) -> np.ndarray:
        """Return zeros: all inner steps of a draw use the same minibatch."""
        return np.zeros(n, dtype=np.int64)

    def begin_draw(
        self, position: np.ndarray, n_steps: int, stream: np.ndarray, *, tune: bool
    ) -> tuple[np.ndarray, int]:
        """Draw the local variables of the next minibatch; see `GradientEstimator.begin_draw`."""
        self.next_minibatch()
        coordinates = [position[self._slices[v.name]].reshape(v.shape) for v in self._variables]
        adaptation = self._adaptation
        step_size = None
        if adaptation is not None:
            step_size = adaptation.current if tune else adaptation.average
        step_size, n_grad = self.sample_local(coordinates, step_size, stream)
        if adaptation is None:
            self._adaptation = DualAveraging(step_size, TARGET_ACCEPT)
        elif tune:
            adaptation.update(self.acceptance_rate)
        return self.next_minibatches(n_steps), n_grad

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
        """Draw the local variables of the minibatch, and update `logp_grad`.

        Parameters
        ----------
        coordinates : list of ndarray
            Kernel coordinates of the global variables, in the shapes of the variables.
        step_size : float or None
            ε of GMC; None to determine it from the curvature.
        stream : ndarray of uint64
            Random stream, advanced.

        Returns
        -------
        step_size : float
            ε that was used.
        n_grad : int
            Number of gradient evaluations per row.
        """
        arguments = self._arguments(self.rows.density, self._start)
        step_size, n_grad, draws = self.rows.draw(
            coordinates, arguments, self._coordinates, step_size, stream, self.workers
        )
        self.acceptance_rate = self.rows.acceptance_rate
        self._store()
        fixed = self._gradient_fixed(*draws, *self._arguments(self._density, self._start))
        for i, array in enumerate(fixed):
            self.logp_grad.point_at(i, np.ascontiguousarray(array))
        return step_size, n_grad

    def _store(self) -> None:
        for variable, values, q in zip(self.local, self._values, self._coordinates, strict=True):
            moved = variable.values(q)
            values[self._rows] = moved.reshape(self.source.batch_size, *values.shape[1:])

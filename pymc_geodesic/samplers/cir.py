"""Samplers of Dirichlet, Gamma and LogNormal variables by the Cox–Ingersoll–Ross process.

A Dirichlet variable is ω = θ / Σθ with independent gamma variables θ. Each of these, as every Gamma
variable, follows dθ = (â − b̂θ) dt + √(2θ) dW, with shape and rate estimated from minibatches:
`ExactCIR` by exact transitions (the method SCIR), `EulerCIR` by Euler steps (SGRLD). The chain is
kept as log θ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.count_control_variates import CountControlVariates
from pymc_geodesic.adaptation.count_noise import CountNoiseAdaptation
from pymc_geodesic.counts.estimate import (
    AssignsTopics,
    CountEstimate,
    DescribeNegative,
    LikelihoodError,
)
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.counts.topic_run import TOPIC_KERNELS, MoveWords, run_topics
from pymc_geodesic.counts.word_counts import TopicCounts
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.expected_counts import CountsAt
from pymc_geodesic.kernels.positive_numbers import Prior, lift_small_values
from pymc_geodesic.kernels.scir import scir
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.kernels.topic_updates import scir_words, sgrld_words
from pymc_geodesic.runtime.log_gamma import log_gamma
from pymc_geodesic.samplers.sampler import NotFiniteError

__all__ = ["CIRSampler", "EulerCIR", "ExactCIR", "Priors"]


class Priors(Protocol):
    """Parameters of the priors; see `pymc_geodesic.counts.priors.ConjugatePriors`.

    Attributes
    ----------
    changes : bool
        Whether they depend on variables that other step methods sample.
    """

    changes: bool

    def __call__(self, point: Mapping[str, np.ndarray], /) -> tuple[np.ndarray, np.ndarray]:
        """Shapes and rates at a point, each of shape (size,)."""


class CIRSampler(ABC):
    """The Cox–Ingersoll–Ross process with counts that minibatches estimate.

    One draw is

    1. in the warm-up a measurement of the noise of the counts, and the choice of the step size h
       by it (`pymc_geodesic.adaptation.count_noise`);
    2. ``n_steps`` inner steps of the kernel, each with the next minibatch. A draw that is not
       finite is repeated with half of the step size in the warm-up, and an error after it.

    Parameters
    ----------
    estimate : CountEstimate
    priors : Priors
    layout : CountLayout
    adaptation : CountNoiseAdaptation
    n_steps : int
        Inner steps of a draw.
    control_variates : CountControlVariates, optional

    Attributes
    ----------
    adaptation : CountNoiseAdaptation
    control_variates : CountControlVariates or None
    priors : Priors
    layout : CountLayout
    position : ndarray, shape (size,)
        log θ; empty before the first draw.
    stream : ndarray of uint64, shape (2,)
        Random stream.
    """

    def __init__(
        self,
        estimate: CountEstimate,
        priors: Priors,
        layout: CountLayout,
        adaptation: CountNoiseAdaptation,
        *,
        n_steps: int,
        control_variates: CountControlVariates | None = None,
    ) -> None:
        self._estimate, self.priors, self.layout = estimate, priors, layout
        self.adaptation, self.control_variates = adaptation, control_variates
        self._n_steps = n_steps
        prepare(lift_small_values, log_gamma)
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; see `Sampler`."""
        self.stream, self._n = stream, 0
        self._log_state = np.empty(0)
        self._lacks_totals = True
        self._prior = Prior(np.empty(0), np.empty(0))
        size = self.layout.size
        self._last = CountsAt(np.zeros(size), np.zeros(size), np.zeros(size))
        self.adaptation.initialize(n_tune)
        if self.control_variates is not None:
            self.control_variates.initialize(n_tune, keep=self.adaptation.is_tuned)

    @property
    def position(self) -> np.ndarray:
        """Coordinates log θ, shape (size,); empty before the first draw."""
        return self._log_state

    def start(self, x: np.ndarray) -> None:
        """Set the position, of which the rows of simplices are known up to a constant."""
        self._log_state = x.copy()
        self._lacks_totals = True

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Evaluate the parameters of the priors, where they may have changed."""
        if self.priors.changes or not self._prior.shape.size:
            self._prior = Prior(*self.priors(point))

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Draw once, and return sample stats by name.

        Raises
        ------
        NotFiniteError
            If the gradient or the position is not finite, after the warm-up.
        LikelihoodError
            If a count is negative that must not be.
        """
        adaptation, draw, n_grad = self.adaptation, self._n, 0
        adaptation.begin_draw(draw, tune=tune)
        if self.control_variates is not None and self.control_variates.update(
            draw, self._log_state
        ):
            adaptation.forget_noise()
            n_grad += adaptation.n_grad
        is_measured = adaptation.is_due(draw, tune=tune)
        minibatches = self._estimate.next_arguments(max(self._n_steps, 2 if is_measured else 1))
        if self._lacks_totals:
            self._draw_totals(int(minibatches[0]))
            n_grad += adaptation.n_grad
        if is_measured:
            n_grad += adaptation.measure(
                draw, self._log_state, self._prior, minibatches, self.stream, tune=tune
            )
        step_size = adaptation.step_size(draw)
        before = self._log_state.copy()
        failed, stats = self._estimate.advance(self, minibatches[: self._n_steps], step_size)
        if failed >= 0:
            self._check_counts(failed)
            if not tune:
                where = np.zeros(self.layout.size)
                where[failed] = math.nan
                raise NotFiniteError("gradient", step_size, where)
            adaptation.shrink()
            self._log_state[:] = before
        adaptation.end_draw(draw, tune=tune)
        self._n += 1
        return {
            "step_size": step_size,
            "variance_inflation": adaptation.inflation(step_size),
            "diverging": failed >= 0,
            "n_grad": n_grad + self._n_steps * adaptation.n_grad,
            **stats,
        }

    def _draw_totals(self, minibatch: int) -> None:
        """Draw Σθ of every simplex row from its gamma distribution under the process."""
        values = self.layout.values(self._log_state)
        counts, exposures = np.empty(values.size), np.empty(values.size)
        self._estimate.estimate(values, minibatch, self.stream, counts, exposures)
        for part, rows, width in self.layout.simplices():
            shapes = self._total_shapes(part, width, counts[part])
            totals = shapes.reshape(rows, width).sum(axis=1)
            state = self._log_state[part].reshape(rows, width)
            top = state.max(axis=1, keepdims=True)
            state -= top + np.log(np.exp(state - top).sum(axis=1, keepdims=True))
            for row, total in enumerate(totals):
                state[row] += log_gamma(self.stream, total if math.isfinite(total) else 1.0)
        self._lacks_totals = False

    def _run_topics(
        self, topics: AssignsTopics, move: MoveWords, minibatches: np.ndarray, step_size: float
    ) -> int:
        """Run the kernel for topics of words; return the index of a failure, or −1."""
        _, _, n_topics, n_words = self.layout.blocks[0]
        shape = int(n_topics), int(n_words)
        run_topics(
            topics,
            move,
            self._log_state.reshape(shape),
            self._prior.shape.reshape(shape),
            minibatches,
            step_size,
            self.stream,
        )
        return _first_not_finite(self._log_state)

    @abstractmethod
    def run_gradient_kernel(
        self, logp_grad: CompiledField, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the inner steps of a draw; see `CountKernels`."""

    @abstractmethod
    def run_topic_kernel(
        self, topics: AssignsTopics, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run the inner steps of a draw with topics of words; see `CountKernels`."""

    @abstractmethod
    def _total_shapes(self, part: slice, width: int, counts: np.ndarray) -> np.ndarray:
        """Shapes whose sums over rows are those of the gamma distributions of Σθ."""

    @abstractmethod
    def _check_counts(self, failed: int) -> None:
        """Raise `LikelihoodError` if a draw failed because of a negative count."""

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, and apart from it that of the adaptation."""
        return {
            "log_state": self._log_state.copy(),
            "stream": self.stream.copy(),
            "n": self._n,
            "lacks_totals": self._lacks_totals,
            "adaptation": self.adaptation.state,
            "control_variates": (
                {} if self.control_variates is None else self.control_variates.state
            ),
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._log_state, self.stream = state["log_state"].copy(), state["stream"].copy()
        self._n, self._lacks_totals = state["n"], state["lacks_totals"]
        self.adaptation.state = state["adaptation"]
        if self.control_variates is not None:
            self.control_variates.state = state["control_variates"]


class ExactCIR(CIRSampler):
    """Exact transitions of the process: non-central χ² draws, log-normal for LogNormal variables.

    Parameters
    ----------
    estimate, priors, layout, adaptation, n_steps, control_variates
        See `CIRSampler`.
    describe_negative : callable
        Index of a negative count, count and exposure → message of the error.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1, eq. 2.3.
    """

    def __init__(
        self,
        estimate: CountEstimate,
        priors: Priors,
        layout: CountLayout,
        adaptation: CountNoiseAdaptation,
        *,
        n_steps: int,
        control_variates: CountControlVariates | None,
        describe_negative: DescribeNegative,
    ) -> None:
        super().__init__(
            estimate,
            priors,
            layout,
            adaptation,
            n_steps=n_steps,
            control_variates=control_variates,
        )
        self._describe_negative = describe_negative
        prepare(*((scir,) if estimate.repeats else (*TOPIC_KERNELS, scir_words)))

    def run_gradient_kernel(
        self, logp_grad: CompiledField, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.scir`; see `CountKernels`."""
        no_center = CountsAt(np.empty(0), np.empty(0), np.empty(0))
        failed, clips = scir.call(
            logp_grad.callback,
            minibatches,
            self.layout.blocks,
            self._log_state,
            self._prior,
            step_size,
            self.adaptation.unit(self._prior),
            self.adaptation.count_totals(),
            no_center if self.control_variates is None else self.control_variates.center,
            self.stream,
            self._last,
        )
        logp_grad.raise_error()
        if failed < 0:
            failed = _first_not_finite(self._log_state)
        return failed, {"count_clips": clips}

    def run_topic_kernel(
        self, topics: AssignsTopics, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.topic_updates.scir_words`, whose counts are not negative."""
        return self._run_topics(topics, _move_exactly, minibatches, step_size), {"count_clips": 0}

    def _total_shapes(self, part: slice, width: int, counts: np.ndarray) -> np.ndarray:
        """Prior and counts."""
        measured = self.adaptation.measured_total(part)
        more = np.maximum(counts, 0.0) if measured is None else measured / width
        return self._prior.shape[part] + more

    def _check_counts(self, failed: int) -> None:
        count, exposure = self._last.counts[failed], self._last.exposures[failed]
        if (count < 0.0 and not self.layout.is_log_normal[failed]) or exposure < 0.0:
            raise LikelihoodError(self._describe_negative(failed, count, exposure))


class EulerCIR(CIRSampler):
    """Euler steps of the process in the expanded mean, reflected at zero.

    Parameters
    ----------
    estimate, priors, layout, adaptation, n_steps
        See `CIRSampler`.

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """

    def __init__(
        self,
        estimate: CountEstimate,
        priors: Priors,
        layout: CountLayout,
        adaptation: CountNoiseAdaptation,
        *,
        n_steps: int,
    ) -> None:
        super().__init__(estimate, priors, layout, adaptation, n_steps=n_steps)
        prepare(*((sgrld,) if estimate.repeats else (*TOPIC_KERNELS, sgrld_words)))

    def run_gradient_kernel(
        self, logp_grad: CompiledField, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.sgrld`; see `CountKernels`."""
        failed = sgrld.call(
            logp_grad.callback,
            minibatches,
            self.layout.blocks,
            self._log_state,
            self._prior,
            step_size,
            self.adaptation.unit(self._prior),
            self.stream,
            self._last.values,
        )
        logp_grad.raise_error()
        return failed, {}

    def run_topic_kernel(
        self, topics: AssignsTopics, minibatches: np.ndarray, step_size: float
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.topic_updates.sgrld_words`; see `CountKernels`."""
        return self._run_topics(topics, _move_by_euler, minibatches, step_size), {}

    def _total_shapes(self, part: slice, width: int, counts: np.ndarray) -> np.ndarray:
        """Prior alone: the likelihood moves ω, and not Σθ."""
        return self._prior.shape[part]

    def _check_counts(self, failed: int) -> None:
        """Raise nothing: counts may be negative."""


def _first_not_finite(vector: np.ndarray) -> int:
    finite = np.isfinite(vector)
    return -1 if finite.all() else int(np.argmin(finite))


def _move_exactly(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_totals: np.ndarray,
    found: TopicCounts,
    step_size: float,
    stream: np.ndarray,
) -> None:
    scir_words(log_state, shape, step_size, stream)


def _move_by_euler(
    log_state: np.ndarray,
    shape: np.ndarray,
    log_totals: np.ndarray,
    found: TopicCounts,
    step_size: float,
    stream: np.ndarray,
) -> None:
    sgrld_words(log_state, shape, log_totals, found.totals, step_size, stream)

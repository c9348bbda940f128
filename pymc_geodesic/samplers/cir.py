"""Markov chain of the stochastic Cox–Ingersoll–Ross process, for SCIR and SGRLD.

The chain runs in log θ. A Dirichlet variable is ω = θ / Σθ, with independent gamma variables θ; a
Gamma or LogNormal variable is θ itself. A draw of `CIRSampler` is ``n_steps`` inner steps of one of

- `ExactTransitions`: SCIR, by `pymc_geodesic.kernels.scir.scir`;
- `EulerSteps`: SGRLD, by `pymc_geodesic.kernels.sgrld.sgrld`;
- `TopicSteps`: SCIR or SGRLD for topics, with counts of words by Gibbs sampling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pymc_geodesic.adaptation.count_control_variates import CountControlVariates
from pymc_geodesic.adaptation.count_noise import CIRChain, CIRParameters, CountNoiseAdaptation
from pymc_geodesic.counts.count_estimator import CountEstimator, DescribeNegative, LikelihoodError
from pymc_geodesic.counts.layout import CountLayout
from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.counts.topic_run import (
    TOPIC_KERNELS,
    UpdateWords,
    run_topics,
    update_words_by_euler,
    update_words_exactly,
)
from pymc_geodesic.densities.compilation import CompiledGradient
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.kernels.counts import CountsAt, Prior, clip_small_values
from pymc_geodesic.kernels.scir import scir
from pymc_geodesic.kernels.sgrld import sgrld
from pymc_geodesic.kernels.topic_updates import scir_words, sgrld_words
from pymc_geodesic.runtime.gradient_functions import NotFiniteError
from pymc_geodesic.runtime.variates import log_gamma

# --- inner steps --------------------------------------------------------------------------------


class InnerSteps(Protocol):
    """Inner steps of a draw.

    Attributes
    ----------
    adds_counts_to_total : bool
        Whether Σθ of a simplex row is a gamma variate of shape Σα + Σn, as in SCIR, or of shape
        Σα, as in SGRLD.
    """

    adds_counts_to_total: bool

    def run(
        self, chain: CIRChain, minibatches: np.ndarray, parameters: CIRParameters
    ) -> tuple[int, dict[str, Any]]:
        """Advance log θ by one inner step with each minibatch, in place.

        Returns
        -------
        failed : int
            Index of a coordinate that is not finite, or −1.
        stats : dict
            Sample stats.

        Raises
        ------
        LikelihoodError
            If a count is negative, and the inner steps do not allow it.
        """


class ExactTransitions:
    """Inner steps of SCIR: exact transitions with counts from gradients.

    Parameters
    ----------
    logp_grad : CompiledGradient
        Gradient of the log-likelihood of a minibatch, times N/n.
    layout : CountLayout
    control_variates : CountControlVariates, optional
    describe_negative : callable
        Index of a negative count, count and exposure → error message.

    References
    ----------
    Baker, Fearnhead, Fox, Nemeth (2018), Large-Scale Stochastic Sampling from the Probability
    Simplex, algorithm 1, eq. 2.3.
    """

    adds_counts_to_total = True

    def __init__(
        self,
        logp_grad: CompiledGradient,
        layout: CountLayout,
        control_variates: CountControlVariates | None,
        describe_negative: DescribeNegative,
    ) -> None:
        self._logp_grad, self._layout = logp_grad, layout
        self._control_variates, self._describe_negative = control_variates, describe_negative
        self._last = CountsAt(*np.zeros((3, layout.size)))
        prepare(scir)

    def run(
        self, chain: CIRChain, minibatches: np.ndarray, parameters: CIRParameters
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.scir.scir`; see `InnerSteps`."""
        variates = self._control_variates
        no_center = CountsAt(np.empty(0), np.empty(0), np.empty(0))
        failed, clips = scir.call(
            self._logp_grad.callback,
            minibatches,
            self._layout.table,
            chain.log_state,
            chain.prior,
            parameters.step_size,
            parameters.reference_rate,
            parameters.count_totals,
            no_center if variates is None else variates.center,
            chain.stream,
            self._last,
        )
        self._logp_grad.raise_error()
        if failed >= 0:
            self._check_negative(failed)
        else:
            failed = _first_not_finite(chain.log_state)
        return failed, {"count_clips": clips}

    def _check_negative(self, failed: int) -> None:
        count, exposure = self._last.counts[failed], self._last.exposures[failed]
        if (count < 0.0 and not self._layout.is_log_normal[failed]) or exposure < 0.0:
            raise LikelihoodError(self._describe_negative(failed, count, exposure))


class EulerSteps:
    """Inner steps of SGRLD: reflected Euler steps of the expanded mean, with gradients.

    Parameters
    ----------
    logp_grad : CompiledGradient
        Gradient of the log-likelihood of a minibatch, times N/n.
    layout : CountLayout

    References
    ----------
    Patterson, Teh (2013), Stochastic Gradient Riemannian Langevin Dynamics on the Probability
    Simplex, eq. 14 and section 3.
    """

    adds_counts_to_total = False

    def __init__(self, logp_grad: CompiledGradient, layout: CountLayout) -> None:
        self._logp_grad, self._layout = logp_grad, layout
        self._values = np.zeros(layout.size)
        prepare(sgrld)

    def run(
        self, chain: CIRChain, minibatches: np.ndarray, parameters: CIRParameters
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.kernels.sgrld.sgrld`; see `InnerSteps`."""
        failed = sgrld.call(
            self._logp_grad.callback,
            minibatches,
            self._layout.table,
            chain.log_state,
            chain.prior,
            parameters.step_size,
            parameters.reference_rate,
            chain.stream,
            self._values,
        )
        self._logp_grad.raise_error()
        return failed, {}


class TopicSteps:
    """Inner steps for topics, with counts of words by Gibbs sampling of documents.

    Parameters
    ----------
    estimator : TopicCountEstimator
    layout : CountLayout
        Layout of one variable, the topics.
    is_exact : bool
        Whether to update topics by the exact transitions of SCIR or the Euler steps of SGRLD.
    """

    def __init__(
        self, estimator: TopicCountEstimator, layout: CountLayout, *, is_exact: bool
    ) -> None:
        self._estimator, self._is_exact = estimator, is_exact
        self._shape = int(layout.table[0, 2]), int(layout.table[0, 3])
        self.adds_counts_to_total = is_exact
        self._update: UpdateWords = update_words_exactly if is_exact else update_words_by_euler
        prepare(*TOPIC_KERNELS, scir_words if is_exact else sgrld_words)

    def run(
        self, chain: CIRChain, minibatches: np.ndarray, parameters: CIRParameters
    ) -> tuple[int, dict[str, Any]]:
        """Run `pymc_geodesic.counts.topic_run.run_topics`; see `InnerSteps`."""
        run_topics(
            self._estimator,
            self._update,
            chain.log_state.reshape(self._shape),
            chain.prior.shape.reshape(self._shape),
            minibatches,
            parameters.step_size,
            chain.stream,
        )
        return _first_not_finite(chain.log_state), {"count_clips": 0} if self._is_exact else {}


def _first_not_finite(vector: np.ndarray) -> int:
    finite = np.isfinite(vector)
    return -1 if finite.all() else int(np.argmin(finite))


# --- chain --------------------------------------------------------------------------------------


class Priors(Protocol):
    """Parameters of the priors; see `pymc_geodesic.counts.priors.ConjugatePriors`.

    Attributes
    ----------
    depends_on_others : bool
        Whether they depend on variables that other step methods sample.
    """

    depends_on_others: bool

    def __call__(self, point: Mapping[str, np.ndarray], /) -> tuple[np.ndarray, np.ndarray]:
        """Shapes and rates at a point, each of shape (size,)."""


class CIRSampler:
    """Markov chain of the Cox–Ingersoll–Ross process, with counts estimated from minibatches.

    One draw consists of

    1. in the warm-up, an update of the centering point of the control variates, if there are any;
    2. if another step has set the position, a draw of Σθ of each simplex row, which ω does not
       determine;
    3. in the warm-up, a measurement of the noise of the counts, from which the step size h is
       computed (`pymc_geodesic.adaptation.count_noise`);
    4. ``n_steps`` inner steps, each with the next minibatch. In the warm-up a draw that is not
       finite is undone and the step size halved; after the warm-up it raises an error.

    Parameters
    ----------
    inner_steps : InnerSteps
    estimator : CountEstimator
    priors : Priors
    layout : CountLayout
    adaptation : CountNoiseAdaptation
    n_steps : int
        Number of inner steps per draw.
    control_variates : CountControlVariates, optional

    Attributes
    ----------
    inner_steps, priors, layout, adaptation, control_variates
        As above.
    chain : CIRChain
        State of the chain.
    """

    ineligibility = None

    def __init__(
        self,
        inner_steps: InnerSteps,
        estimator: CountEstimator,
        priors: Priors,
        layout: CountLayout,
        adaptation: CountNoiseAdaptation,
        *,
        n_steps: int,
        control_variates: CountControlVariates | None = None,
    ) -> None:
        self.inner_steps, self._estimator = inner_steps, estimator
        self.priors, self.layout = priors, layout
        self.adaptation, self.control_variates = adaptation, control_variates
        self._n_steps = n_steps
        prepare(clip_small_values, log_gamma)
        self.initialize(np.zeros(2, dtype=np.uint64), 0, 0)

    def initialize(self, stream: np.ndarray, n_tune: int, n_draws: int) -> None:
        """Begin a chain; see `Sampler`."""
        self.chain = CIRChain(np.empty(0), stream, Prior(np.empty(0), np.empty(0)))
        self.adaptation.initialize(n_tune)
        if self.control_variates is not None:
            self.control_variates.initialize(n_tune, keep=self.adaptation.is_tuned)

    @property
    def position(self) -> np.ndarray:
        """Coordinates log θ, shape (size,); empty before the first draw."""
        return self.chain.log_state

    def start(self, x: np.ndarray) -> None:
        """Set the position; see `Sampler`. The next draw replaces Σθ of each simplex row."""
        self.chain.log_state = x.copy()
        self.chain.needs_totals = True

    def set_others(self, point: Mapping[str, np.ndarray]) -> None:
        """Evaluate the parameters of the priors at the values of other variables."""
        if self.priors.depends_on_others or not self.chain.prior.shape.size:
            self.chain.prior = Prior(*self.priors(point))

    def draw(self, *, tune: bool) -> dict[str, Any]:
        """Generate one draw, and return its sample stats by name.

        Raises
        ------
        NotFiniteError
            If the gradient or the position is not finite, after the warm-up.
        LikelihoodError
            If a count is negative, and the inner steps do not allow it.
        """
        chain, adaptation, n_grad = self.chain, self.adaptation, 0
        adaptation.begin_draw(chain.n, tune=tune)
        if self.control_variates is not None and self.control_variates.update(
            chain.n, chain.log_state
        ):
            adaptation.discard_noise()
            n_grad += adaptation.n_grad
        is_due = adaptation.is_due(chain.n, tune=tune)
        minibatches = self._estimator.next_minibatches(max(self._n_steps, 2 if is_due else 1))
        if chain.needs_totals:
            self._draw_totals(int(minibatches[0]))
            n_grad += adaptation.n_grad
        if is_due:
            n_grad += adaptation.measure(chain, minibatches, tune=tune)
        parameters = adaptation.parameters(chain)
        before = chain.log_state.copy()
        failed, stats = self.inner_steps.run(chain, minibatches[: self._n_steps], parameters)
        if failed >= 0:
            if not tune:
                vector = np.zeros(self.layout.size)
                vector[failed] = math.nan
                raise NotFiniteError("gradient", parameters.step_size, vector)
            adaptation.shrink()
            chain.log_state[:] = before
        adaptation.end_draw(chain.n, tune=tune)
        chain.n += 1
        return {
            "step_size": parameters.step_size,
            "variance_inflation": adaptation.inflation(parameters.step_size),
            "diverging": failed >= 0,
            "n_grad": n_grad + self._n_steps * adaptation.n_grad,
            **stats,
        }

    def _draw_totals(self, minibatch: int) -> None:
        """Draw Σθ of every simplex row from its stationary gamma distribution."""
        chain = self.chain
        values = self.layout.values(chain.log_state)
        counts, exposures = np.empty(values.size), np.empty(values.size)
        self._estimator.estimate(values, minibatch, chain.stream, counts, exposures)
        for part, rows, width in self.layout.simplices():
            shapes = chain.prior.shape[part]
            if self.inner_steps.adds_counts_to_total:
                measured = self.adaptation.measured_total(part)
                shapes = shapes + (
                    np.maximum(counts[part], 0.0) if measured is None else measured / width
                )
            totals = shapes.reshape(rows, width).sum(axis=1)
            state = chain.log_state[part].reshape(rows, width)
            largest = state.max(axis=1, keepdims=True)
            state -= largest + np.log(np.exp(state - largest).sum(axis=1, keepdims=True))
            for row, total in enumerate(totals):
                state[row] += log_gamma(chain.stream, total if math.isfinite(total) else 1.0)
        chain.needs_totals = False

    @property
    def state(self) -> dict[str, Any]:
        """State of the chain, with those of the adaptation and the control variates nested.

        It does not contain the parameters of the priors, which `set_others` evaluates at each draw.
        """
        chain, variates = self.chain, self.control_variates
        return {
            "log_state": chain.log_state.copy(),
            "stream": chain.stream.copy(),
            "n": chain.n,
            "needs_totals": chain.needs_totals,
            "adaptation": self.adaptation.state,
            "control_variates": {} if variates is None else variates.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.chain = CIRChain(
            state["log_state"].copy(),
            state["stream"].copy(),
            self.chain.prior,
            state["n"],
            state["needs_totals"],
        )
        self.adaptation.state = state["adaptation"]
        if self.control_variates is not None:
            self.control_variates.state = state["control_variates"]

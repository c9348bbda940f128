"""Adaptation of Langevin dynamics in whitened coordinates with control variates.

The warm-up has four phases.

1. *Exploration*: Metropolis-corrected trajectories on a sample of the rows find the posterior and
   its covariance, which whitens the coordinates. It ends with the first window whose draws are
   nearly normal in the coordinates of the window before it.
2. *Centering*: passes over all rows find the centering point of the control variates.
3. *Noise measurement*: pairs of minibatches give the covariance of the gradient noise and the order
   of the control variates. Step size, friction and number of steps follow from it.
4. *Tuning*: the dynamics run. Noise is measured where the chain is, the centering point follows the
   mean of the draws, and the step size is reduced if the temperature is biased or a draw diverges.
   The phase ends if nothing has changed for some time.

Afterwards, in *sampling*, only the thermostats change.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.adaptation import Exploration, Explorer, LangevinChain, Proposal
from pymc_geodesic.adaptation.centering import SETTINGS as CENTERING
from pymc_geodesic.adaptation.centering import find_center
from pymc_geodesic.adaptation.components import curved_points, describe_adaptation
from pymc_geodesic.adaptation.control_variates import ControlVariateOrder, principal_directions
from pymc_geodesic.adaptation.eligibility import find_rare_rows, sample_rows, shares_of_rows
from pymc_geodesic.adaptation.gradient_noise import SETTINGS as NOISE
from pymc_geodesic.adaptation.gradient_noise import NoiseMeasurement
from pymc_geodesic.adaptation.langevin_parameters import SETTINGS as LANGEVIN
from pymc_geodesic.adaptation.langevin_parameters import LangevinParameters, ParameterRule
from pymc_geodesic.adaptation.minibatch_cost import MinibatchCost
from pymc_geodesic.adaptation.noise_diagnosis import diagnose_noise, name_rare_coordinates
from pymc_geodesic.adaptation.sparse_metric import SparseTrajectories
from pymc_geodesic.adaptation.split_hamiltonian import SETTINGS as SPLIT
from pymc_geodesic.adaptation.split_hamiltonian import SplitChoice
from pymc_geodesic.adaptation.step_size_bounds import SETTINGS as STEP_SIZE
from pymc_geodesic.adaptation.step_size_bounds import (
    BoundedParameters,
    has_shared_scales,
    leapfrog_error_rates,
    max_step_size_for_anisotropic_noise,
    max_step_size_from_exploration_gradients,
    max_temperature,
)
from pymc_geodesic.adaptation.warm_up import SETTINGS, WarmUp
from pymc_geodesic.adaptation.whitened_trajectories import WhitenedTrajectories
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.estimator import GradientEstimator
from pymc_geodesic.integrators import NOT_HARMONIC
from pymc_geodesic.kernels.ahead_of_time import prepare
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.diagnosis import Diagnosis
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.monitoring.stationarity_monitors import WhitenedMonitor
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike
from pymc_geodesic.runtime.numerics import all_finite


class WhitenedAdaptation:
    """Mass matrix, control variates, gradient noise and parameters, adapted in the warm-up.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    estimator : GradientEstimator
        Of the gradient in the coordinates of the model.
    explorer : Explorer
        Sampler of the exploration phase, of the same gradient. Its adaptation is ``trajectories``,
        or a `SparseTrajectories` that contains them, for gradients over all rows.
    trajectories : WhitenedTrajectories
        Adaptation of the explorer, and the mass matrix.
    rule : ParameterRule
        Parameters for known gradient noise.
    control_variates : {"auto", 1, 2, 0}
        Order of the control variates.
    n_steps : int, optional
        Number of inner steps per draw; chosen by default.
    cost : MinibatchCost, optional
        Expected cost of minibatches.
    split : SplitChoice
        Choice to split the Hamiltonian.

    Attributes
    ----------
    product : Product
        Manifolds of the whitened coordinates: one for all Euclidean ones, then the others.
    """

    whitens = is_constant = needs_warm_up = True
    ineligibility = None

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        estimator: GradientEstimator,
        explorer: Explorer,
        trajectories: WhitenedTrajectories,
        rule: ParameterRule,
        *,
        control_variates: str | int = "auto",
        n_steps: int | None,
        cost: MinibatchCost | None,
        split: SplitChoice,
    ) -> None:
        self.gradient, self._estimator, self.cost = gradient, estimator, cost
        self._next_minibatches = estimator.next_minibatches
        prepare(all_finite)
        self._model_product, self.product = product, trajectories.product
        self._explorer, self._trajectories = explorer, trajectories
        self._coordinates: WhitenedTrajectories | SparseTrajectories = explorer.adaptation
        self._noise = NoiseMeasurement(gradient, self.product, self._next_minibatches)
        self._control_variates = control_variates
        self._order_choice = ControlVariateOrder(self._noise, control_variates)
        self._points = curved_points(product)
        self._split = split
        self._bounded, self._n_steps = BoundedParameters(rule, n_steps), n_steps
        self._is_rare: np.ndarray | None = None
        self._shares: dict[int, np.ndarray | None] = {}
        # with a momentum, in proportion to the noise of minibatches
        self._adapts_friction = gradient.has_noise and rule.parameters(np.ones(1)).friction.any()
        self.initialize(0)

    def __repr__(self) -> str:
        """Describe what is adapted, and what the last warm-up in this process chose."""
        adapted, specified = self._coordinates.describe_metric()
        if self.gradient.control_variates is not None:
            names = adapted if self._control_variates == "auto" else specified
            names.append(f"control_variates={self._control_variates!r}")
        adapted.append("step size")
        if self._adapts_friction:
            adapted.append("friction")
        if self._n_steps is None:
            adapted.append("n_steps")
        else:
            specified.append(f"n_steps={self._n_steps}")
        cost = "" if self.cost is None else f" {self.cost}."
        return describe_adaptation(adapted, specified, self._describe_choices()) + cost

    def _describe_choices(self) -> list[str]:
        chosen = self.parameters
        if chosen is None:
            return []
        choices = [f"step size {chosen.step_size:.2g} (posterior standard deviations)"]
        if self._n_steps is None:
            choices.append(f"n_steps={chosen.n_steps}")
        if self.gradient.control_variates is not None and self._control_variates == "auto":
            order = self.gradient.order
            choices.append(f"control variates of order {order}" if order else "no control variates")
        if chosen.is_harmonic.any():
            choices.append("the split Hamiltonian")
        return choices

    @property
    def has_sparse_metric(self) -> bool:
        """Whether group effects are partially centered."""
        return isinstance(self._coordinates, SparseTrajectories)

    @property
    def parameters(self) -> LangevinParameters | None:
        """Parameters of the dynamics; None before the noise measurement."""
        return self._bounded.parameters

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the parameters."""
        return self.parameters is not None

    @property
    def settled(self) -> LangevinParameters | None:
        """Parameters, if the rest of the warm-up repeats the last draw."""
        return self.parameters if self._warm_up.is_settled else None

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient estimate in whitened coordinates."""
        return self.gradient.estimated

    @property
    def noise_ratio(self) -> float:
        """Variance of the gradient estimate with control variates over that without."""
        return self._noise.measured.noise_ratio

    def monitor(self) -> WhitenedMonitor:
        """Stationarity monitor in these coordinates."""
        return WhitenedMonitor(
            self.gradient,
            self._model_product,
            self._next_minibatches,
            is_dense=self._trajectories.is_dense,
        )

    def use_covariance(self, covariance: np.ndarray) -> None:
        """Whiten by a covariance, from the next chain on.

        A metric that the user specified, or a sparse one, is kept.

        Parameters
        ----------
        covariance : ndarray, shape (d, d)
            Of the Euclidean coordinates.
        """
        if not self.has_sparse_metric:
            self._trajectories.use_covariance(covariance)

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self._coordinates.to_position(z)

    def start(self, x: np.ndarray) -> np.ndarray:
        """Coordinates of a position; see `LangevinAdaptation`."""
        self._explorer.start(x)
        return self._explorer.z.copy()

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `LangevinAdaptation`."""
        n_exploration = max(int(SETTINGS.exploration_fraction * n_tune), SETTINGS.min_exploration)
        n_exploration = min(n_exploration, SETTINGS.max_exploration, n_tune)
        self._warm_up = WarmUp(n_tune, n_exploration, np.zeros(self.product.size))
        self._has_sample = False
        if n_tune or self.is_tuned:
            self._use_rows(has_sample=n_tune > 0)
        if not n_tune and self.is_tuned:
            self.gradient.recompute_center()
            return
        self._bounded.reset()
        self._split.forget_draws()
        self.gradient.remove_control_variates()
        self._explorer.initialize(np.zeros(2, dtype=np.uint64), n_exploration, 0)
        self._noise.reset()

    def propose(self, chain: LangevinChain, *, tune: bool) -> Proposal:
        """Choose parameters and minibatches; see `LangevinAdaptation`."""
        n_grad = 0
        if self.parameters is None:
            n_grad += self._center(chain)
            self._bound_step_size()
            self._set_noise_points(chain)
            n_grad += self._measure_noise(chain)
            self._warm_up.tuning_start = self.to_position(chain.z)
        elif tune:
            n_grad += self._measure_at_draw(chain)
            if self._warm_up.is_check_point(chain.n):
                n_grad += self._recenter(chain)
        parameters = self.parameters
        assert parameters is not None
        return Proposal(parameters, self._next_minibatches(parameters.n_steps), n_grad)

    def update(
        self,
        chain: LangevinChain,
        before: np.ndarray,
        proposal: Proposal,
        temperature: float,
        *,
        diverging: bool,
    ) -> tuple[bool, int]:
        """Check the temperature, and undo a draw that diverged; see `LangevinAdaptation`."""
        # the estimated temperature (`position_temperature`) can be negative if the integrator is
        # unstable
        limit = max_temperature(self._model_product.dim, self._warm_up.n_runaways, tune=True)
        runs_away = not diverging and abs(temperature) > limit
        if diverging or runs_away:
            self._undo_draw(chain, before, runs_away=runs_away)
            return True, 0
        self._warm_up.n_divergences = 0
        self._warm_up.n_unchanged += 1
        if self._bounded.check_temperature(temperature, self._noise.variances):
            self._warm_up.n_unchanged = 0
        return False, 0

    # --- 1. exploration ----------------------------------------------------------------------

    def explore(self, chain: LangevinChain) -> Exploration | None:
        """Make one transition, on all rows or the sample of them."""
        if chain.n >= self._warm_up.n_exploration:
            return None
        own_stream, self._explorer.stream = self._explorer.stream, chain.stream
        drawn = self._explorer.draw(tune=True)
        self._explorer.stream = own_stream  # so that the state has one stream, that of the chain
        chain.z = self._explorer.z.copy()
        trajectories, warm_up = self._trajectories, self._warm_up
        if trajectories.fits_new_draws or self._coordinates.is_settled:
            warm_up.n_exploration = chain.n + 1
        if chain.n == warm_up.n_exploration - 1:
            chain.refresh(self.product)
        return Exploration(drawn["step_size"], drawn["n_grad"], drawn["diverging"])

    def funnel(self) -> Funnel | None:
        """Find a funnel in the draws of the exploration."""
        return self._trajectories.funnel()

    def _use_rows(self, *, has_sample: bool) -> None:
        """Let all gradient estimates contain the rows of rare indicators.

        With ``has_sample`` the explorer uses a weighted sample of the rows.
        """
        self._has_sample = has_sample
        source = self._estimator.source
        if source.has_all_rows or (source.replaces_arrays and not has_sample):
            return
        shares = self._shares_of_rows()
        if self.gradient.rare is not None and not source.replaces_arrays:
            self._is_rare = find_rare_rows(source, shares)
            self.gradient.rare.set_rows(source.arrays, self._is_rare, source.batch_size)
        if not has_sample:
            return
        sample = sample_rows(source, self.product.size, shares, self._is_rare)
        self.gradient.set_sample(sample.arrays, sample.counts, sample.weights)
        self._noise.rare_row_probability = min(
            sample.n_noisy * source.batch_size / source.n_rows, 1.0
        )

    def count_rare_rows_left_out(self) -> int:
        """Count the rows of rare indicators that minibatches drawn with replacement leave out."""
        source = self._estimator.source
        if not source.with_replacement:
            return 0
        is_rare = find_rare_rows(source, self._shares_of_rows())
        return 0 if is_rare is None else int(is_rare.sum())

    def _shares_of_rows(self) -> np.ndarray | None:
        """Shares of the rows, which are computed once for all chains with the same data."""
        n_changes = self._estimator.source.n_changes
        if n_changes not in self._shares:
            shares = shares_of_rows(self._estimator, self.gradient, self._model_product)
            self._shares = {n_changes: shares}
        return self._shares[n_changes]

    # --- 2. centering ------------------------------------------------------------------------

    def _center(self, chain: LangevinChain) -> int:
        """Find a centering point near the mean of the exploration; return the number of passes."""
        if self.gradient.control_variates is None:
            return 0
        x = self.to_position(chain.z)
        windows, d = self._trajectories.windows, self.gradient.n_euclidean
        displacement = None
        if len(windows) > 2:
            x[:d] = windows.mean[:d]
            sizes = [part.stop - part.start for part in self._model_product.slices.values()]
            displacement = np.sign(chain.z[:d]) if has_shared_scales(sizes) else None
        n_passes = self._center_near(chain, x, displacement=displacement)
        chain.refresh(self.product)  # tangent at the centering point
        return n_passes

    def _center_near(
        self,
        chain: LangevinChain,
        x: np.ndarray,
        max_passes: int = CENTERING.max_passes,
        displacement: np.ndarray | None = None,
    ) -> int:
        """Move chain and metric to a centering point near x, and return the number of passes.

        A pass over all rows counts as one gradient evaluation; see `find_center`.
        """
        center, total, n_passes = find_center(
            self.gradient, self._model_product, x, max_passes, displacement
        )
        if center is not None and total is not None:
            self.gradient.center_at(center, total)
            # the origin is the mean of a normal posterior, one Newton step from the centering point
            metric, d = self.gradient.metric, self.gradient.n_euclidean
            step = metric.to_gradient(total[:d])
            if np.abs(step).max(initial=0.0) > SETTINGS.max_mean:  # the metric is poor
                step = np.zeros(d)
            self._trajectories.set_metric(metric.recentered(center[:d] + metric.to_direction(step)))
            chain.z = self.gradient.whiten(center)
        return n_passes

    def _bound_step_size(self) -> None:
        """Split the Hamiltonian, and bound the step size by the shape of the posterior."""
        bounded, bounds, trajectories = self._bounded, self._bounded.bounds, self._trajectories
        windows = trajectories.windows
        # their leapfrog errors show in the step size of the exploration
        bounded.is_harmonic, by_residual = self._split.choose(
            self.gradient.metric,
            windows.positions,
            windows.gradients,
            may_have_exceptions=self.has_sparse_metric and trajectories.is_split,
        )
        bounds.by_posterior = min(bounds.by_posterior, by_residual)
        self._bound_step_size_by_shape()

    def _bound_step_size_by_shape(self) -> None:
        """Bound the step size of coordinates that are not harmonic."""
        bounded, bounds, trajectories = self._bounded, self._bounded.bounds, self._trajectories
        if bounded.is_harmonic.size and bounded.is_harmonic.all():
            return
        if bounded.is_harmonic.size:
            by_shape = LANGEVIN.shared_scale_fraction * trajectories.recent_step_size
        else:
            sizes = [part.stop - part.start for part in self._model_product.slices.values()]
            # steps of a split Hamiltonian are no bound where the posterior is not normal
            is_uninformative = (
                trajectories.is_split and len(trajectories.windows) >= SPLIT.min_draws
            )
            by_shape = bounded.rule.max_step_size_for_shape(
                None if is_uninformative else trajectories.recent_step_size,
                self._model_product.dim,
                has_shared_scales=has_shared_scales(sizes),
            )
            by_shape = min(by_shape, self._max_step_size_for_moments())
        by_curvature = max_step_size_from_exploration_gradients(
            self._points, trajectories.windows, self.gradient
        )
        bounds.by_posterior = min(bounds.by_posterior, by_shape, by_curvature)

    def _max_step_size_for_moments(self) -> float:
        """Upper bound on leapfrog steps due to the errors of means and variances."""
        windows, d = self._trajectories.windows, self.gradient.n_euclidean
        if len(windows) < STEP_SIZE.min_gradients:
            return math.inf
        x, gradients = windows.positions[:, :d], windows.gradients[:, :d]
        rates = leapfrog_error_rates(self.gradient.metric, x, gradients)
        return self._bounded.rule.max_step_size_for_moments(*rates)

    # --- 3. noise measurement ----------------------------------------------------------------

    def _set_noise_points(self, chain: LangevinChain) -> None:
        """Measure noise at the draws of the exploration, moved to the centering point."""
        windows, d = self._trajectories.windows, self.gradient.n_euclidean
        if len(windows):
            x = windows.positions
            if self.gradient.is_centered:
                x[:, :d] += self.to_position(chain.z)[:d] - x[:, :d].mean(axis=0)
            self._noise.set_draws(x)

    def _measure_noise(self, chain: LangevinChain) -> int:
        """Measure the noise, choose the order of control variates, and the parameters.

        Return the number of gradient evaluations.
        """
        if not self.gradient.has_noise:
            self._bounded.choose(self._noise.variances)
            return 0
        choice, decorrelation_steps = self._order_choice, self._bounded.decorrelation_steps
        self._use_noise(chain, choice.choose(chain.z, chain.stream, decorrelation_steps))
        differences = choice.reconsider(chain.z, chain.stream, decorrelation_steps)
        if differences is not None:
            self._use_noise(chain, differences)
        return self._noise.pop_n_grad()

    def _use_noise(self, chain: LangevinChain, differences: np.ndarray) -> None:
        """Rotate to the principal directions of the noise, and choose parameters for it."""
        gradient, noise, d = self.gradient, self._noise, self.gradient.n_euclidean
        if gradient.metric.is_dense and d:
            rotation = principal_directions(differences[:, :d])
            chain.z[:d] = rotation.T @ chain.z[:d]
            chain.dynamics.rotate(rotation)
            self._trajectories.set_metric(gradient.metric.rotated(rotation))
        if gradient.order == 2:
            self._rescale_groups(chain)
            noise.choose_clipping(chain.z, chain.stream)
        # other pairs, whose variances are not biased by the choice of order, directions and bounds
        differences = noise.differences(chain.z, noise.n_pairs, chain.stream)
        noise.replace(differences)
        self._bounded.bounds.by_anisotropy = max_step_size_for_anisotropic_noise(
            self._points, differences
        )
        noise.refine(chain.z, chain.stream, self._choose_parameters)

    def _rescale_groups(self, chain: LangevinChain) -> None:
        """Rescale the coordinates of groups by second derivatives over all rows.

        A sample of the rows contains few rows of a small group, from which the exploration
        estimated its scale.
        """
        gradient, d = self.gradient, self.gradient.n_euclidean
        assert gradient.curvature is not None
        structure = gradient.curvature.structure
        if not structure.n_groups:
            return
        self._noise.n_grad += 2 * len(structure.starts)
        with np.errstate(invalid="ignore"):
            ratio = np.sqrt(gradient.metric.precision / gradient.precision_of_groups()[:d])
        ratio = np.clip(np.nan_to_num(ratio, nan=1.0), *SETTINGS.rescaling_range)
        position = self.to_position(chain.z)
        self._noise.rescale_draws(ratio)
        self._trajectories.set_metric(gradient.metric.rescaled(ratio))
        chain.z = gradient.whiten(position)
        chain.refresh(self.product)

    def _choose_parameters(self) -> LangevinParameters:
        """Choose parameters for the present measurements."""
        variances = self._noise.variances
        uncertainty = np.hypot(self._noise.sd, SETTINGS.noise_errors * self._noise.error)
        self._bounded.bound_by_heterogeneity(variances, uncertainty)
        return self._bounded.choose(variances)

    def noise_diagnosis(self, names: Sequence[str]) -> Diagnosis | None:
        """Name coordinates whose gradient noise is poorly known."""
        if not self.gradient.has_noise or self.parameters is None:
            return None
        return diagnose_noise(self.parameters, self._noise.error, self.gradient.metric, names)

    def name_rare_coordinates(self, diagnosis: Diagnosis, names: Sequence[str]) -> Diagnosis:
        """Name all coordinates for which few minibatches are informative."""
        fraction = self._noise.measured.informative_fraction
        if self._is_rare is not None:  # gradients along coordinates of these rows have no noise
            fraction = np.where(fraction == 0.0, 1.0, fraction)
        return name_rare_coordinates(diagnosis, fraction, names)

    # --- 4. tuning ---------------------------------------------------------------------------

    def _measure_at_draw(self, chain: LangevinChain) -> int:
        """Add pairs of minibatches at some draws, and every draw to the mean.

        Return the number of gradient evaluations.
        """
        if self.gradient.has_noise and chain.n % NOISE.pairs_per_point == 0:
            self._noise.measure_at(chain.z)
        self._warm_up.z_sum += chain.z
        self._warm_up.z_count += 1
        if self._bounded.is_harmonic.any():
            self._split.observe(self.to_position(chain.z))
        return self._noise.pop_n_grad()

    def _recenter(self, chain: LangevinChain) -> int:
        """Move the centering point to the mean of the draws if that is far; update the parameters.

        If the draws show a funnel of group effects, the split of the Hamiltonian ends.

        Return the number of gradient evaluations; a pass over all rows counts as one.
        """
        d, warm_up = self.gradient.n_euclidean, self._warm_up
        gives_up_split = self._bounded.is_harmonic.any() and self._split.has_funnel()
        if gives_up_split:
            self._bounded.is_harmonic = NOT_HARMONIC
            self._bound_step_size_by_shape()
            warm_up.n_unchanged = 0
        mean = warm_up.z_sum[:d] / max(warm_up.z_count, 1)
        warm_up.forget_draws()
        away = mean
        if self.gradient.control_variates is not None:
            away = mean - self.gradient.whiten(self.gradient.control_variates.center)[:d]
        is_far = d > 0 and (
            float(away @ away) / d > SETTINGS.max_mean_square
            or float(np.abs(away).max()) > SETTINGS.max_mean
        )
        if self.gradient.is_centered and is_far:
            here = self.to_position(chain.z)
            x = here.copy()
            x[:d] = self.gradient.metric.to_position(mean)
            n_passes = self._center_near(chain, x, max_passes=1)
            self._set_noise_points(chain)
            chain.z = self.gradient.whiten(here)
            warm_up.n_unchanged = 0
            return n_passes + self._measure_noise(chain)
        if self.gradient.has_noise or gives_up_split:
            self._choose_parameters()
        return 0

    def _undo_draw(self, chain: LangevinChain, before: np.ndarray, *, runs_away: bool) -> None:
        """Return to before a draw, or to the start of the tuning phase, and halve the step size."""
        warm_up = self._warm_up
        warm_up.n_divergences += 1
        warm_up.n_unchanged = 0
        warm_up.n_runaways += runs_away
        # the draws before a runaway temperature already led away from the posterior; and several
        # divergences in succession are due to the position, not to the step size
        returns_to_start = runs_away or warm_up.n_divergences % SETTINGS.max_divergences == 0
        start = self._coordinates.whiten(warm_up.tuning_start) if returns_to_start else before
        chain.restart_at(start, self.product)
        warm_up.forget_draws()
        self._noise.discard_draws()
        self._split.forget_draws()
        self._bounded.reduce_step_size(0.5, self._noise.variances)

    # --- state -------------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        """Progress of the warm-up, and what was measured and chosen."""
        return {
            "warm_up": asdict(self._warm_up),
            "bounded": self._bounded.state,
            "explorer": self._explorer.state,
            "noise": self._noise.state,
            "split": self._split.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self._warm_up = WarmUp(**copy.deepcopy(state["warm_up"]))
        self._bounded.state = state["bounded"]
        # otherwise `initialize` has read the rows
        if not self._has_sample and (self._warm_up.n_tune or self.is_tuned):
            self._use_rows(has_sample=self._warm_up.n_tune > 0)
        self._explorer.state = state["explorer"]
        self._noise.state = state["noise"]
        self._split.state = state["split"]

"""Langevin dynamics in coordinates, around an anchor and with friction that it finds itself."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.minibatch_gradient import GradientEstimator
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.manifolds.product import geodesic, project
from pymc_geodesic.minibatches.source import AllRows, RowSource
from pymc_geodesic.runtime.fields import evaluate
from pymc_geodesic.runtime.finite import all_finite
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.steps.base.adapted_trajectories import AdaptedTrajectories
from pymc_geodesic.steps.base.dynamics import Dynamics
from pymc_geodesic.steps.base.prepared import prepare
from pymc_geodesic.steps.base.step_bounds import points_of, stable_step, step_of_even_heat
from pymc_geodesic.tuning.noise import (
    LangevinSettings,
    differences_of_pairs,
    principal_directions,
)
from pymc_geodesic.tuning.stationarity import CHECK_EVERY, Stationarity

__all__ = ["AdaptedLangevin", "Draw", "adapted_gradient"]

SEARCH, MOST_SEARCH = 0.5, 500
"""Part of the tuning phase, and draws at most, that look for the posterior and its scales."""

LEAST_SEARCH = 30
SEARCH_ACCEPTANCE = 0.8

LARGEST_SLOPE = 0.25
"""Mean square of the whitened gradient at an anchor, above which the anchor moves."""

MOST_PASSES = 6
LEAST_GAIN = 0.25
"""A pass that does not lower the slope by this factor is the last."""

PAIRS, PAIRS_PER_DIMENSION, MOST_PAIRS = 200, 20, 2000
PAIRS_AT_ONCE = 25

FEW_IN_EPOCH = 100
"""Minibatches of an epoch below which the noise of single ones says little of their sum."""

USELESS_VARIATES = 0.5
"""Part of the plain noise from which control variates do not pay."""

REMEASURED = (0.25, 0.5, 0.75)
"""Parts of the tuning phase behind the search after which noise and centre are looked at again."""

FAR = 1.0
"""Mean square of whitened coordinates of the mean from which the anchor follows it."""

WATCHED, MUCH_HEAT, HEAT_ERRORS, COOLER = 40, 0.05, 4.0, 0.7
"""Tuning draws over which the temperature is averaged, the excess and the standard errors beyond it
that are acted on, and what then becomes of the step size, or of the noise that is taken off."""

SHORTEST_STEP, MOST_LOST = 0.01, 4
"""Step below which a divergence shortens nothing, and divergences in a row after which the chain
goes back to where the search ended."""

FEWEST_GRADIENTS = 10
"""Gradients that tell which direction is the stiffest."""

RUNAWAY = 1e6
"""Kinetic temperature in tuning from which a draw counts as diverging."""

_REMEDY_OF_MEAN = (
    "Give it more tuning draws, start nearer to the posterior, or use GMC or NUTS, which correct "
    "each step."
)
_REMEDY_OF_VARIANCE = (
    "Use a larger batch_size or more tuning draws; if it is a scale that other variables depend "
    "on, write those as a product with it (non-centred) or as they are (centred), whichever it is "
    "not; GMC and NUTS correct each step."
)


SAMPLE_ROWS, SAMPLE_ROWS_PER_DIMENSION = 5000, 50
"""Rows that stand for all while the posterior is looked for."""

LARGEST_SAMPLE = 20_000_000
"""Numbers, rows times coordinates, that a look at the sample may cost."""

FEWEST_MINIBATCHES = 10
"""Minibatches' worth of rows that a sample needs to be better than one."""


def sample_size(n_rows: int, size: int) -> int:
    """Rows of the sample for so many rows and coordinates."""
    wanted = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_DIMENSION * size)
    return min(n_rows, wanted, LARGEST_SAMPLE // size)


def adapted_gradient(
    estimator: GradientEstimator, product: Product, *, use_variates: bool
) -> AdaptedGradient | None:
    """Fields of an estimator in coordinates that can be changed.

    None where it has not all rows; where a variable lives on a manifold with an edge: beside the
    pole of a density neither one length nor the noise around an anchor says enough; and where rows
    pass by in short epochs, over which noise adds up to zero that would be taken off as known.
    """
    if any(manifold.has_edge for _, manifold, _ in product.components):
        return None
    widths = [
        rows * manifold.size
        for _, manifold, rows in product.components
        if not isinstance(manifold, Euclidean)
    ]
    if isinstance(estimator.source, AllRows):
        return AdaptedGradient(product.size, widths, estimator.field)
    source = estimator.source
    if source.all_rows() is None:
        return None
    if sample_size(source.n_rows, product.size) < min(
        FEWEST_MINIBATCHES * source.batch_size, source.n_rows
    ):
        return None
    has_variates = use_variates and not estimator.depends_on_others
    few = source.n_rows < FEW_IN_EPOCH * source.batch_size
    if source.walks_epochs and (few or not has_variates):
        return None
    total = estimator.total_gradient()
    if total is None:
        return None
    return AdaptedGradient(
        product.size,
        widths,
        total.field,
        estimator.field,
        total,
        source.all_rows,
        use_variates=has_variates,
    )


@dataclass(frozen=True)
class Draw:
    """What one draw reports.

    Attributes
    ----------
    step_size, friction, temperature : float
    n_grad, noise_clips : int
    diverging : bool
    phase : {"search", "tune", "sample"}
    configurational_temperature : float
        Mean over the Euclidean coordinates at the last look; NaN before there was one.
    whitened_gradient : float
        Largest error of a mean so far, in posterior standard deviations.
    noise_ratio : float
        Noise with control variates over noise without; 1 without variates.
    """

    step_size: float
    friction: float
    temperature: float
    n_grad: int
    noise_clips: int
    diverging: bool
    phase: str
    configurational_temperature: float = math.nan
    whitened_gradient: float = math.nan
    noise_ratio: float = 1.0


class AdaptedLangevin:
    """The dynamics of a step without Metropolis correction, with all that tuning chooses.

    Parameters
    ----------
    gradient : AdaptedGradient
    product : Product
        The variables, Euclidean ones first.
    next_arguments : callable
        n → arguments of the minibatch field for n evaluations.
    dynamics : Dynamics
        What is done in the coordinates that are found.
    dense : bool
        Whether the metric takes correlations into account.
    n_steps : int, optional
        Inner steps of a draw; chosen by default.
    """

    def __init__(
        self,
        gradient: AdaptedGradient,
        product: Product,
        next_arguments: Callable[[int], np.ndarray],
        dynamics: Dynamics,
        *,
        dense: bool,
        n_steps: int | None,
    ) -> None:
        self.gradient = gradient
        self._next_arguments = next_arguments
        self.dynamics, self._n_steps = dynamics, n_steps
        prepare(all_finite, differences_of_pairs, fill_normal, geodesic)
        self._model_product = product
        self._search = AdaptedTrajectories(
            gradient, product, target_accept=SEARCH_ACCEPTANCE, dense=dense
        )
        self._compact = self._search.compact
        self._points = points_of(product)
        self._manifolds = [
            (manifold, rows)
            for _, manifold, rows in product.components
            if not isinstance(manifold, Euclidean)
        ]
        self._widths = [part.stop - part.start for part, _ in self._compact]
        self.product = self._search.product
        self.settings: LangevinSettings | None = None
        self.reset(0)

    def reset(self, n_tune: int, n_draws: int = 0) -> None:
        """Forget the previous chain, except what tuning chose if there is no tuning phase."""
        self._n_tune = n_tune
        n_looks = -(-n_draws // CHECK_EVERY)
        self.stationarity = Stationarity(self.product.size, self.gradient.n_euclidean, n_looks)
        self._n_search = min(max(int(SEARCH * n_tune), LEAST_SEARCH), MOST_SEARCH, n_tune)
        self.draw = 0
        self.z = np.empty(0)
        self.dynamics.reset()
        if n_tune or self.settings is None:
            self.settings = None
            self.gradient.drop_anchor()
            self._search.reset(self._n_search)
            self._squares = np.zeros(self.product.size)
            self._n_pairs = 0
            self._z_sum = np.zeros(self.product.size)
            self._z_count = 0
            self.noise_ratio = 1.0
            self._longest = math.inf
            self._even_step = math.inf
            self._heat = np.zeros(3)
            self._home, self._n_lost = np.empty(0), 0
            self._taken_off = 1.0
        else:
            self.gradient.renew_anchor()

    def use_sample(self, source: RowSource) -> None:
        """Look for the posterior of some rows, which stand for all."""
        if isinstance(source, AllRows):
            return
        wanted = sample_size(source.n_rows, self.product.size)
        if wanted == source.n_rows and not source.moves:
            arrays, n_rows = next(iter(source.all_rows() or ()))
        else:
            arrays, n_rows = source.sample_rows(wanted)
        self.gradient.use_sample(arrays, n_rows, source.n_rows / n_rows)

    @property
    def state(self) -> dict[str, Any]:
        """All that decides the draws to come."""
        named = {name: copy.deepcopy(getattr(self, name)) for name in self._STATE}
        named["stationarity"] = self.stationarity.state
        settings = {} if self.settings is None else vars(self.settings).copy()
        return named | {
            "settings": settings,
            "search": self._search.state,
            "dynamics": self.dynamics.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        for name in self._STATE:
            setattr(self, name, copy.deepcopy(state[name]))
        self.settings = LangevinSettings(**state["settings"]) if state["settings"] else None
        self._search.state = state["search"]
        self.dynamics.state = state["dynamics"]
        self.stationarity.state = state["stationarity"]

    _STATE = (
        "draw",
        "noise_ratio",
        "_longest",
        "_even_step",
        "_heat",
        "_home",
        "_n_lost",
        "_taken_off",
        "z",
        "_n_tune",
        "_n_search",
        "_squares",
        "_n_pairs",
        "_z_sum",
        "_z_count",
    )

    @property
    def position(self) -> np.ndarray:
        """Coordinates of the model."""
        return self.gradient.to_position(self.z)

    def start(self, x: np.ndarray, stream: np.ndarray) -> np.ndarray:
        """Begin at a place, or go on from where another step has put the variables.

        Returns
        -------
        ndarray
            See `AdaptedTrajectories.start`.
        """
        gradient = self._search.start(x)
        self.z = self._search.z.copy()
        if self.draw >= self._n_search:
            self._search.z = np.empty(0)
        self.dynamics.refresh(self.product, self.z, stream)
        return gradient

    def _project(self, z: np.ndarray, vector: np.ndarray) -> None:
        project(self.product.blocks, z, vector)

    def advance(self, stream: np.ndarray, *, tune: bool) -> Draw:
        """Draw once."""
        if tune and self.draw < self._n_search:
            drawn = self._search_once(stream)
        else:
            n_grad = 0
            if self.settings is None:
                n_grad = self._settle(stream)
            elif tune:
                n_grad = self._look_again(stream)
            drawn = self._follow(stream, n_grad, tune=tune)
            if not tune and not drawn.diverging and self.draw % CHECK_EVERY == 0:
                drawn = self._look(drawn)
        self.draw += 1
        return drawn

    def _look(self, drawn: Draw) -> Draw:
        """Compare the position with a gradient that had no part in reaching it."""
        field = self.gradient.noisy
        gradient = np.empty(self.z.size + 1)
        evaluate(field.address, self.z, int(self._next_arguments(1)[0]), field.context, gradient)
        field.raise_error()
        tangent = gradient[: self.z.size].copy()
        self._project(self.z, tangent)
        for (part, _), (manifold, rows), length in zip(
            self._compact, self._manifolds, self.gradient.metric.lengths, strict=True
        ):
            mean = manifold.mean_gradient(self.z[part].reshape(rows, *manifold.shape))
            tangent[part] = 0.0 if mean is None else tangent[part] - length * mean.ravel()
        self.stationarity.look(self.z, tangent)
        return replace(
            drawn,
            n_grad=drawn.n_grad + 1,
            configurational_temperature=self.stationarity.last_temperature,
            whitened_gradient=self.stationarity.largest_gradient,
        )

    def complaint(self, names: Sequence[str]) -> str | None:
        """Say what is wrong with the draws, of which variable; None if nothing is.

        Parameters
        ----------
        names : list of str, one for each number of a position
        """
        worst = self.stationarity.worst()
        if worst is None:
            return None
        d, factor = self.gradient.n_euclidean, self.gradient.metric.factor
        place = worst.coordinate
        if place < d and self.gradient.metric.is_dense:
            lengths = np.sqrt(np.sum(factor**2, axis=1))
            if worst.kind == "mean":
                shift = factor @ self.stationarity.mean_gradient[:d] / lengths
                place = int(np.argmax(np.abs(shift)))
            else:
                place = int(np.argmax(np.abs(factor[:, place]) / lengths))
        if worst.kind == "mean":
            return (
                f"the mean of {names[place]!r} is {abs(worst.value):.2f} posterior standard "
                f"deviations off (standard error {worst.error:.2f}). {_REMEDY_OF_MEAN}"
            )
        return (
            f"the variance of {names[place]!r} is off: its configurational temperature is "
            f"{worst.value:.2f} instead of 1 (standard error {worst.error:.2f}). "
            f"{_REMEDY_OF_VARIANCE}"
        )

    def _search_once(self, stream: np.ndarray) -> Draw:
        """One transition with Metropolis correction, on all rows or the sample of them."""
        drawn = self._search.advance(stream, tune=True)
        self.z = self._search.z.copy()
        if self.draw == self._n_search - 1:
            self._search.z = np.empty(0)
            self.dynamics.refresh(self.product, self.z, stream)
        return Draw(
            step_size=drawn.step_size,
            friction=0.0,
            temperature=1.0,  # velocities are drawn anew
            n_grad=drawn.n_grad,
            noise_clips=0,
            diverging=drawn.diverging and self.draw > 0,
            phase="search",
        )

    def _settle(self, stream: np.ndarray) -> int:
        """Find the anchor, the noise, and the settings; return gradient evaluations."""
        n_grad = 0
        if self.gradient.variates is not None:
            x = self.position
            windows = self._search.tuner.windows
            if windows is not None and len(windows) > 2:
                d = self.gradient.n_euclidean
                x[:d] = windows.mean[:d]
            n_grad += self._anchor(x)
            self.dynamics.refresh(self.product, self.z, stream)  # tangent at the anchor
        searched = self._search.tuner.step_size.recent
        longest = self.dynamics.longest_step(searched, self._model_product.dim)
        self._longest = min(self._longest, longest, self._stable_step())
        n_grad += self._measure_noise(stream)
        self._home = self.position
        return n_grad

    def _slope(self, x: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        """Mean square of the whitened gradient, and the Newton step."""
        d, metric = self.gradient.n_euclidean, self.gradient.metric
        tangent = gradient.copy()
        project(self._model_product.blocks, x, tangent)
        step = np.empty_like(x)
        whitened = metric.to_gradient(tangent[:d])
        step[:d] = metric.factor @ whitened if metric.is_dense else metric.factor * whitened
        total = float(whitened @ whitened)
        for (part, _), length in zip(self._compact, metric.lengths, strict=True):
            total += float(length**2 * tangent[part] @ tangent[part])
            step[part] = length**2 * tangent[part]
        return total / self._model_product.dim, step

    def _anchor(self, x: np.ndarray) -> int:
        """Move to where the gradient of all rows is small, and estimate differences to it."""
        slope, n_passes = math.inf, 0
        while n_passes < MOST_PASSES:
            gradient = self.gradient.gradient_of_all_rows(x)
            n_passes += 1
            new_slope, step = self._slope(x, gradient)
            if not math.isfinite(new_slope) or new_slope > slope:
                break
            slope, anchor, total = new_slope, x.copy(), gradient
            if slope <= LARGEST_SLOPE:
                break
            geodesic(self._model_product.blocks, x, step, 1.0)
        if math.isfinite(slope):
            self.gradient.anchor_at(anchor, total)
            self._search.use(self.gradient.metric.moved(anchor[: self.gradient.n_euclidean]))
            self.z = self.gradient.from_position(anchor)
        return n_passes

    def _measure_noise(self, stream: np.ndarray) -> int:
        """Measure gradient noise around the centre and choose the settings."""
        size = self.product.size
        if not self.gradient.has_noise:
            self.settings = self._settings_for(np.zeros(size))
            return 0
        n_pairs = min(max(PAIRS, PAIRS_PER_DIMENSION * self.gradient.n_euclidean), MOST_PAIRS)
        differences = self._differences(n_pairs, stream)
        n_grad = 2 * n_pairs
        if self.gradient.is_anchored:
            self.gradient.drop_anchor()
            plain = self._differences(PAIRS_AT_ONCE, stream)
            n_grad += 2 * PAIRS_AT_ONCE
            self.gradient.is_anchored = True
            self.noise_ratio = float(np.mean(differences**2) / np.mean(plain**2))
            if not self.noise_ratio < USELESS_VARIATES:
                self.noise_ratio = 1.0
                self.gradient.drop_anchor()
                differences = self._differences(n_pairs, stream)
                n_grad += 2 * n_pairs
        d = self.gradient.n_euclidean
        if self.gradient.metric.is_dense and d:
            rotation, _ = principal_directions(differences[:, :d])
            self.z[:d] = rotation.T @ self.z[:d]
            self.dynamics.rotate(rotation)
            self._search.use(self.gradient.metric.rotated(rotation))
            # others, for the variances along directions are not what these were chosen by
            differences = self._differences(n_pairs, stream)
            n_grad += 2 * n_pairs
        self._squares = 0.5 * np.sum(differences**2, axis=0)
        self._n_pairs = n_pairs
        self._even_step = step_of_even_heat(self._points, differences)
        self._choose_settings()
        return n_grad

    def _differences(self, n_pairs: int, stream: np.ndarray) -> np.ndarray:
        """Differences of pairs of gradients, each at a place of its own around the centre."""
        size, d = self.product.size, self.gradient.n_euclidean
        differences = np.empty((n_pairs, size))
        places = np.empty((n_pairs, size))
        fill_normal(stream, places.ravel())
        for place in places:
            away = place.copy()
            place[:d] = 0.0
            place[d:] = self.z[d:]
            project(self.product.blocks, place, away)
            away[d:] *= np.repeat(self.gradient.metric.lengths, self._widths)
            geodesic(self.product.blocks, place, away, 1.0)
        field = self.gradient.noisy
        for first in range(0, n_pairs, PAIRS_AT_ONCE):
            part = slice(first, min(first + PAIRS_AT_ONCE, n_pairs))
            count = part.stop - part.start
            arguments = self._next_arguments(2 * count)
            differences_of_pairs(
                field.address,
                field.context,
                arguments[:count],
                arguments[count:],
                places[part],
                differences[part],
            )
            field.raise_error()
        for place, difference in zip(places, differences, strict=True):
            self._project(place, difference)
        return differences

    def _choose_settings(self) -> None:
        noise = self._squares / self._n_pairs
        for part, dim in self._points:
            noise[part] = noise[part].sum() / dim
        self.settings = self._settings_for(noise)

    def _look_again(self, stream: np.ndarray) -> int:
        """Measure one more pair where the chain is, and act on what was measured now and then."""
        n_grad = 0
        if self.gradient.has_noise:
            arguments = self._next_arguments(2)
            difference = np.empty((1, self.product.size))
            field = self.gradient.noisy
            differences_of_pairs(
                field.address,
                field.context,
                arguments[:1],
                arguments[1:],
                self.z[np.newaxis],
                difference,
            )
            self._project(self.z, difference[0])
            if np.isfinite(difference).all():
                self._squares += 0.5 * difference[0] ** 2
                self._n_pairs += 1
            n_grad += 2
        self._z_sum += self.z
        self._z_count += 1
        behind = self._n_tune - self._n_search
        if any(self.draw - self._n_search == int(part * behind) for part in REMEASURED):
            n_grad += self._remeasure(stream)
        return n_grad

    def _remeasure(self, stream: np.ndarray) -> int:
        d = self.gradient.n_euclidean
        mean = self._z_sum[:d] / self._z_count
        self._z_sum[:], self._z_count = 0.0, 0
        if self.gradient.is_anchored and d and float(mean @ mean) / d > FAR:
            here = self.position
            x = here.copy()
            x[:d] = self.gradient.metric.to_position(mean)
            n_grad = self._anchor(x)
            self.z = self.gradient.from_position(here)
            return n_grad + self._measure_noise(stream)
        if self.gradient.has_noise:
            self._choose_settings()
        return 0

    def _settings_for(self, noise: np.ndarray) -> LangevinSettings:
        """Choose settings for gradient noise, with steps no longer than was found to be stable."""
        settings = self.dynamics.settings(noise, n_steps=self._n_steps)
        longest = min(self._longest, self._even_step)
        if settings.step_size > longest:
            settings = self.dynamics.settings(noise, step_size=longest, n_steps=self._n_steps)
        return replace(settings, noise=self._taken_off * settings.noise)

    def _stable_step(self) -> float:
        """Step that is short enough where no metric softens what is stiff."""
        windows = self._search.tuner.windows
        if windows is None or len(windows) < FEWEST_GRADIENTS:
            return math.inf
        gradients, d = windows.gradients, self.gradient.n_euclidean
        gradients[:, d:] *= np.repeat(self.gradient.metric.lengths, self._widths)
        return stable_step(self._points, gradients)

    def _shorten(self, factor: float) -> None:
        """Bound the step size by a part of the present one."""
        assert self.settings is not None
        self._longest = max(factor * self.settings.step_size, SHORTEST_STEP)
        self._renew_settings()

    def _renew_settings(self) -> None:
        self._heat[:] = 0.0
        assert self.settings is not None
        if self.gradient.has_noise:
            self._choose_settings()
        else:
            self.settings = self._settings_for(self.settings.noise)

    def _watch(self, temperature: float) -> None:
        """Shorten the step where it heats by itself, as beside the pole of a density.

        Where it is too cold, more noise was taken off than there is: it varies over the posterior.
        """
        self._heat += (1.0, temperature, temperature**2)
        count, total, squares = self._heat
        if count < WATCHED:
            return
        mean = total / count
        error = math.sqrt(max(squares / count - mean**2, 0.0) / count)
        self._heat[:] = 0.0
        if mean > 1.0 + MUCH_HEAT + HEAT_ERRORS * error:
            self._shorten(COOLER)
        elif mean < 1.0 - MUCH_HEAT - HEAT_ERRORS * error and self.gradient.has_noise:
            self._taken_off *= COOLER
            self._renew_settings()

    def _follow(self, stream: np.ndarray, n_grad: int, *, tune: bool) -> Draw:
        """Inner steps of one draw."""
        settings = self.settings
        assert settings is not None
        z = self.z.copy()
        field = self.gradient.noisy
        temperature, clips = self.dynamics.run(
            field,
            self._next_arguments(settings.n_steps),
            self.product,
            self.z,
            settings,
            stream,
        )
        field.raise_error()
        diverging = not (math.isfinite(temperature) and all_finite(self.z))
        if diverging or (tune and temperature > RUNAWAY):
            diverging = True
            if tune:
                self._n_lost += 1
                # after several in a row the place is to blame, not the step: back to the search's
                goes_home = self._n_lost % MOST_LOST == 0
                self.z = self.gradient.from_position(self._home) if goes_home else z
                self.dynamics.reset()
                self.dynamics.refresh(self.product, self.z, stream)
                self._shorten(0.5)
        elif tune:
            self._n_lost = 0
            self._watch(temperature)
        return Draw(
            step_size=settings.step_size,
            friction=float(np.mean(settings.friction)),
            temperature=temperature,
            n_grad=n_grad + settings.n_steps,
            noise_clips=clips,
            diverging=diverging,
            phase="tune" if tune else "sample",
            configurational_temperature=self.stationarity.last_temperature,
            whitened_gradient=self.stationarity.largest_gradient,
            noise_ratio=self.noise_ratio,
        )

"""Sparse metric of hierarchical models: center, updates in the warm-up, and trajectories."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from pymc_geodesic.adaptation.sparse_factorization import SETTINGS as FACTORIZATION
from pymc_geodesic.adaptation.sparse_factorization import Group, triangular_factor
from pymc_geodesic.adaptation.whitened_trajectories import WhitenedTrajectories
from pymc_geodesic.densities.group_effects import GroupEffects
from pymc_geodesic.gradients.normal_scores import NormalScores, normal_scores
from pymc_geodesic.gradients.partial_centering import PartialCentering, TriangularFactor
from pymc_geodesic.kernels.gmc import Leapfrog
from pymc_geodesic.manifolds import Product
from pymc_geodesic.monitoring.funnels import Funnel
from pymc_geodesic.runtime.gradient_functions import GradientFunctionLike, evaluate


@dataclass(frozen=True)
class SparseMetricSettings:
    """Constants of the sparse metric.

    Attributes
    ----------
    n_rounds, max_steps : int
        Maximum number of factorizations at the beginning of a chain, and of BFGS steps with one
        factor.
    few_steps, small_change : int, float
        Number of steps to the mode of effects and coefficients, and change of transformed
        variables, such as log scales, up to which a factor is not computed again, also at the
        updates. Heuristic.
    max_change : float
        Bound on the change of transformed variables in one of these steps.
    max_halvings : int
        Maximum number of halvings of a step that decreases the density.
    small_step : float
        Mean squared whitened gradient below which a position is a mode.
    shortest, share : int, float
        Number of draws after which the warm-up ends if the Hamiltonian is split: the larger of a
        number and a share of all tuning draws. With 300 in place of 1,000 three models of
        `benchmarks.large_hierarchies` had the same R-hat; the share is heuristic.
    early : tuple of float
        Fractions of that number after which the warm-up ends if, moreover, the residual of the
        draws so far is small, and all coordinates that are not effects are harmonic. With half of
        them R-hat and ESS of these models were the same.
    n_settled : int
        Number of draws since the last change of the coordinates, from which this is checked.
    updates : tuple of float
        Fractions of that number after which the metric is computed again at the posterior mean
        estimated from the draws since the last time, unless that is near the origin.
    rest : int
        Number of remaining tuning draws from which the warm-up continues if the Hamiltonian is not
        split; fewer are not enough to adapt the step size again. Heuristic.
    min_draws : int
        Number of draws from which their mean is used.
    wide_scale, max_scales : float, int
        Standard deviation of a log scale, given the coordinates that are eliminated later, above
        which its normal score is a coordinate, and maximum number of such scales. Heuristic:
        smaller ones are close to normal, and each takes about 40 gradients.
    difference, smallest_slope : float
        Step of central differences of log prior precisions, which are nearly linear in log scales,
        and derivative below which it is a rounding error.
    least_information : float
        Lower bound on the information of all effects on a log prior precision: that of half an
        effect.
    density_range : float
        Decrease of the log-density along a log scale, from its maximum, to which its derivative is
        evaluated for the normal score. Probabilities beyond are below 10⁻⁶.
    growth, n_points : float, int
        Distances from the center at which it is evaluated, sinh(growth · k)/(2 growth) conditional
        standard deviations for k = 0, 1, …, n_points at most, to both sides. Heuristic.
    """

    n_rounds: int = 12
    max_steps: int = 15
    few_steps: int = 2
    small_change: float = 0.1
    max_change: float = 1.0
    max_halvings: int = 20
    small_step: float = 0.01
    shortest: int = 300
    share: float = 0.3
    early: tuple[float, ...] = (0.5, 0.6, 0.7, 0.8, 0.9)
    n_settled: int = 50
    updates: tuple[float, ...] = (0.1, 0.3)
    rest: int = 100
    min_draws: int = 20
    wide_scale: float = 0.1
    max_scales: int = 30
    difference: float = 1e-4
    smallest_slope: float = 1e-8
    least_information: float = 0.25
    density_range: float = 15.0
    growth: float = 0.25
    n_points: int = 24


SETTINGS = SparseMetricSettings()

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Log-density and gradient at coordinates z."""


class _Ascent(NamedTuple):
    """Result of BFGS steps.

    Attributes
    ----------
    position : ndarray
    n_steps : int
    failed : bool
        Whether another factor is needed: no step after the first increases the density, or the
        gradient is not small after the maximum number of steps.
    """

    position: np.ndarray
    n_steps: int
    failed: bool


class SparseMetric:
    """Coordinates in which a hierarchical posterior is close to a standard normal distribution.

    Parameters
    ----------
    effects : GroupEffects
    centering : PartialCentering

    Attributes
    ----------
    center : ndarray or None
        Position near the mode of the effects.
    factored_at : ndarray or None
        Position, near the center, at which the precision matrix was factored.
    n_grad : int
        Number of gradient evaluations so far.
    others : ndarray of int
        Coordinates that are not effects.
    """

    def __init__(self, effects: GroupEffects, centering: PartialCentering) -> None:
        self._effects, self.centering, self.others = effects, centering, effects.others
        children: dict[str, set[int]] = {each.name: set() for each in effects.effects}
        names = [each.name for each in effects.effects for _ in each.columns]
        for each in effects.effects:
            for parent in each.parents:
                children[parent] |= {k for k, name in enumerate(names) if name == each.name}
        self._groups: list[Group] = []
        for each in effects.effects:
            first = len(self._groups)
            for k, column in enumerate(each.columns):
                before = children[each.name]
                if each.is_correlated:  # the prior of later columns depends on this one
                    before = before | set(range(first + k + 1, first + each.width))
                self._groups.append(Group(column, frozenset(before), each.last))
        self._entries = np.concatenate(
            [np.arange(each.part.start, each.part.stop) for each in effects.effects]
        )
        self._fixed = effects.scales_of_others
        self._signs = np.random.default_rng(0).choice([-1.0, 1.0], size=effects.size)
        self.center: np.ndarray | None = None
        self.factored_at: np.ndarray | None = None
        self.n_grad = 0

    def set_center(self, x: np.ndarray, factored_at: np.ndarray | None = None) -> None:
        """Factor the precision matrix at a position, by default the center.

        See `_set_center`.
        """
        self._set_center(x, self._factor_at(x if factored_at is None else factored_at))

    def _set_center(self, x: np.ndarray, factor: TriangularFactor) -> None:
        """Move the origin to the mode of the effects near a position.

        If the origin differs from the mode of an effect by δ, it differs by r δ for other scales,
        and r (`pymc_geodesic.gradients.partial_centering`) is large for large scales and effects
        with little data. Therefore one Newton step of the effects moves the position to the origin.
        The coordinates of wide log scales become normal scores.
        """
        self.center = origin = x.copy()
        self.centering.set_factor(x, factor)
        value, step = self._evaluate(np.zeros(self._effects.size))
        step[self.others] = 0.0
        if np.isfinite(step).all() and self._evaluate(step)[0] > value:
            origin = self.centering.to_position(step)
            self.centering.set_factor(origin, factor)
        splines = self._normal_scores(factor)
        if splines:
            self.centering.set_factor(origin, factor, splines)

    def typical_position(self) -> np.ndarray:
        """Position near the center with an energy that is typical of draws.

        The coordinates of the effects are −1 or 1, so that their mean square is that of draws. At
        the center it is zero, and the distribution of scales given these effects is far from their
        marginal one: the first trajectories from there have large errors.
        """
        z = self._signs.copy()
        z[self.others] = 0.0
        value, gradient = self._evaluate(z)
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            z[:] = 0.0
        return self.centering.to_position(z)

    def _evaluate_marginal(self, others: np.ndarray) -> tuple[float, np.ndarray]:
        """Approximate the marginal log-density of the coordinates that are not effects.

        Given these, the effects are nearly N(0, I) in the present coordinates: the gradient of the
        marginal log-density is the mean of that of the joint log-density over them, here over two
        opposite points with coordinates −1 and 1, whose mean squares are 1.

        Returns
        -------
        log_density : float
            Up to a constant.
        gradient : ndarray, shape of ``others``
        """
        values, gradients = [], []
        for sign in (-1.0, 1.0):
            z = sign * self._signs
            z[self.others] = others
            value, gradient = self._evaluate(z)
            values.append(value)
            gradients.append(gradient[self.others])
        return 0.5 * sum(values), np.mean(gradients, axis=0)

    def _normal_scores(self, factor: TriangularFactor) -> dict[int, NormalScores]:
        """Compute the normal scores of the widest log scales."""
        sd = np.empty(self._effects.size)
        sd[factor.order] = 1.0 / np.sqrt(factor.precision)
        widest = sorted(self._scales, key=lambda scale: -sd[scale])[: SETTINGS.max_scales]
        splines = {}
        for scale in widest:
            if sd[scale] > SETTINGS.wide_scale:
                found = normal_scores(*self._marginal_slopes(int(scale)))
                if found is not None:
                    coefficients = sd[scale] * found.coefficients
                    splines[int(scale)] = replace(found, coefficients=coefficients)
        return splines

    def _marginal_slopes(self, scale: int) -> tuple[np.ndarray, np.ndarray]:
        """Return increasing points along a log scale, and slopes of the log-density there."""
        k = int(np.flatnonzero(self.others == scale)[0])
        others = np.zeros(len(self.others))

        def slope_at(point: float) -> float:
            others[k] = point
            return float(self._evaluate_marginal(others)[1][k])

        known = {0.0: slope_at(0.0)}
        for sign in (-1.0, 1.0):
            before, log_density, highest = 0.0, 0.0, 0.0
            for number in range(1, SETTINGS.n_points + 1):
                point = sign * 0.5 * math.sinh(SETTINGS.growth * number) / SETTINGS.growth
                for _ in range(SETTINGS.max_halvings):
                    slope = slope_at(point)
                    change = 0.5 * (point - before) * (slope + known[before])
                    if change > -SETTINGS.density_range:
                        break
                    point = 0.5 * (before + point)  # also if the slope is not finite
                known[point], before = slope, point
                log_density += change
                highest = max(highest, log_density)
                if not highest - log_density < SETTINGS.density_range:
                    break
        points = np.array(sorted(known))
        return points, np.array([known[point] for point in points])

    def _factor_at(self, x: np.ndarray) -> TriangularFactor:
        """Factor the precision matrix at a position, which becomes the origin."""
        self._effects.refresh_data()
        self._effects.set_center(x)
        precision = self._effects.precision(x)
        _, log_p, _, _ = self.centering.parameters(x)
        prior = np.zeros(self._effects.size)
        prior[self._entries] = np.exp(np.clip(log_p, -690.0, 690.0))
        precision.data[~np.isfinite(precision.data)] = 0.0
        information, self._scales, parameters = self._information_on_scales(
            x, precision.diagonal(), prior
        )
        self._bounded = np.union1d(self._effects.transformed, parameters)
        precision = precision + information
        is_first = self.factored_at is None
        factor = triangular_factor(precision, self._groups, self.others, prior, logs=is_first)
        self.factored_at = x.copy()
        self.centering.set_factor(x, factor)
        self._sizes = np.sqrt(np.maximum(precision.diagonal(), FACTORIZATION.smallest_precision))
        return factor

    def _information_on_scales(
        self, x: np.ndarray, precision: np.ndarray, prior: np.ndarray
    ) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
        """Compute the expected information of each effect on the parameters of its prior.

        Given the other effects, one with the conditional precision D and the prior precision p has
        the information κ²/2 on log p, κ = 1 − p/D. All effects with a scale have at least that of
        half an effect, because the density decreases towards scales of zero. Standardized columns j
        and k of a group have the information κ_j κ_k on the coefficient of j in the regression of
        k.

        Returns
        -------
        information : csr_matrix
        scales : ndarray of int
            Coordinates on which prior precisions depend.
        parameters : ndarray of int
            Coordinates on which prior precisions or regressions depend.
        """
        size, others = self._effects.size, self.others
        information = np.zeros((len(others), len(others)))
        is_scale = np.zeros(size, dtype=bool)
        entry_of = np.empty(size, dtype=np.int64)
        entry_of[self._entries] = np.arange(len(self._entries))
        (scales, slopes), shrinkages = self._slopes_of_scales(x), []
        for group in self._groups:
            shrinkage = np.maximum(1.0 - prior[group.coordinates] / group.diagonal(precision), 0.0)
            shrinkages.append(shrinkage)
            own = slopes[:, entry_of[group.coordinates]]
            of_group = 0.5 * (own * shrinkage**2) @ own.T
            least = SETTINGS.least_information * np.max(own**2, axis=1, initial=0.0)
            of_group += np.diag(np.maximum(least - np.diagonal(of_group), 0.0))
            information[np.ix_(scales, scales)] += of_group
        is_scale[others[scales]] = True
        weights = []
        for each in self._effects.effects:
            columns, shrinkages = shrinkages[: each.width], shrinkages[each.width :]
            if each.is_correlated:
                weights.append(np.array(columns) @ np.transpose(columns))
        of_correlations = self._effects.information_on_correlations(x, weights)
        information += np.nan_to_num(of_correlations, posinf=0.0, neginf=0.0)
        is_parameter = is_scale.copy()
        is_parameter[others] |= np.diagonal(of_correlations) > 0.0
        row, column = np.meshgrid(others, others, indexing="ij")
        entries = information.ravel(), (row.ravel(), column.ravel())
        matrix = sparse.coo_matrix(entries, shape=(len(precision), len(precision))).tocsr()
        return matrix, np.flatnonzero(is_scale), np.flatnonzero(is_parameter)

    def _slopes_of_scales(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Differentiate log prior precisions of all entries in coordinates that are not effects.

        Returns
        -------
        scales : ndarray of int, shape (n_scales,)
            Those of ``others`` on which prior precisions depend.
        slopes : ndarray, shape (n_scales, n_entries)
        """
        n_entries = len(self._entries)
        weights = np.random.default_rng(0).uniform(1.0, 2.0, n_entries)
        of_sum = self.centering.slopes(x, weights / weights.sum())[self.others]
        scales, slopes = [], []
        for k in np.flatnonzero(np.abs(of_sum) > SETTINGS.smallest_slope / n_entries):
            ends = []
            for step in (-SETTINGS.difference, SETTINGS.difference):
                moved = x.copy()
                moved[self.others[k]] += step
                ends.append(self.centering.parameters(moved)[1])
            with np.errstate(invalid="ignore"):
                slope = (ends[1] - ends[0]) / (2.0 * SETTINGS.difference)
            slope[~np.isfinite(slope) | (np.abs(slope) < SETTINGS.smallest_slope)] = 0.0
            if slope.any():
                scales.append(k)
                slopes.append(slope)
        return np.array(scales, dtype=np.int64), np.reshape(slopes, (len(scales), n_entries))

    def find_center(self, x: np.ndarray) -> np.ndarray:
        """Approximate the center of the posterior by BFGS steps, from a position.

        Steps in effects and coefficients, for fixed scales and other transformed variables,
        alternate with steps to the mode of the marginal distribution of all coordinates that are
        not effects. There is no joint mode if effects fit the rows exactly: the joint density is
        then unbounded as the standard deviation of the residuals approaches zero. A factor is used
        for several steps, since its computation takes longer than that of many gradients.
        """
        for _ in range(SETTINGS.n_rounds):
            before, factor = x, self._factor_at(x)
            ascent = self._ascend(x, self._evaluate_at_scales)
            x = ascent.position
            if ascent.failed or ascent.n_steps > SETTINGS.few_steps:
                continue
            self.centering.set_factor(x, factor)
            ascent = self._ascend(x, self._evaluate_without_effects)
            x = ascent.position
            change = np.abs(x - before)[self._bounded].max(initial=0.0)
            if not ascent.failed and change <= SETTINGS.small_change:
                break
        self._set_center(x, factor)
        return x

    def _ascend(self, x: np.ndarray, evaluate: Evaluate) -> _Ascent:
        """Make BFGS steps with the present factor, until the gradient is small."""
        z = self.centering.whiten(x)
        value, gradient = evaluate(z)
        changes: list[tuple[np.ndarray, np.ndarray]] = []
        failed = False
        while not failed and _mean_square(gradient) >= SETTINGS.small_step:
            step = self._bound_step(_bfgs_step(gradient, changes))
            found = self._backtrack(z, value, step, evaluate)
            if found is None:
                failed = bool(changes)
                break
            changes.append((found[0] - z, gradient - found[2]))
            z, value, gradient = found
            failed = len(changes) == SETTINGS.max_steps
        return _Ascent(self.centering.to_position(z), len(changes), failed)

    def _bound_step(self, step: np.ndarray) -> np.ndarray:
        """Bound the changes of scales."""
        bound = SETTINGS.max_change * self._sizes[self._bounded]
        step[self._bounded] = np.clip(step[self._bounded], -bound, bound)
        return step

    def _backtrack(
        self, z: np.ndarray, value: float, step: np.ndarray, evaluate: Evaluate
    ) -> tuple[np.ndarray, float, np.ndarray] | None:
        """Backtracking line search: halve a step until the density increases.

        Return coordinates, log-density and gradient, or None.
        """
        for _ in range(SETTINGS.max_halvings):
            found, gradient = evaluate(z + step)
            if found > value:
                return z + step, found, gradient
            step = 0.5 * step
        return None

    def _evaluate_at_scales(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-density, and gradient in effects and coefficients."""
        value, gradient = self._evaluate(z)
        gradient[self._bounded] = gradient[self._fixed] = 0.0
        return value, gradient

    def _evaluate_without_effects(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Approximate marginal log-density of all but the effects, and its gradient.

        The scales of vectors that are not effects are fixed, because the joint density is unbounded
        where such a scale and its vector approach zero.
        """
        value, of_others = self._evaluate_marginal(z[self.others])
        gradient = np.zeros(z.size)
        gradient[self.others] = of_others
        gradient[self._fixed] = 0.0
        return value, gradient

    def is_near_origin(self, mean: np.ndarray, n: int) -> bool:
        """Whether an estimate of the mean from n draws is near the origin.

        Its mean square is at most twice that of the mean of n independent draws of N(0, I), and in
        coordinates that are not effects it is within one standard deviation of the origin, or
        within the change of a log scale up to which the metric is not computed again.
        """
        is_far = np.abs(mean) > 1.0
        change = self.centering.to_position(mean) - self.center
        is_far[self._bounded] &= np.abs(change[self._bounded]) > SETTINGS.small_change
        return bool(np.mean(mean**2) <= 2.0 / n and not is_far[self.others].any())

    def _evaluate(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        """Log-density and gradient."""
        self.n_grad += 1
        output = np.empty(z.size + 1)
        logp_grad = self.centering.logp_grad
        evaluate(logp_grad.address, z, 0, logp_grad.context, output)
        logp_grad.raise_error()
        return float(output[-1]), output[:-1]


def _bfgs_step(
    gradient: np.ndarray, changes: Sequence[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Step of the limited-memory BFGS method towards a maximum, in whitened coordinates.

    Parameters
    ----------
    gradient : ndarray, shape (size,)
    changes : sequence of (ndarray, ndarray)
        Changes of position and negative gradient in previous steps.
    """
    step, weights = gradient.copy(), []
    concave = [(dz, dg, dz @ dg) for dz, dg in changes if dz @ dg > 0.0]
    for dz, dg, product in reversed(concave):
        weights.append(dz @ step / product)
        step -= weights[-1] * dg
    for dz, dg, product in concave:
        step += (weights.pop() - dg @ step / product) * dz
    return step


def _mean_square(gradient: np.ndarray) -> float:
    """Mean square of the components that are not zero."""
    return float(np.sum(gradient**2) / max(np.count_nonzero(gradient), 1))


class _PosteriorMean:
    """Estimate of the mean of each coordinate z from draws and gradients of the log-density.

    The mean of z + ∇log π(z) is that of z, and for N(μ, I) it has no variance. In each coordinate
    the one of the two with the smaller variance over the draws is averaged.

    Parameters
    ----------
    size : int
    """

    def __init__(self, size: int) -> None:
        self.n = 0
        self._sums, self._squares = np.zeros((2, size)), np.zeros((2, size))

    def add(self, z: np.ndarray, gradient: np.ndarray) -> None:
        """Add a draw, if it is finite."""
        both = np.array([z, z + gradient])
        if np.isfinite(both).all():
            self.n += 1
            self._sums += both
            self._squares += both**2

    @property
    def estimate(self) -> np.ndarray:
        """Estimated mean, shape (size,)."""
        means = self._sums / self.n
        variances = self._squares / self.n - means**2
        return np.where(variances[1] < variances[0], means[1], means[0])

    @property
    def state(self) -> dict[str, Any]:
        """Sums over the draws."""
        return {"n": self.n, "sums": self._sums.copy(), "squares": self._squares.copy()}

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.n, self._sums = state["n"], state["sums"].copy()
        self._squares = state["squares"].copy()


class SparseTrajectories:
    """Adaptation of trajectories in the coordinates of a `SparseMetric`.

    The metric is known from the curvature, so that a few hundred draws are enough for the step
    size. If the posterior is close to normal in these coordinates, the warm-up ends after them.

    Parameters
    ----------
    metric : SparseMetric
    inner : WhitenedTrajectories
        Adaptation in the coordinates of the metric.

    Attributes
    ----------
    metric : SparseMetric
    inner : WhitenedTrajectories
    """

    whitens = needs_warm_up = True

    def __init__(self, metric: SparseMetric, inner: WhitenedTrajectories) -> None:
        self.metric, self.inner = metric, inner
        self.product: Product = inner.product
        self._n_tune = self._n_draws = self._end = 0
        self._mean = _PosteriorMean(self.product.size)

    def __repr__(self) -> str:
        """Describe what is adapted."""
        return self.inner.describe(*self.describe_metric())

    @property
    def can_reuse_gradient(self) -> bool:
        """See `TrajectoryAdaptation`."""
        return self.inner.can_reuse_gradient

    @property
    def is_tuned(self) -> bool:
        """Whether a warm-up has chosen the parameters."""
        return self.inner.is_tuned

    @property
    def is_settled(self) -> bool:
        """See `TrajectoryAdaptation`."""
        return self._n_draws >= self._end

    @property
    def logp_grad(self) -> GradientFunctionLike:
        """Gradient in whitened coordinates, followed by the log-density."""
        return self.inner.logp_grad

    def describe_metric(self) -> tuple[list[str], list[str]]:
        """Describe what is adapted of the coordinates, and what is user-specified."""
        return ["metric='sparse' with partial centering"], []

    def initialize(self, n_tune: int) -> None:
        """Begin a chain; see `TrajectoryAdaptation`."""
        self._n_tune, self._n_draws = n_tune, 0
        self._mean = _PosteriorMean(self.product.size)
        self._end = min(n_tune, max(SETTINGS.shortest, int(SETTINGS.share * n_tune)))
        self._updates = {int(fraction * self._end) for fraction in SETTINGS.updates}
        self._checks = {int(fraction * self._end) for fraction in SETTINGS.early}
        self.inner.initialize(self._end)

    def start(self, x: np.ndarray, *, first: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Coordinates of a position; see `TrajectoryAdaptation`."""
        before = self.metric.n_grad
        if (first and self._n_tune) or self.metric.center is None:
            self.metric.find_center(x)
            x = self.metric.typical_position()
        z, gradient, n_grad = self.inner.start(self.metric.centering.whiten(x), first=first)
        return z, gradient, n_grad + self.metric.n_grad - before

    def to_position(self, z: np.ndarray) -> np.ndarray:
        """Position in the coordinates of the model."""
        return self.metric.centering.to_position(self.inner.to_position(z))

    def whiten(self, x: np.ndarray) -> np.ndarray:
        """Whitened coordinates of a position of the model."""
        return self.inner.whiten(self.metric.centering.whiten(x))

    def evaluated_position(self) -> np.ndarray:
        """See `TrajectoryAdaptation`."""
        return self.metric.centering.evaluated_position

    def propose(self, z: np.ndarray, stream: np.ndarray, *, tune: bool) -> tuple[Leapfrog, int]:
        """Choose a trajectory; see `TrajectoryAdaptation`."""
        return self.inner.propose(z, stream, tune=tune)

    def update(
        self, z: np.ndarray, gradient: np.ndarray, acceptance: float
    ) -> tuple[np.ndarray | None, int]:
        """Adapt step size and metric; see `TrajectoryAdaptation`."""
        here = self.inner.to_position(z)
        self._mean.add(here, self.inner.gradient.to_model_gradient(gradient))
        changed, n_grad = self.inner.update(z, gradient, acceptance)
        self._n_draws += 1
        if self._n_draws in self._checks and self._is_near_normal():
            self._end = self._n_draws
            return changed, n_grad
        continues = (
            self._n_draws == self._end <= self._n_tune - SETTINGS.rest and not self.inner.is_split
        )
        if continues:
            self._end = self._n_tune
        is_update = continues or self._n_draws in self._updates
        if not is_update or self._mean.n < SETTINGS.min_draws:
            return changed, n_grad
        mean = self._mean.estimate
        if not continues and self.metric.is_near_origin(mean, self._mean.n):
            return changed, n_grad
        center = self.metric.centering.to_position(mean)
        if not np.isfinite(center).all():
            return changed, n_grad
        x = self.metric.centering.to_position(here)
        before = self.metric.n_grad
        self.metric.set_center(center)
        n_grad += self.metric.n_grad - before
        self._mean = _PosteriorMean(self.product.size)
        self.inner.initialize(self._end - self._n_draws)
        present, _, more = self.inner.start(self.metric.centering.whiten(x), first=True)
        return present, n_grad + more

    def _is_near_normal(self) -> bool:
        """Whether the posterior is close to normal for the draws since the last change."""
        if not self.inner.is_split or self.inner.n_unchanged < SETTINGS.n_settled:
            return False
        is_harmonic, is_small = self.inner.harmonic_coordinates()
        return is_small and bool(is_harmonic[self.metric.others].all())

    def funnel(self) -> Funnel | None:
        """Find a variable that sets the scale of another; see `TrajectoryAdaptation`."""
        return self.inner.funnel()

    @property
    def state(self) -> dict[str, Any]:
        """Center of the metric, and state of the adaptation in its coordinates."""
        return {
            "center": copy(self.metric.center),
            "factored_at": copy(self.metric.factored_at),
            "n_tune": self._n_tune,
            "n_draws": self._n_draws,
            "end": self._end,
            "mean": self._mean.state,
            "inner": self.inner.state,
        }

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.initialize(state["n_tune"])
        self._n_draws, self._end = state["n_draws"], state["end"]
        self._mean.state = state["mean"]
        if state["center"] is not None:
            self.metric.set_center(state["center"], state["factored_at"])
        self.inner.state = state["inner"]

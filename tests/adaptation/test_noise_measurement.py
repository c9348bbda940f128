"""Centering, noise measurement and bounds on the step size, on known distributions."""

import math

import numpy as np
import pytest

from pymc_geodesic.adaptation import gradient_noise
from pymc_geodesic.adaptation.centering import find_center, whitened_gradient
from pymc_geodesic.adaptation.gradient_noise import SETTINGS as NOISE
from pymc_geodesic.adaptation.gradient_noise import NoiseMeasurement
from pymc_geodesic.adaptation.langevin_parameters import UnderdampedRule, underdamped_parameters
from pymc_geodesic.adaptation.step_size_bounds import SETTINGS as BOUNDS
from pymc_geodesic.adaptation.step_size_bounds import BoundedParameters
from pymc_geodesic.densities.compilation import CompiledGradient
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.manifolds import Euclidean, Product, Sphere
from pymc_geodesic.runtime.gradient_functions import python_function
from pymc_geodesic.runtime.streams import new_stream

COVARIANCE = np.array([[4.0, 1.0], [1.0, 0.5]])
MODE = np.array([3.0, -2.0])
PRODUCT = Product([("b", Euclidean(2), 1)])


def gradient_function(function, size: int, n_values: int = 0) -> CompiledGradient:
    """Gradient function that calls a function of position and minibatch."""

    def call(position, minibatch, context, output):
        x = np.ctypeslib.as_array(position, (size,))
        np.ctypeslib.as_array(output, (size + n_values,))[:] = function(x, minibatch)
        return 0.0

    return CompiledGradient(python_function(call), [])


def normal_distribution(visited: list[np.ndarray]) -> AdaptedGradient:
    def gradient(x, minibatch):
        visited.append(x.copy())
        return np.append(-np.linalg.solve(COVARIANCE, x - MODE), 0.0)

    return AdaptedGradient(2, [], gradient_function(gradient, 2, 1))


def test_one_newton_step_finds_the_mode_of_a_normal_distribution():
    visited: list[np.ndarray] = []
    gradient = normal_distribution(visited)
    gradient.set_metric(Metric(np.zeros(2), np.linalg.cholesky(COVARIANCE)))
    start = MODE + np.array([40.0, 7.0])
    total = gradient.gradient_of_all_rows(start)
    whitened = whitened_gradient(PRODUCT, gradient.metric, start, total)
    away = MODE - start
    assert whitened @ whitened == pytest.approx(away @ np.linalg.solve(COVARIANCE, away))
    np.testing.assert_allclose(gradient.metric.to_direction(whitened), away)
    visited.clear()
    center = find_center(gradient, PRODUCT, start)
    assert center.n_passes == len(visited) == 2
    np.testing.assert_allclose(center.position, MODE, atol=1e-12)
    np.testing.assert_allclose(center.gradient, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("factor", "n_passes"),
    [
        (0.8 * np.linalg.cholesky(COVARIANCE), 3),  # the first step is too short
        (3.0 * np.linalg.cholesky(COVARIANCE), 3),  # the first step overshoots
    ],
)
def test_curvature_from_the_first_step(factor, n_passes):
    visited: list[np.ndarray] = []
    gradient = normal_distribution(visited)
    gradient.set_metric(Metric(np.zeros(2), factor))
    start = MODE + np.array([40.0, 7.0])
    center = find_center(gradient, PRODUCT, start)
    assert center.n_passes == len(visited) == n_passes
    np.testing.assert_allclose(center.position, MODE, atol=1e-9)
    np.testing.assert_allclose(
        center.gradient, -np.linalg.solve(COVARIANCE, center.position - MODE), atol=1e-12
    )


def test_best_point_of_several_passes():
    visited: list[np.ndarray] = []
    gradient = normal_distribution(visited)
    gradient.set_metric(Metric(np.zeros(2), 9.0 * np.linalg.cholesky(COVARIANCE)))
    start = MODE + np.array([40.0, 7.0])
    center = find_center(gradient, PRODUCT, start, max_passes=2)
    assert center.n_passes == len(visited) == 2
    np.testing.assert_array_equal(center.position, start)  # all steps overshoot


def test_center_of_a_hierarchy_is_near_the_mean_not_the_mode():
    n = 400
    product = Product([("log_scale", Euclidean(1), 1), ("effect", Euclidean(n), 1)])
    observed = np.random.default_rng(1).normal(size=n)
    observed *= math.sqrt(2.0 / np.mean(observed**2))  # the marginal likelihood is largest at 0

    def gradient_of_effects(x, minibatch):  # N(0, exp(2 x₀)) effects observed with variance 1
        precision = math.exp(-2.0 * x[0])
        of_scale = precision * (x[1:] @ x[1:]) - n - x[0]
        return np.concatenate([[of_scale], observed - x[1:] - precision * x[1:], [0.0]])

    gradient = AdaptedGradient(n + 1, [], gradient_function(gradient_of_effects, n + 1, 1))
    factor = np.append(2.0 / math.sqrt(2.0 * n), np.full(n, math.sqrt(0.5)))
    gradient.set_metric(Metric(np.zeros(n + 1), factor))
    start = np.append(0.2, 0.6 * observed)
    signs = np.sign(np.random.default_rng(2).normal(size=n + 1))
    center = find_center(gradient, product, start, displacement=signs)
    assert abs(center.position[0]) < 2.5 * factor[0]
    assert find_center(gradient, product, start).position[0] < -3.0 * factor[0]
    np.testing.assert_allclose(center.gradient, gradient.gradient_of_all_rows(center.position))


def test_no_center_without_a_finite_gradient():
    gradient = AdaptedGradient(2, [], gradient_function(lambda x, _: np.full(3, math.nan), 2, 1))
    center = find_center(gradient, PRODUCT, MODE)
    assert center.position is None
    assert center.n_passes == 1


def test_one_pass_keeps_the_initial_point():
    gradient = AdaptedGradient(
        2, [], gradient_function(lambda x, _: np.append(100.0 - x, 0.0), 2, 1)
    )
    x = np.array([3.0, 4.0])
    center = find_center(gradient, PRODUCT, x, max_passes=1)
    np.testing.assert_array_equal(center.position, x)
    np.testing.assert_array_equal(center.gradient, [97.0, 96.0])
    assert find_center(gradient, PRODUCT, x).position == pytest.approx(100.0)


MIXED = Product([("b", Euclidean(2), 1), ("mu", Sphere(3), 1)])
VARIANCES = np.array([4.0, 0.25])
ON_SPHERE = 9.0


class NoisyGradient:
    """Gradients −x and 0 with noise that differs between minibatches."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        scale = np.sqrt(np.append(VARIANCES, [ON_SPHERE] * 3))
        self.noise = scale * rng.standard_normal((20_000, 5))
        self.n_requested = 0

    def minibatch(self, x, minibatch):
        return np.append(-x[:2], np.zeros(3)) + self.noise[minibatch]

    def next_minibatches(self, n: int) -> np.ndarray:
        self.n_requested += n
        return np.arange(self.n_requested - n, self.n_requested, dtype=np.int64)


@pytest.fixture
def measured():
    noisy = NoisyGradient()
    gradient = AdaptedGradient(
        5,
        [3],
        gradient_function(lambda x, _: np.zeros(6), 5, 1),
        gradient_function(noisy.minibatch, 5),
        use_control_variates=False,
    )
    gradient.set_metric(Metric(np.zeros(2), np.array([2.0, 1.0]), np.array([0.5])))
    noise = NoiseMeasurement(gradient, MIXED, noisy.next_minibatches)
    return noisy, noise, np.array([0.0, 0.0, 0.0, 0.6, 0.8])


def test_variances_along_coordinates(measured):
    noisy, noise, z = measured
    stream = new_stream(np.random.default_rng(2))
    n = 4000
    noise.replace(noise.differences(z, n, stream))
    assert noise.pop_n_grad() == noisy.n_requested == 2 * n
    assert noise.pop_n_grad() == 0
    # the gradient is multiplied by 2, 1 and the length ½; of three directions two are tangent
    expected = np.append([4.0 * 4.0, 0.25], [0.25 * ON_SPHERE] * 3)
    assert np.abs(noise.variances / expected - 1.0).max() < 5.0 * math.sqrt(2.0 / n)
    np.testing.assert_array_equal(noise.variances[2:], noise.variances[2])


def test_pairs_at_draws_count_as_much_as_those_around_the_center(measured):
    _, noise, z = measured
    n = 40 * NOISE.pairs_per_point
    noise.replace(np.zeros((n, 5)))
    assert not noise.variances.any()
    for _ in range(40):
        noise.measure_at(z)
    expected = 0.5 * np.append([16.0, 0.25], [0.25 * ON_SPHERE] * 3)
    assert np.abs(noise.variances / expected - 1.0).max() < 5.0 * math.sqrt(2.0 / n)
    assert noise.pop_n_grad() == 2 * n


def test_rare_noise_at_draws_does_not_affect_other_coordinates(measured):
    """Noise of a coordinate that is almost absent around the center and large at draws."""
    noisy, noise, z = measured
    noisy.noise[:, 1] *= 1e-6
    noise.replace(noise.differences(z, 2000, new_stream(np.random.default_rng(2))))
    around = noise.variances
    noisy.noise[noisy.n_requested + 5, 1] = 1.0
    for _ in range(400 // NOISE.pairs_per_point):
        noise.measure_at(z)
    assert noise.variances[0] == pytest.approx(around[0], rel=0.1)
    assert noise.variances[1] > 1e6 * around[1]


@pytest.mark.parametrize("coordinate", [0, 1])
def test_noise_at_runaway_points_is_ignored(measured, coordinate):
    noisy, noise, z = measured
    noise.replace(noise.differences(z, 2000, new_stream(np.random.default_rng(2))))
    expected = underdamped_parameters(noise.variances)
    runaway = z.copy()
    runaway[coordinate] = -1e11
    noisy.noise *= 1e11
    noise.measure_at(runaway)
    noisy.noise *= 1e-11
    for _ in range(30):
        noise.measure_at(z)
    found = underdamped_parameters(noise.variances)
    assert found.step_size == pytest.approx(expected.step_size, rel=0.2)
    np.testing.assert_allclose(found.friction, expected.friction, rtol=0.3)


@pytest.mark.parametrize("is_rare", [True, False])
def test_noise_of_few_minibatches_is_measured_again(measured, is_rare):
    """All noise of the second coordinate comes from one minibatch in 250."""
    noisy, noise, z = measured
    n = noise.n_pairs
    noisy.noise[:, 0] *= 2.0
    noisy.noise[:, 1] = 0.0
    noisy.noise[::250, 1] = 100.0
    if not is_rare:
        noisy.noise[:, 1] = noisy.noise[:, 0]
    chosen = []

    def choose():
        chosen.append(underdamped_parameters(noise.variances))
        return chosen[-1]

    stream = new_stream(np.random.default_rng(2))
    noise.replace(noise.differences(z, n, stream))
    first = noise.error[1] / noise.variances[1]
    noise.refine(z, stream, choose)
    if not is_rare:  # the first measurement is precise enough
        assert noise.pop_n_grad() == 2 * n
        assert len(chosen) == 1
        return
    assert noise.pop_n_grad() > 6 * n
    assert noise.error[1] / noise.variances[1] < 0.6 * first
    assert noise.variances[1] == pytest.approx(100.0**2 / 250.0, rel=0.5)
    assert chosen[-1].temperature_error(noise.error).max() < 0.8 * first


class NoiseByPosition(NoisyGradient):
    """Gradients whose noise grows with the first coordinate."""

    def minibatch(self, x, minibatch):
        return np.append(-x[:2], np.zeros(3)) + self.noise[minibatch] * math.exp(x[0])


def test_noise_is_measured_where_the_posterior_is():
    noisy = NoiseByPosition()
    gradient = AdaptedGradient(
        5,
        [3],
        gradient_function(lambda x, _: np.zeros(6), 5, 1),
        gradient_function(noisy.minibatch, 5),
        use_control_variates=False,
    )
    gradient.set_metric(Metric(np.zeros(2), np.ones(2), np.ones(1)))
    noise = NoiseMeasurement(gradient, MIXED, noisy.next_minibatches)
    stream, z = new_stream(np.random.default_rng(2)), np.array([0.0, 0.0, 0.0, 0.6, 0.8])
    wide = np.tile(z, (100, 1))
    wide[:, 0] = np.linspace(-2.0, 2.0, 100)
    noise.set_draws(wide[: NOISE.min_draws - 1])  # too few: a normal distribution instead
    noise.replace(noise.differences(z, 1600, stream))
    assert noise.variances[1] == pytest.approx(VARIANCES[1] * math.exp(2.0), rel=0.4)
    noise.set_draws(wide)
    noise.replace(noise.differences(z, 1600, stream))
    local = VARIANCES[1] * np.exp(2.0 * wide[:, 0])
    assert noise.variances[1] == pytest.approx(local.mean(), rel=0.2)
    assert noise.sd[1] == pytest.approx(local.std(), rel=0.25)
    assert not noise.sd[2:].any()


def test_noise_heterogeneity_bounds_the_step_size():
    bounded = BoundedParameters(UnderdampedRule(), None)
    noise, nothing = np.array([4.0, 1.0]), np.zeros(2)
    steps = bounded.decorrelation_steps
    assert steps(noise, 2.0 * noise) > 2.0 * steps(noise, nothing)
    bounded.bound_by_heterogeneity(noise, nothing)
    bounded.choose(noise)
    assert bounded.parameters.step_size == 0.5
    bounded.bound_by_heterogeneity(noise, 0.5 * noise)
    bounded.choose(noise)
    assert 0.1 < bounded.parameters.step_size < 0.2
    bounded.bound_by_heterogeneity(noise, 100.0 * noise)
    bounded.choose(noise)
    assert bounded.parameters.step_size == BOUNDS.min_step_size_for_heterogeneity
    # the cost has no limit: with the minimum the sampler is wrong
    assert steps(noise, 1e4 * noise) == pytest.approx(100.0 * steps(noise, 1e2 * noise), rel=0.05)


def test_variances_without_measurements_are_zero(measured):
    _, noise, _ = measured
    np.testing.assert_array_equal(noise.variances, np.zeros(5))


def test_biased_temperatures_reduce_the_step_size_or_the_subtracted_noise():
    bounded = BoundedParameters(UnderdampedRule(), None)
    noise = np.array([4.0, 1.0])
    bounded.choose(noise)
    assert bounded.parameters.step_size == 0.5
    np.testing.assert_array_equal(bounded.parameters.noise, noise)
    for _ in range(40):
        bounded.check_temperature(1.5, noise)
    assert bounded.parameters.step_size == pytest.approx(0.35)
    np.testing.assert_array_equal(bounded.parameters.noise, noise)
    for _ in range(40):
        bounded.check_temperature(0.5, noise)
    assert bounded.parameters.step_size == pytest.approx(0.35)
    np.testing.assert_allclose(bounded.parameters.noise, 0.7 * noise)
    # bound and fraction are kept where the noise is measured again
    bounded.choose(0.1 * noise)
    assert bounded.parameters.step_size == pytest.approx(0.35)
    np.testing.assert_allclose(bounded.parameters.noise, 0.07 * noise)
    bounded.bounds.by_anisotropy = 0.2
    bounded.choose(noise)
    assert bounded.parameters.step_size == 0.2


def test_unprojected_noise_is_detected(measured, monkeypatch):
    _, noise, z = measured
    monkeypatch.setattr(gradient_noise, "project", lambda *args: None)
    noise.replace(noise.differences(z, 4000, new_stream(np.random.default_rng(2))))
    assert noise.variances[2] > 1.4 * 0.25 * ON_SPHERE

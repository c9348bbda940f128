"""Estimation of the metric from draws and gradients."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.mass_matrix import (
    SETTINGS,
    FactorEstimator,
    MassMatrixWindows,
    diagonal_scale,
    factor_estimator,
    geometric_mean,
    low_rank_factor,
    whitening_factor,
    window_ends,
)
from pymc_geodesic.gradients.metric import LowRank, Metric, diagonal_metric, unit_metric


def random_covariance(rng: np.random.Generator, d: int, condition: float) -> np.ndarray:
    """Covariance with a given condition number in random directions, and scales of 0.01 to 100."""
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    eigenvalues = np.geomspace(1.0, condition, d)
    scales = 10.0 ** rng.uniform(-2, 2, size=d)
    return np.diag(scales) @ (rotation * eigenvalues) @ rotation.T @ np.diag(scales)


def whitened_eigenvalues(factor: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Eigenvalues of the covariance in the coordinates of a metric; 1 where it is right."""
    dense = factor if factor.ndim == 2 else np.diag(factor)
    inverse = np.linalg.inv(dense)
    return np.linalg.eigvalsh(inverse @ covariance @ inverse.T)


def test_geometric_mean_solves_its_equation():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 5, 5))
    factor = geometric_mean(a, b)
    mean = factor.T @ factor
    np.testing.assert_allclose(mean @ b.T @ b @ mean, a.T @ a, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("d", [1, 4, 20])
def test_exact_for_a_normal_posterior_from_draws_of_another(d):
    # the draws come from a distribution unrelated to the posterior, as during burn-in
    rng = np.random.default_rng(d)
    covariance = random_covariance(rng, d, 1e3)
    scales = np.sqrt(np.diag(covariance))
    x = 5.0 * scales + scales * rng.standard_normal((3 * d + 5, d)).cumsum(axis=0)
    gradients = -np.linalg.solve(covariance, x.T).T
    eigenvalues = whitened_eigenvalues(whitening_factor(x, gradients), covariance)
    assert eigenvalues.min() > 0.9
    assert eigenvalues.max() < 1.5  # of a condition number of 1,000 or more


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7])
def test_scales_from_a_long_trend(far):
    # from a start so many standard deviations away the draws come on a straight line
    rng = np.random.default_rng(2)
    way = far * np.linspace(1.0, 0.5, 20)[:, np.newaxis] * [1.0, -0.5, 0.3]
    x = way + rng.standard_normal((20, 3))
    eigenvalues = whitened_eigenvalues(whitening_factor(x, -x), np.eye(3))
    np.testing.assert_allclose(eigenvalues, 1.0, rtol=1e-3)


def test_scales_are_finite_after_a_long_trend():
    rng = np.random.default_rng(2)
    x = 1e15 * np.linspace(1.0, 0.5, 20)[:, np.newaxis] * [1.0, -0.5, 0.3]
    x = x + rng.standard_normal((20, 3))
    factor = whitening_factor(x, -x)
    assert np.isfinite(factor).all()
    assert np.isfinite(np.linalg.inv(factor)).all()


def test_draws_without_gradients_are_not_enough():
    # for comparison, the same draws, whitened by their own covariance
    rng = np.random.default_rng(4)
    covariance = random_covariance(rng, 4, 1e3)
    scales = np.sqrt(np.diag(covariance))
    x = 5.0 * scales + 0.3 * scales * rng.standard_normal((17, 4)).cumsum(axis=0)
    eigenvalues = whitened_eigenvalues(np.linalg.cholesky(np.cov(x.T)), covariance)
    assert eigenvalues.max() / eigenvalues.min() > 30.0


def test_diagonal_scales_of_independent_coordinates():
    rng = np.random.default_rng(2)
    sd = np.array([1e-3, 1.0, 50.0])
    x = 0.5 * sd * rng.standard_normal((50, 3)) + 3.0 * sd
    factor = diagonal_scale(x, -x / sd**2)
    np.testing.assert_allclose(factor, sd, rtol=1e-10)


@pytest.mark.parametrize("rounding", [0.0, 1e-16, 1e-6])
def test_scales_of_constant_gradients_are_bounded(rounding):
    """Draws on one side of a Laplace distribution, for the first of two coordinates."""
    rng = np.random.default_rng(2)
    x = np.stack([rng.exponential(size=40), rng.standard_normal(40)], axis=1)
    gradients = np.stack([-1.0 + rounding * rng.standard_normal(40), -x[:, 1]], axis=1)
    covariance = np.diag([9.0 * x[:, 0].var(), 1.0])
    eigenvalues = whitened_eigenvalues(whitening_factor(x, gradients), covariance)
    np.testing.assert_allclose(eigenvalues, 1.0, rtol=1e-6)
    eigenvalues = whitened_eigenvalues(diagonal_scale(x, gradients), covariance)
    np.testing.assert_allclose(eigenvalues, 1.0, rtol=1e-6)


def test_unobserved_directions_keep_their_scale():
    rng = np.random.default_rng(3)
    d, n = 40, 10
    direction = np.ones(d) / np.sqrt(d)
    precision = np.eye(d) + (1e-4 - 1.0) * np.outer(direction, direction)  # one sd of 100
    x = rng.standard_normal((n, d)) + 30.0 * rng.standard_normal((n, 1)) * direction
    factor = whitening_factor(x, -x @ precision)
    eigenvalues = whitened_eigenvalues(factor, np.linalg.inv(precision))
    assert np.isfinite(factor).all()
    assert eigenvalues.max() < 200.0  # instead of 10,000, from ten draws of forty numbers
    assert eigenvalues.min() > 0.05


def spiked_covariance(rng: np.random.Generator, d: int, variances) -> np.ndarray:
    """Covariance with scales of 0.1 to 10 and a few directions whose scaled variance is not 1."""
    directions, _ = np.linalg.qr(rng.normal(size=(d, len(variances))))
    spiked = np.eye(d) + (directions * (np.asarray(variances) - 1.0)) @ directions.T
    scales = 10.0 ** rng.uniform(-1, 1, size=d)
    return scales[:, np.newaxis] * spiked * scales


def exact_draws(rng: np.random.Generator, covariance: np.ndarray, n: int):
    """Draws of a normal distribution and their gradients."""
    x = rng.standard_normal((n, len(covariance))) @ np.linalg.cholesky(covariance).T
    return x, -np.linalg.solve(covariance, x.T).T


def condition(factor, covariance: np.ndarray) -> float:
    eigenvalues = whitened_eigenvalues(
        factor.dense() if isinstance(factor, LowRank) else factor, covariance
    )
    return float(eigenvalues.max() / eigenvalues.min())


@pytest.mark.parametrize("variances", [np.geomspace(1e2, 1e4, 5), np.geomspace(1e-4, 1e-2, 5)])
@pytest.mark.parametrize("n", [100, 250])
def test_few_directions_of_many_are_estimated(variances, n):
    rng = np.random.default_rng(5)
    covariance = spiked_covariance(rng, 120, variances)
    x, gradients = exact_draws(rng, covariance, n)
    found = low_rank_factor(x, gradients)
    assert 5 <= found.stretch.size <= 10
    np.testing.assert_allclose(
        found.directions.T @ found.directions, np.eye(len(found.stretch)), atol=1e-12
    )
    assert condition(diagonal_scale(x, gradients), covariance) > 3000.0
    assert condition(found, covariance) < 30.0


@pytest.mark.parametrize("n", [20, 60, 400])
def test_no_direction_from_independent_coordinates(n):
    """Also with noisy gradients, as for a posterior that is not exactly normal."""
    rng = np.random.default_rng(6)
    x, gradients = exact_draws(rng, spiked_covariance(rng, 200, []), n)
    assert low_rank_factor(x, gradients).stretch.size == 0
    skewed = gradients * (1.0 + 0.3 * np.tanh(x / x.std(axis=0)))
    found = low_rank_factor(x, skewed)
    assert np.abs(np.log(found.stretch)).max(initial=0.0) < np.log(2.0)


def test_directions_without_cross_validation_are_spurious():
    """Estimates from fewer draws than coordinates, with independent positions and gradients."""
    rng = np.random.default_rng(7)
    x, gradients = rng.normal(size=(2, 40, 300))
    found = low_rank_factor(x, gradients)
    believed = low_rank_factor(np.repeat(x, 2, axis=0), np.repeat(gradients, 2, axis=0))
    assert np.abs(np.log(believed.stretch)).max() > 2.0
    assert np.abs(np.log(found.stretch)).max(initial=0.0) < 1.0


def test_few_draws_have_no_direction():
    rng = np.random.default_rng(8)
    for n in (3, 11):
        found = low_rank_factor(rng.normal(size=(n, 5)), rng.normal(size=(n, 5)))
        assert found.directions.shape == (5, 0)


def test_low_rank_metric_equals_its_dense_matrix():
    rng = np.random.default_rng(9)
    directions, _ = np.linalg.qr(rng.normal(size=(7, 3)))
    factor = LowRank(np.exp(rng.normal(size=7)), directions, np.array([0.1, 3.0, 20.0]))
    stretched = np.eye(7) + directions @ np.diag(factor.stretch - 1.0) @ directions.T
    matrix = np.diag(factor.scale) @ stretched
    z = rng.normal(size=(4, 7))
    np.testing.assert_allclose(factor.dense(), matrix, atol=1e-12)
    np.testing.assert_allclose(factor.times(z), z @ matrix.T, atol=1e-12)
    np.testing.assert_allclose(factor.transposed_times(z), z @ matrix, atol=1e-12)
    np.testing.assert_allclose(factor.solve(z), np.linalg.solve(matrix, z.T).T, atol=1e-10)


def test_metric_round_trip_and_chain_rule():
    rng = np.random.default_rng(6)
    along = np.array([[0.6], [0.0], [0.8]])
    low_rank = LowRank(np.array([2.0, 0.5, 3.0]), along, np.array([5.0]))
    for factor in (rng.normal(size=(3, 3)), np.array([2.0, 0.5, 3.0]), low_rank):
        metric = Metric(rng.normal(size=3), factor)
        z = rng.normal(size=(4, 3))
        np.testing.assert_allclose(metric.whiten(metric.to_position(z)), z, atol=1e-12)
        g = rng.normal(size=3)
        step = 1e-6 * np.eye(3)
        slopes = [
            (metric.to_position(z[0] + e) - metric.to_position(z[0])) @ g / 1e-6 for e in step
        ]
        np.testing.assert_allclose(metric.to_gradient(g), slopes, rtol=1e-6)
    turned = Metric(np.zeros(2), np.eye(2)).rotated(np.array([[0.0, 1.0], [1.0, 0.0]]))
    np.testing.assert_array_equal(turned.to_position(np.array([1.0, 2.0])), [2.0, 1.0])
    np.testing.assert_array_equal(unit_metric(2).to_position(np.array([1.0, 2.0])), [1.0, 2.0])
    np.testing.assert_allclose(
        diagonal_metric(np.zeros(3), np.array([1e4, 0.0, -1e-8])).factor, [0.01, 1.0, 1.0]
    )


def test_windows_discard_burn_in():
    rng = np.random.default_rng(7)
    windows = MassMatrixWindows(60, FactorEstimator("dense"))
    ended = []
    for draw in range(60):
        far = 1e3 * np.exp(-draw / 3.0)
        x = rng.standard_normal(2) * [1.0, 10.0] + far
        curvature = [1.0 + far, 0.01 + far]  # another curvature on the way
        ended.append(windows.add(x, -x * curvature))
        if ended[-1]:
            windows.discard_early()
            factor = windows.factor(2)
    assert [i + 1 for i, end in enumerate(ended) if end] == window_ends(60)
    eigenvalues = whitened_eigenvalues(factor, np.diag([1.0, 100.0]))
    assert 0.5 < eigenvalues.min() <= eigenvalues.max() < 2.0


def test_nonfinite_draws_are_ignored():
    windows = MassMatrixWindows(10, FactorEstimator("dense"))
    for draw in range(10):
        windows.add(np.full(2, np.nan if draw % 2 else draw), np.array([-draw, np.inf]))
    assert windows.factor(2) is None


def test_windows_resume():
    rng = np.random.default_rng(8)
    draws = rng.normal(size=(20, 2, 3))
    whole, first = (
        MassMatrixWindows(20, FactorEstimator("dense")),
        MassMatrixWindows(20, FactorEstimator("dense")),
    )
    for x, g in draws:
        whole.add(x, g)
    for x, g in draws[:7]:
        first.add(x, g)
    second = MassMatrixWindows(20, FactorEstimator("dense"))
    second.state = first.state
    for x, g in draws[7:]:
        second.add(x, g)
    np.testing.assert_array_equal(whole.factor(3), second.factor(3))


@pytest.mark.parametrize("kind", ["dense", "low rank", "diag"])
def test_scales_of_angles_are_circular(kind):
    """For unwrapped angles at any distance; the scales of other coordinates do not change."""
    rng = np.random.default_rng(1)
    n = 500
    near = rng.normal(0.0, 0.1, size=n) + np.pi
    x = np.column_stack([near, rng.uniform(-np.pi, np.pi, n), 20.0 * rng.normal(size=n)])
    gradients = np.column_stack([-(near - np.pi) / 0.01, 1e-4 * np.sin(x[:, 1]), -x[:, 2] / 400.0])
    x[:, :2] += 2.0 * np.pi * rng.integers(-30, 30, size=(n, 2))
    estimator = factor_estimator(kind, ["a", "b", "x"], angles=["a", "b"])
    factor = estimator.factor(x, gradients)
    dense = factor.dense() if isinstance(factor, LowRank) else factor
    scales = np.linalg.norm(dense, axis=1) if dense.ndim == 2 else dense
    assert scales[0] == pytest.approx(0.1, rel=0.2)
    assert scales[1] <= SETTINGS.max_angle_scale * (1.0 + 1e-9)
    assert scales[2] == pytest.approx(20.0, rel=0.2)

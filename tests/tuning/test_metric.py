"""The metric that draws and their gradients ask for."""

import numpy as np
import pytest

from pymc_geodesic.tuning.metric import (
    Metric,
    diagonal_metric,
    geometric_mean,
    unit_metric,
    whitening_factor,
)
from pymc_geodesic.tuning.windows import MetricWindows, window_ends


def random_covariance(rng: np.random.Generator, d: int, condition: float) -> np.ndarray:
    """Covariance with a given condition number in random directions, and scales of 0.01 to 100."""
    rotation, _ = np.linalg.qr(rng.normal(size=(d, d)))
    spread = np.geomspace(1.0, condition, d)
    scales = 10.0 ** rng.uniform(-2, 2, size=d)
    return np.diag(scales) @ (rotation * spread) @ rotation.T @ np.diag(scales)


def whitened_spread(factor: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Eigenvalues of the covariance in the coordinates of a metric; 1 where it is right."""
    dense = factor if factor.ndim == 2 else np.diag(factor)
    inverse = np.linalg.inv(dense)
    return np.linalg.eigvalsh(inverse @ covariance @ inverse.T)


def test_geometric_mean_solves_its_equation():
    rng = np.random.default_rng(1)
    a, b = (np.cov(rng.normal(size=(5, 20))) for _ in range(2))
    mean = geometric_mean(a, b)
    np.testing.assert_allclose(mean @ np.linalg.solve(a, mean), b, rtol=1e-8)
    np.testing.assert_allclose(mean, mean.T, rtol=1e-10)


@pytest.mark.parametrize("d", [1, 4, 20])
def test_exact_for_a_normal_law_from_draws_of_another(d):
    # the draws come from a law that has nothing to do with the posterior: a walk on its way there
    rng = np.random.default_rng(d)
    covariance = random_covariance(rng, d, 1e3)
    scales = np.sqrt(np.diag(covariance))
    x = 5.0 * scales + 0.3 * scales * rng.standard_normal((3 * d + 5, d)).cumsum(axis=0)
    gradients = -np.linalg.solve(covariance, x.T).T
    spread = whitened_spread(whitening_factor(x, gradients), covariance)
    assert spread.min() > 0.9
    assert spread.max() < 1.5  # of a condition number of 1,000 or more


def test_draws_alone_would_not_do():
    # the same draws, whitened by their own covariance: what the estimate above is worth
    rng = np.random.default_rng(4)
    covariance = random_covariance(rng, 4, 1e3)
    scales = np.sqrt(np.diag(covariance))
    x = 5.0 * scales + 0.3 * scales * rng.standard_normal((17, 4)).cumsum(axis=0)
    spread = whitened_spread(np.linalg.cholesky(np.cov(x.T)), covariance)
    assert spread.max() / spread.min() > 30.0


def test_diagonal_scales_of_independent_coordinates():
    rng = np.random.default_rng(2)
    sd = np.array([1e-3, 1.0, 50.0])
    x = 0.1 * sd * rng.standard_normal((50, 3)) + 3.0 * sd
    factor = whitening_factor(x, -x / sd**2, dense=False)
    np.testing.assert_allclose(factor, sd, rtol=1e-10)


def test_directions_that_were_not_seen_keep_their_scale():
    rng = np.random.default_rng(3)
    d, n = 40, 10
    direction = np.ones(d) / np.sqrt(d)
    precision = np.eye(d) + (1e-4 - 1.0) * np.outer(direction, direction)  # one sd of 100
    x = rng.standard_normal((n, d)) + 30.0 * rng.standard_normal((n, 1)) * direction
    factor = whitening_factor(x, -x @ precision)
    spread = whitened_spread(factor, np.linalg.inv(precision))
    assert np.isfinite(factor).all()
    assert spread.max() < 200.0  # instead of 10,000, from ten draws of forty numbers
    assert spread.min() > 0.05


def test_few_directions_are_those_that_matter():
    rng = np.random.default_rng(5)
    d = 12
    precision = np.eye(d)
    precision[:2, :2] = np.linalg.inv([[1.0, 0.999], [0.999, 1.0]])
    x = rng.standard_normal((200, d)) @ np.linalg.cholesky(np.linalg.inv(precision)).T
    covariance, gradients = np.linalg.inv(precision), -x @ precision
    diagonal = whitened_spread(whitening_factor(x, gradients, dense=False), covariance)
    few = whitened_spread(whitening_factor(x, gradients, n_directions=2), covariance)
    assert diagonal.max() / diagonal.min() > 500.0
    assert few.max() / few.min() < 5.0


def test_metric_there_and_back_and_chain_rule():
    rng = np.random.default_rng(6)
    for factor in (rng.normal(size=(3, 3)), np.array([2.0, 0.5, 3.0])):
        metric = Metric(rng.normal(size=3), factor)
        z = rng.normal(size=(4, 3))
        np.testing.assert_allclose(metric.from_position(metric.to_position(z)), z, atol=1e-12)
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


def test_windows_forget_the_way_to_the_posterior():
    rng = np.random.default_rng(7)
    windows = MetricWindows(60, dense=True)
    ended = []
    for draw in range(60):
        far = 1e3 * np.exp(-draw / 3.0)
        x = rng.standard_normal(2) * [1.0, 10.0] + far
        curvature = [1.0 + far, 0.01 + far]  # another curvature on the way
        ended.append(windows.observe(x, -x * curvature))
        if ended[-1]:
            windows.forget()
            factor = windows.factor(2)
    assert [i + 1 for i, end in enumerate(ended) if end] == window_ends(60)
    spread = whitened_spread(factor, np.diag([1.0, 100.0]))
    assert 0.5 < spread.min() <= spread.max() < 2.0


def test_what_is_not_finite_is_left_out():
    windows = MetricWindows(10, dense=True)
    for draw in range(10):
        windows.observe(np.full(2, np.nan if draw % 2 else draw), np.array([-draw, np.inf]))
    assert windows.factor(2) is None


def test_windows_resume():
    rng = np.random.default_rng(8)
    draws = rng.normal(size=(20, 2, 3))
    whole, first = MetricWindows(20, dense=True), MetricWindows(20, dense=True)
    for x, g in draws:
        whole.observe(x, g)
    for x, g in draws[:7]:
        first.observe(x, g)
    second = MetricWindows(20, dense=True)
    second.state = first.state
    for x, g in draws[7:]:
        second.observe(x, g)
    np.testing.assert_array_equal(whole.factor(3), second.factor(3))

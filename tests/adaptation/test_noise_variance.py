"""Noise heterogeneity over a posterior, separated from the sampling error of single pairs."""

import math

import numpy as np
import pytest

from pymc_geodesic.adaptation.langevin_parameters import (
    SETTINGS,
    OverdampedRule,
    UnderdampedRule,
    underdamped_parameters,
)
from pymc_geodesic.adaptation.noise_variance import NoiseVariance


def squares(variances: np.ndarray, n_pairs: int, rng, heavy: bool) -> np.ndarray:
    """Half the squared differences of pairs whose estimates have these variances."""
    shape = (*variances.shape, n_pairs, 2)
    noise = rng.standard_t(6.0, shape) / math.sqrt(1.5) if heavy else rng.standard_normal(shape)
    return 0.5 * variances[..., np.newaxis] * (noise[..., 0] - noise[..., 1]) ** 2


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("n_pairs", [2, 8])
def test_mean_and_sd(n_pairs, heavy):
    rng = np.random.default_rng(1)
    n = 20_000
    # an exponential distribution, a uniform one and a constant
    variances = np.stack([rng.exponential(3.0, n), rng.uniform(0.0, 2.0, n), np.full(n, 5.0)])
    noise = NoiseVariance.empty(3)
    for part in np.array_split(squares(variances, n_pairs, rng, heavy).transpose(1, 2, 0), 7):
        noise.add(part)
    assert noise.n_points == n
    assert noise.n_pairs == n * n_pairs
    np.testing.assert_allclose(noise.mean, [3.0, 1.0, 5.0], rtol=0.04)
    np.testing.assert_allclose(noise.sd[:2], [3.0, 3.0**-0.5], rtol=0.15)
    assert noise.sd[2] < 1.2
    # with a single pair at each point its sampling error would count as heterogeneity
    assert np.std(squares(variances, 1, rng, heavy)[2]) > 6.0


def test_few_points_show_no_heterogeneity_by_chance():
    rng = np.random.default_rng(2)
    sds = []
    for _ in range(200):
        noise = NoiseVariance.empty(1)
        noise.add(squares(np.ones((100, 1)), 8, rng, False).transpose(0, 2, 1))
        sds.append(noise.sd[0])
    assert np.mean(np.array(sds) == 0.0) > 0.5
    assert np.max(sds) < 0.5


def test_error_is_subtracted_as_for_all_points_at_once():
    rng = np.random.default_rng(3)
    drawn = squares(rng.exponential(size=(300, 2)), 4, rng, False).transpose(0, 2, 1)
    noise = NoiseVariance.empty(2)
    noise.add(drawn)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    here = drawn.mean(axis=1)
    products = np.mean([drawn[:, i] * drawn[:, j] for i, j in pairs], axis=0)
    contribution = products - 2.0 * noise.mean * here + noise.mean**2
    expected = contribution.mean(axis=0) - contribution.std(axis=0) / math.sqrt(300)
    np.testing.assert_allclose(noise.sd**2, np.maximum(expected, 0.0), rtol=1e-9)
    halves = [NoiseVariance.empty(2) for _ in range(2)]
    for half, part in zip(halves, (drawn[:100], drawn[100:]), strict=True):
        half.add(part)
    both = halves[0] + halves[1]
    np.testing.assert_allclose(both.sd, noise.sd, rtol=1e-9)
    assert (both.n_points, both.n_pairs) == (300, 1200)


def test_moments_without_measurements_are_zero():
    noise = NoiseVariance.empty(2)
    np.testing.assert_array_equal(noise.mean, 0.0)
    np.testing.assert_array_equal(noise.sd, 0.0)


def test_temperature_bias_at_the_bound_by_heterogeneity():
    variance, sd = np.array([10.0, 3.0]), np.array([5.0, 3.0])
    rule = UnderdampedRule()
    h = rule.max_step_size_for_heterogeneity(variance, sd)
    friction = underdamped_parameters(variance, step_size=h).friction
    bias = h * sd / (2.0 * friction)
    assert bias.max() == pytest.approx(SETTINGS.max_temperature_sd)
    assert rule.max_step_size_for_heterogeneity(variance, np.zeros(2)) == math.inf


def test_variance_bias_at_the_bound_without_a_momentum():
    """Variance of x ← (1 − a) x + a ξ + √(1 − (1 − a)²) ν with a = h²/2 is 1 + a s/(2 − a)."""
    rule, noise = OverdampedRule(), np.ones(2)
    h = rule.max_step_size_for_heterogeneity(noise, np.array([40.0, 1.0]))
    a = 0.5 * h * h
    assert a * 40.0 / (2.0 - a) == pytest.approx(SETTINGS.max_temperature_sd, rel=0.01)
    assert rule.max_step_size_for_heterogeneity(noise, np.zeros(2)) == math.inf

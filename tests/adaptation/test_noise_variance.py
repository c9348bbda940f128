"""How much noise differs over a posterior, told from the chance of single pairs."""

import math

import numpy as np
import pytest

from pymc_geodesic.adaptation.langevin_parameters import FRICTION, langevin_settings
from pymc_geodesic.adaptation.noise_variance import UNSTEADY_HEAT, NoiseOverPlaces, steady_step
from pymc_geodesic.adaptation.overdamped_parameters import overdamped_steady_step


def squares(variances: np.ndarray, n_pairs: int, rng, heavy: bool) -> np.ndarray:
    """Half the squared differences of pairs whose estimates have these variances."""
    shape = (*variances.shape, n_pairs, 2)
    noise = rng.standard_t(6.0, shape) / math.sqrt(1.5) if heavy else rng.standard_normal(shape)
    return 0.5 * variances[..., np.newaxis] * (noise[..., 0] - noise[..., 1]) ** 2


@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy tails"])
@pytest.mark.parametrize("n_pairs", [2, 8])
def test_mean_and_spread(n_pairs, heavy):
    rng = np.random.default_rng(1)
    n = 20_000
    # of an exponential law, of a uniform one and none at all
    variances = np.stack([rng.exponential(3.0, n), rng.uniform(0.0, 2.0, n), np.full(n, 5.0)])
    noise = NoiseOverPlaces(3)
    for part in np.array_split(squares(variances, n_pairs, rng, heavy).transpose(1, 2, 0), 7):
        noise.take(part)
    assert noise.n_places == n
    assert noise.n_pairs == n * n_pairs
    np.testing.assert_allclose(noise.mean, [3.0, 1.0, 5.0], rtol=0.04)
    np.testing.assert_allclose(noise.spread[:2], [3.0, 3.0**-0.5], rtol=0.15)
    assert noise.spread[2] < 1.2
    # without the second pair of a place the chance of pairs would count as a spread
    assert np.std(squares(variances, 1, rng, heavy)[2]) > 6.0


def test_few_places_tell_no_spread_that_is_not_there():
    rng = np.random.default_rng(2)
    spreads = []
    for _ in range(200):
        noise = NoiseOverPlaces(1)
        noise.take(squares(np.ones((100, 1)), 8, rng, False).transpose(0, 2, 1))
        spreads.append(noise.spread[0])
    assert np.mean(np.array(spreads) == 0.0) > 0.5
    assert np.max(spreads) < 0.5


def test_error_is_taken_off_as_if_all_places_were_there_at_once():
    rng = np.random.default_rng(3)
    drawn = squares(rng.exponential(size=(300, 2)), 4, rng, False).transpose(0, 2, 1)
    noise = NoiseOverPlaces(2)
    noise.take(drawn)
    pairs = [(i, j) for i in range(4) for j in range(i)]
    here = drawn.mean(axis=1)
    products = np.mean([drawn[:, i] * drawn[:, j] for i, j in pairs], axis=0)
    told = products - 2.0 * noise.mean * here + noise.mean**2
    expected = told.mean(axis=0) - told.std(axis=0) / math.sqrt(300)
    np.testing.assert_allclose(noise.spread**2, np.maximum(expected, 0.0), rtol=1e-9)
    halves = [NoiseOverPlaces(2) for _ in range(2)]
    for half, part in zip(halves, (drawn[:100], drawn[100:]), strict=True):
        half.take(part)
    both = halves[0] + halves[1]
    np.testing.assert_allclose(both.spread, noise.spread, rtol=1e-9)
    assert (both.n_places, both.n_pairs) == (300, 1200)


def test_nothing_is_known_where_nothing_was_measured():
    noise = NoiseOverPlaces(2)
    np.testing.assert_array_equal(noise.mean, 0.0)
    np.testing.assert_array_equal(noise.spread, 0.0)


def test_step_at_which_a_place_with_more_noise_is_heated_by_no_more():
    variance, spread = np.array([10.0, 3.0]), np.array([5.0, 3.0])
    h = steady_step(variance, spread, FRICTION)
    friction = langevin_settings(variance, step_size=h).friction
    heat = h * spread / (2.0 * friction)
    assert heat.max() == pytest.approx(UNSTEADY_HEAT)
    assert steady_step(variance, np.zeros(2), FRICTION) == math.inf


def test_the_same_without_a_momentum():
    """Variance of x ← (1 − a) x + a ξ + √(1 − (1 − a)²) ν with a = h²/2 is 1 + a s/(2 − a)."""
    h = overdamped_steady_step(np.array([40.0, 1.0]))
    a = 0.5 * h * h
    assert a * 40.0 / (2.0 - a) == pytest.approx(UNSTEADY_HEAT, rel=0.01)
    assert overdamped_steady_step(np.zeros(2)) == math.inf

"""What happens between search and sampling: anchor, noise and bounds, on laws known exactly."""

import math

import numpy as np
import pytest

from pymc_geodesic.adaptation import gradient_noise
from pymc_geodesic.adaptation.bounded_parameters import (
    SHORTEST_STEADY,
    BoundedSettings,
    UnderdampedRule,
)
from pymc_geodesic.adaptation.centering import MOST_PASSES, newton_step, passes_to_anchor
from pymc_geodesic.adaptation.gradient_noise import (
    FEWEST_DRAWS,
    PAIRS_AT_PLACE,
    NoiseMeasurement,
)
from pymc_geodesic.densities.compilation import CompiledField
from pymc_geodesic.gradients.adapted_gradient import AdaptedGradient
from pymc_geodesic.manifolds import Euclidean, Product, Sphere
from pymc_geodesic.runtime.fields import interpreted_field
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.tuning.metric import Metric
from pymc_geodesic.tuning.noise import langevin_settings
from pymc_geodesic.tuning.noise_over_places import heat_in_doubt

COVARIANCE = np.array([[4.0, 1.0], [1.0, 0.5]])
MODE = np.array([3.0, -2.0])
PRODUCT = Product([("b", Euclidean(2), 1)])


def field_of(function, size: int, n_values: int = 0) -> CompiledField:
    """Field of a function of position and argument."""

    def call(position, argument, context, output):
        x = np.ctypeslib.as_array(position, (size,))
        np.ctypeslib.as_array(output, (size + n_values,))[:] = function(x, argument)
        return 0.0

    return CompiledField(interpreted_field(call), [])


def normal_law(visited: list[np.ndarray]) -> AdaptedGradient:
    def gradient(x, argument):
        visited.append(x.copy())
        return np.append(-np.linalg.solve(COVARIANCE, x - MODE), 0.0)

    return AdaptedGradient(2, [], field_of(gradient, 2, 1))


def test_one_newton_step_finds_the_mode_of_a_normal_law():
    visited: list[np.ndarray] = []
    gradient = normal_law(visited)
    gradient.use(Metric(np.zeros(2), np.linalg.cholesky(COVARIANCE)))
    start = MODE + np.array([40.0, 7.0])
    slope, step = newton_step(PRODUCT, gradient.metric, start, gradient.gradient_of_all_rows(start))
    away = MODE - start
    assert slope == pytest.approx(away @ np.linalg.solve(COVARIANCE, away) / 2.0)
    np.testing.assert_allclose(step, away)
    visited.clear()
    anchor = passes_to_anchor(gradient, PRODUCT, start)
    assert anchor.n_passes == len(visited) == 2
    np.testing.assert_allclose(anchor.place, MODE, atol=1e-12)
    np.testing.assert_allclose(anchor.gradient, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("factor", "n_passes", "moves"),
    [
        (0.5 * np.sqrt(np.diag(COVARIANCE)), MOST_PASSES, True),  # short steps: gets nearer
        (3.0 * np.linalg.cholesky(COVARIANCE), 2, False),  # overshoots: the first place is better
    ],
)
def test_best_place_of_several_passes(factor, n_passes, moves):
    visited: list[np.ndarray] = []
    gradient = normal_law(visited)
    gradient.use(Metric(np.zeros(2), factor))
    start = MODE + np.array([40.0, 7.0])
    anchor = passes_to_anchor(gradient, PRODUCT, start)
    assert anchor.n_passes == len(visited) == n_passes
    assert (not np.array_equal(anchor.place, start)) == moves
    np.testing.assert_allclose(
        anchor.gradient, -np.linalg.solve(COVARIANCE, anchor.place - MODE), atol=1e-12
    )


def test_no_anchor_without_a_finite_gradient():
    gradient = AdaptedGradient(2, [], field_of(lambda x, _: np.full(3, math.nan), 2, 1))
    anchor = passes_to_anchor(gradient, PRODUCT, MODE)
    assert anchor.place is None
    assert anchor.n_passes == 1


def test_one_pass_stays_where_it_begins_however_steep_it_is_there():
    gradient = AdaptedGradient(2, [], field_of(lambda x, _: np.append(100.0 - x, 0.0), 2, 1))
    x = np.array([3.0, 4.0])
    anchor = passes_to_anchor(gradient, PRODUCT, x, most_passes=1)
    np.testing.assert_array_equal(anchor.place, x)
    np.testing.assert_array_equal(anchor.gradient, [97.0, 96.0])
    assert passes_to_anchor(gradient, PRODUCT, x).place == pytest.approx(100.0)


MIXED = Product([("b", Euclidean(2), 1), ("mu", Sphere(3), 1)])
VARIANCES = np.array([4.0, 0.25])
ON_SPHERE = 9.0


class NoisyLaw:
    """Gradients −x and 0 with noise that differs from one argument to the next."""

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        scale = np.sqrt(np.append(VARIANCES, [ON_SPHERE] * 3))
        self.noise = scale * rng.standard_normal((20_000, 5))
        self.asked = 0

    def minibatch(self, x, argument):
        return np.append(-x[:2], np.zeros(3)) + self.noise[argument]

    def next_arguments(self, n: int) -> np.ndarray:
        self.asked += n
        return np.arange(self.asked - n, self.asked, dtype=np.int64)


@pytest.fixture
def measured():
    law = NoisyLaw()
    gradient = AdaptedGradient(
        5,
        [3],
        field_of(lambda x, _: np.zeros(6), 5, 1),
        field_of(law.minibatch, 5),
        use_variates=False,
    )
    gradient.use(Metric(np.zeros(2), np.array([2.0, 1.0]), np.array([0.5])))
    noise = NoiseMeasurement(gradient, MIXED, law.next_arguments)
    return law, noise, np.array([0.0, 0.0, 0.0, 0.6, 0.8])


def test_variances_along_coordinates(measured):
    law, noise, z = measured
    stream = new_stream(np.random.default_rng(2))
    n = 4000
    noise.take(noise.differences(z, n, stream))
    assert noise.spent() == law.asked == 2 * n
    assert noise.spent() == 0
    # the gradient is multiplied by 2, 1 and the length ½; of three directions two are tangent
    expected = np.append([4.0 * 4.0, 0.25], [0.25 * ON_SPHERE] * 3)
    assert np.abs(noise.variances / expected - 1.0).max() < 5.0 * math.sqrt(2.0 / n)
    np.testing.assert_array_equal(noise.variances[2:], noise.variances[2])


def test_single_pairs_count_as_much_as_the_first(measured):
    _, noise, z = measured
    n = 40 * PAIRS_AT_PLACE
    noise.take(np.zeros((n, 5)))
    assert not noise.variances.any()
    for _ in range(40):
        noise.look_at(z)
    expected = 0.5 * np.append([16.0, 0.25], [0.25 * ON_SPHERE] * 3)
    assert np.abs(noise.variances / expected - 1.0).max() < 5.0 * math.sqrt(2.0 / n)
    assert noise.spent() == 2 * n


def test_rare_noise_at_draws_is_not_noise_along_other_coordinates(measured):
    """A coordinate whose noise was all but missed around the centre says nothing of the others."""
    law, noise, z = measured
    law.noise[:, 1] *= 1e-6
    noise.take(noise.differences(z, 2000, new_stream(np.random.default_rng(2))))
    around = noise.variances
    law.noise[law.asked + 5, 1] = 1.0
    for _ in range(400 // PAIRS_AT_PLACE):
        noise.look_at(z)
    assert noise.variances[0] == pytest.approx(around[0], rel=0.1)
    assert noise.variances[1] > 1e6 * around[1]


@pytest.mark.parametrize("coordinate", [0, 1])
def test_noise_at_a_point_where_a_chain_ran_away_is_not_counted(measured, coordinate):
    law, noise, z = measured
    noise.take(noise.differences(z, 2000, new_stream(np.random.default_rng(2))))
    expected = langevin_settings(noise.variances)
    runaway = z.copy()
    runaway[coordinate] = -1e11
    law.noise *= 1e11
    noise.look_at(runaway)
    law.noise *= 1e-11
    for _ in range(30):
        noise.look_at(z)
    found = langevin_settings(noise.variances)
    assert found.step_size == pytest.approx(expected.step_size, rel=0.2)
    np.testing.assert_allclose(found.friction, expected.friction, rtol=0.3)


@pytest.mark.parametrize("is_rare", [True, False])
def test_noise_that_few_minibatches_make_is_measured_on(measured, is_rare):
    """One minibatch in 250 makes all noise of the second coordinate; of the first, all do."""
    law, noise, z = measured
    n = noise.n_wanted
    law.noise[:, 0] *= 2.0
    law.noise[:, 1] = 0.0
    law.noise[::250, 1] = 100.0
    if not is_rare:
        law.noise[:, 1] = law.noise[:, 0]
    chosen = []

    def choose():
        chosen.append(langevin_settings(noise.variances))
        return chosen[-1]

    stream = new_stream(np.random.default_rng(2))
    noise.take(noise.differences(z, n, stream))
    first = noise.error[1] / noise.variances[1]
    noise.take_more(z, stream, choose)
    if not is_rare:  # what is known well at once is left at that
        assert noise.spent() == 2 * n
        assert len(chosen) == 1
        return
    assert noise.spent() > 6 * n
    assert noise.error[1] / noise.variances[1] < 0.6 * first
    assert noise.variances[1] == pytest.approx(100.0**2 / 250.0, rel=0.5)
    assert heat_in_doubt(chosen[-1], noise.error).max() < 0.8 * first


class NoiseByPlace(NoisyLaw):
    """Gradients whose noise grows with the first coordinate."""

    def minibatch(self, x, argument):
        return np.append(-x[:2], np.zeros(3)) + self.noise[argument] * math.exp(x[0])


def test_noise_is_measured_where_the_posterior_is():
    law = NoiseByPlace()
    gradient = AdaptedGradient(
        5, [3], field_of(lambda x, _: np.zeros(6), 5, 1), field_of(law.minibatch, 5),
        use_variates=False,
    )  # fmt: skip
    gradient.use(Metric(np.zeros(2), np.ones(2), np.ones(1)))
    noise = NoiseMeasurement(gradient, MIXED, law.next_arguments)
    stream, z = new_stream(np.random.default_rng(2)), np.array([0.0, 0.0, 0.0, 0.6, 0.8])
    wide = np.tile(z, (100, 1))
    wide[:, 0] = np.linspace(-2.0, 2.0, 100)
    noise.use_draws(wide[: FEWEST_DRAWS - 1])  # too few of them: of a normal law instead
    noise.take(noise.differences(z, 1600, stream))
    assert noise.variances[1] == pytest.approx(VARIANCES[1] * math.exp(2.0), rel=0.4)
    noise.use_draws(wide)
    noise.take(noise.differences(z, 1600, stream))
    local = VARIANCES[1] * np.exp(2.0 * wide[:, 0])
    assert noise.variances[1] == pytest.approx(local.mean(), rel=0.2)
    assert noise.spread[1] == pytest.approx(local.std(), rel=0.25)
    assert not noise.spread[2:].any()


def test_noise_that_differs_over_the_posterior_bounds_the_step():
    bounds = BoundedSettings(UnderdampedRule(), None)
    noise, nothing = np.array([4.0, 1.0]), np.zeros(2)
    assert bounds.steps_of_draw(noise, 2.0 * noise) > 2 * bounds.steps_of_draw(noise, nothing)
    bounds.bound(noise, nothing)
    bounds.choose(noise)
    assert bounds.settings.step_size == 0.5
    bounds.bound(noise, 0.5 * noise)
    bounds.choose(noise)
    assert 0.1 < bounds.settings.step_size < 0.2
    bounds.bound(noise, 100.0 * noise)
    bounds.choose(noise)
    assert bounds.settings.step_size == SHORTEST_STEADY


def test_nothing_is_known_where_nothing_was_measured(measured):
    _, noise, _ = measured
    np.testing.assert_array_equal(noise.variances, np.zeros(5))


def test_a_chain_that_heats_takes_shorter_steps_and_a_cold_one_takes_less_off():
    bounds = BoundedSettings(UnderdampedRule(), None)
    noise = np.array([4.0, 1.0])
    bounds.choose(noise)
    assert bounds.settings.step_size == 0.5
    np.testing.assert_array_equal(bounds.settings.noise, noise)
    for _ in range(40):
        bounds.watch(1.5, noise)
    assert bounds.settings.step_size == pytest.approx(0.35)
    np.testing.assert_array_equal(bounds.settings.noise, noise)
    for _ in range(40):
        bounds.watch(0.5, noise)
    assert bounds.settings.step_size == pytest.approx(0.35)
    np.testing.assert_allclose(bounds.settings.noise, 0.7 * noise)
    # what is known is remembered where the noise is measured anew
    bounds.choose(0.1 * noise)
    assert bounds.settings.step_size == pytest.approx(0.35)
    np.testing.assert_allclose(bounds.settings.noise, 0.07 * noise)
    bounds.longest_by_noise = 0.2
    bounds.choose(noise)
    assert bounds.settings.step_size == 0.2


def test_noise_that_is_not_projected_is_noticed(measured, monkeypatch):
    _, noise, z = measured
    monkeypatch.setattr(gradient_noise, "project", lambda *args: None)
    noise.take(noise.differences(z, 4000, new_stream(np.random.default_rng(2))))
    assert noise.variances[2] > 1.4 * 0.25 * ON_SPHERE

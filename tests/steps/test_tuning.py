"""Tuning to kinetic temperature 1, divergences, and warnings."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

from pymc_geodesic import (
    GMC,
    SGGMC,
    SGLD,
    SSGNHT,
    PolynomialDecay,
    UniformSphere,
    VonMisesFisher,
    gSGNHT,
)
from pymc_geodesic.adaptation.annealed_parameters import (
    SETTINGS,
    AnnealedMeasurements,
    UnderdampedAnnealing,
    noise_bias,
)
from pymc_geodesic.monitoring.kinetic_temperature import temperature_error
from pymc_geodesic.samplers.langevin import MAX_EXCURSIONS
from tests.grids import by_default, cross, slow
from tests.steps.runs import INTERPRETED, run_steps, sample, start

LANGEVIN = [SGGMC, gSGNHT]


def steps(*chosen, of=LANGEVIN):
    return pytest.mark.parametrize(
        "step_class", by_default(chosen, of), ids=lambda step: step.__name__
    )


uncorrected_steps = steps(SGGMC, SSGNHT, of=[*LANGEVIN, SSGNHT, SGLD])


@pytest.fixture(scope="module")
def directions():
    dist = VonMisesFisher.dist([0.0, 0.6, 0.8], 10.0, size=1000)
    x = pm.draw(dist, random_seed=1, mode="FAST_COMPILE")
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=3)
        VonMisesFisher("x_obs", mu, 10.0, observed=pm.Data("x", x))
    return model


@pytest.fixture(scope="module")
def scales():
    """Correlated coordinates of different scales, and a direction on the circle."""
    covariance = np.array([[1.0, 0.95], [0.95, 1.0]])
    with pm.Model() as model:
        pm.MvNormal("a", np.zeros(2), covariance)
        pm.Normal("b", 0.0, 30.0)
        VonMisesFisher("mu", [1.0, 0.0], 2.0)
    return model


def temperature(model, step, tune=500, draws=1500):
    idata = sample(model, step, tune=tune, draws=draws)
    return float(idata.sample_stats["temperature"].mean())


@steps()
def test_temperature_of_full_data(directions, step_class):
    with directions:
        step = step_class(compile_kwargs=INTERPRETED)
    assert temperature(directions, step) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
@steps(gSGNHT)
def test_temperature_of_minibatches(directions, step_class):
    with directions:
        step = step_class(minibatch="x", batch_size=50, compile_kwargs=INTERPRETED)
    assert temperature(directions, step) == pytest.approx(1.0, abs=0.05)


@pytest.mark.slow
@steps(SGGMC)
def test_temperature_over_many_scales(scales, step_class):
    with scales:
        step = step_class(compile_kwargs=INTERPRETED)
    assert temperature(scales, step) == pytest.approx(1.0, abs=0.05)


def test_acceptance_of_gmc(directions):
    with directions:
        step = GMC(compile_kwargs=INTERPRETED)
    stats = sample(directions, step, tune=300, draws=300).sample_stats
    assert 0.6 < float(stats["acceptance_rate"].mean()) < 0.95
    with directions:
        step = GMC(target_accept=0.95, compile_kwargs=INTERPRETED)
    careful = sample(directions, step, tune=300, draws=300).sample_stats
    assert float(careful["step_size"][0, -1]) < float(stats["step_size"][0, -1])


@steps(gSGNHT)
def test_user_specified_values_are_used_unchanged(directions, step_class):
    with directions:
        step = step_class(
            minibatch="x", batch_size=50, step_size=2e-4, friction=700.0, compile_kwargs=INTERPRETED
        )
    stats = sample(directions, step, tune=20, draws=20).sample_stats
    np.testing.assert_array_equal(stats["step_size"], 2e-4)
    np.testing.assert_array_equal(stats["friction"], 700.0)


def test_learning_rate_and_momentum_decay(directions):
    """The parameters of the paper: ε = sqrt(γ / N), C = ρ / ε."""
    with directions:
        step = SGGMC(
            minibatch="x", batch_size=50, learning_rate=1e-4, momentum_decay=0.3,
            compile_kwargs=INTERPRETED,
        )  # fmt: skip
    _, (stat, *_) = run_steps(step, start(directions, step, tune=0, draws=2), 2)
    assert stat["step_size"] == pytest.approx(np.sqrt(1e-4 / 1000))
    assert stat["friction"] == pytest.approx(0.3 / np.sqrt(1e-4 / 1000))


@pytest.mark.parametrize(
    ("step_class", "schedule"),
    cross(LANGEVIN, [PolynomialDecay(1e-3, b=5, gamma=0.6), lambda t: 1e-3 / (t + 1)]),
)
def test_schedules(directions, step_class, schedule):
    """A function of the draw, which counts from 0 with tuning."""
    with directions:
        step = step_class(step_size=schedule, friction=100.0, compile_kwargs=INTERPRETED)
    point = start(directions, step, tune=4, draws=4)
    points, stats = run_steps(step, point, 4)
    step.stop_tuning()
    stats += run_steps(step, points[-1], 4)[1]
    np.testing.assert_array_equal([s["step_size"] for s in stats], [schedule(t) for t in range(8)])


def test_only_the_friction_is_tuned(directions):
    with directions:
        step = SGGMC(step_size=1e-3, compile_kwargs=INTERPRETED)
    stats = sample(directions, step, tune=50, draws=50).sample_stats
    np.testing.assert_array_equal(stats["step_size"], 1e-3)
    assert 0.05 < float(stats["friction"][0, -1]) * 1e-3 <= 1.0


@pytest.fixture
def normal():
    with pm.Model() as model:
        pm.Normal("x")
    return model


@pytest.fixture
def step_with_high_temperature(directions):
    with directions:
        return SGGMC(
            minibatch="x", batch_size=10, step_size=2e-3, friction=50.0, compile_kwargs=INTERPRETED
        )


def test_warning_about_a_high_temperature(directions, step_with_high_temperature):
    point = run_steps(
        step_with_high_temperature,
        start(directions, step_with_high_temperature, tune=5, draws=10),
        5,
    )[0][-1]
    step_with_high_temperature.stop_tuning()
    _, stats = run_steps(step_with_high_temperature, point, 10)
    assert all(stat["warning"] is None for stat in stats[:-1])
    message = stats[-1]["warning"].message
    assert "SGGMC[mu]: The kinetic temperature with step size 0.002 and friction 50 is" in message
    assert "draws are wider than the posterior" in message
    assert "Omit step_size, friction and gradient_noise if they are set" in message
    assert stats[-1]["warning"].level == "warn"


def test_warning_of_pymc(directions, step_with_high_temperature, caplog):
    with caplog.at_level(logging.WARNING, "pymc"):
        sample(
            directions,
            step_with_high_temperature,
            tune=5,
            draws=10,
            quiet=False,
            compute_convergence_checks=True,
        )
    assert "kinetic temperature" in caplog.text


def test_no_warning_of_a_few_draws(normal):
    """Two draws have 20 velocities in one dimension: too few to detect an error of 10 %."""
    with normal:
        step = SGGMC(step_size=0.1, friction=10.0, compile_kwargs=INTERPRETED)
    farthest = 0.0
    for seed in range(20):
        point = start(normal, step, tune=0, draws=2, seed=seed)
        _, stats = run_steps(step, point, 2)
        assert stats[-1]["warning"] is None
        farthest = max(farthest, abs(np.mean([stat["temperature"] for stat in stats]) - 1.0))
    assert farthest > 0.2


@pytest.mark.parametrize("friction", [2.0, slow(20.0)])
def test_error_of_a_mean_temperature(normal, friction):
    """Means over runs of 300 steps have the standard error that the warning assumes."""
    n_steps, h = 300, 0.05
    with normal:  # so many steps that it is worth while to compile
        step = SGGMC(step_size=h, friction=friction, n_steps=n_steps)
    run = sample(normal, step, tune=10, draws=500)
    means = run.sample_stats["temperature"].values
    assert float(means.mean()) == pytest.approx(1.0, abs=0.05)
    expected = temperature_error(np.ones(1), np.array([h * friction]), n_steps)
    assert means.std() == pytest.approx(expected, rel=0.1)


@pytest.mark.slow
def test_no_warning_after_tuning(directions, caplog):
    with directions:
        step = SGGMC(minibatch="x", batch_size=50, compile_kwargs=INTERPRETED)
    with caplog.at_level(logging.WARNING, "pymc"):
        sample(directions, step, tune=500, draws=500, quiet=False)
    assert "temperature" not in caplog.text


def test_warning_if_nothing_is_accepted(directions):
    """After twenty draws, but not after two, which may be rejected by chance."""
    with directions:
        step = GMC(step_size=3.0, compile_kwargs=INTERPRETED)
    for draws, warns in ((20, True), (2, False)):
        point = run_steps(step, start(directions, step, tune=1, draws=draws), 1)[0][-1]
        step.stop_tuning()
        _, stats = run_steps(step, point, draws)
        assert (stats[-1]["warning"] is not None) == warns
        if warns:
            assert "Omit step_size if it is set" in stats[-1]["warning"].message


@pytest.fixture
def cliff():
    """A normal distribution whose gradient is NaN wherever a ≥ limit."""
    with pm.Model() as model:
        a = pm.Normal("a", shape=2)
        pm.Normal("b")
        limit = pm.Data("limit", np.array(100.0))
        pm.Potential("edge", pt.sqrt(limit - a).sum())
    return model


def move_cliff(model, step, limit):
    model["limit"].set_value(np.array(limit))
    step.estimator.refresh_data()


@uncorrected_steps
def test_divergence_while_tuning_halves_the_step_size(cliff, step_class):
    with cliff:
        step = step_class(metric=None, compile_kwargs=INTERPRETED)
    points, stats = run_steps(step, start(cliff, step, tune=50, draws=50), 5)
    move_cliff(cliff, step, -100.0)
    lost, lost_stats = run_steps(step, points[-1], 3)
    assert [stat["diverging"] for stat in lost_stats] == [True] * 3
    for point in lost:
        np.testing.assert_array_equal(point["a"], points[-1]["a"])
        np.testing.assert_array_equal(point["b"], points[-1]["b"])
    if step_class in (gSGNHT, SSGNHT):
        assert np.isfinite(step.sampler.dynamics.thermostat).all()
    sizes = np.array([stat["step_size"] for stat in lost_stats])
    np.testing.assert_allclose(sizes[1:] / sizes[:-1], 0.5)
    move_cliff(cliff, step, 100.0)
    _, after = run_steps(step, lost[-1], 3)
    assert not any(stat["diverging"] for stat in after)
    assert after[0]["step_size"] < 0.2 * stats[-1]["step_size"]


@uncorrected_steps
def test_divergences_after_tuning_raise(cliff, step_class):
    """In adapted coordinates the first ones are undone, and repeated with shorter steps."""
    with cliff:
        step = step_class(compile_kwargs=INTERPRETED)
    points, _ = run_steps(step, start(cliff, step, tune=5, draws=5), 5)
    step.stop_tuning()
    move_cliff(cliff, step, -100.0)
    point, sizes = points[-1], []
    with pytest.raises(SamplingError) as caught:  # noqa: PT012
        for _ in range(MAX_EXCURSIONS + 1):
            point, (stats,) = step.step(point)
            assert stats["diverging"]
            np.testing.assert_array_equal(point["a"], points[-1]["a"])
            sizes.append(stats["step_size"])
    np.testing.assert_allclose(np.divide(sizes[1:], sizes[:-1]), 0.5)
    message = str(caught.value)
    assert "'a'" in message
    assert "step size" in message
    assert "smaller step_size" in message


def test_gmc_rejects_nonfinite_proposals(cliff):
    with cliff:
        step = GMC(step_size=0.3, compile_kwargs=INTERPRETED)
    points, _ = run_steps(step, start(cliff, step, tune=0, draws=20), 5)
    move_cliff(cliff, step, float(points[-1]["a"].max()) + 1e-3)
    later, stats = run_steps(step, points[-1], 10)
    assert any(stat["diverging"] for stat in stats)
    assert all(np.isfinite(point["a"]).all() for point in later)


class TestAnnealing:
    """Step size and friction for measured curvature and noise."""

    def test_allowed_bias_decreases_geometrically(self):
        measured = AnnealedMeasurements(1, final_bias=0.02)
        measured.reset(100)
        allowed = []
        for _ in range(100):
            allowed.append(measured.allowed_bias)
            measured.update(1.0, None)
        assert allowed[0] == SETTINGS.initial_bias
        annealed = round(100 * SETTINGS.annealing)
        np.testing.assert_allclose(allowed[annealed:], 0.02)
        ratios = np.diff(np.log(allowed[:annealed]))
        np.testing.assert_allclose(ratios, ratios[0])

    def test_step_resolves_the_curvature(self):
        rule, measured = UnderdampedAnnealing(), AnnealedMeasurements(1, final_bias=0.02)
        for _ in range(300):
            measured.update(25.0, None)
        step_size = rule.step_size(measured)
        assert step_size * 5.0 == pytest.approx(SETTINGS.max_angle)
        softer = AnnealedMeasurements(1, final_bias=0.02)
        softer.update(4.0, None)
        assert rule.step_size(softer) == pytest.approx(2.5 * step_size)

    def test_bias_by_noise_is_the_allowed_one(self):
        """The noisiest block is at the limit; the others have weaker friction."""
        rule, measured = UnderdampedAnnealing(), AnnealedMeasurements(2, final_bias=0.03)
        measured.reset(10)
        for _ in range(300):
            measured.update(1.0, np.array([1e4, 10.0]))
        step_size = rule.step_size(measured)
        decays = rule.friction(measured, step_size) * step_size
        assert noise_bias(step_size, decays[0], 1e4) == pytest.approx(0.03, rel=1e-6)
        assert noise_bias(step_size, decays[1], 10.0) <= 0.03
        assert decays[1] < decays[0]
        expected = [noise_bias(step_size, *pair) for pair in zip(decays, [1e4, 10.0], strict=True)]
        found = rule.bias(measured, step_size, decays / step_size)
        np.testing.assert_allclose(found, expected)

    def test_target_temperature_is_that_of_the_noise(self, normal):
        """The allowed bias minus that at the end of annealing; 1 with little noise."""
        with normal:
            step = SGGMC(metric=None, compile_kwargs=INTERPRETED)
        adaptation = step.adaptation
        final_bias = adaptation._measured.final_bias
        for noise, friction in ((1e4, 3.0), (10.0, 2.0), (0.0, 1.0)):
            adaptation._measured.reset(10)
            adaptation._measured.update(1.0, np.array([noise]))
            bias = noise_bias(0.1, 0.1 * friction, noise)
            found = adaptation._temperatures(np.array([bias]))
            bias = min(bias, adaptation._measured.allowed_bias)
            np.testing.assert_allclose(found, 1.0 + max(bias - final_bias, 0.0))
            assert (found[0] > 2.0) == (noise == 1e4)
            assert (found[0] == 1.0) == (noise == 0.0)

    def test_nonfinite_measurements_are_ignored(self):
        measured = AnnealedMeasurements(1, final_bias=0.02)
        measured.update(4.0, np.array([2.0]))
        measured.update(np.nan, np.array([np.inf]))
        assert measured.curvature == pytest.approx(4.0)
        assert measured.noise == pytest.approx([2.0])

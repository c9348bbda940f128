"""Stationarity monitor of Langevin samplers with user-specified step size and friction."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.manifolds import Euclidean, Product, Sphere
from pymc_geodesic.monitoring.stationarity_monitors import FixedParameterMonitor
from tests.grids import by_default

N_EVALUATIONS = 250
PRODUCT = Product([("a", Euclidean(1), 1), ("b", Euclidean(2), 1), ("mu", Sphere(3), 1)])
NAMES = ["a", "b[0]", "b[1]", "mu[0]", "mu[1]", "mu[2]"]
CENTRE, SCALE = np.array([1e3, -5.0, 0.0]), np.array([0.01, 1.0, 50.0])
CONCENTRATION = 4.0


def directions(rng: np.random.Generator, concentration: float) -> np.ndarray:
    """Von Mises–Fisher draws on the sphere, whose height has an exponential distribution."""
    u = rng.random(N_EVALUATIONS)
    height = 1.0 + np.log(u + (1.0 - u) * np.exp(-2.0 * concentration)) / concentration
    angle = 2.0 * np.pi * rng.random(N_EVALUATIONS)
    wide = np.sqrt(1.0 - height**2)
    return np.stack([wide * np.cos(angle), wide * np.sin(angle), height], axis=-1)


def monitored(seed, *, noise=0.0, shift=0.0, stretch=1.0, concentration=CONCENTRATION):
    """Monitor of draws from a distribution whose b[1] is off, with gradients of minibatches."""
    rng = np.random.default_rng(seed)
    gradients = []
    monitor = FixedParameterMonitor(PRODUCT, lambda x, minibatch: gradients[minibatch], n_steps=10)
    monitor.initialize(4 * N_EVALUATIONS)
    standard = rng.normal(size=(N_EVALUATIONS, 3))
    standard[:, 2] = shift + stretch * standard[:, 2]
    estimates = -(standard + noise * rng.normal(size=standard.shape)) / SCALE
    for i, (position, gradient, mu) in enumerate(
        zip(CENTRE + SCALE * standard, estimates, directions(rng, concentration), strict=True)
    ):
        ambient = CONCENTRATION * np.array([0.0, 0.0, 1.0]) + 7.0 * mu  # the normal part is none
        gradients.append(np.append(gradient, ambient))
        n_grad = [monitor.before_draw(np.append(position, mu), np.array([i])) for _ in range(4)]
        assert n_grad == [1, 0, 0, 0]
    return monitor


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_false_alarms_are_rare(noise):
    alarms = sum(monitored(seed, noise=noise).diagnosis(NAMES) is not None for seed in range(100))
    assert alarms <= 2


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"shift": 0.9}, ("mean gradient", "b[1]")),
        ({"stretch": 2.0}, ("configurational temperature", "b[1]")),
        ({"stretch": 0.6}, ("configurational temperature", "b[1]")),
        ({"shift": 4.0, "noise": 5.0}, ("mean gradient", "b[1]")),
        ({"concentration": 1.0}, ("mean gradient", "mu[2]")),
    ],
)
def test_nonstationary_variables_are_named(fault, expected):
    found = [monitored(seed, **fault).diagnosis(NAMES) for seed in range(5)]
    assert [(one.quantity, one.coordinates[0]) for one in found] == [expected] * 5


def test_temperatures_are_those_of_the_draws():
    monitor = monitored(1, stretch=1.5)
    np.testing.assert_allclose(monitor.temperatures, [1.0, 1.0, 2.25], rtol=0.3)
    assert monitor.temperature == pytest.approx(monitor.temperatures.mean())
    assert monitor.largest_gradient < 1.0


SD = np.array([0.1, 0.07])


def run(make, *, is_monitored=True, tune=200, draws=1600):
    """Chain on a normal distribution; the last stats, and all positions."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(400, 2)) * SD * 20.0
    with pm.Model() as model:
        x = pm.Data("x", rows)
        b = pm.Normal("b", 0.0, 100.0, shape=2)
        pm.Normal("y", b, 20.0 * SD, observed=x)
        step = make()
    if not is_monitored:
        step.sampler.monitor = None
    step.setup_chain(np.random.default_rng(3), tune, draws)
    point, positions = {"b": rows.mean(axis=0)}, []
    for draw in range(tune + draws):
        if draw == tune:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        positions.append(point["b"])
    assert model is step.model
    return stats, np.array(positions[tune:])


def stream():
    rows = np.random.default_rng(1).normal(size=(400, 2)) * SD * 20.0
    return [rows[first : first + 100] for first in range(0, 400, 100)]


RIGHT = {
    "SGLD": lambda: pg.SGLD(step_size=0.02, n_steps=40),
    "SGGMC": lambda: pg.SGGMC(step_size=0.03, friction=20.0),
    "SGGMC, minibatches": lambda: pg.SGGMC(
        step_size=0.003, friction=40.0, n_steps=100, batch_size=50, minibatch=["x"]
    ),
    "SGGMC, stream": lambda: pg.SGGMC(
        step_size=0.003, friction=40.0, n_steps=100, batch_size=50, minibatch=["x"],
        batches=stream(), total_size=400,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", by_default(["SGLD", "SGGMC, stream"], of=RIGHT))
def test_correct_dynamics_give_no_warning(name):
    stats, positions = run(RIGHT[name])
    assert stats["warning"] is None
    assert positions.std(axis=0) == pytest.approx(SD, rel=0.2)
    assert 0.5 < stats["configurational_temperature"] < 1.5
    assert stats["whitened_gradient"] < 1.0


def test_long_steps_without_a_temperature_are_noticed():
    step_size = 0.1
    stats, positions = run(lambda: pg.SGLD(step_size=step_size, n_steps=40))
    widened = 1.0 / np.sqrt(1.0 - 0.25 * (step_size / SD) ** 2)
    np.testing.assert_allclose(positions.std(axis=0), widened * SD, rtol=0.1)
    assert "SGLD[b]: The configurational temperature of 'b[1]' is" in stats["warning"].message


@pytest.mark.parametrize("name", ["SGLD", "SGGMC, minibatches"])
def test_monitor_changes_no_draw(name):
    _, monitored = run(RIGHT[name], draws=100)
    _, alone = run(RIGHT[name], is_monitored=False, draws=100)
    np.testing.assert_array_equal(monitored, alone)

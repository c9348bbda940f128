"""Effective sample size of one chain by the means of batches."""

import itertools

import numpy as np
import pytest

from pymc_geodesic.manifolds import Euclidean, Product, Simplex
from pymc_geodesic.monitoring.effective_size import EffectiveSizeMonitor

LINE = Product([("x", Euclidean(1), 1)])


def observed(monitor: EffectiveSizeMonitor, draws: np.ndarray) -> EffectiveSizeMonitor:
    """Monitor of a chain of these draws."""
    monitor.initialize(len(draws))
    for draw in draws:
        monitor.observe(draw, {})
    return monitor


def autoregression(n: int, memory: float, size: int) -> np.ndarray:
    """Draws x' = a x + √(1 − a²) ε, worth n (1 − a) / (1 + a) independent ones."""
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(n, size))
    for last, draw in itertools.pairwise(draws):
        draw *= np.sqrt(1.0 - memory**2)
        draw += memory * last
    return draws


@pytest.mark.parametrize("memory", [0.0, 0.9, 0.98])
def test_of_autoregression(memory):
    n = 20_000
    monitor = EffectiveSizeMonitor(Product([("x", Euclidean(3), 1)]))
    found = observed(monitor, autoregression(n, memory, 3) + 1e6).sizes()
    ratio = found / (n * (1.0 - memory) / (1.0 + memory))
    assert 0.3 < ratio.min() <= ratio.max() < 2.5


@pytest.mark.parametrize("memory", [0.0, 0.98])
def test_of_a_resumed_run(memory):
    """Draws are added to the number that was planned first, twice."""
    n, first = 20_000, 0
    draws = autoregression(n, memory, 1) + 3.0
    monitor, state = EffectiveSizeMonitor(LINE), None
    for planned in (8_000, 16_000, n):
        monitor.initialize(planned)
        if state is not None:
            monitor.state = state
        for draw in draws[first:planned]:
            monitor.observe(draw, {})
        first, state = planned, monitor.state
    found = monitor.sizes().item()
    assert 0.3 < found / (n * (1.0 - memory) / (1.0 + memory)) < 1.7


def test_all_slow_coordinates_are_named():
    """Two of many coordinates, with a bound that allows for errors of a third."""
    product = Product([("x", Euclidean(300), 1), ("y", Euclidean(1), 1)])
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(1_000, 301))
    draws[:, [17, 300]] = autoregression(1_000, 0.98, 2)
    found = observed(EffectiveSizeMonitor(product), draws).diagnosis([f"c{i}" for i in range(301)])
    assert set(found.coordinates) == {"c17", "c300"}
    assert found.n_coordinates == 301
    assert found.value < found.expected < 100.0


def test_chance_causes_few_warnings():
    """Chains of 1,000 coordinates worth 200 draws each, twice the expected size."""
    product = Product([("x", Euclidean(1_000), 1)])
    names, rng = [str(i) for i in range(1_000)], np.random.default_rng(1)
    monitor = EffectiveSizeMonitor(product)
    found = [observed(monitor, rng.normal(size=(200, 1_000))).diagnosis(names) for _ in range(40)]
    assert sum(each is not None for each in found) <= 5


def test_times_around_the_circle_do_not_matter():
    """Angles that are independent draws, on a line where a chain drifts away from zero."""
    rng = np.random.default_rng(1)
    turns = 2.0 * np.pi * np.cumsum(rng.choice([-1, 0, 1], size=2000))
    angles = (rng.uniform(-np.pi, np.pi, 2000) + turns)[:, np.newaxis]
    on_circle = observed(EffectiveSizeMonitor(LINE, angles=["x"]), angles)
    on_line = observed(EffectiveSizeMonitor(LINE), angles)
    assert on_circle.sizes().item() > 1000.0
    assert on_circle.diagnosis(["x"]) is None
    found = on_line.diagnosis(["x"])
    assert found.value == on_line.sizes().item() < 100.0
    assert (found.coordinates, found.anchor) == (("x",), "few-effective-draws")


def test_angles_of_which_only_the_sine_mixes_slowly():
    rng = np.random.default_rng(1)
    sine = 0.9 * np.tanh(autoregression(1_000, 0.99, 1))
    angles = np.where(rng.random((1_000, 1)) < 0.5, np.arcsin(sine), np.pi - np.arcsin(sine))
    assert observed(EffectiveSizeMonitor(LINE, angles=["x"]), angles).sizes().item() < 60.0
    assert observed(EffectiveSizeMonitor(LINE), np.cos(angles)).sizes().item() > 300.0


def test_signs_of_square_roots_do_not_matter():
    product = Product([("theta", Simplex(3), 1)])
    rng = np.random.default_rng(1)
    roots = np.sqrt(rng.dirichlet(np.ones(3), 400))
    signs = rng.choice([-1.0, 1.0], (400, 3))
    one, other = (
        observed(EffectiveSizeMonitor(product), draws).state for draws in (roots, signs * roots)
    )
    np.testing.assert_equal(one, other)

"""Curvature by power iteration, and gradient noise from differences."""

from types import SimpleNamespace

import numpy as np
import pytest
from numba import njit, types

from pymc_geodesic.integrators import refresh_velocity
from pymc_geodesic.kernels import probe
from pymc_geodesic.kernels.probe import Line
from pymc_geodesic.manifolds import Euclidean, Product, Sphere
from pymc_geodesic.runtime.gradient_functions import array_at, evaluate
from pymc_geodesic.runtime.streams import fill_normal, new_stream
from tests.kernels.drivers import called
from tests.native_functions import native_function

KAPPA = 40.0
SCALES = np.array([1.0, 4.0, 100.0])
SPACE = Product([("x", Euclidean(3), 1), ("mu", Sphere(4), 2)])


@njit
def log_density(position, argument, context, output):
    """Normal with curvatures `SCALES`, and two von Mises–Fisher densities, mode (1, 0, 0, 0)."""
    output[:] = 0.0
    total = 0.0
    for i in range(3):
        output[i] = -SCALES[i] * position[i]
        total -= 0.5 * SCALES[i] * position[i] ** 2
    for row in range(2):
        output[3 + 4 * row] = KAPPA
        total += KAPPA * position[3 + 4 * row]
    return total


@njit
def noisy_log_density(position, argument, context, output):
    value = log_density(position, argument, context, output)
    noise = np.empty(11)
    fill_normal(array_at(context[0], (2,), types.uint64), noise)
    output[:3] += 2.0 * noise[:3]
    output[3:] += 5.0 * noise[3:]
    return value


@njit
def followed_by_value(position, argument, context, output):
    output[11] = log_density(position, argument, context, output[:11])
    return 0.0


def run_probe(function, x, direction, previous, noise, context):
    logp_grad = native_function(function, 11, n_context=1)
    return probe(
        called(logp_grad, context), 0, SPACE.space, Line(x, direction, 1e-5), previous, noise, 0
    )


@pytest.fixture
def pole():
    x = np.zeros(11)
    x[:3] = [0.3, -0.2, 0.1]
    x[[3, 7]] = 1.0
    return x


def test_largest_curvature(pole):
    direction = np.empty(11)
    refresh_velocity(SPACE.blocks, pole, direction, new_stream(np.random.default_rng(1)))
    before = pole.copy()
    logp_grad = native_function(log_density, 11, n_context=1)
    for _ in range(30):
        curvature = probe(
            called(logp_grad), 0, SPACE.space, Line(pole, direction, 1e-5), np.empty(0),
            np.zeros(2), 0,
        )  # fmt: skip
    assert curvature == pytest.approx(100.0, rel=1e-4)
    np.testing.assert_array_equal(pole, before)


@pytest.mark.parametrize("angle", [0.0, 0.7, 2.5])
def test_curvature_along_a_great_circle(pole, angle):
    """κ cos of the angle to the mean, in every direction orthogonal to it: −(κ cos t)''."""
    pole[3:7] = [np.cos(angle), np.sin(angle), 0.0, 0.0]
    direction = np.zeros(11)
    direction[5] = 1.0
    curvature = run_probe(
        log_density, pole, direction, np.empty(0), np.zeros(2), np.zeros(1, dtype=np.int64)
    )
    assert curvature == pytest.approx(KAPPA * np.cos(angle), abs=1e-3)


def test_gradient_noise_is_unbiased(pole):
    stream = new_stream(np.random.default_rng(1))
    context = np.array([stream.ctypes.data], dtype=np.int64)
    logp_grad = native_function(noisy_log_density, 11, n_context=1)
    gradient, noise = np.empty(11), np.empty(2)
    measured = []
    for _ in range(4000):
        evaluate(logp_grad.address, pole, 0, context, gradient)
        probe(
            called(logp_grad, context), 0, SPACE.space, Line(pole, np.ones(11), 1e-5), gradient,
            noise, 0,
        )  # fmt: skip
        measured.append(noise.copy())
    relative = np.mean(measured, axis=0) / [4.0, 25.0] - 1.0
    errors = np.sqrt(2.0 / (4000 * SPACE.dims))
    assert np.all(np.abs(relative) < 5.0 * errors), relative / errors


def test_not_finite_gradient_is_reported(pole):
    pole[0] = np.nan
    curvature = run_probe(
        log_density, pole, np.ones(11), np.empty(0), np.zeros(2), np.zeros(1, dtype=np.int64)
    )
    assert np.isnan(curvature)


@pytest.mark.parametrize(("n_values", "n_overwritten"), [(0, 2), (1, 0)])
def test_value_after_the_gradient_has_room(pole, monkeypatch, n_values, n_overwritten):
    """Each array of `probe` ends with a canary element, which the value overwrites without room."""
    arrays = []

    def empty(size):
        arrays.append(np.full(size + 1, -1.0))
        return arrays[-1][:size]

    monkeypatch.setitem(probe.py_func.__globals__, "np", SimpleNamespace(empty=empty))
    monkeypatch.setitem(probe.py_func.__globals__, "inner", np.dot)  # Python cannot call parts
    logp_grad = native_function(followed_by_value, 11, 12, n_context=1)
    line = Line(pole, np.ones(11), 1e-5)
    probe.py_func(called(logp_grad), 0, SPACE.space, line, np.empty(0), np.zeros(2), n_values)
    assert sum(array[-1] != -1.0 for array in arrays) == n_overwritten

"""Accumulation of rounding errors over many inner steps."""

import numpy as np
import pytest
from numba import njit

from pymc_geodesic.integrators import NOT_HARMONIC, Scratch, State, refresh_velocity
from pymc_geodesic.kernels import sggmc
from pymc_geodesic.manifolds import Product, Sphere
from pymc_geodesic.runtime.streams import new_stream
from tests.kernels.drivers import called, friction_of
from tests.native_functions import native_function

SIZE = 5000


@njit
def pull(position, argument, context, output):
    """Log-density 5000 x₀."""
    output[:] = 0.0
    output[0] = 5000.0
    return 5000.0 * position[0]


@pytest.mark.parametrize(
    "n_steps", [10_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids="{:,} steps".format
)
def test_drift_off_the_sphere(n_steps):
    product = Product([("x", Sphere(SIZE), 1)])
    rng = np.random.default_rng(1)
    x = product.random_point(rng)
    v = np.empty(SIZE)
    stream = new_stream(rng)
    refresh_velocity(product.blocks, x, v, stream)
    logp_grad = native_function(pull, SIZE)
    temperatures = np.empty(1)
    sggmc(
        called(logp_grad), np.zeros(n_steps, dtype=np.int64), product.space, State(x, v), 0.003,
        NOT_HARMONIC, friction_of(SIZE, 30.0, 0.0), stream,
        Scratch(np.empty(SIZE), np.empty(SIZE)), temperatures,
    )  # fmt: skip
    assert abs(np.linalg.norm(x) - 1.0) < 1e-10
    assert abs(x @ v) / np.linalg.norm(v) < 1e-10
    assert temperatures[0] == pytest.approx(1.0, abs=0.02)

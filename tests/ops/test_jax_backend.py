"""Functions and draws for JAX agree with NumPy, and JAX is imported lazily."""

import subprocess
import sys

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import Kent, VonMisesFisher
from pymc_geodesic.ops.fisher_bingham_integral import (
    matrix_covariances,
    matrix_moments,
    spectral_covariances,
    spectral_moments,
)
from tests.ops.test_fisher_bingham_integral import SHAPES, random_case, turned
from tests.processes import in_its_own_process

pytestmark = pytest.mark.slow  # compilation by JAX

TOLERANCE = 1e-12

SPECTRAL = [
    *[(np.array([k, 0.0]), np.array([1.0, d - 1.0]), np.zeros(2))
      for d in (2, 3, 1000) for k in (0.0, 1e-3, 70.0, 1e4, -1e-3, -70.0, -1e4)],
    *[(np.zeros(1), np.array([float(d)]), np.array([k]))
      for d in (2, 50, 5000) for k in (0.0, 0.4, 1e4, 1e8)],
    *[(np.array([0.0, b, -b]), np.ones(3), np.array([k, 0.0, 0.0]))
      for k, b in [(10.0, 2.0), (1.0, 0.49), (100.0, 49.0), (300.0, 1.0)]],
    *[(values, np.ones(6), slopes)
      for values, slopes in (random_case(np.random.default_rng(seed), 6) for seed in range(20))],
]  # fmt: skip

MATRIX = [turned(*SHAPES[name]) for name in SHAPES]

CIRCLE = [
    (np.diag(values), np.array(slopes))
    for values, slopes in [
        ((0.0, -1e6), (1e-3, 1.99e6)), ((3e3, 0.0), (0.0, 1e6)), ((1e6, 0.0), (1e-6, 1e5)),
    ]
]  # fmt: skip


def statistic(d):
    rng = np.random.default_rng(d)
    return rng.standard_normal(d), rng.standard_normal((d, d))


def by_jax():
    """Return moments, covariances, and JAX's derivatives of both, for all cases."""
    import jax

    jax.config.update("jax_enable_x64", True)
    from pymc_geodesic.ops.fisher_bingham_jax import jax_integrals

    functions = jax_integrals()
    moments, covariances = jax.jit(functions.matrix_moments), jax.jit(functions.matrix_covariances)
    gradient = jax.jit(jax.grad(lambda A, b: moments(A, b)[0], (1, 0)))

    @jax.jit
    def gradient_of_moments(A, b, linear, quadratic):
        def combined(A, b):
            _, mean, second = moments(A, b)
            return (linear * mean).sum() + (quadratic * second).sum()

        return jax.grad(combined, (1, 0))(A, b)

    spectral = jax.jit(functions.spectral_moments)
    spectral_second = jax.jit(functions.spectral_covariances)
    found = {
        "spectral": [spectral(*case) for case in SPECTRAL],
        "spectral covariances": [
            spectral_second(*case, *(each[0] for each in rows(case))) for case in SPECTRAL
        ],
        "matrix": [moments(*case) for case in MATRIX + CIRCLE],
        "covariances": [covariances(*case, *statistic(len(case[1]))) for case in MATRIX],
        "gradient": [gradient(*case) for case in MATRIX + CIRCLE],
        "gradient of moments": [
            gradient_of_moments(*case, *statistic(len(case[1]))) for case in MATRIX
        ],
        "not finite": [moments(np.full((3, 3), np.nan), np.ones(3))[0],
                       spectral(np.array([1.0, np.inf]), np.ones(2), np.ones(2))[0]],
    }  # fmt: skip
    return jax.tree.map(np.asarray, found)


def rows(case):
    """Coefficients of a statistic of the spectral form."""
    linear, quadratic = statistic(len(case[0]))
    return linear[None], quadratic[:1]


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("jax")
    return in_its_own_process(by_jax)


def assert_all_close(found, expected):
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            scale = np.maximum(1.0, np.abs(b))
            np.testing.assert_array_less(np.abs(a - b) / scale, TOLERANCE)


def test_integrals_are_those_of_numpy(found):
    assert_all_close(found["spectral"], [spectral_moments(*case) for case in SPECTRAL])
    assert_all_close(found["matrix"], [matrix_moments(*case) for case in MATRIX + CIRCLE])


def test_covariances_are_those_of_numpy(found):
    expected = [spectral_covariances(*case, *(each[0] for each in rows(case))) for case in SPECTRAL]
    assert_all_close(found["spectral covariances"], expected)
    expected = [matrix_covariances(*case, *statistic(len(case[1]))) for case in MATRIX]
    assert_all_close(found["covariances"], expected)


def test_derivatives_of_jax_are_moments_and_covariances(found):
    """NumPyro, BlackJAX and nutpie differentiate with JAX, not with PyTensor."""
    assert_all_close(found["gradient"], [matrix_moments(*case)[1:] for case in MATRIX + CIRCLE])
    expected = [matrix_covariances(*case, *statistic(len(case[1]))) for case in MATRIX]
    assert_all_close(found["gradient of moments"], expected)


def test_nonfinite_parameters_give_nan(found):
    assert np.isnan(found["not finite"]).all()


def test_jax_is_imported_by_its_own_mode_only():
    code = """
import sys
import numpy as np, pymc as pm, pymc_geodesic as pg
with pm.Model() as model:
    mu = pg.UniformSphere("mu", shape=3)
    pg.Watson("x", mu, pm.Normal("kappa"), observed=np.eye(3))
model.compile_logp(mode="FAST_COMPILE")(model.initial_point())
assert "jax" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def drawn_by_jax(seed):
    """Draws of two concentrations, and of a distribution with matrices as parameters."""
    mu, kappa = np.array([0.0, 0.6, 0.8]), np.array([1.0, 50.0])
    x = VonMisesFisher.dist(mu, kappa, shape=(3000, 2, 3))
    y = Kent.dist(axes=np.eye(3), kappa=10.0, beta=2.0)
    return pm.draw([x, y], draws=2, random_seed=seed, mode="JAX")


def test_draws():
    """Draws have the right mean, are reproducible, and differ between calls."""
    pytest.importorskip("jax")
    x, y = in_its_own_process(drawn_by_jax, 1)
    again, _ = in_its_own_process(drawn_by_jax, 1)
    np.testing.assert_array_equal(x, again)
    assert not np.array_equal(x[0], x[1])
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), 1.0)
    cosine = x.reshape(-1, 2, 3) @ [0.0, 0.6, 0.8]
    kappa = np.array([1.0, 50.0])
    exact = 1.0 / np.tanh(kappa) - 1.0 / kappa
    error = cosine.std(axis=0) / np.sqrt(len(cosine))
    np.testing.assert_array_less(np.abs(cosine.mean(axis=0) - exact) / error, 5.0)

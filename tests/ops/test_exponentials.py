"""Exponential, sigmoid and softplus functions against NumPy and SciPy, and in a log-density."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from scipy.special import expit

from pymc_geodesic.densities.compilation import mode_of
from pymc_geodesic.ops.exponentials import with_vectorized_exponentials

FUNCTIONS = {
    "exp": (pt.exp, np.exp),
    "sigmoid": (pt.sigmoid, expit),
    "softplus": (pt.softplus, lambda x: np.logaddexp(0.0, x)),
}
ORDINARY = np.concatenate(
    [
        np.linspace(-707.9, 708.9, 20_001),
        np.geomspace(1e-300, 1.0, 999),
        -np.geomspace(1e-300, 1.0, 999),
        np.log(2.0) * (np.arange(-40, 40) + 0.5),  # bounds of the reduced argument
    ]
)


def compiled(function, x):
    mode = with_vectorized_exponentials(get_mode("NUMBA"))
    return pytensor.function([x], function(x), mode=mode)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_relative_error(name):
    function, reference = FUNCTIONS[name]
    found = compiled(function, pt.dvector())(ORDINARY)
    np.testing.assert_allclose(found, reference(ORDINARY), rtol=5e-16, atol=0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_limits(name):
    function, reference = FUNCTIONS[name]
    x = np.repeat([-np.inf, -800.0, -0.0, 0.0, 800.0, np.inf, np.nan], 3)
    found = compiled(function, pt.dvector())(x)
    np.testing.assert_allclose(found, reference(x), rtol=5e-16, atol=1e-300)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_layout(name):
    """Scalars, short vectors, transposed matrices and other types."""
    function, reference = FUNCTIONS[name]
    matrix = np.random.default_rng(1).normal(size=(5, 8))
    cases = {
        pt.dscalar(): np.array(0.3),
        pt.tensor(shape=(3,)): matrix[0, :3],
        pt.dmatrix(): matrix.T,
        pt.dvector(): matrix.ravel()[::2].copy(),
        pt.fvector(): matrix.ravel().astype("float32"),
    }
    for variable, value in cases.items():
        found = compiled(function, variable)(value)
        assert found.dtype == value.dtype
        np.testing.assert_allclose(found, reference(value), rtol=1e-6)


def test_logistic_regression():
    """Log-density and gradient are those of PyMC's own modes."""
    rng = np.random.default_rng(1)
    y, eta = rng.integers(0, 2, 500), 5.0 * rng.normal(size=500)
    x = pt.dvector("x")
    log_density = pm.logp(pm.Bernoulli.dist(logit_p=x), y).sum()
    outputs = [log_density, pt.grad(log_density, x)]
    for found, expected in zip(
        pytensor.function([x], outputs, mode=mode_of({}))(eta),
        pytensor.function([x], outputs, mode="NUMBA")(eta),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13)

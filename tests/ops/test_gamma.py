"""Trigamma function against SciPy and in a model; ratios of gamma functions against mpmath."""

import mpmath
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode
from scipy.special import polygamma

import pymc_geodesic as pg
from pymc_geodesic.densities.compilation import mode_of
from pymc_geodesic.ops.gamma import log_gamma_ratio, trigamma, with_arithmetic_for_trigamma


@pytest.fixture(scope="module")
def compiled():
    x = pt.tensor(shape=(None,))
    mode = with_arithmetic_for_trigamma(get_mode("NUMBA"))
    return pytensor.function([x], pt.grad(pt.digamma(x).sum(), x), mode=mode)


def test_positive_arguments(compiled):
    x = np.concatenate([np.geomspace(1e-8, 1e8, 400), np.linspace(0.1, 30.0, 300)])
    np.testing.assert_allclose(compiled(x), polygamma(1, x), rtol=1e-13)


def test_negative_arguments_and_limits(compiled):
    """At −1/2 and −3/2 the values are π²/2 + 4 and π²/2 + 4 + 4/9; there is a pole at zero."""
    x = np.array([-0.5, -1.5, 0.0, np.inf, np.nan])
    expected = [np.pi**2 / 2 + 4, np.pi**2 / 2 + 4 + 4 / 9, np.inf, 0.0, np.nan]
    np.testing.assert_allclose(compiled(x), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_result_types(dtype):
    x = pt.tensor(dtype=dtype, shape=(2,))
    mode = with_arithmetic_for_trigamma(get_mode("NUMBA"))
    function = pytensor.function([x], pt.tri_gamma(x), mode=mode)
    found = function(np.array([1, 3], dtype=dtype))
    assert found.dtype == pt.tri_gamma(x).dtype
    np.testing.assert_allclose(found, polygamma(1, [1.0, 3.0]), rtol=1e-6)


def test_the_expression_is_its_own_reference():
    x = pt.constant(np.array([0.3, 4.0]))
    np.testing.assert_allclose(trigamma(x).eval(mode="FAST_COMPILE"), polygamma(1, [0.3, 4.0]))


def test_functions_of_densities_compile_without_a_warning():
    """Warnings are errors in tests: PyTensor warns that `tri_gamma` runs in object mode."""
    x = pt.tensor(shape=(2,))
    function = pytensor.function([x], pt.tri_gamma(x), mode=mode_of({}))
    np.testing.assert_allclose(function(np.array([1.0, 3.0])), polygamma(1, [1.0, 3.0]))


def test_pytensor_still_has_no_numba_implementation():
    """Remove `trigamma` when this fails."""
    x = pt.tensor(shape=(2,))
    with pytest.warns(UserWarning, match="object mode to run tri_gamma"):
        pytensor.function([x], pt.tri_gamma(x), mode="NUMBA")


@pytest.mark.slow
def test_student_t_with_second_order_control_variates_compiles_without_a_warning():
    with pm.Model():
        x = pm.Data("x", np.random.default_rng(1).standard_t(4.0, size=400))
        mu, sigma, nu = pm.Normal("mu"), pm.HalfNormal("sigma"), pm.Gamma("nu", 2.0, 0.1)
        pm.StudentT("y", nu=nu, mu=mu, sigma=sigma, observed=x)
        step = pg.SGGMC(batch_size=50, minibatch=["x"], control_variates=2)
        idata = pm.sample(
            draws=10, tune=300, chains=1, cores=1, step=step, random_seed=1, progressbar=False,
            quiet=True, compute_convergence_checks=False,
        )  # fmt: skip
    assert np.isfinite(idata.posterior["nu"]).all()
    assert float(idata.sample_stats["noise_ratio"][0, -1]) < 1.0


@pytest.mark.parametrize("kappa", [0.0, 3.0, 38.0, 44.0, 1e4, 1e8])
def test_log_gamma_ratio(kappa):
    a = pt.dscalar("a")
    ratio = log_gamma_ratio(a, 2.5)
    with mpmath.workdps(40):
        exact = mpmath.loggamma(mpmath.mpf(kappa) + 5) - mpmath.loggamma(mpmath.mpf(kappa) + 2.5)
        slope = mpmath.digamma(mpmath.mpf(kappa) + 5) - mpmath.digamma(mpmath.mpf(kappa) + 2.5)
    values = {a: kappa + 2.5}
    assert ratio.eval(values, mode="FAST_COMPILE") == pytest.approx(float(exact), rel=1e-13)
    found = pt.grad(ratio, a).eval(values, mode="FAST_COMPILE")
    assert found == pytest.approx(float(slope), rel=1e-8)

"""Circular distributions and the link of angular regression."""

import warnings
from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.distributions.transforms import circular
from pymc.exceptions import ImputationWarning
from pymc.logprob.utils import ParameterValueError
from pymc.testing import assert_support_point_is_expected
from scipy import special, stats

from pymc_geodesic import PeriodicVonMises, WrappedCauchy, circular_link
from pymc_geodesic.distributions.circular import wrap_angles
from tests.distributions.directional_checks import (
    angle_p_value,
    central_differences,
    compiled_draws,
    evaluate,
    log_density,
    numpy_draws,
)

GRID = np.linspace(-np.pi, np.pi, 8001)[:-1]

CASES = {
    "von Mises": (
        PeriodicVonMises,
        PeriodicVonMises.rv_op,
        lambda a, k: k * np.cos(a) - np.log(2 * np.pi * special.i0e(k)) - k,
        lambda k: special.ive(1, k) / special.ive(0, k),
        [0.0, 0.8, 50.0],
    ),
    "wrapped Cauchy": (
        WrappedCauchy,
        WrappedCauchy.rv_op,
        lambda a, r: np.log((1 - r**2) / (1 + r**2 - 2 * r * np.cos(a)) / (2 * np.pi)),
        lambda r: r,
        [0.0, 0.4, 0.95],
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def test_density_period_and_mean(case):
    distribution, _, logp, length, numbers = case
    for number in numbers:
        x = distribution.dist(0.7, number)
        found = log_density(x, GRID)
        np.testing.assert_allclose(found, logp(GRID - 0.7, number), rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(log_density(x, GRID + 6 * np.pi), found, rtol=1e-9, atol=1e-9)
        mean = np.exp(found + 1j * GRID).mean() * 2 * np.pi
        assert mean == pytest.approx(length(number) * np.exp(0.7j), abs=1e-12)
        assert np.exp(found).mean() * 2 * np.pi == pytest.approx(1.0, rel=1e-12)


def test_periodic_von_mises_equals_pymc_within_its_bounds():
    here = log_density(PeriodicVonMises.dist(0.4, 3.0), GRID)
    np.testing.assert_allclose(here, log_density(pm.VonMises.dist(0.4, 3.0), GRID), rtol=1e-6)
    assert log_density(pm.VonMises.dist(0.4, 3.0), 4.0) == -np.inf


def test_accuracy_in_the_tails_of_the_cauchy_distribution():
    away = 2e-10
    found = log_density(WrappedCauchy.dist(0.0, 1.0 - 1e-10), away)
    assert found == pytest.approx(np.log(2e-10 / (1e-20 + away**2) / (2 * np.pi)), rel=1e-7)


@pytest.mark.parametrize("mode", ["NUMBA", "FAST_COMPILE"])
def test_gradients(case, mode):
    distribution, _, logp, _, numbers = case
    mu, number, x = pt.dvector("mu"), pt.dscalar("number"), np.array([-2.0, 0.3, 9.0])
    density = pm.logp(distribution.dist(mu, number), x).sum()
    function = pytensor.function([mu, number], pt.grad(density, [mu, number]), mode=mode)
    m, k = np.array([0.1, 0.2, 3.0]), np.array(numbers[1])
    along_mu, along_number = function(m, k)
    slopes = central_differences(lambda v: logp(x - v, k).sum(), m)
    np.testing.assert_allclose(along_mu, slopes, rtol=1e-7, atol=1e-8)
    slope = central_differences(lambda v: logp(x - m, v).sum(), k)
    np.testing.assert_allclose(along_number, slope, rtol=1e-7)


@cache
def numba_draws(distribution):
    return compiled_draws(distribution, pt.dscalar("mu"), pt.dscalar("number"))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_draws_have_the_distribution(case, backend):
    distribution, rv_op, logp, _, numbers = case
    draw = numpy_draws(rv_op) if backend == "numpy" else numba_draws(distribution)
    for number in numbers:
        x = draw(7, 20_000, 2.5, number)
        assert x.min() > -np.pi
        assert x.max() <= np.pi
        assert angle_p_value(x, lambda a, n=number: np.exp(logp(a - 2.5, n))) > 1e-4
    mutant = draw(7, 20_000, 2.6, numbers[2])
    assert angle_p_value(mutant, lambda a: np.exp(logp(a - 2.5, numbers[2]))) < 1e-6


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_invalid_parameters_of_draws_raise(case, backend):
    draw = numpy_draws(case[1]) if backend == "numpy" else numba_draws(case[0])
    with pytest.raises(ValueError, match="at least 0"):
        draw(1, 2, 0.0, -1.0)


def test_model_integration(case):
    distribution, _, logp, _, _ = case
    x = np.array([0.3, 4.0, -7.0])
    with pm.Model(coords={"day": range(3)}) as model:
        mu = distribution("mu", 0.0, 0.2)
        slope = pm.Normal("slope")
        distribution("x", circular_link(slope * x, mu), 0.5, observed=x, dims="day")
        distribution("pair", [1.0, 2.0], 0.5, shape=(3, 2))
    assert model.rvs_to_transforms[mu] is circular
    model = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point() | {"mu_circular__": np.array(8.0), "slope": np.array(0.6)}
    means = 8.0 + 2 * np.arctan(0.6 * x)
    expected = logp(8.0, 0.2) + stats.norm.logpdf(0.6) + logp(x - means, 0.5).sum()
    expected += 6 * logp(0.0, 0.5)
    found = model.compile_logp(mode="FAST_COMPILE")(point)
    assert found == pytest.approx(expected, rel=1e-9)


def test_support_point_is_the_mean(case):
    with pm.Model() as model:
        case[0]("x", [1.0, 7.0], 0.5, size=(2, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        assert_support_point_is_expected(model, [[1.0, 7.0 - 2 * np.pi]] * 2)


def test_invalid_parameters_raise(case):
    name = case[0].__name__
    for mu, number in ((np.nan, 0.5), (0.0, -0.1)):
        with pytest.raises(ParameterValueError, match=f"mu of {name} is finite"):
            log_density(case[0].dist(mu, number), 1.0)
    with pm.Model(), pytest.raises(ValueError, match="angles of 'wind' are not finite"):
        case[0]("wind", 0.0, 0.5, observed=[0.0, np.inf])


def test_wrapped_angles():
    angles = np.array([-np.pi, np.pi, 3 * np.pi, -0.5, 6.0])
    np.testing.assert_allclose(wrap_angles(angles), [np.pi, np.pi, np.pi, -0.5, 6.0 - 2 * np.pi])


def test_link_maps_the_line_once_around_the_circle():
    eta = np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])
    expected = 0.3 + np.array([-np.pi, -np.pi / 2, 0.0, np.pi / 2, np.pi])
    np.testing.assert_allclose(evaluate(circular_link(eta, 0.3)), expected)


def test_accuracy_of_the_link():
    assert evaluate(circular_link(0.5, 0.25)) == pytest.approx(
        0.25 + 2.0 * np.arctan(0.5), rel=1e-15
    )


@pytest.mark.parametrize("as_data", [False, True], ids=["array", "pm.Data"])
def test_angles_in_degrees_warn(as_data):
    degrees = np.array([10.0, 350.0, np.nan])[: 2 if as_data else 3]
    with pm.Model(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ImputationWarning)
        with pytest.warns(
            UserWarning, match=r"angles of 'wind' have absolute values up to 350.*np\.deg2rad"
        ):
            WrappedCauchy("wind", 0.0, 0.5, observed=pm.Data("x", degrees) if as_data else degrees)
        PeriodicVonMises("calm", 0.0, 1.0, observed=np.deg2rad(degrees))
        PeriodicVonMises("none", 0.0, 1.0, observed=np.zeros(0))
        PeriodicVonMises("twice around", 0.0, 1.0, observed=np.deg2rad([-720.0, 719.0]))

import pickle

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.integrate import quad

from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.ops.bessel import mean_resultant_length
from pymc_geodesic.transforms import unit_vector
from pymc_geodesic.transforms.unit_vector import log_radial_density
from tests.grids import slow


def on_sphere(*shape, seed=1):
    x = np.random.default_rng(seed).standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def evaluate(expression, **values):
    return expression.eval(values, mode="FAST_COMPILE")


@pytest.mark.parametrize("shape", [(2,), (3,), (4, 5), (2, 3, 40)])
def test_a_point_on_the_sphere_is_its_own_value(shape):
    x = on_sphere(*shape)
    np.testing.assert_array_equal(evaluate(unit_vector.forward(pt.as_tensor(x))), x)
    np.testing.assert_allclose(evaluate(unit_vector.backward(pt.as_tensor(x))), x, atol=3e-16)
    y = 7.3 * np.random.default_rng(2).random((*shape[:-1], 1)) * x
    np.testing.assert_allclose(evaluate(unit_vector.backward(pt.as_tensor(y))), x, atol=3e-16)


def log_radial_density_of_length(dim):
    y = pt.vector("y")
    density = pytensor.function([y], log_radial_density(y), mode="FAST_COMPILE")
    return lambda length: density(np.append(length, np.zeros(dim - 1)))


@pytest.mark.parametrize("dim", [2, 3, 10, 31, 32, 33, 1000])
def test_distribution_of_the_length_is_normalized(dim):
    log_density = log_radial_density_of_length(dim)

    def moment(power):
        # The distribution of r has density r^(d-1) exp(log_density); its mass lies within (0.1, 3).
        def integrand(r):
            return np.exp(log_density(r) + (dim - 1 + power) * np.log(r))

        return quad(integrand, 0.0, 1.0)[0] + quad(integrand, 1.0, 3.0)[0]

    assert moment(0) == pytest.approx(1, rel=1e-8)
    assert moment(2) == pytest.approx(1, rel=1e-8)
    assert moment(4) - 1 == pytest.approx(2 / max(dim, 32), rel=1e-6)


def grid_integral(dim, log_density, function=lambda y: 1.0, half_width=2.2, points=81):
    """Integrate over R^dim by the trapezoidal rule, spectrally accurate for a density like this."""
    axis = np.linspace(-half_width, half_width, points) + 1e-3
    y = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    return (function(y) * np.exp(log_density(y))).sum() * (axis[1] - axis[0]) ** dim


@pytest.fixture(scope="module", params=[2, 3])
def log_density_over_y(request):
    dim = request.param
    y = pt.matrix("y", shape=(None, dim))
    x = VonMisesFisher.dist(on_sphere(dim), 2.0)
    log_density = pm.logp(x, unit_vector.backward(y)) + unit_vector.log_jac_det(y)
    return dim, pytensor.function([y], log_density, mode="FAST_COMPILE")


def test_density_over_y_is_normalized(log_density_over_y):
    dim, log_density = log_density_over_y
    assert grid_integral(dim, log_density) == pytest.approx(1, abs=1e-6)


def test_the_density_over_y_has_the_exact_mean_cosine(log_density_over_y):
    dim, log_density = log_density_over_y
    mean = on_sphere(dim)

    def cosine(y):
        return y @ mean / np.linalg.norm(y, axis=-1)

    expected = mean_resultant_length(dim, 2.0)
    assert grid_integral(dim, log_density, cosine) == pytest.approx(expected, abs=1e-6)


def test_integral_detects_a_wrong_power_of_the_length(log_density_over_y):
    dim, log_density = log_density_over_y

    def mutant(y):
        return log_density(y) + np.log(np.linalg.norm(y, axis=-1))

    assert abs(grid_integral(dim, mutant) - 1) > 0.005


@pytest.fixture(scope="module")
def value_and_gradient():
    """Density of a function of x, and its gradient over a batch of y in R^4."""
    y = pt.matrix("y", shape=(None, 4))
    weights = np.array([0.3, -1.0, 2.0, 0.7])
    of_x = pt.sum(weights * unit_vector.backward(y) ** 3, axis=-1)
    of_r = unit_vector.log_jac_det(y)
    gradients = [pytensor.grad(pt.sum(value), y) for value in (of_x, of_r)]
    return pytensor.function([y], [of_x, of_r, *gradients], mode="FAST_COMPILE")


def test_gradients_agree_with_differences(value_and_gradient):
    y = np.random.default_rng(3).standard_normal((20, 4))
    gradients = value_and_gradient(y)[2:]
    step = 1e-5
    for i, unit in enumerate(np.eye(4)):
        above, below = (value_and_gradient(y + sign * step * unit)[:2] for sign in (1, -1))
        for k in range(2):
            difference = (above[k] - below[k]) / (2 * step)
            np.testing.assert_allclose(gradients[k][:, i], difference, rtol=1e-6, atol=1e-6)


def test_on_the_sphere_the_gradient_of_a_function_of_x_is_tangent(value_and_gradient):
    x = on_sphere(50, 4)
    gradient = value_and_gradient(x)[2]
    assert np.abs(gradient).max() > 1
    np.testing.assert_allclose(np.sum(gradient * x, axis=-1), 0, atol=1e-14)


def test_at_the_zero_vector_nothing_is_nan(value_and_gradient):
    y = np.zeros((1, 4))
    of_x, of_r, gradient_of_x, gradient_of_r = value_and_gradient(y)
    assert of_x == 0
    assert of_r == -np.inf
    assert np.all(np.isfinite(gradient_of_x))
    assert np.all(np.isfinite(gradient_of_r))
    assert np.all(evaluate(unit_vector.backward(pt.as_tensor(y))) == 0)


def test_a_zero_initial_value_has_density_zero():
    with pm.Model() as model:
        UniformSphere("x", shape=(2, 3), initval=np.zeros((2, 3)))
    assert model.point_logps() == {"x": -np.inf}


def test_pickle_returns_the_same_object():
    assert pickle.loads(pickle.dumps(unit_vector)) is unit_vector


@pytest.mark.parametrize("sampler", ["pymc", slow("nutpie")])
def test_nuts_draws_the_exact_moments(sampler):
    if sampler == "nutpie":
        pytest.importorskip("nutpie")
    mean, kappa = np.array([2.0, -1.0, 2.0]) / 3, 3.0
    with pm.Model():
        VonMisesFisher("x", mean, kappa)
        idata = pm.sample(
            2000, chains=2, cores=1, nuts_sampler=sampler, random_seed=1, progressbar=False
        )
    cosine = idata.posterior["x"].values @ mean
    length = float(mean_resultant_length(3, kappa))
    second = 1 - 2 * length / kappa
    for quantity, expected in ((cosine, length), (cosine**2, second)):
        error = quantity.std() / np.sqrt(float(az.ess(quantity)))
        assert abs(quantity.mean() - expected) < 5 * error
        assert error < 0.02
    assert not idata.sample_stats["diverging"].any()


@pytest.mark.filterwarnings("ignore:.*find_MAP.*:FutureWarning")
def test_find_map_is_the_mode_of_an_exact_posterior():
    rng = np.random.default_rng(4)
    prior_mean, observed = on_sphere(5), on_sphere(6, 5)
    with pm.Model():
        mean = VonMisesFisher("mean", prior_mean, 2.0, initval=rng.standard_normal(5))
        VonMisesFisher("x", mean, 3.0, observed=observed)
        found = pm.find_MAP(progressbar=False)["mean"]
    mode = 2.0 * prior_mean + 3.0 * observed.sum(axis=0)
    np.testing.assert_allclose(found, mode / np.linalg.norm(mode), atol=1e-5)

import pickle

import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import chi

from pymc_geodesic.transforms import square_root_simplex


def evaluate(expression):
    return expression.eval(mode="FAST_COMPILE")


def proportions(*shape):
    return np.random.default_rng(1).dirichlet(np.ones(shape[-1]), shape[:-1])


@pytest.mark.parametrize("shape", [(2,), (4, 5), (2, 3, 30)])
def test_round_trip(shape):
    x = proportions(*shape)
    value = evaluate(square_root_simplex.forward(pt.as_tensor(x)))
    np.testing.assert_allclose(np.linalg.norm(value, axis=-1), 1, atol=1e-15)
    np.testing.assert_allclose(value**2, x, atol=1e-15)
    np.testing.assert_allclose(evaluate(square_root_simplex.backward(pt.as_tensor(value))), x)


def test_every_orthant_and_length_maps_onto_the_same_proportions():
    x = proportions(6, 4)
    rng = np.random.default_rng(2)
    y = rng.choice([-1, 1], x.shape) * rng.uniform(0.1, 9, (6, 1)) * np.sqrt(x)
    np.testing.assert_allclose(evaluate(square_root_simplex.backward(pt.as_tensor(y))), x)


@pytest.mark.parametrize("dim", [2, 3, 6])
def test_the_jacobian_term_against_numerical_derivatives(dim):
    """The density of the length times |d(x_1 … x_{K-1}, r) / dy|, shared by 2^K orthants."""
    y = pt.vector("y", shape=(dim,))
    coordinates = pytensor.function([y], square_root_simplex.backward(y), mode="FAST_COMPILE")
    log_jac_det = pytensor.function([y], square_root_simplex.log_jac_det(y), mode="FAST_COMPILE")

    def chart(point):
        return np.append(coordinates(point)[:-1], np.linalg.norm(point))

    point = np.random.default_rng(3).standard_normal(dim) / np.sqrt(dim)
    step = 1e-6
    jacobian = [(chart(point + h) - chart(point - h)) / (2 * step) for h in step * np.eye(dim)]
    log_volume = np.linalg.slogdet(np.array(jacobian)).logabsdet
    degrees_of_freedom = 32
    of_length = chi.logpdf(
        np.linalg.norm(point), degrees_of_freedom, scale=1 / np.sqrt(degrees_of_freedom)
    )
    expected = of_length + log_volume - dim * np.log(2)
    assert log_jac_det(point) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("concentration", [[1.5, 2.5], [0.5, 0.5, 0.5], [2.5, 1.5, 3.5]])
def test_dirichlet_is_normalized_over_y(concentration):
    dim = len(concentration)
    y = pt.matrix("y", shape=(None, dim))
    x = pm.Dirichlet.dist(concentration)
    log_density = pm.logp(x, square_root_simplex.backward(y)) + square_root_simplex.log_jac_det(y)
    axis = np.linspace(-2.2, 2.2, 100)
    points = np.stack(np.meshgrid(*[axis] * dim), axis=-1).reshape(-1, dim)
    density = np.exp(pytensor.function([y], log_density, mode="FAST_COMPILE")(points))
    assert density.sum() * (axis[1] - axis[0]) ** dim == pytest.approx(1, abs=1e-5)


@pytest.mark.slow
def test_nuts_draws_the_moments_of_a_dirichlet():
    concentration = np.array([4.0, 6.0, 9.0, 5.0])
    total = concentration.sum()
    with pm.Model():
        pm.Dirichlet("w", concentration, default_transform=square_root_simplex)
        idata = pm.sample(
            2000, chains=2, cores=1, nuts_sampler="pymc", random_seed=1, progressbar=False
        )
    w = idata.posterior["w"].values
    mean = concentration / total
    second = mean * (concentration + 1) / (total + 1)
    for k in range(4):
        for quantity, expected in ((w[..., k], mean[k]), (w[..., k] ** 2, second[k])):
            error = quantity.std() / np.sqrt(float(az.ess(quantity)))
            assert abs(quantity.mean() - expected) < 5 * error
            assert error < 0.02
    assert idata.sample_stats["diverging"].mean() < 0.002


def test_stacking_on_the_transform_of_pymc_raises():
    with pm.Model() as model:
        pm.Dirichlet("w", np.ones(3), transform=square_root_simplex)
        with pytest.raises(AssertionError, match="default_transform=square_root_simplex"):
            model.initial_point()


def test_a_zero_vector_has_density_zero():
    y = pt.as_tensor(np.zeros((2, 3)))
    assert np.all(evaluate(square_root_simplex.log_jac_det(y)) == -np.inf)
    assert np.all(evaluate(square_root_simplex.backward(y)) == 0)


def test_pickle_returns_the_same_object():
    assert pickle.loads(pickle.dumps(square_root_simplex)) is square_root_simplex

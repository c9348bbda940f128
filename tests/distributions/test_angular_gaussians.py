"""The angular central Gaussian distribution: axes of normal vectors."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy import stats

from pymc_geodesic import AngularCentralGaussian
from tests.distributions.directional_checks import sphere
from tests.grids import slow

COV = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, 0.2], [0.0, 0.2, 0.3]])
FAMILY = {
    "acg": lambda **kw: AngularCentralGaussian.dist(COV, **kw),
}


def evaluate(variable, **kwargs):
    return variable.eval(mode="FAST_COMPILE", **kwargs)


@pytest.mark.parametrize("name", FAMILY)
def test_density_integrates_to_one(name):
    x, weight = sphere()
    density = np.exp(evaluate(pm.logp(FAMILY[name](), x)))
    assert density @ weight == pytest.approx(1.0, abs=1e-10)


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("mode", [slow("FAST_COMPILE"), None])
def test_draws_have_the_moments_of_the_density(name, mode):
    """The density is a closed form, the draws are normal vectors: nothing is shared."""
    draws = pm.draw(FAMILY[name](size=40_000), random_seed=7, mode=mode)
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0, rtol=1e-13)
    x, weight = sphere()
    mass = np.exp(evaluate(pm.logp(FAMILY[name](), x))) * weight
    rows, columns = np.triu_indices(3)
    for statistic in (lambda v: v, lambda v: v[:, rows] * v[:, columns], lambda v: v**3):
        found = statistic(draws)
        error = found.std(axis=0) / len(draws) ** 0.5
        assert np.max(np.abs(found.mean(axis=0) - mass @ statistic(x)) / error) < 5


def test_the_angle_of_a_circular_angular_central_gaussian():
    """2θ is wrapped Cauchy (Mardia and Jupp, section 3.5.7)."""
    law = AngularCentralGaussian.dist(np.diag([4.0, 1.0]), size=20_000)
    x = pm.draw(law, random_seed=7, mode="FAST_COMPILE")
    # tan θ = (standard Cauchy) / 2
    assert stats.kstest(2.0 * x[:, 1] / x[:, 0], stats.cauchy.cdf).pvalue > 1e-4


def test_angular_central_gaussian_by_its_formula():
    x = np.array([0.6, 0.0, 0.8])
    expected = -np.log(4 * np.pi) - 0.5 * np.log(np.linalg.det(COV))
    expected -= 1.5 * np.log(x @ np.linalg.solve(COV, x))
    for scale in (1.0, 1e-9, 1e9):
        found = evaluate(pm.logp(AngularCentralGaussian.dist(scale * COV), x))
        assert found == pytest.approx(expected, rel=1e-12)


def test_gradients_against_differences():
    root = pt.dmatrix("root")
    x = sphere(3)[0]
    total = pm.logp(AngularCentralGaussian.dist(root @ root.T + pt.eye(3)), x).sum()
    function = pytensor.function([root], [total, pt.grad(total, root)], mode="FAST_COMPILE")
    gradient = function(COV)[1]
    for index in np.ndindex(3, 3):
        values = []
        for sign in (1.0, -1.0):
            moved = COV.copy()
            moved[index] += sign * 1e-5
            values.append(function(moved)[0])
        assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-7)


def test_batches_and_shapes():
    x = sphere(2)[0][:6].reshape(2, 3, 3)
    covs = np.stack([COV, np.eye(3), 2 * COV + np.eye(3)])
    central = evaluate(pm.logp(AngularCentralGaussian.dist(covs), x))
    for i, j in np.ndindex(2, 3):
        own = evaluate(pm.logp(AngularCentralGaussian.dist(covs[j]), x[i, j]))
        assert central[i, j] == pytest.approx(float(own), rel=1e-12)
    assert evaluate(AngularCentralGaussian.dist(covs, size=(4, 3))).shape == (4, 3, 3)


def test_a_model_starts_on_the_sphere():
    with pm.Model() as model:
        AngularCentralGaussian("a", COV, shape=(2, 3))
    point = model.initial_point()
    np.testing.assert_allclose(np.linalg.norm(point["a_unitvector__"], axis=-1), 1.0)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")(point))


@pytest.mark.parametrize("cov", [np.diag([1.0, 0.0]), np.diag([1.0, -1.0]), [[1.0, 0.5], [0, 1.0]]])
def test_covariances_that_are_none_are_refused(cov):
    x = AngularCentralGaussian.dist(cov)
    with pytest.raises(ParameterValueError, match="cov is symmetric and positive definite"):
        evaluate(pm.logp(x, [1.0, 0.0]))
    with pytest.raises(ValueError, match="cov must be"):
        pm.draw(x, mode="FAST_COMPILE")


def test_a_vector_is_no_covariance():
    with pytest.raises(ValueError, match="cov of AngularCentralGaussian must be a square"):
        AngularCentralGaussian.dist(np.ones(3))

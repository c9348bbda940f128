"""Uniform distribution on the sphere, and rotations."""

from typing import ClassVar

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from scipy import special, stats

from pymc_geodesic import rotation_to
from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_uniform_directions
from pymc_geodesic.transforms import unit_vector
from tests.distributions.directional_checks import evaluate, log_density, unit_vectors
from tests.grids import slow


@pytest.mark.usefixtures("interpreted")
class TestRandom(BaseTestDistributionRandom):
    pymc_dist = UniformSphere
    pymc_dist_params: ClassVar = {"d": 3}
    expected_rv_op_params: ClassVar = {"d": 3}
    reference_dist_params: ClassVar = {"d": 3}
    sizes_to_check: ClassVar = [None, (2, 4)]
    sizes_expected: ClassVar = [(3,), (2, 4, 3)]
    checks_to_run: ClassVar = [
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference_not_numba",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state(reset=True)
        return lambda size, d: draw_uniform_directions(rng, (size, d))


@pytest.mark.parametrize("d", [2, 3, 10, 5000])
def test_density_is_one_over_the_area(d):
    value = np.stack([np.eye(d)[0], np.full(d, -(d**-0.5))])
    expected = special.gammaln(d / 2) - np.log(2) - d / 2 * np.log(np.pi)
    density = pm.logp(UniformSphere.dist(shape=(2, d)), value)
    np.testing.assert_allclose(evaluate(density), [expected, expected], rtol=1e-12)


def test_it_is_the_von_mises_fisher_distribution_without_concentration():
    value = draw_uniform_directions(np.random.default_rng(1), (5, 4))
    uniform = evaluate(pm.logp(UniformSphere.dist(shape=(5, 4)), value))
    np.testing.assert_allclose(
        uniform, evaluate(pm.logp(VonMisesFisher.dist(np.eye(4)[0], 0.0), value)), rtol=1e-14
    )


@pytest.mark.parametrize("mode", [None, slow("CVM")])
def test_draws_are_uniform(mode):
    """The squared first coordinate of a uniform direction is Beta(1/2, (d - 1)/2)."""
    x = pm.draw(UniformSphere.dist(shape=(30_000, 5)), mode=mode, random_seed=7)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0, rtol=1e-14)
    marginal = stats.beta(0.5, 2.0)
    for axis in np.eye(5)[0], np.full(5, 5**-0.5):
        cosine = x @ axis
        assert stats.kstest(cosine**2, marginal.cdf).pvalue > 1e-4
        assert abs(np.mean(cosine > 0) - 0.5) < 5 * 0.5 / np.sqrt(len(x))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("shape", "expected"), [((4,), [0.5] * 4), ((2, 4), [[0.5] * 4] * 2)])
def test_support_point_is_on_the_sphere(shape, expected):
    with pm.Model() as model:
        UniformSphere("x", shape=shape)
    assert_support_point_is_expected(model, expected)


def test_model_integration():
    axes = {"topic": range(3), "word": list("abcd")}
    with pm.Model(coords=axes) as model:
        x = UniformSphere("x", dims=("topic", "word"))
        UniformSphere("data", observed=np.eye(4))
    assert evaluate(x.shape).tolist() == [3, 4]
    assert model["data"].type.shape == (4, 4)
    assert model.rvs_to_transforms[x] is unit_vector
    assert "x ~ UniformSphere(4)" in model.str_repr()
    assert "x ~ UniformSphere" in pm.model_to_mermaid(model)
    start = model.initial_point()["x_unitvector__"]
    np.testing.assert_allclose(np.linalg.norm(start, axis=-1), 1.0)
    logp = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    area = 2 * np.pi**2
    assert logp({"x_unitvector__": 3.0 * start}) == pytest.approx(-7 * np.log(area))
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    assert copy.compile_logp(jacobian=False, mode="FAST_COMPILE")(
        {"x_unitvector__": start}
    ) == pytest.approx(-7 * np.log(area))


def test_dimension_of_a_resizable_model():
    with pm.Model(coords={"axis": range(3)}) as model:
        x = UniformSphere("x", dims="axis")
    assert evaluate(x.shape).tolist() == [3]
    model.set_dim("axis", 5, coord_values=range(5))
    assert evaluate(x.shape).tolist() == [5]
    density = pm.logp(x, pt.as_tensor(np.eye(5)[0]))
    area = 8 * np.pi**2 / 3
    assert evaluate(density) == pytest.approx(-np.log(area))


def test_values_off_the_sphere_have_no_density():
    value = pt.dmatrix("value")
    density = pm.logp(UniformSphere.dist(shape=(2, 3)), value)
    found = evaluate(density, {value: np.array([[0.0, 0.6, 0.8], [0.0, 0.6, 0.9]])})
    assert np.isfinite(found).tolist() == [True, False]


def test_wrong_number_of_coordinates_raises_at_evaluation():
    value = pt.dvector("value")
    density = pm.logp(UniformSphere.dist(3), value)
    with pytest.raises(ParameterValueError, match="number of coordinates"):
        evaluate(density, {value: np.array([0.6, 0.8])})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs the dimension"),
        ({"shape": (2, 1)}, "dimension 2 or more"),
        ({"d": 3, "shape": (2, 4)}, "d = 3, but its shape ends with 4"),
    ],
)
def test_invalid_shapes_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        UniformSphere.dist(**arguments)


def test_data_off_the_sphere_raise():
    with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
        UniformSphere("wind", observed=np.ones((2, 3)))


@pytest.mark.parametrize("kind", ["rotation", "reflection"])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_matrix_takes_the_pole_to_the_direction(kind, d):
    mu = np.concatenate([unit_vectors(6, d), np.eye(d)[-1:], -np.eye(d)[-1:]])
    near = np.eye(d)[[-1, -1]] * np.array([[1.0], [-1.0]]) + 1e-9 * np.eye(d)[0]
    mu = np.concatenate([mu, near])
    matrices = evaluate(rotation_to(mu, kind))
    np.testing.assert_allclose(matrices[..., -1], mu, atol=1e-15)
    identity = np.broadcast_to(np.eye(d), matrices.shape)
    np.testing.assert_allclose(matrices @ np.swapaxes(matrices, -1, -2), identity, atol=1e-12)
    sign = 1.0 if kind == "rotation" else -1.0
    np.testing.assert_allclose(np.linalg.det(matrices), sign, rtol=1e-12)


@pytest.mark.parametrize("kind", ["rotation", "reflection"])
def test_derivative_of_the_matrix(kind):
    mu, weights = pt.dvector("mu"), np.random.default_rng(1).normal(size=(4, 4))
    total = (weights * rotation_to(mu, kind)).sum()
    function = pytensor.function([mu], [total, pt.grad(total, mu)], mode="FAST_COMPILE")
    for point in unit_vectors(3, 4):
        # Along the sphere; the normal component is irrelevant.
        tangents = np.linalg.svd(point[None])[2][1:]
        for tangent in tangents:
            up, down = (
                np.cos(1e-5) * point + side * np.sin(1e-5) * tangent for side in (1.0, -1.0)
            )
            slope = (function(up)[0] - function(down)[0]) / 2e-5
            assert function(point)[1] @ tangent == pytest.approx(float(slope), abs=1e-8)
    assert np.isfinite(function(np.eye(4)[3])[1]).all()
    assert np.isfinite(function(-np.eye(4)[3])[1]).all()


def test_density_is_equivariant_under_the_rotation():
    """As in a regression with directions near the pole, rotated to a mean direction."""
    local, overall, x = unit_vectors(3, seed=4), unit_vectors(3), unit_vectors(5, 3, seed=2)
    matrix = rotation_to(overall)
    turned = log_density(VonMisesFisher.dist(matrix @ local, 4.0), x)
    back = x @ evaluate(matrix)
    np.testing.assert_allclose(turned, log_density(VonMisesFisher.dist(local, 4.0), back))


def test_invalid_arguments_of_rotations_raise():
    with pytest.raises(ValueError, match="kind='turn' is unknown"):
        rotation_to([0.0, 1.0], "turn")
    with pytest.raises(ValueError, match="mu of rotation_to must be a unit vector"):
        rotation_to(1.0)
    with pytest.raises(ValueError, match="mu of rotation_to must contain unit vectors"):
        rotation_to([0.0, 0.0, 2.0])

"""The von Mises–Fisher distribution: density, gradients, exact draws, model integration."""

import subprocess
import sys
from functools import partial
from typing import ClassVar

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import (
    BaseTestDistributionRandom,
    Domain,
    assert_support_point_is_expected,
    check_logp,
)
from pytensor.compile.mode import get_mode
from scipy import integrate, special, stats

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.distributions.rotationally_symmetric import VonMisesFisherRV
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    draw_von_mises_fisher,
)
from pymc_geodesic.ops.bessel import mean_resultant_length, mean_resultant_length_slope
from pymc_geodesic.ops.dense_products import with_loops_for_products
from pymc_geodesic.transforms import unit_vector
from tests.distributions.directional_checks import evaluate, unit_vectors
from tests.grids import slow

KAPPAS = [0.0, 0.3, 5.0, 2e3, 1e8]
NORTH = np.array([0.0, 0.0, 1.0])


def scipy_logp(value, mu, kappa):
    if kappa == 0:
        d = len(mu)
        return special.gammaln(d / 2) - np.log(2) - d / 2 * np.log(np.pi)
    return stats.vonmises_fisher(mu, float(kappa)).logpdf(value)


@pytest.mark.usefixtures("interpreted")
class TestRandom(BaseTestDistributionRandom):
    pymc_dist = VonMisesFisher
    pymc_dist_params: ClassVar = {"mu": np.array([0.0, 0.6, 0.8]), "kappa": 3.0}
    expected_rv_op_params: ClassVar = pymc_dist_params
    reference_dist_params: ClassVar = pymc_dist_params
    sizes_to_check: ClassVar = [None, (2, 3)]
    sizes_expected: ClassVar = [(3,), (2, 3, 3)]
    checks_to_run: ClassVar = [
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference_not_numba",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state(reset=True)
        return lambda size, mu, kappa: draw_von_mises_fisher(rng, mu, kappa, (size,))


@pytest.mark.parametrize("d", [2, 3, 7])
def test_logp_against_scipy(d):
    directions = [Domain(list(unit_vectors(2, d, seed=s)), edges=(None, None)) for s in (1, 2)]
    concentrations = Domain([0.0, 0.2, 4.0, 300.0], edges=(0, np.inf))
    check_logp(
        VonMisesFisher,
        directions[0],
        {"mu": directions[1], "kappa": concentrations},
        scipy_logp,
        n_samples=-1,
    )


@pytest.mark.parametrize("kappa", [0.0, 0.7, 30.0, 4e4])
def test_density_integrates_to_one(kappa):
    angles = np.linspace(0.0, np.pi, 200_001)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    density = np.exp(evaluate(pm.logp(VonMisesFisher.dist([1.0, 0.0], kappa), circle)))
    assert 2 * integrate.simpson(density, x=angles) == pytest.approx(1.0, rel=1e-9)
    meridian = np.stack([np.sin(angles), 0 * angles, np.cos(angles)], axis=-1)
    density = np.exp(evaluate(pm.logp(VonMisesFisher.dist(NORTH, kappa), meridian)))
    ring = 2 * np.pi * np.sin(angles) * density
    assert integrate.simpson(ring, x=angles) == pytest.approx(1.0, rel=1e-9)


def test_batched_parameters_equal_a_loop():
    mu, kappa, x = unit_vectors(4, 1, 5), np.array([0.0, 0.5, 80.0]), unit_vectors(4, 3, 5, seed=2)
    batched = evaluate(pm.logp(VonMisesFisher.dist(mu, kappa), x))
    single = partial(lambda m, k, v: evaluate(pm.logp(VonMisesFisher.dist(m, k), v)))
    looped = [[single(mu[i, 0], kappa[j], x[i, j]) for j in range(3)] for i in range(4)]
    np.testing.assert_allclose(batched, looped, rtol=1e-13)


def test_density_is_rotation_equivariant():
    rotation = stats.ortho_group.rvs(6, random_state=1)
    mu, x = unit_vectors(6), unit_vectors(9, 6, seed=2)
    plain = evaluate(pm.logp(VonMisesFisher.dist(mu, 12.0), x))
    turned = evaluate(pm.logp(VonMisesFisher.dist(rotation @ mu, 12.0), x @ rotation.T))
    np.testing.assert_allclose(turned, plain, rtol=1e-12)


@pytest.mark.parametrize(
    ("mu_shape", "kappa_shape", "x_shape"),
    [((4,), (), (4,)), ((4,), (), (6, 4)), ((4,), (6,), (6, 4)), ((6, 4), (), (6, 4)),
     ((4,), (), (2, 6, 4)), ((3, 4), (3,), (6, 1, 4)), ((1, 4), (1,), (2, 6, 4))],
)  # fmt: skip
def test_gradients_against_closed_form(mu_shape, kappa_shape, x_shape):
    """All shapes of the inner products give the same derivatives."""
    mu = pt.tensor("mu", shape=mu_shape)
    kappa = pt.tensor("kappa", shape=kappa_shape)
    x = pt.tensor("x", shape=x_shape)
    density = pm.logp(VonMisesFisher.dist(mu, kappa), x)
    values = {
        mu: unit_vectors(*mu_shape),
        kappa: np.random.default_rng(3).uniform(0.0, 9.0, kappa_shape),
        x: unit_vectors(*x_shape, seed=2),
    }
    gradients = pt.grad(density.sum(), [mu, kappa, x])
    found = pytensor.function([mu, kappa, x], gradients, mode="FAST_COMPILE")(*values.values())
    m, k, v = (np.asarray(value) for value in values.values())
    slope = np.sum(m * v, axis=-1) - mean_resultant_length(4, k)
    for gradient, full in zip(found, (k[..., None] * v, slope, k[..., None] * m), strict=True):
        full = np.broadcast_to(full, (*slope.shape, 4)[: slope.ndim + (gradient is not found[1])])
        extra = tuple(range(full.ndim - gradient.ndim))
        summed = full.sum(axis=extra)
        kept = tuple(i for i in range(gradient.ndim) if gradient.shape[i] < summed.shape[i])
        expected = summed.sum(axis=kept, keepdims=True)
        np.testing.assert_allclose(gradient, expected, rtol=1e-11, atol=1e-12)


def test_second_derivative_in_kappa():
    kappa = pt.dscalar("kappa")
    density = pm.logp(VonMisesFisher.dist(NORTH, kappa), unit_vectors(3))
    second = pt.grad(pt.grad(density, kappa), kappa)
    assert evaluate(second, {kappa: 2.5}) == pytest.approx(
        -mean_resultant_length_slope(3, 2.5), rel=1e-12
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping Check")  # JAX cannot raise while it computes
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")  # slower, not wrong
@pytest.mark.parametrize("mode", ["NUMBA", slow("CVM"), slow("JAX")])
def test_backends_agree_with_the_closed_form(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    kappa, mu, x = pt.dscalar("kappa"), pt.tensor("mu", shape=(5,)), unit_vectors(8, 5, seed=2)
    density = pm.logp(VonMisesFisher.dist(mu, kappa), x).sum()
    outputs = [density, *pt.grad(density, [mu, kappa])]
    pole = np.eye(5)[4]
    mode = with_loops_for_products(get_mode("NUMBA")) if mode == "NUMBA" else mode
    found = pytensor.function([mu, kappa], outputs, mode=mode)(pole, 4.0)
    slope = np.sum(x @ pole) - 8 * mean_resultant_length(5, 4.0)
    expected = sum(scipy_logp(v, pole, 4.0) for v in x), 4.0 * x.sum(axis=0), slope
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


# Random draws ---------------------------------------------------------------------------------


def angles_to(mu, x):
    """Return the angle between directions, also where it is tiny."""
    return 2.0 * np.arcsin(np.linalg.norm(x - mu, axis=-1) / 2.0)


def exact_angle_cdf(d, kappa):
    """Return the distribution function of the angle, from its density by quadrature."""
    scale = np.sqrt((d + 60.0) / (kappa + 1.0))
    grid = np.linspace(0.0, min(np.pi, 3.0 * scale), 40_001)
    density = np.exp(-2.0 * kappa * np.sin(grid / 2.0) ** 2) * np.sin(grid) ** (d - 2)
    cumulative = integrate.cumulative_simpson(density, x=grid, initial=0.0)
    return lambda angle: np.interp(angle, grid, cumulative / cumulative[-1])


def z_of_mean_cosine(mu, kappa, x):
    """Return the error of the mean of 1 - mu·x in standard errors."""
    d, n = mu.shape[-1], len(x)
    deficits = np.sum((x - mu) ** 2, axis=-1) / 2.0
    exact = 1.0 - mean_resultant_length(d, kappa)
    return (deficits.mean() - exact) / np.sqrt(mean_resultant_length_slope(d, kappa) / n)


@pytest.fixture(scope="module")
def compiled_draw():
    """Return the default (Numba) backend's draws, compiled once for every dimension."""
    mu, kappa, size = pt.dvector("mu"), pt.dscalar("kappa"), pt.lscalar("size")
    rng = pt.random.rng("rng")
    x = VonMisesFisher.dist(mu, kappa, size=(size,), rng=rng)
    function = pytensor.function([rng, mu, kappa, size], x)
    return lambda generator, mu, kappa, size: function(generator, mu, kappa, size[0])


@pytest.fixture(params=["numpy", "numba"])
def draw(request):
    if request.param == "numpy":
        return draw_von_mises_fisher
    return request.getfixturevalue("compiled_draw")


@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize("d", [2, 3, 4, 30])
def test_angle_to_the_mean_has_the_exact_distribution(draw, d, kappa):
    mu = unit_vectors(d)
    x = draw(np.random.default_rng(7), mu, kappa, (40_000,))
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0, rtol=1e-14)
    assert stats.kstest(angles_to(mu, x), exact_angle_cdf(d, kappa)).pvalue > 1e-4
    if kappa < 1e8:
        assert abs(z_of_mean_cosine(mu, kappa, x)) < 5


def test_missing_rejection_step_is_detected():
    class Gullible(np.random.Generator):
        def standard_exponential(self, size=None):
            return np.full(size, np.inf)

    mu = unit_vectors(4)
    x = draw_von_mises_fisher(Gullible(np.random.PCG64(7)), mu, 5.0, (40_000,))
    assert stats.kstest(angles_to(mu, x), exact_angle_cdf(4, 5.0)).pvalue < 1e-12
    assert abs(z_of_mean_cosine(mu, 5.0, x)) > 10


@pytest.mark.parametrize(
    "mu",
    [NORTH, -NORTH, np.array([1e-9, 0.0, 1.0]), np.array([0.0, -1.0, 0.0]), unit_vectors(3)],
)
def test_draws_are_symmetric_around_the_mean(draw, mu):
    """Azimuths around the mean are uniform, wherever the mean is."""
    x = draw(np.random.default_rng(7), mu, 4.0, (40_000,))
    assert abs(z_of_mean_cosine(mu, 4.0, x)) < 5
    first = np.cross(mu, np.eye(3)[np.argmin(np.abs(mu))])
    first /= np.linalg.norm(first)
    azimuth = np.arctan2(x @ np.cross(mu, first), x @ first)
    assert stats.kstest(azimuth, stats.uniform(-np.pi, 2 * np.pi).cdf).pvalue > 1e-4


@pytest.mark.parametrize("kappa", [0.0, 1.0, 1e5, 1e8])
def test_draws_in_many_dimensions(draw, kappa):
    mu = unit_vectors(100_000)
    x = draw(np.random.default_rng(7), mu, kappa, (40,))
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0, rtol=1e-13)
    assert abs(z_of_mean_cosine(mu, kappa, x)) < 5


def test_each_row_has_its_own_mean_and_concentration():
    """Each row has its own mean and concentration."""
    n = 50_000
    for d in (2, 3, 6):
        mu = unit_vectors(n, d)
        kappa = np.tile([0.0, 3.0, 4e6, 7e7], n // 4)
        x = draw_von_mises_fisher(np.random.default_rng(7), mu, kappa)
        for value in np.unique(kappa):
            rows = kappa == value
            cdf = exact_angle_cdf(d, value)
            assert stats.kstest(angles_to(mu[rows], x[rows]), cdf).pvalue > 1e-4


def test_shapes_of_draws():
    rng = np.random.default_rng(7)
    mu = unit_vectors(4, 1, 3)
    assert draw_von_mises_fisher(rng, mu, [1.0, 2.0]).shape == (4, 2, 3)
    assert draw_von_mises_fisher(rng, mu[0, 0], 1.0).shape == (3,)
    assert draw_von_mises_fisher(rng, mu, 1.0, (5, 4, 2)).shape == (5, 4, 2, 3)
    assert draw_von_mises_fisher(rng, mu[0, 0], 1.0, (0,)).shape == (0, 3)


@pytest.mark.parametrize("mode", [None, slow("CVM")])
@pytest.mark.parametrize(
    ("mu", "kappa", "message"),
    [([1.0, 1.0], 1.0, "unit vectors"), ([1.0, 0.0], -1.0, "at least 0")],
)
def test_invalid_parameters_of_draws_raise(mode, mu, kappa, message):
    with pytest.raises(ValueError, match=message):
        pm.draw(VonMisesFisher.dist(mu, kappa), mode=mode, random_seed=1)


# Model integration ------------------------------------------------------------------------------


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("mu", "kappa", "size", "expected"),
    [
        (NORTH, 0.0, 2, [NORTH, NORTH]),
        (NORTH, [1.0, 2.0], None, [NORTH, NORTH]),
        (np.eye(3), 1.0, (2, 3), [np.eye(3), np.eye(3)]),
    ],
)
def test_support_point_is_the_mean(mu, kappa, size, expected):
    with pm.Model() as model:
        VonMisesFisher("x", mu=mu, kappa=kappa, size=size)
    assert_support_point_is_expected(model, expected)


@pytest.fixture(scope="module")
def directions():
    return draw_von_mises_fisher(np.random.default_rng(7), NORTH, 8.0, (20,))


@pytest.fixture(scope="module")
def model(directions):
    with pm.Model(coords={"axis": list("xyz"), "day": range(20)}) as model:
        data = pm.Data("data", directions, dims=("day", "axis"))
        mean = VonMisesFisher("mean", mu=NORTH, kappa=0.5, dims="axis")
        kappa = pm.Exponential("kappa", 0.1)
        VonMisesFisher("x", mu=mean, kappa=kappa, observed=data, dims=("day", "axis"))
    return model


def test_model_is_well_formed(model):
    assert model.rvs_to_transforms[model["mean"]] is unit_vector
    assert "x ~ VonMisesFisher(mean, kappa)" in model.str_repr()
    assert r"\operatorname{VonMisesFisher}" in model.str_repr(formatting="latex")
    assert "mean ~ VonMisesFisher" in pm.model_to_mermaid(model)
    start = model.initial_point()["mean_unitvector__"]
    np.testing.assert_allclose(np.linalg.norm(start), 1.0)


def test_log_density_of_model_and_its_gradient(model, directions):
    """Against the closed form, and the gradient against central differences."""
    options = {"jacobian": False, "mode": "FAST_COMPILE"}
    logp, dlogp = model.compile_logp(**options), model.compile_dlogp(**options)
    names = [v.name for v in model.continuous_value_vars]
    point = {"mean_unitvector__": np.array([0.3, -1.1, 0.9]), "kappa_log__": np.array(1.3)}
    mean = point["mean_unitvector__"] / np.linalg.norm(point["mean_unitvector__"])
    kappa = np.exp(1.3)
    expected = scipy_logp(mean, NORTH, 0.5) + np.log(0.1) - 0.1 * kappa
    expected += sum(scipy_logp(v, mean, kappa) for v in directions)
    assert logp(point) == pytest.approx(expected, rel=1e-12)

    def along(name, index, step):
        moved = {key: value.copy() for key, value in point.items()}
        moved[name][index] += step
        return logp(moved)

    slopes = [
        (along(name, index, 1e-5) - along(name, index, -1e-5)) / 2e-5
        for name in names
        for index in np.ndindex(point[name].shape)
    ]
    np.testing.assert_allclose(dlogp(point), slopes, rtol=1e-7, atol=1e-6)


def test_model_can_be_pickled(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point()
    assert copy.compile_logp(mode="FAST_COMPILE")(point) == pytest.approx(
        model.compile_logp(mode="FAST_COMPILE")(point)
    )


def test_unpickled_variables_draw_in_compiled_code(tmp_path):
    """A spawned worker gets the Op by pickle and must not fall back to object mode."""
    path = tmp_path / "draw.pkl"
    path.write_bytes(cloudpickle.dumps(VonMisesFisher.dist(NORTH, 1e8)))
    program = (
        "import sys, warnings, cloudpickle, pymc as pm\n"
        "x = cloudpickle.loads(open(sys.argv[1], 'rb').read())\n"
        "warnings.simplefilter('error')\n"
        "assert pm.draw(x, random_seed=1)[2] > 0.999\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)


def test_total_size_and_minibatch(directions):
    with pm.Model() as scaled:
        VonMisesFisher("x", NORTH, 2.0, observed=directions, total_size=100)
    with pm.Model() as plain:
        VonMisesFisher("x", NORTH, 2.0, observed=directions)
    logps = [m.compile_logp(mode="FAST_COMPILE")({}) for m in (scaled, plain)]
    assert logps[0] == pytest.approx(5 * logps[1])
    with pm.Model() as batched:
        batch = pm.Minibatch(directions, batch_size=4)
        VonMisesFisher("x", NORTH, 2.0, observed=batch, total_size=20)
    assert np.isfinite(batched.compile_logp(mode="FAST_COMPILE")({}))


@pytest.mark.slow
def test_mixture_of_directions():
    means, weights, x = unit_vectors(3, 4), np.array([0.2, 0.3, 0.5]), unit_vectors(6, 4, seed=2)
    components = VonMisesFisher.dist(means, [1.0, 4.0, 20.0])
    mixture = pm.Mixture.dist(weights, components)
    single = [
        [scipy_logp(v, m, k) for m, k in zip(means, [1.0, 4.0, 20.0], strict=True)] for v in x
    ]
    expected = special.logsumexp(np.log(weights) + single, axis=-1)
    np.testing.assert_allclose(evaluate(pm.logp(mixture, x)), expected, rtol=1e-12)


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        x = VonMisesFisher.dist(NORTH.astype("float32"), np.float32(3.0))
        value = unit_vectors(3).astype("float32")
        density = pm.logp(x, value)
        assert x.dtype == density.dtype == "float32"
        expected = scipy_logp(value / np.linalg.norm(value), NORTH, 3.0)
        assert evaluate(density) == pytest.approx(expected, rel=1e-5)


# Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mu", "kappa"), [([0.6, 0.6], 1.0), ([0.6, 0.8], -0.1), ([np.nan, 0], 1)])
def test_bad_parameters_raise_at_evaluation(mu, kappa):
    density = pm.logp(VonMisesFisher.dist(np.asarray(mu, float), kappa), [1.0, 0.0])
    with pytest.raises(
        ParameterValueError, match="mu of VonMisesFisher is a unit vector, kappa >= 0"
    ):
        evaluate(density)


def test_values_off_the_sphere_have_no_density():
    x = pt.dmatrix("x")
    values = np.array([[0.6, 0.8], [0.6, 0.9], [0.0, 0.0], [np.nan, 1.0]])
    density = pm.logp(VonMisesFisher.dist([1.0, 0.0], 3.0), x)
    found = evaluate(density, {x: values})
    assert np.isfinite(found).tolist() == [True, False, False, False]
    assert np.all(found[1:] == -np.inf)
    assert (
        evaluate(pm.logp(VonMisesFisher.dist([1.0, 0.0], 3.0), values)).tolist() == found.tolist()
    )


def test_density_tolerates_rounding_of_unit_vectors():
    single = unit_vectors(50, 1000).astype("float32")
    assert np.all(np.isfinite(evaluate(pm.logp(VonMisesFisher.dist(np.eye(1000)[0], 1e8), single))))


@pytest.mark.parametrize(
    ("observed", "message"),
    [
        (np.eye(3) * 2, "length is 2 in row 0 .and 2 more.*divide each vector by its length"),
        (np.zeros(3), "all-zero vector"),
        (np.array([[1.0, 0, 0], [np.nan, 1, 0]]), "missing values .* row 1"),
        (np.ma.masked_equal(np.eye(3), 0.0), "missing values"),
        (np.eye(4), "ends with 4, but mu has 3"),
    ],
)
def test_invalid_data_raise_when_the_model_is_built(observed, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        VonMisesFisher("wind", NORTH, 1.0, observed=observed)


def test_shared_data_are_checked_too():
    with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
        VonMisesFisher("wind", NORTH, 1.0, observed=pm.Data("data", np.eye(3) * 2))
    batch = pm.Minibatch(np.eye(3) * 2, batch_size=2)
    with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
        VonMisesFisher("wind", NORTH, 1.0, observed=batch, total_size=3)


@pytest.mark.parametrize("mu", [1.0, [1.0]])
def test_mean_must_be_a_vector(mu):
    with pytest.raises(ValueError, match="at least 2 coordinates"):
        VonMisesFisher.dist(mu, 1.0)


def test_op_of_the_distribution():
    assert isinstance(VonMisesFisher.dist(NORTH, 1.0).owner.op, VonMisesFisherRV)

"""Watson, Bingham, Kent and Fisher–Bingham: densities, draws, model integration."""

import inspect

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from numba import njit
from pymc.logprob.utils import ParameterValueError
from scipy import integrate, stats

from pymc_geodesic import GMC, Bingham, FisherBingham, Kent, UniformStiefel, VonMisesFisher, Watson
from pymc_geodesic.distributions import fisher_bingham_draws
from pymc_geodesic.distributions.fisher_bingham_draws import draw_fisher_bingham
from pymc_geodesic.distributions.von_mises_fisher_draws import draw_uniform_directions
from pymc_geodesic.ops.fisher_bingham_integral import matrix_moments
from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral
from pymc_geodesic.transforms import unit_vector
from tests.distributions.directional_checks import evaluate, sphere
from tests.grids import cross, slow

FRAME = stats.ortho_group.rvs(3, random_state=1)
MU, MAJOR = FRAME[:, 0], FRAME[:, 1]
A = FRAME @ np.diag([2.0, 9.0, -15.0]) @ FRAME.T
KENT = 5.0 * (np.outer(MAJOR, MAJOR) - np.outer(np.cross(MU, MAJOR), np.cross(MU, MAJOR)))
NONE = np.zeros(3)

# Each distribution, and A and b of its exponent.
FAMILY = {
    "watson": (lambda **kw: Watson.dist(MU, 6.0, **kw), 6.0 * np.outer(MU, MU), NONE),
    "girdle": (lambda **kw: Watson.dist(MU, -40.0, **kw), -40.0 * np.outer(MU, MU), NONE),
    "bingham": (lambda **kw: Bingham.dist(A, **kw), A, NONE),
    "kent": (lambda **kw: Kent.dist(MU, MAJOR, 12.0, 5.0, **kw), KENT, 12.0 * MU),
    "fisher_bingham": (lambda **kw: FisherBingham.dist(MU, 11.0, A, **kw), A, 11.0 * MU),
}


# Density --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [slow(name) if name == "girdle" else name for name in FAMILY])
def test_density_on_the_sphere_is_the_exponent_and_integrates_to_one(name):
    make, matrix, vector = FAMILY[name]
    x, weight = sphere()
    density = evaluate(pm.logp(make(), x))
    assert np.exp(density) @ weight == pytest.approx(1.0, abs=1e-12)
    exponent = np.einsum("ni,ij,nj->n", x, matrix, x) + x @ vector
    np.testing.assert_allclose(density - exponent, density[0] - exponent[0], atol=1e-11)


@pytest.mark.parametrize(
    "make",
    [lambda: Watson.dist([0.6, 0.8], -7.0), lambda: Bingham.dist([[3.0, 1.0], [1.0, -8.0]]),
     lambda: FisherBingham.dist([0.6, 0.8], 20.0, [[3.0, 1.0], [1.0, -8.0]])],
)  # fmt: skip
def test_density_on_the_circle_integrates_to_one(make):
    angle = 2 * np.pi * np.arange(400) / 400
    x = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    density = np.exp(evaluate(pm.logp(make(), x)))
    assert density.mean() * 2 * np.pi == pytest.approx(1.0, abs=1e-12)


def test_members_of_the_family_agree():
    x = draw_uniform_directions(np.random.default_rng(1), (7, 5))
    mu = x[0]
    zero = np.zeros((5, 5))
    pairs = [
        (Watson.dist(mu, -3.0), Bingham.dist(-3.0 * np.outer(mu, mu))),
        (FisherBingham.dist(mu, 4.0, zero), VonMisesFisher.dist(mu, 4.0)),
        (FisherBingham.dist(mu, 0.0, zero + np.eye(5)), Bingham.dist(zero)),
    ]
    for one, other in pairs:
        densities = [evaluate(pm.logp(each, x)) for each in (one, other)]
        np.testing.assert_allclose(*densities, rtol=1e-12)
    axes = stats.ortho_group.rvs(5, random_state=3)
    by_axes = Bingham.dist(axes=axes, concentrations=np.arange(5.0))
    matrix = axes @ np.diag(np.arange(5.0)) @ axes.T
    densities = [evaluate(pm.logp(each, x)) for each in (by_axes, Bingham.dist(matrix))]
    np.testing.assert_allclose(*densities, rtol=1e-12)
    by_axes = Kent.dist(axes=FRAME, kappa=12.0, beta=5.0)
    x = draw_uniform_directions(np.random.default_rng(1), (7, 3))
    densities = [evaluate(pm.logp(each, x)) for each in (by_axes, FAMILY["kent"][0]())]
    np.testing.assert_allclose(*densities, rtol=1e-13)


@pytest.mark.slow
def test_batched_parameters_equal_a_loop():
    rng = np.random.default_rng(1)
    mu, x = draw_uniform_directions(rng, (4, 1, 3)), draw_uniform_directions(rng, (4, 2, 3))
    kappa = np.array([0.5, 80.0])
    matrices = rng.standard_normal((4, 1, 3, 3))
    matrices = matrices + matrices.mT
    cases = {
        Watson: (mu, kappa - 3.0),
        Bingham: (matrices,),
        FisherBingham: (mu, kappa, matrices),
    }
    for distribution, parameters in cases.items():
        batched = evaluate(pm.logp(distribution.dist(*parameters), x))
        for i, j in np.ndindex(4, 2):
            own = [
                each[min(i, len(each) - 1), 0] if each.ndim > 1 else each[j] for each in parameters
            ]
            looped = evaluate(pm.logp(distribution.dist(*own), x[i, j]))
            assert batched[i, j] == pytest.approx(float(looped), rel=1e-12)


def test_gradients_in_all_parameters():
    """Against finite differences of the log-density with symmetric changes of A."""
    mu, kappa, beta = pt.dvector("mu"), pt.dscalar("kappa"), pt.dscalar("beta")
    matrix, major = pt.dmatrix("A"), pt.dvector("major")
    inputs = [mu, major, kappa, beta, matrix]
    x = draw_uniform_directions(np.random.default_rng(1), (6, 3))
    unit = mu / pt.sqrt(pt.sum(mu**2))
    across = major - pt.sum(major * unit) * unit
    across = across / pt.sqrt(pt.sum(across**2))
    symmetric = matrix + matrix.T
    total = (
        pm.logp(Watson.dist(unit, kappa), x).sum()
        + pm.logp(Bingham.dist(symmetric), x).sum()
        + pm.logp(FisherBingham.dist(unit, kappa, symmetric), x).sum()
        + pm.logp(Kent.dist(unit, across, kappa, beta), x).sum()
    )
    function = pytensor.function(inputs, [total, *pt.grad(total, inputs)], mode="FAST_COMPILE")
    point = [MU, MAJOR + 0.3, np.array(7.0), np.array(2.0), np.diag([1.0, 3.0, -2.0]) + 0.2]
    gradients = function(*point)[1:]
    for i, gradient in enumerate(gradients):
        for index in np.ndindex(gradient.shape):
            values = []
            for sign in (1.0, -1.0):
                moved = [np.array(each) for each in point]
                moved[i][index] += sign * 1e-5
                values.append(function(*moved)[0])
            assert gradient[index] == pytest.approx((values[0] - values[1]) / 2e-5, abs=2e-7)


def test_the_mean_is_the_derivative_of_the_constant():
    log_integral, mean, second = map(evaluate, matrix_integral(np.stack([A, KENT]), 11.0 * MU))
    assert (log_integral.shape, mean.shape, second.shape) == ((2,), (2, 3), (2, 3, 3))
    x, weight = sphere()
    density = np.exp(evaluate(pm.logp(FAMILY["fisher_bingham"][0](), x))) * weight
    np.testing.assert_allclose(mean[0], density @ x, atol=1e-12)


# Random draws ---------------------------------------------------------------------------------


def exact_marginal(matrix, vector, direction):
    """Return the distribution function of direction · x, from the density by quadrature."""
    basis = np.linalg.qr(np.column_stack([direction, np.eye(3)[:, :2]]))[0]
    basis[:, 0] = direction
    heights = np.cos(np.linspace(np.pi, 0.0, 4001))
    angles = 2 * np.pi * np.arange(200) / 200
    radius = np.sqrt(1 - heights**2)[:, None]
    x = (
        heights[:, None, None] * basis[:, 0]
        + (radius * np.cos(angles))[..., None] * basis[:, 1]
        + (radius * np.sin(angles))[..., None] * basis[:, 2]
    )
    exponent = np.einsum("hai,ij,haj->ha", x, matrix, x) + x @ vector
    density = np.exp(exponent - exponent.max()).sum(axis=-1)
    cumulative = integrate.cumulative_simpson(density, x=heights, initial=0.0)
    return lambda height: np.interp(height, heights, cumulative / cumulative[-1])


def worst_z(x, matrix, vector):
    """Return the largest error of the means of x and x xᵀ, in standard errors."""
    _, mean, second = matrix_moments(np.asarray(matrix, float), np.asarray(vector, float))
    rows, columns = np.triu_indices(len(mean))
    products = x[:, rows] * x[:, columns]
    found = np.concatenate([x, products], axis=1)
    exact = np.concatenate([mean, second[rows, columns]])
    return np.max(np.abs(found.mean(axis=0) - exact) / found.std(axis=0)) * np.sqrt(len(x))


@pytest.fixture(scope="module")
def compiled_draws():
    """Return draws of the default (Numba) backend, compiled together."""
    rng = pt.random.rng("rng")
    draws = [make(size=20_000, rng=rng) for make, *_ in FAMILY.values()]
    values = pytensor.function([rng], draws)(np.random.default_rng(7))
    return dict(zip(FAMILY, values, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "name"), cross(["numba", "python"], FAMILY))
def test_draws_have_the_exact_distribution(backend, name, request):
    make, matrix, vector = FAMILY[name]
    if backend == "python":
        x = pm.draw(make(size=20_000), random_seed=7, mode="FAST_COMPILE")
    else:
        x = request.getfixturevalue("compiled_draws")[name]
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1.0, rtol=1e-13)
    assert worst_z(x, matrix, vector) < 5
    for direction in (*FRAME.T, np.array([0.6, 0.0, 0.8])):
        cdf = exact_marginal(matrix, vector, direction)
        assert stats.kstest(x @ direction, cdf).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("matrix", "vector"),
    [
        (np.diag([100.0, 0.0, 0.0]), [0.0, 0.0, 50.0]),
        (np.diag([0.0, 0.0, -1e6]), [0.0, 0.0, 0.0]),
        (np.zeros((3, 3)), [0.0, 0.0, 1e6]),
        (np.diag([0.0, -50.0]), [1.0, 90.0]),
        (np.diag(np.linspace(-30.0, 30.0, 12)), np.ones(12)),
    ],
)
def test_draws_with_extreme_parameters(matrix, vector):
    x = draw_fisher_bingham(np.random.default_rng(7), matrix, vector, (20_000,))
    assert worst_z(x, matrix, np.array(vector)) < 5


@pytest.mark.parametrize("kappa", [1e4, -1e4])
def test_watson_draws_in_many_dimensions(kappa):
    mu = draw_uniform_directions(np.random.default_rng(1), (1000,))
    x = pm.draw(Watson.dist(mu, kappa, size=2000), random_seed=7, mode="FAST_COMPILE")
    square = (x @ mu) ** 2
    step = 1.0
    log_integrals = [
        -float(evaluate(pm.logp(Watson.dist(mu, kappa + shift), mu))) + kappa + shift
        for shift in (-step, 0.0, step)
    ]
    mean = (log_integrals[2] - log_integrals[0]) / 2
    variance = log_integrals[2] - 2 * log_integrals[1] + log_integrals[0]
    assert square.mean() == pytest.approx(mean, abs=5 * square.std() / 2000**0.5 + 1e-7)
    assert square.var() == pytest.approx(variance, rel=0.2, abs=1e-7)


@pytest.mark.parametrize(
    "edit",
    [
        ("standard_exponential() >= -log_acceptance", "standard_exponential() >= -1.0"),
        ("precision -= weight * along * along", "pass"),
        ("> 1.0) == (along > 0.0)", "> 1.0) == (along < 0.0)"),
    ],
)
def test_mutants_of_draws_are_detected(edit):
    source = inspect.getsource(fisher_bingham_draws.fill_from_envelope.py_func)
    assert source.count(edit[0]) == 1
    space = dict(vars(fisher_bingham_draws))
    exec(source.replace("@compiled", "").replace(*edit), space)
    fill = njit(space["fill_from_envelope"])
    values, slopes = np.array([2.0, 9.0, -15.0]), np.array([11.0, 0.0, 3.0])
    distance, point = fisher_bingham_draws.envelope(values, slopes)
    x = np.empty((20_000, 3))
    rng = np.random.default_rng(7)
    for row in x:
        fill(rng, values, slopes, distance, point, row)
    assert worst_z(x, np.diag(values), slopes) > 10


@pytest.mark.slow
def test_rows_have_their_own_parameters():
    mu = draw_uniform_directions(np.random.default_rng(1), (5, 1, 3))
    kappa = np.array([1e8, 2e8])
    x = pm.draw(FisherBingham.dist(mu, kappa, np.eye(3)), random_seed=1, mode="FAST_COMPILE")
    np.testing.assert_allclose(x, np.broadcast_to(mu, (5, 2, 3)), atol=1e-3)
    x = pm.draw(Watson.dist(mu, kappa), random_seed=1, mode="FAST_COMPILE")
    np.testing.assert_allclose(np.abs(np.sum(x * mu, axis=-1)), 1.0, atol=1e-6)


# Model integration ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILY)
def test_shapes(name):
    make = FAMILY[name][0]
    assert evaluate(make()).shape == (3,)
    assert evaluate(make(size=(2, 4))).shape == (2, 4, 3)
    assert evaluate(make(shape=(4, 3))).shape == (4, 3)
    assert evaluate(make(size=(0,))).shape == (0, 3)
    with pytest.raises(ValueError, match="ends with 4"):
        make(shape=(3, 4))


@pytest.mark.parametrize("name", FAMILY)
def test_support_point_is_a_mode(name):
    make, matrix, vector = FAMILY[name]
    x = make()
    point = pm.distributions.distribution.support_point(x)
    start = evaluate(point)
    np.testing.assert_allclose(np.linalg.norm(start), 1.0)
    draws = draw_fisher_bingham(np.random.default_rng(1), matrix, vector, (500,))
    densities = evaluate(pm.logp(x, np.vstack([start, draws])))
    if name != "fisher_bingham":
        assert densities[0] >= densities[1:].max() - 1e-9
    assert densities[0] >= np.quantile(densities, 0.1)
    repeated = evaluate(pm.distributions.distribution.support_point(make(size=(2, 4))))
    assert repeated.shape == (2, 4, 3)


def test_variables_of_a_model():
    with pm.Model(coords={"axis": list("xyz"), "day": range(2)}) as model:
        Watson("w", MU, 2.0, dims=("day", "axis"))
        Bingham("b", A, dims=("day", "axis"))
        Kent("k", MU, MAJOR, 3.0, 1.0, dims="axis")
        FisherBingham("f", MU, 3.0, A, dims=("day", "axis"))
    assert all(transform is unit_vector for transform in model.rvs_to_transforms.values())
    assert "f ~ FisherBingham(<constant>, 3, <constant>)" in model.str_repr()
    point = model.initial_point()
    assert point["b_unitvector__"].shape == (2, 3)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    values = [m.compile_logp(mode="FAST_COMPILE")(point) for m in (model, copy)]
    assert values[0] == values[1]
    assert np.isfinite(values[0])


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        x = MU.astype("float32")
        for variable in (Watson.dist(x, 3.0), Bingham.dist(A), FisherBingham.dist(x, 3.0, A)):
            density = pm.logp(variable, x)
            assert variable.dtype == density.dtype == "float32"
            assert np.isfinite(evaluate(density))


SKEW = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize(
    ("make", "in_density", "in_draw"),
    [
        (lambda: Watson.dist(1.1 * MU, 1.0), "mu is a unit vector", "mu must contain unit vectors"),
        (lambda: Watson.dist(MU, np.nan), "kappa finite", "kappa must be finite"),
        (lambda: Watson.dist(MU, -np.inf), "kappa finite", "kappa must be finite"),
        (lambda: Bingham.dist(SKEW), "A is symmetric", "A must be symmetric"),
        (
            lambda: FisherBingham.dist(2 * MU, 1.0, A),
            "mu is a unit",
            "mu must contain unit vectors",
        ),
        (lambda: FisherBingham.dist(MU, -1.0, A), "kappa >= 0", "kappa must be at least 0"),
        (lambda: FisherBingham.dist(MU, 1.0, SKEW), "A is symmetric", "A must be symmetric"),
        (lambda: Kent.dist(MU, MAJOR, 2.0, 1.0), "beta < kappa / 2", "below kappa / 2"),
        (lambda: Kent.dist(MU, MAJOR, 2.0, -0.1), "0 <= beta", "beta must be at least 0"),
        (lambda: Kent.dist(MU, MU, 2.0, 0.5), "orthogonal unit vectors", "orthogonal to mu"),
    ],
)
def test_invalid_parameters_raise(make, in_density, in_draw):
    with pytest.raises(ParameterValueError, match=in_density):
        evaluate(pm.logp(make(), MU))
    with pytest.raises(ValueError, match=in_draw):
        pm.draw(make(), mode="FAST_COMPILE")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Watson.dist(1.0, 1.0), ValueError, "mu of Watson"),
        (lambda: Bingham.dist(np.ones((2, 3))), ValueError, "A of Bingham must be a square"),
        (lambda: Bingham.dist(), TypeError, "Bingham takes either A"),
        (lambda: Bingham.dist(axes=FRAME), TypeError, "Bingham takes either A"),
        (
            lambda: Bingham.dist(axes=FRAME, concentrations=np.ones(4)),
            ValueError,
            "axes of Bingham has 3 columns, but there are 4 concentrations",
        ),
        (
            lambda: Bingham.dist(axes=FRAME, concentrations=1.0),
            ValueError,
            "one number for each axis",
        ),
        (
            lambda: Bingham.dist(axes=FRAME[:, :2], concentrations=np.ones(2)),
            ValueError,
            "axes of Bingham must be a square matrix",
        ),
        (lambda: FisherBingham.dist(MU, 1.0, np.eye(4)), ValueError, "mu of FisherBingham has 3"),
        (lambda: FisherBingham.dist(1.0, 1.0, np.eye(4)), ValueError, "mu of FisherBingham"),
        (lambda: Kent.dist(np.ones(4), MAJOR, 2.0, 0.5), ValueError, "mu of Kent must have 3"),
        (lambda: Kent.dist(MU, kappa=2.0, beta=0.5), TypeError, "mu and major, or axes="),
        (lambda: Kent.dist(MU, MAJOR, kappa=2.0), TypeError, "kappa and beta"),
    ],
)
def test_invalid_shapes_raise(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_data_and_values_off_the_sphere_raise():
    with pm.Model(), pytest.raises(ValueError, match="'wind' must be unit vectors"):
        Bingham("wind", A, observed=np.eye(3) * 2)
    assert evaluate(pm.logp(Kent.dist(MU, MAJOR, 2.0, 0.5), 1.01 * MU)) == -np.inf


@pytest.mark.slow
@pytest.mark.parametrize("step", [pm.NUTS, GMC])
def test_samplers_recover_parameters(step):
    axes, kappa, beta = FRAME[:, :2], 40.0, 12.0
    truth = Kent.dist(axes=axes, kappa=kappa, beta=beta, shape=(400, 3))
    data = pm.draw(truth, random_seed=3)
    with pm.Model():
        frame = UniformStiefel("axes", shape=(3, 2))
        k = pm.HalfNormal("kappa", 100.0)
        ovalness = pm.Beta("ovalness", 1.0, 1.0)
        Kent("x", axes=frame, kappa=k, beta=ovalness * k / 2, observed=data)
        idata = pm.sample(
            500, tune=500, chains=2, cores=1, step=step(), random_seed=1, progressbar=False
        )
    posterior = idata.posterior
    for name, value in (("kappa", kappa), ("ovalness", 2 * beta / kappa)):
        draws = posterior[name].values
        assert abs(draws.mean() - value) < 5 * draws.std()
        assert float(az.rhat(posterior[name])) < 1.05
    mean = posterior["axes"].values[..., 0]
    assert np.min(mean @ axes[:, 0]) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("step", [pm.NUTS, GMC])
def test_a_free_variable_has_the_exact_moments(step):
    with pm.Model():
        FisherBingham("x", MU, 11.0, A)
        idata = pm.sample(2000, chains=2, cores=1, step=step(), random_seed=1, progressbar=False)
    x = idata.posterior["x"].values
    _, mean, second = matrix_moments(A, 11.0 * MU)
    for power, exact in ((1, mean), (2, np.diag(second))):
        for i in range(3):
            draws = x[..., i] ** power
            error = draws.std() / np.sqrt(float(az.ess(draws)))
            assert abs(draws.mean() - exact[i]) < 5 * error

"""Distributions and constraints of every kind of variable under every step method.

One step of each kind runs by default, each step with some kind. `test_every_route.py` has all of
them with data, and the tests of kernels the distributions of each kernel on each manifold.
"""

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.distributions import transforms
from scipy import integrate, stats

from pymc_geodesic import (
    GMC,
    SGGMC,
    MatrixVonMisesFisher,
    UniformStiefel,
    VonMisesFisher,
    gSGNHT,
)
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.manifolds import Euclidean, FlatSimplex, HalfLine, Simplex, Sphere, Stiefel
from tests.grids import slow
from tests.steps.runs import INTERPRETED, sample

ALPHA = np.array([3.0, 4.0, 6.0])
FRAME = np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
PROPORTIONS = [(None, GMC), (FlatSimplex, gSGNHT)]
"""Default cases: both charts, with and without Metropolis correction."""
STEPS = (GMC, SGGMC, gSGNHT)


def every_step(by_default):
    """All steps; tests of all but one are slow, since they use the same code."""
    steps = [step if step is by_default else slow(step) for step in STEPS]
    return pytest.mark.parametrize("step_class", steps, ids=lambda step: step.__name__)


def run(model, step_class, **kwargs):
    n_steps = 5 if step_class is GMC else 15
    with model:
        step = step_class(n_steps=n_steps, compile_kwargs=INTERPRETED, **kwargs)
    return sample(model, step, draws=1500, tune=300).posterior


def assert_means(draws, expected):
    """Means over the draws within five standard errors."""
    expected = np.asarray(expected)
    draws = draws.reshape(draws.shape[1], -1)
    for values, mean in zip(draws.T, expected.ravel(), strict=True):
        error = values.std() / np.sqrt(az.ess(values[None]))
        assert abs(values.mean() - mean) < 5.0 * error + 0.01 * values.std()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("manifold", "step_class"),
    [
        pytest.param(
            manifold,
            step,
            marks=[] if (manifold, step) in PROPORTIONS else pytest.mark.slow,
            id=f"{'flat' if manifold else 'square roots'}-{step.__name__}",
        )
        for manifold in (None, FlatSimplex)
        for step in STEPS
    ],
)
def test_proportions(step_class, manifold):
    with pm.Model() as model:
        pm.Dirichlet("w", ALPHA)
    if manifold is FlatSimplex and step_class is not GMC:
        # a density that falls to zero at a wall needs a step shorter than the default
        extra = {"step_size": 0.01}
    else:
        extra = {}
    manifolds = None if manifold is None else {"w": manifold}
    draws = run(model, step_class, manifolds=manifolds, **extra)["w"].values
    np.testing.assert_allclose(draws.sum(axis=-1), 1.0, atol=1e-10)
    assert (draws >= 0.0).all()
    total = ALPHA.sum()
    assert_means(draws, ALPHA / total)
    assert_means(draws**2, ALPHA * (ALPHA + 1.0) / (total * (total + 1.0)))


@every_step(by_default=GMC)
def test_bounded_positive_variables(step_class):
    """A density that is positive at zero, where the logarithm has a long tail."""
    with pm.Model() as model:
        pm.HalfNormal("s", 2.0, shape=2)
    draws = run(model, step_class, manifolds={"s": HalfLine})["s"].values
    assert (draws >= 0.0).all()
    assert_means(draws, np.full(2, 2.0 * np.sqrt(2.0 / np.pi)))
    assert_means(draws**2, np.full(2, 4.0))


POSITIVE = {
    "one bound": lambda: pm.TruncatedNormal("s", 1.0, 1.0, lower=0.0),
    "softplus": lambda: pm.TruncatedNormal(
        "s", 1.0, 1.0, lower=0.0, default_transform=transforms.log_exp_m1
    ),
    "infinite bound": lambda: pm.TruncatedNormal("s", 1.0, 1.0, lower=0.0, upper=[np.inf] * 2),
    "no transform": lambda: pm.TruncatedNormal("s", 1.0, 1.0, lower=0.0, default_transform=None),
}


@pytest.mark.parametrize("variable", POSITIVE.values(), ids=POSITIVE.keys())
def test_positive_numbers_under_every_transform(variable):
    with pm.Model() as model:
        variable()
    draws = run(model, GMC, manifolds={"s": HalfLine})["s"].values
    assert (draws >= 0.0).all()
    dist = stats.truncnorm(-1.0, np.inf, loc=1.0)
    assert_means(draws, np.full(draws.shape[2:], dist.mean()))
    assert_means(draws**2, np.full(draws.shape[2:], dist.moment(2)))


def test_an_edge_of_the_density():
    """Draws between 0 and s: the density of s ends at the largest of them."""
    with pm.Model() as model:
        s = pm.Gamma("s", 3.0, 1.0)
        pm.Uniform("y", 0.0, s, observed=[0.5, 2.0])
    draws = run(model, GMC)["s"].values
    tail = stats.expon(loc=2.0)  # s² exp(−s) / s² beyond 2
    assert (draws > 2.0).all()
    assert_means(draws, tail.mean())
    assert_means(draws**2, tail.moment(2))


ELSEWHERE = [
    (lambda: pm.Uniform("x", 0.0, 1.0), HalfLine, "the numbers between 0 and 1"),
    (lambda: pm.TruncatedNormal("x", lower=1.0), HalfLine, "the numbers between 1 and inf"),
    (lambda: pm.TruncatedNormal("x", upper=1.0), HalfLine, "the numbers between -inf and 1"),
    (lambda: pm.Uniform("x", 0.0, pm.HalfNormal("s")), HalfLine, "transform that depends on 's'"),
    (lambda: pm.Beta("x", 1.0, 1.0), HalfLine, "the numbers between 0 and 1"),
    (lambda: pm.VonMises("x", 0.0, 1.0), HalfLine, "angles"),
    (lambda: pm.Normal("x"), HalfLine, "all real numbers"),
    (lambda: pm.Normal("x", shape=3), Sphere, "all real numbers"),
    (lambda: pm.Normal("x", shape=(3, 2)), Stiefel, "all real numbers"),
    (lambda: pm.Normal("x", shape=3, transform=transforms.ordered), FlatSimplex, "'ordered'"),
    (lambda: pm.Dirichlet("x", ALPHA), Sphere, "Use Simplex or FlatSimplex, or remove 'x'"),
    (lambda: pm.HalfNormal("x", shape=3), Simplex, "Use HalfLine, or remove 'x'"),
    (lambda: pm.HalfNormal("x", default_transform=None), Euclidean, "bounds but no transform"),
]


@pytest.mark.parametrize(("variable", "manifold", "reason"), ELSEWHERE)
def test_wrong_manifold_of_a_variable_raises(variable, manifold, reason):
    with pm.Model() as model:
        variable()
        with pytest.raises(ValueError, match=f"^'x' .*{reason}"):
            manifold_variables(model, ["x"], {"x": manifold})


class Interval(Euclidean):
    """A manifold that is not in `MANIFOLDS`."""


def test_custom_manifold_under_any_transform():
    """The point is what PyMC's transform makes of the value."""
    with pm.Model() as model:
        pm.Uniform("x", [1.0, 2.0], [3.0, 5.0])
    (variable,) = manifold_variables(model, ["x"], {"x": Interval})
    value = np.array([0.0, np.log(3.0)])
    np.testing.assert_allclose(variable.coordinates(value), [[2.0, 4.25]], rtol=1e-12)
    np.testing.assert_allclose(variable.values(np.array([[2.0, 4.25]])), [value], atol=1e-12)


@pytest.fixture(scope="module")
def exact_frames():
    dist = MatrixVonMisesFisher.dist(FRAME, size=20_000)
    return pm.draw(dist, random_seed=2, mode="FAST_COMPILE")


@pytest.mark.slow
@pytest.mark.parametrize("step_class", STEPS, ids=lambda step: step.__name__)
def test_frames(step_class, exact_frames):
    """Kernels keep exact draws of frames exact in `test_stationarity.py`, by default."""
    exact = exact_frames
    with pm.Model() as model:
        MatrixVonMisesFisher("frame", FRAME)
    draws = run(model, step_class)["frame"].values
    gram = np.swapaxes(draws, -1, -2) @ draws
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), gram.shape), atol=1e-10)
    assert_means(draws, exact.mean(axis=0))
    assert_means((draws * FRAME).sum(axis=(-2, -1)), (exact * FRAME).sum(axis=(-2, -1)).mean())


@pytest.mark.slow
@every_step(by_default=gSGNHT)
def test_many_directions_at_once(step_class):
    """Rows of one variable with a mean and a concentration each."""
    means = np.array([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]])
    kappa = np.array([3.0, 30.0])
    with pm.Model() as model:
        VonMisesFisher("x", means, kappa)
    draws = run(model, step_class)["x"].values
    np.testing.assert_allclose(np.linalg.norm(draws, axis=-1), 1.0, atol=1e-10)
    lengths = 1.0 / np.tanh(kappa) - 1.0 / kappa
    assert_means(draws, lengths[:, None] * means)


def test_thermostat_of_a_single_direction():
    """Two dimensions and large friction: without inertia the temperature would be 8 % too low."""
    kappa = 1000.0
    with pm.Model() as model:
        VonMisesFisher("mu", [1.0, 0.0, 0.0], kappa)
        step = gSGNHT(step_size=0.1 / np.sqrt(kappa), momentum_decay=1.0, n_steps=200)
    draws = sample(model, step, draws=6000, tune=100).posterior["mu"].values[..., 0]
    dispersion = (1.0 - draws) * kappa
    error = 1.0 / np.sqrt(az.ess(dispersion))
    assert error < 0.015
    assert abs(dispersion.mean() - 1.0) < 4.0 * error


def test_thermostat_does_not_wind_up_far_from_the_posterior():
    with pm.Model() as model:
        VonMisesFisher("mu", [0.0, 0.0, 1.0], 1e6)
        step = gSGNHT(compile_kwargs=INTERPRETED)
    start = {"mu": [1.0, 0.0, 0.0]}
    idata = sample(model, step, draws=300, tune=300, initvals=start)
    stats = idata.sample_stats
    assert float((stats["thermostat"] / stats["friction"]).mean()) < 2.0
    assert float(stats["temperature"].mean()) == pytest.approx(1.0, abs=0.05)
    dispersion = 1e6 * (1.0 - idata.posterior["mu"].values[..., 2])
    assert 0.7 < dispersion.mean() < 1.4


@pytest.mark.slow
def test_variables_without_their_transform():
    """PyMC's value is then the variable itself, and the manifold the same."""
    with pm.Model() as model:
        VonMisesFisher("mu", [0.0, 0.6, 0.8], 20.0, default_transform=None)
        pm.Dirichlet("w", ALPHA, default_transform=None)
    posterior = run(model, GMC)
    np.testing.assert_allclose(np.linalg.norm(posterior["mu"], axis=-1), 1.0, atol=1e-10)
    length = 1.0 / np.tanh(20.0) - 1.0 / 20.0
    assert_means(posterior["mu"].values, length * np.array([0.0, 0.6, 0.8]))
    assert_means(posterior["w"].values, ALPHA / ALPHA.sum())


TRACE, TRACE_SD = 0.2, 1.0


def orthogonal_matrices(n):
    """n independent posteriors of an orthogonal matrix whose trace is observed with noise."""
    with pm.Model() as model:
        x = UniformStiefel("x", shape=(n, 3, 3))
        pm.Normal("y", pt.trace(x.transpose(1, 2, 0)), TRACE_SD, observed=np.full(n, TRACE))
    return model


def share_of_reflections():
    """P(det = −1): the trace of a matrix that turns by t is ±(1 + 2 cos t), t ~ 1 − cos t."""

    def weight(sign):
        def integrand(t):
            deviation = (TRACE - sign * (1.0 + 2.0 * np.cos(t))) / TRACE_SD
            return np.exp(-0.5 * deviation**2) * (1.0 - np.cos(t))

        return integrate.quad(integrand, 0.0, np.pi)[0]

    return weight(-1) / (weight(-1) + weight(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [slow({}), {"step_size": 0.3, "n_steps": 5}], ids=["tuned", "fixed"]
)
def test_gmc_reaches_both_determinants(options):
    model = orthogonal_matrices(20)
    with model:
        step = GMC(compile_kwargs=None, **options)
    draws = sample(model, step, draws=400, tune=100, compile_kwargs=None).posterior["x"].values[0]
    reflections = np.linalg.det(draws) < 0.0
    changes = np.mean(reflections[1:] != reflections[:-1])
    assert changes > 0.1
    assert abs(reflections.mean() - share_of_reflections()) < 0.03
    np.testing.assert_allclose(draws.mT @ draws, np.broadcast_to(np.eye(3), draws.shape), atol=1e-9)


def test_a_step_that_keeps_the_determinant_warns():
    model = orthogonal_matrices(1)
    with model, pytest.warns(UserWarning, match="'x' is an orthogonal matrix of shape"):
        SGGMC(compile_kwargs=INTERPRETED)

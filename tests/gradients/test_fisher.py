"""Variance of the gradient estimate from the rows of a minibatch."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.link.numba.dispatch.basic import numba_funcify_and_cache_key

from pymc_geodesic.densities import compilation
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.distributions import UniformSphere, VonMisesFisher
from pymc_geodesic.gradients.fisher import tangential_variance
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.manifolds import Euclidean, FlatSimplex, Simplex, Sphere, Stiefel
from pymc_geodesic.minibatches.from_arguments import drawn_row_source
from pymc_geodesic.minibatches.resident_rows import IndependentRows, RandomRows
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.gradient_functions import GradientFunction, evaluate

N_ROWS, BATCH = 40, 8
KAPPA = 5.0
INTERPRETED = {"mode": "FAST_COMPILE"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N_ROWS, 2))
    return X, rng.normal(X @ [1.0, -2.0], 1.0)


def estimator_of(model, arrays, source=IndependentRows, batch_size=BATCH):
    density = RowDensity(model, manifold_variables(model, None), source(arrays, batch_size))
    return MinibatchGradient(density, compile_kwargs=INTERPRETED)


def compile_noise_natively(estimator):
    """Compile the variance without the gradient, which these tests do not call natively."""
    estimator._compile_kwargs = None
    return estimator.compile_noise()


def call(function, position, start, size=None):
    output = np.empty(position.size if size is None else size)
    evaluate(function.address, position, start, function.context, output)
    function.raise_error()
    return output


@pytest.mark.slow
@pytest.mark.parametrize("source", [IndependentRows, RandomRows])
def test_variance_equals_that_of_the_rows(table, source):
    """N² times the sample variance of the row gradients over n; the prior contributes nothing."""
    X, y = table
    with pm.Model() as model:
        X_data = pm.Data("X", X)
        w = pm.Normal("w", 0.0, 3.0, shape=2)
        pm.Normal("y_obs", X_data @ w, 1.0, observed=pm.Data("y", y))
    estimator = estimator_of(model, {"X": X, "y": y}, source)
    noise = estimator.compile_noise()
    position = np.array([0.3, -0.7])
    start = estimator.next_minibatches(1)[0]
    rows = estimator.source.row_indices(start)
    per_row = N_ROWS * X[rows] * (y[rows] - X[rows] @ position)[:, None]
    expected = per_row.var(axis=0, ddof=1) / BATCH
    if source is IndependentRows:
        expected *= 1.0 - BATCH / N_ROWS
    np.testing.assert_allclose(call(noise, position, start), expected, rtol=1e-10)


@pytest.mark.parametrize("source", [IndependentRows, RandomRows])
def test_unbiased(table, source):
    """Its mean over minibatches is the variance of the gradient over minibatches."""
    X, y = table
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 3.0, shape=2)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    estimator = estimator_of(model, {"X": X, "y": y}, source)
    noise = estimator.compile_noise()
    position = np.array([0.3, -0.7])
    # new shuffles of the rows, so that blocks are simple random samples
    gradients, variances = [], []
    for seed in range(3000):
        order = np.random.default_rng(seed).permutation(N_ROWS)
        if source is RandomRows:
            start = estimator.next_minibatches(1)[0]
        else:
            estimator.source.arrays["X"][:N_ROWS] = X[order]
            estimator.source.arrays["y"][:N_ROWS] = y[order]
            start = 0
        gradients.append(call(estimator.logp_grad, position, start))
        variances.append(call(noise, position, start))
    ratio = np.mean(variances, axis=0) / np.var(gradients, axis=0)
    np.testing.assert_allclose(ratio, 1.0, atol=5 * np.sqrt(3.0 / 3000))


def test_directions_have_tangential_noise():
    """Isotropic noise around the mean direction: the same variance for every coordinate."""
    truth = np.array([0.0, 0.6, 0.8])
    n_rows = 20_000
    dist = VonMisesFisher.dist(truth, KAPPA, size=n_rows)
    x = pm.draw(dist, random_seed=1, mode="FAST_COMPILE")
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=3)
        VonMisesFisher("x_obs", mu, KAPPA, observed=pm.Data("x", x))
    estimator = estimator_of(model, {"x": x}, batch_size=10_000)
    variance = call(estimator.compile_noise(), truth, 0)
    # tangential variance of one row is A(κ)/κ times κ²
    single = KAPPA * (1.0 / np.tanh(KAPPA) - 1.0 / KAPPA)
    expected = n_rows**2 * single / 10_000 * (1.0 - 0.5)
    np.testing.assert_allclose(variance, expected, rtol=0.05)


def test_variables_independent_of_rows_have_no_noise(table):
    X, y = table
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 3.0, shape=2)
        pm.Normal("a", 0.0, 1.0, shape=3)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    estimator = estimator_of(model, {"X": X, "y": y})
    variance = call(estimator.compile_noise(), np.ones(5), 0)
    assert np.all(variance[:2] > 0.0)
    np.testing.assert_array_equal(variance[2:], 0.0)


def test_minibatch_of_pymc(table):
    X, y = table
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, y, batch_size=BATCH)
        w = pm.Normal("w", 0.0, 3.0, shape=2)
        pm.Normal("y_obs", X_rows @ w, 1.0, observed=y_rows, total_size=N_ROWS)
    density = RowDensity(model, manifold_variables(model, None), drawn_row_source(model))
    estimator = MinibatchGradient(density, compile_kwargs=INTERPRETED)
    position = np.array([0.3, -0.7])
    rows = estimator.source.row_indices(5)
    per_row = N_ROWS * X[rows] * (y[rows] - X[rows] @ position)[:, None]
    expected = per_row.var(axis=0, ddof=1) / BATCH * (1.0 - BATCH / N_ROWS)
    for compile_noise in (MinibatchGradient.compile_noise, compile_noise_natively):
        noise = compile_noise(estimator)
        np.testing.assert_allclose(call(noise, position, 5), expected, rtol=1e-10)


def test_all_rows_have_no_noise(table):
    X, y = table
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 3.0, shape=2)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    density = RowDensity(model, manifold_variables(model, None), AllRows())
    full = MinibatchGradient(density, compile_kwargs=INTERPRETED)
    with pytest.raises(ValueError, match="needs minibatches of two or more rows"):
        full.compile_noise()
    with pytest.raises(ValueError, match="needs minibatches of two or more rows"):
        estimator_of(model, {"X": X, "y": y}, batch_size=1).compile_noise()


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(N_ROWS, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=(2, 3))
        components = [VonMisesFisher.dist(mu[k], KAPPA) for k in range(2)]
        pm.Mixture("x_obs", w=[0.3, 0.7], comp_dists=components, observed=pm.Data("x", x))
    return model, x


@pytest.mark.slow
def test_mixture_compiles_to_cached_machine_code(mixture, monkeypatch):
    """No node runs in Python, which would warn, and cost a compilation in every process.

    The test reads the source before Numba compiles it, which takes half a minute.
    """
    model, x = mixture
    keys = []

    def linked(graph, *_):
        keys.append(numba_funcify_and_cache_key(graph)[1])
        return GradientFunction(0, graph)

    estimator = estimator_of(model, {"x": x})
    monkeypatch.setattr(compilation, "_native", linked)
    compile_noise_natively(estimator)
    assert len(keys) == 1
    assert keys[0]


@pytest.mark.slow
def test_mixture(mixture):
    model, x = mixture
    estimator = estimator_of(model, {"x": x})
    noise = estimator.compile_noise()
    point = np.array([[0.6, 0.8, 0.0], [0.0, -0.6, 0.8]])
    rows = x[estimator.source.row_indices(3)]
    log_terms = np.log([0.3, 0.7]) + KAPPA * rows @ point.T
    shares = np.exp(log_terms) / np.exp(log_terms).sum(axis=1, keepdims=True)
    gradients = N_ROWS * KAPPA * shares[:, :, None] * rows[:, None, :]
    gradients -= np.sum(gradients * point, axis=-1, keepdims=True) * point
    expected = gradients.var(axis=0, ddof=1) / BATCH * (1.0 - BATCH / N_ROWS)
    expected += expected.sum(axis=-1, keepdims=True) / 2.0 * point**2
    np.testing.assert_allclose(call(noise, point.ravel(), 3), expected.ravel(), rtol=1e-9)


@pytest.mark.parametrize(
    "manifold", [Euclidean(3), Sphere(4), Simplex(4), FlatSimplex(4), Stiefel(4, 2)], ids=repr
)
def test_isotropic_tangential_noise_is_reproduced(manifold):
    """Noise of these variances, projected, has the projector as its covariance again."""
    rng = np.random.default_rng(1)
    x = manifold.to_coordinates(manifold.random_point(rng))
    basis = manifold.project(x, np.eye(manifold.size).reshape(-1, *manifold.shape))
    projector = basis.reshape(manifold.size, manifold.size)
    # rows whose mean square is the projector plus a normal part that must not count
    deviations = np.sqrt(manifold.size) * (
        basis + 3.0 * (np.eye(manifold.size) - projector).reshape(basis.shape)
    )
    variance = tangential_variance(manifold, pt.constant(x), pt.constant(deviations))
    diagonal = np.diag(variance.eval(mode="FAST_COMPILE").ravel())
    np.testing.assert_allclose(projector @ diagonal @ projector, projector, atol=1e-12)

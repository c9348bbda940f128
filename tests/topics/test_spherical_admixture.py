"""The spherical admixture model against closed forms and quadrature."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from arviz_base import from_dict
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.topics import spherical_admixture

K, D, W = 3, 12, 6


@pytest.fixture(scope="module")
def vectors():
    V = np.abs(np.random.default_rng(5).normal(size=(D, W)))
    return V / np.linalg.norm(V, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def model(vectors):
    return spherical_admixture(vectors, K, alpha=2.0, kappa=40.0, sigma=15.0, kappa0=8.0)


def test_collapsed_topics_integrate_the_mean_out():
    """p(β) = ∫ vMF(μ | m, κ0) Π_k vMF(β_k | μ, σ) dμ, by Monte Carlo over the prior of μ."""
    V = np.eye(3)
    model = spherical_admixture(V, 2, kappa=5.0, sigma=3.0, kappa0=2.0, mean=[0.0, 0.0, 1.0])
    point = model.initial_point(random_seed=1)
    beta = point["beta_unitvector__"]
    logp = model.compile_logp(vars=[model["beta"]], jacobian=False, mode="FAST_COMPILE")(point)
    distribution = VonMisesFisher.dist([0.0, 0.0, 1.0], 2.0, size=400_000)
    mu = pm.draw(distribution, random_seed=2, mode="FAST_COMPILE")
    log_c = np.log(3.0 / (4 * np.pi * np.sinh(3.0)))
    weights = np.exp(2 * log_c + 3.0 * (mu @ beta.T).sum(axis=1))
    z = (weights.mean() - np.exp(logp)) / (weights.std() / np.sqrt(weights.size))
    assert abs(z) < 5
    assert weights.std() / np.sqrt(weights.size) < 0.005 * np.exp(logp)


def test_explicit_mean_is_the_same_model(vectors):
    kept = spherical_admixture(vectors, K, kappa=40.0, sigma=15.0, collapse_mean=False)
    assert [rv.name for rv in kept.free_RVs] == ["mu", "beta", "theta"]
    assert kept.named_vars_to_dims["mu"] == ("word",)


def test_names_dims_and_coords(vectors):
    words = [f"w{i}" for i in range(W)]
    model = spherical_admixture(vectors, K, vocabulary=words)
    assert model.named_vars_to_dims["beta"] == ("topic", "word")
    assert model.named_vars_to_dims["theta"] == ("document", "topic")
    assert model.named_vars_to_dims["V"] == ("document", "word")
    assert list(model.coords["word"]) == words
    assert [rv.name for rv in model.observed_RVs] == ["v"]


@pytest.fixture
def interpreted():
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def test_sparse_documents_have_the_density_of_dense_ones(vectors, interpreted):
    rows = np.where(vectors < 0.3, 0.0, vectors)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    dense = spherical_admixture(rows, K, alpha=2.0, kappa=40.0)
    thin = spherical_admixture(sparse.csr_matrix(rows), K, alpha=2.0, kappa=40.0)
    assert [potential.name for potential in thin.potentials] == ["v"]
    assert thin.named_vars_to_dims["v"] == ("document",)
    assert thin["V_values"].get_value().size == np.count_nonzero(rows)
    point = dense.initial_point(random_seed=3)
    assert thin.compile_logp()(point) == pytest.approx(dense.compile_logp()(point), rel=1e-12)


@pytest.mark.slow
def test_minibatches_of_sparse_documents_move_the_topics_alike(vectors, interpreted):
    """Same seed, same minibatches, same draws of the proportions, up to rounding."""
    ends = []
    for rows in (vectors, sparse.csr_array(vectors)):
        model = spherical_admixture(rows, K, alpha=2.0, kappa=40.0, sigma=15.0, kappa0=8.0)
        with model:
            step = pg.gSGNHT(
                [model["beta"]], local=[model["theta"]], minibatch=["V"], batch_size=5,
                local_tune=2, local_draws=2, local_steps=2, n_steps=2,
            )  # fmt: skip
        step.setup_chain(np.random.default_rng(1), 3, 3)
        point = model.initial_point(random_seed=1)
        for _ in range(6):
            point, _ = step.step(point)
        ends.append(point)
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], rtol=1e-6, atol=1e-8)


def test_likelihood_is_the_von_mises_fisher_density(model, vectors, interpreted):
    point = model.initial_point(random_seed=3)
    beta = point["beta_unitvector__"]
    theta = np.full((D, K), 1 / K)
    mean = theta @ beta
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    expected = pm.logp(VonMisesFisher.dist(mean, 40.0), vectors).sum().eval()
    found = model.compile_logp(vars=model.observed_RVs)(point)
    assert found == pytest.approx(expected, rel=1e-10)


def test_prior_and_posterior_predictive_draws(model, interpreted):
    with model:
        prior = pm.sample_prior_predictive(3, random_seed=1)
    for group, name in (("prior", "beta"), ("prior_predictive", "v")):
        lengths = np.linalg.norm(prior[group][name].values, axis=-1)
        np.testing.assert_allclose(lengths, 1.0, rtol=1e-10)
    np.testing.assert_allclose(prior.prior["theta"].sum("topic"), 1.0, rtol=1e-10)


def test_topics_start_apart(model):
    beta = model.initial_point(random_seed=3)["beta_unitvector__"]
    assert np.linalg.norm(beta[0] - beta[1]) > 0.1
    again, other = (model.initial_point(random_seed=seed)["beta_unitvector__"] for seed in (3, 4))
    np.testing.assert_array_equal(beta, again)
    assert np.linalg.norm(beta - other) > 0.1


def test_model_can_be_copied(model, interpreted):
    """As in pm.do, pm.observe and pm.compute_log_likelihood, without initial values."""
    point = model.initial_point(random_seed=3)
    names = {"beta": point["beta_unitvector__"], "theta": np.full((D, K), 1 / K)}
    idata = from_dict({"posterior": {name: value[None, None] for name, value in names.items()}})
    found = pm.compute_log_likelihood(
        idata, model=model, progressbar=False, compile_kwargs={"mode": "FAST_COMPILE"}
    )
    mean = names["theta"] @ names["beta"]
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    expected = pm.logp(VonMisesFisher.dist(mean, 40.0), model["V"].get_value()).eval()
    np.testing.assert_allclose(found.log_likelihood["v"].values[0, 0], expected, rtol=1e-10)
    assert "beta" in pm.do(model, {"kappa": 500.0}).named_vars


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda V: (2 * V, {}), "row 0 of V has length 2"),
        (lambda V: (np.vstack([V, np.zeros(W)]), {}), "drop empty documents"),
        (lambda V: (V * np.nan, {}), "V has missing values"),
        (lambda V: (V[0], {}), "matrix"),
        (lambda V: (sparse.csr_matrix(2 * V), {}), "row 0 of V has length 2"),
        (lambda V: (sparse.csr_matrix(V * np.nan), {}), "V has missing values"),
        (lambda V: (V, {"n_topics": 1}), "n_topics"),
        (lambda V: (V, {"kappa": -1.0}), "kappa"),
        (lambda V: (V, {"alpha": 0.0}), "alpha"),
        (lambda V: (V, {"mean": np.zeros(W)}), "mean"),
    ],
)
def test_invalid_input_raises(vectors, change, message):
    V, arguments = change(vectors.copy())
    with pytest.raises(ValueError, match=message):
        spherical_admixture(V, **({"n_topics": K} | arguments))

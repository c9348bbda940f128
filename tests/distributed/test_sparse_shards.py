"""Sparse matrices in shards: log-likelihood of dense rows, and errors."""

import functools

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.densities.row_dependence import observed_with_total_size
from pymc_geodesic.distributed.shard_actor import Job, ShardActor
from pymc_geodesic.distributed.shards import set_rows, step_spec
from tests.distributed.inline import InlineClient

INTERPRETED = {"mode": "FAST_COMPILE"}
STEP = functools.partial(pg.SGGMC, batch_size=20, minibatch=["X", "y"], compile_kwargs=INTERPRETED)
QUIET = {"progressbar": False, "compute_convergence_checks": False}
D = 4


def regression(data):
    with pm.Model() as model:
        X, y = data("X"), pm.Data("y", np.zeros(3))
        beta = pm.Normal("beta", 0.0, 2.0, shape=D)
        score = pm.Deterministic("score", X @ beta)
        pm.Bernoulli("label", logit_p=score, observed=y)
    return model


def sparse_model():
    return regression(lambda name: pg.SparseData(name, sparse.csr_array(np.eye(3, D))))


def rows_of(n, seed):
    rng = np.random.default_rng(seed)
    X = sparse.random_array((n, D), density=0.4, format="csr", rng=rng)
    return {"X": X, "y": rng.integers(2, size=n)}


def test_likelihood_of_a_sparse_shard_is_that_of_the_dense_one():
    rows = rows_of(90, seed=1)
    expansions = []
    for model, X in (
        (sparse_model(), rows["X"]),
        (regression(lambda name: pm.Data(name, np.zeros((3, D)))), rows["X"].toarray()),
    ):
        job = cloudpickle.dumps(Job(model, step_spec(STEP, model), expands=True))
        shard = ShardActor(job, rows | {"X": X}, 0.5)
        assert shard.count_rows() == 90
        expansions.append(shard.expand(np.array([0.5, -1.0, 0.2, 0.0]), None))
    np.testing.assert_allclose(expansions[0].value, expansions[1].value, rtol=1e-12)
    np.testing.assert_allclose(expansions[0].gradient, expansions[1].gradient, rtol=1e-10)
    np.testing.assert_allclose(expansions[0].hessian, expansions[1].hessian, rtol=1e-6, atol=1e-9)
    assert (np.diagonal(expansions[0].hessian) < 0).all()


@pytest.mark.slow
def test_files_of_sparse_matrices_give_the_draws_of_matrices(tmp_path):
    shards = [rows_of(60, seed) for seed in (1, 2)]
    paths = []
    for i, rows in enumerate(shards):
        sparse.save_npz(tmp_path / f"X{i}.npz", rows["X"])
        np.save(tmp_path / f"y{i}.npy", rows["y"])
        paths.append({"X": tmp_path / f"X{i}.npz", "y": f"{tmp_path}/y{i}.npy"})
    step = functools.partial(STEP, step_size=0.05, n_steps=2, friction=1.0)
    runs = [
        pg.distributed.sample(
            sparse_model(), step, InlineClient(2), shards=each, draws=6, tune=4, chains=1,
            random_seed=1, **QUIET,
        )
        for each in (shards, paths)
    ]  # fmt: skip
    np.testing.assert_array_equal(runs[0].posterior["beta"], runs[1].posterior["beta"])
    assert runs[0]["shards"]["n_rows"].values.tolist() == [60, 60]
    # variables that depend on rows are omitted
    assert set(runs[0].posterior.data_vars) == {"beta"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.ones((30, D))}, "dense array for 'X', which is SparseData"),
        ({"y": sparse.csr_array(np.ones((30, 1)))}, "sparse matrix for 'y', which is a dense"),
        ({"X": sparse.csr_array(np.ones((30, D + 1)))}, "'X' has 4 columns, the new rows have 5"),
        ({"X": sparse.csr_array(np.ones((29, D)))}, "same positive number of rows"),
        ({"z": np.ones(30)}, r"names 'z', but the data containers are \['y', 'X'\]"),
    ],
)
def test_inconsistent_shards_of_a_sparse_container_raise(change, message):
    with pytest.raises(ValueError, match=message):
        pg.distributed.sample(
            sparse_model(), STEP, InlineClient(), shards=[rows_of(30, seed=1) | change], **QUIET
        )


@pytest.mark.parametrize("coords", [None, {"row": ["a", "b", "c"]}])
def test_dimensions_follow_the_rows_of_a_shard(coords):
    with pm.Model(coords=coords) as model:
        X = pg.SparseData("X", sparse.csr_array(np.eye(3, D)), dims=("row", "column"))
        y = pm.Data("y", np.zeros(3), dims="row")
        pm.Normal("seen", X @ pm.Normal("beta", shape=D), observed=y, dims="row")
    set_rows(model, rows_of(30, seed=1), ["X", "y"])
    assert int(model.dim_lengths["row"].eval()) == 30
    assert model["X_rows"].get_value().shape == (30, 2)


def test_total_size_of_a_sparse_matrix_raises():
    """Also without dense containers."""
    with pm.Model() as model:
        X = pg.SparseData("X", sparse.csr_array(np.eye(3, D)))
        score = X @ pm.Normal("beta", shape=D)
        pm.Bernoulli("label", logit_p=score, observed=np.zeros(3), total_size=90)
    assert observed_with_total_size(model, ["X"]) == ["label"]
    assert observed_with_total_size(model, ["y"]) == []

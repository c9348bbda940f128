"""A sparse design matrix in a model: the same model as with the dense one, and its minibatches."""

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from pymc_geodesic.runtime.gradient_functions import evaluate
from pymc_geodesic.sparse.count_matrices import axis_coords

N, D, K, BATCH = 24, 9, 2, 5
INTERPRETED = {"mode": "FAST_COMPILE"}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = sparse.random_array((N, D), density=0.3, format="csr", rng=rng)
    X.data[:] = rng.normal(size=X.nnz)
    return X, rng.normal(size=N), rng.normal(size=(D, K))


def regression(X, y):
    """Two columns of weights, so that the score of a row is not linear in either."""
    w = pm.Normal("w", 0.0, 3.0, shape=(D, K))
    scores = X @ w
    pm.Normal("y_obs", scores[:, 0] * pt.tanh(scores[:, 1]), 1.0, observed=y)


@pytest.fixture
def model(table):
    X, y, _ = table
    with pm.Model() as model:
        regression(pg.SparseData("X", X), pm.Data("y", y))
    return model


@pytest.fixture
def dense_model(table):
    X, y, _ = table
    with pm.Model() as model:
        regression(pm.Data("X", X.toarray()), pm.Data("y", y))
    return model


def estimator_of(model, order="shuffled", compile_kwargs=INTERPRETED):
    rows = MinibatchArguments(batch_size=BATCH, minibatch=["X", "y"], minibatch_order=order)
    source = minibatch_source(model, rows)
    source.reset(1)
    density = RowDensity(model, manifold_variables(model, None), source)
    return MinibatchGradient(density, compile_kwargs=compile_kwargs)


def output_of(function, position, argument):
    output = np.empty(position.size)
    evaluate(function.address, position, argument, function.context, output)
    function.raise_error()
    return output


def test_density_and_gradient_are_those_of_the_dense_model(model, dense_model, table):
    point = {"w": table[2]}
    for compiled in ("compile_logp", "compile_dlogp"):
        ours, theirs = (getattr(m, compiled)(**INTERPRETED)(point) for m in (model, dense_model))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("order", ["shuffled", "independent", "random"])
@pytest.mark.parametrize("compile_kwargs", [INTERPRETED, None], ids=["interpreted", "numba"])
def test_minibatches_have_the_gradient_of_the_dense_model(
    model, dense_model, table, order, compile_kwargs
):
    position = table[2].ravel()
    ours = estimator_of(model, order, compile_kwargs)
    theirs = estimator_of(dense_model, order)
    starts = ours.next_minibatches(12)
    np.testing.assert_array_equal(starts, theirs.next_minibatches(12))
    for start in starts:
        np.testing.assert_allclose(
            output_of(ours.logp_grad, position, start),
            output_of(theirs.logp_grad, position, start),
            rtol=1e-10,
        )


@pytest.mark.parametrize(
    ("order", "compile_kwargs"),
    [
        ("independent", INTERPRETED),
        ("random", INTERPRETED),
        pytest.param("independent", None, marks=pytest.mark.slow),
    ],
)
def test_variance_of_the_gradient_is_that_of_the_dense_model(
    model, dense_model, table, order, compile_kwargs
):
    position = table[2].ravel()
    ours = estimator_of(model, order, compile_kwargs)
    theirs = estimator_of(dense_model, order)
    functions = [estimator.compile_noise() for estimator in (ours, theirs)]
    starts = [estimator.next_minibatches(3) for estimator in (ours, theirs)]
    for start in starts[0]:
        sparse_noise, dense_noise = (output_of(function, position, start) for function in functions)
        assert dense_noise.max() > 0.0
        np.testing.assert_allclose(sparse_noise, dense_noise, atol=1e-12 * dense_noise.max())


def test_variance_needs_no_gradient_of_single_rows(model, dense_model, monkeypatch):
    """They would be dense; an error is raised if they are needed and large."""
    monkeypatch.setattr("pymc_geodesic.gradients.fisher._MAX_FISHER_SIZE", BATCH * D * K - 1)
    estimator_of(model, "independent").compile_noise()
    with pytest.raises(ValueError, match=r"each row with respect to 'w', 90 numbers"):
        estimator_of(dense_model, "independent").compile_noise()


def test_rows_are_in_shuffled_order_in_memory(model):
    """So that a block of rows is a block of memory."""
    source = estimator_of(model).source
    rows = source.arrays["X_rows"]
    np.testing.assert_array_equal(rows[1:N, 0], rows[: N - 1, 1])
    np.testing.assert_array_equal(rows[N:], rows[: BATCH - 1])


def test_same_draws_as_the_dense_model(model, dense_model):
    """Through PyMC, minibatches and all; only rounding differs."""
    draws = []
    for each in (model, dense_model):
        with each:
            step = pg.SGGMC(
                step_size=0.01,
                friction=5.0,
                batch_size=BATCH,
                minibatch=["X", "y"],
                compile_kwargs=INTERPRETED,
            )
            idata = pm.sample(
                draws=20,
                tune=0,
                chains=1,
                step=step,
                random_seed=3,
                progressbar=False,
                compute_convergence_checks=False,
                compile_kwargs=INTERPRETED,
            )
        draws.append(idata.posterior["w"].to_numpy())
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-6)


def test_nuts_and_prediction_for_other_rows(table):
    """Containers remain in the trace, and new data may have any number of rows."""
    X, _, _ = table
    w = np.arange(D) - 4.0
    with pm.Model(coords={"word": [f"word {j}" for j in range(D)]}) as model:
        data = pg.SparseData("X", X, dims=("text", "word"))
        weights = pm.Normal("w", 0.0, 10.0, dims="word")
        y = pm.Data("y", X @ w, dims="text")
        pm.Normal("y_obs", data @ weights, 0.01, observed=y, dims="text")
        idata = pm.sample(
            draws=50,
            tune=200,
            chains=1,
            random_seed=1,
            progressbar=False,
            cores=1,
            compile_kwargs=INTERPRETED,
        )
    assert idata.posterior["w"].sizes["word"] == D
    constant = idata.constant_data
    assert constant["X_rows"].dims == ("text", "X_bounds")
    starts = np.append(constant["X_rows"][:, 0], constant["X_rows"][-1, 1])
    rebuilt = sparse.csr_array((constant["X_values"], constant["X_columns"], starts), shape=X.shape)
    np.testing.assert_array_equal(rebuilt.toarray(), X.toarray())
    np.testing.assert_array_equal(data.get_value().toarray(), X.toarray())
    new = sparse.coo_array(np.eye(D)[[3, 5]])
    with model:
        data.set_value(new)
        pm.set_data({"y": np.zeros(2)})
        predicted = pm.sample_posterior_predictive(
            idata, random_seed=1, progressbar=False, compile_kwargs=INTERPRETED
        )
    means = predicted.posterior_predictive["y_obs"].mean(("chain", "draw"))
    expected = idata.posterior["w"].mean(("chain", "draw"))[[3, 5]]
    np.testing.assert_allclose(means, expected, atol=0.02)
    np.testing.assert_array_equal(data.get_value().toarray(), np.eye(D)[[3, 5]])


def test_rows_are_exchanged_by_the_container_and_not_by_its_name(model, table):
    """PyMC only has the three arrays, not the matrix."""
    new = sparse.csr_array(np.eye(D)[[3, 5]])
    with model, pytest.raises(KeyError, match="X"):
        pm.set_data({"X": new})
    pg.SparseData.find("X", model=model).set_value(new)
    found = pg.SparseData.find("X", model=model).get_value()
    np.testing.assert_array_equal(found.toarray(), new.toarray())
    for part in ("values", "columns", "rows"):
        assert len(model[f"X_{part}"].get_value()) == 2


def test_a_step_built_with_other_rows_raises(model, table):
    _, y, _ = table
    with model:
        step = pg.GMC(step_size=0.1, compile_kwargs=INTERPRETED)
    model["X_rows"].set_value(model["X_rows"].get_value()[:3])
    model["y"].set_value(y[:3])
    with pytest.raises(ValueError, match=r"had shape \(24.*has \(3.*Create the step again"):
        step.estimator.refresh_data()


def test_formats_types_and_duplicates():
    duplicated = sparse.coo_array(([1, 2, 4], ([0, 0, 1], [1, 1, 0])), shape=(2, 3))
    with pm.Model():
        X = pg.SparseData("X", duplicated)
        single = pg.SparseData("S", sparse.csc_matrix(np.eye(3, dtype="float32")))
    np.testing.assert_array_equal(X.get_value().toarray(), [[0, 3, 0], [4, 0, 0]])
    assert X.values.get_value().tolist() == [3.0, 4.0]
    assert single.values.dtype == "float32"
    assert X.shape[1] == 3


def test_wrong_matrices(table):
    X, _, _ = table
    missing = X.copy()
    missing.data[2] = np.nan
    with pm.Model(coords={"word": ["a", "b"]}):
        with pytest.raises(TypeError, match=r"a scipy\.sparse matrix, got ndarray; use pm\.Data"):
            pg.SparseData("X", X.toarray())
        with pytest.raises(ValueError, match="'X' holds NaN or infinity"):
            pg.SparseData("X", missing)
        with pytest.raises(ValueError, match="dims of SparseData 'X' must be two names"):
            pg.SparseData("X", X, dims="row")
        with pytest.raises(ValueError, match="has 9 columns, but dimension 'word' has length 2"):
            pg.SparseData("X", X, dims=("row", "word"))
        with pytest.raises(ValueError, match="has 24 rows, but dimension 'word' has length 2"):
            pg.SparseData("X", X, dims=("word", "column"))
        with pytest.raises(TypeError, match="'X' holds complex numbers"):
            pg.SparseData("X", X.astype(complex))
    with pm.Model():
        data = pg.SparseData("X", X)
        with pytest.raises(ValueError, match="has 9 columns, the new rows have 3"):
            data.set_value(sparse.eye_array(3))
        with pytest.raises(ValueError, match=r"length 8, but the sparse matrix needs 9"):
            data @ pt.ones(8)
        for product in (lambda: pt.dot(data, pt.ones(9)), lambda: pt.ones(24) @ data):
            with pytest.raises(TypeError, match="'X' is not a tensor; use its product X @"):
                product()
        with pytest.raises(ValueError, match="the model has a variable 'X' already"):
            pg.SparseData("X", X)


@pytest.mark.parametrize("column", [3, -1])
def test_columns_outside_the_matrix_raise(column):
    """SciPy creates such a matrix without checks; products would read outside of the array."""
    wrong = sparse.csr_array(([1.0], [column], [0, 1]), shape=(1, 3))
    with pm.Model(), pytest.raises(ValueError, match="in columns outside 0 to 2"):
        pg.SparseData("X", wrong)


def test_names_of_several_parts_are_no_coordinates():
    index = pd.MultiIndex.from_product([["may", "june"], [1, 2]])
    counts = pd.DataFrame(1, index=index, columns=["sun", "rain", "snow"])
    coords = axis_coords(counts, (4, 3), day=("days", None), sky=("skies", None))
    assert list(coords["day"]) == [0, 1, 2, 3]
    assert coords["sky"] == ["sun", "rain", "snow"]

"""Streamed sparse rows: gradients compared with those of rows in memory and of dense rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.datasets import row_blocks
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.minibatches.from_arguments import MinibatchArguments, minibatch_source
from pymc_geodesic.minibatches.resident_rows import row_permutation
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.runtime.gradient_functions import evaluate
from tests.grids import cross

N, D, K, BATCH = 60, 11, 2, 5
LENGTHS = (20, 3, 25, 12)
INTERPRETED = {"mode": "FAST_COMPILE"}
ORDERS = ["shuffled", "independent", "random"]


@pytest.fixture(scope="module")
def table():
    """Rows with very different numbers of non-zeros, some with none."""
    rng = np.random.default_rng(1)
    density = np.repeat([0.05, 0.0, 0.9, 0.3], LENGTHS)
    dense = rng.normal(size=(N, D)) * (rng.random((N, D)) < density[:, np.newaxis])
    return sparse.csr_array(dense), rng.normal(size=N), rng.normal(size=(D, K))


def regression(X, y):
    w = pm.Normal("w", 0.0, 3.0, shape=(D, K))
    scores = X @ w
    pm.Normal("y_obs", scores[:, 0] * pt.tanh(scores[:, 1]), 1.0, observed=y)


@pytest.fixture
def model():
    """Model with one row without non-zeros as a placeholder of the data."""
    with pm.Model() as model:
        regression(pg.SparseData("X", sparse.csr_array((1, D))), pm.Data("y", np.zeros(1)))
    return model


@pytest.fixture
def dense_model():
    with pm.Model() as model:
        regression(pm.Data("X", np.zeros((1, D))), pm.Data("y", np.zeros(1)))
    return model


@pytest.fixture
def resident_model(table):
    with pm.Model() as model:
        regression(pg.SparseData("X", table[0]), pm.Data("y", table[1]))
    return model


def blocks_of(X, y, lengths=LENGTHS, form="csr"):
    ends = np.cumsum(lengths)
    slices = [slice(end - n, end) for n, end in zip(lengths, ends, strict=True)]
    take = (lambda part: part.asformat(form)) if sparse.issparse(X) else (lambda part: part)
    return [(take(X[rows]), y[rows]) for rows in slices]


def estimator_of(model, batches=None, *, batch_size=BATCH, order="shuffled", kwargs=INTERPRETED):
    rows = MinibatchArguments(
        batch_size=batch_size,
        minibatch=["X", "y"],
        batches=batches,
        total_size=None if batches is None else N,
        minibatch_order=order,
    )
    source = minibatch_source(model, rows)
    source.reset(1)
    density = RowDensity(model, manifold_variables(model, None), source)
    return MinibatchGradient(density, compile_kwargs=kwargs)


def output_of(function, position, argument):
    output = np.empty(position.size)
    evaluate(function.address, position, argument, function.context, output)
    function.raise_error()
    return output


def gradients_of(estimator, position, n_draws, n_steps=2):
    draws = []
    for _ in range(n_draws):
        starts = estimator.next_minibatches(n_steps)
        draws += [output_of(estimator.logp_grad, position, start) for start in starts]
    return np.array(draws)


@pytest.mark.parametrize(
    ("kwargs", "batch_size", "order"),
    cross([INTERPRETED, None], [*((BATCH, order) for order in ORDERS), (None, "shuffled")]),
)
def test_gradients_are_those_of_dense_blocks(model, dense_model, table, batch_size, order, kwargs):
    """One compiled function for blocks with any numbers of non-zeros."""
    X, y, w = table
    ours = estimator_of(model, blocks_of(X, y), batch_size=batch_size, order=order, kwargs=kwargs)
    dense = blocks_of(X.toarray(), y)
    theirs = estimator_of(dense_model, dense, batch_size=batch_size, order=order)
    found = gradients_of(ours, w.ravel(), 40)
    expected = gradients_of(theirs, w.ravel(), 40)
    assert np.ptp(expected, axis=0).min() > 0.0
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_gradients_are_those_of_rows_in_memory(model, resident_model, table):
    """One block with its rows in the order in which they are stored in memory."""
    X, y, w = table
    order = row_permutation(N)[row_permutation(N)]
    ours = estimator_of(model, [(X[order], y[order])])
    theirs = estimator_of(resident_model)
    ours.next_minibatches(1)
    for start in range(N):
        np.testing.assert_array_equal(
            output_of(ours.logp_grad, w.ravel(), start),
            output_of(theirs.logp_grad, w.ravel(), start),
        )
    for name in ("X_values", "X_columns"):
        np.testing.assert_array_equal(ours.source.whole[name], theirs.source.whole[name])


@pytest.mark.parametrize("batch_size", [BATCH, None], ids=["resident blocks", "as they come"])
def test_mean_over_an_epoch_is_the_gradient_of_all_rows(model, resident_model, table, batch_size):
    """Sixty rows in blocks of unequal lengths are sixty draws of five rows, five times over."""
    X, y, w = table
    lengths = (20, 15, 25)
    ours = estimator_of(model, blocks_of(X, y, lengths), batch_size=batch_size)
    n_batches = N // ours.source.batch_size
    mean = gradients_of(ours, w.ravel(), n_batches, 1).mean(0)
    variables = manifold_variables(resident_model, None)
    full = MinibatchGradient(
        RowDensity(resident_model, variables, AllRows()), compile_kwargs=INTERPRETED
    )
    np.testing.assert_allclose(mean, output_of(full.logp_grad, w.ravel(), 0), rtol=1e-9)


@pytest.mark.parametrize("order", ["independent", "random"])
def test_variance_of_the_gradient_is_that_of_dense_blocks(model, dense_model, table, order):
    X, y, w = table
    ours = estimator_of(model, blocks_of(X, y), order=order)
    theirs = estimator_of(dense_model, blocks_of(X.toarray(), y), order=order)
    functions = [estimator.compile_noise() for estimator in (ours, theirs)]
    for _ in range(12):
        starts = [estimator.next_minibatches(1) for estimator in (ours, theirs)]
        found, expected = (
            output_of(function, w.ravel(), start[0])
            for function, start in zip(functions, starts, strict=True)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.max())


@pytest.mark.parametrize("batch_size", [BATCH, None], ids=["resident blocks", "as they come"])
@pytest.mark.parametrize("taken", [0, 1, 4, 9])
def test_state_continues(model, table, batch_size, taken):
    X, y, w = table
    ours = estimator_of(model, blocks_of(X, y), batch_size=batch_size)
    gradients_of(ours, w.ravel(), taken)
    state = ours.source.state
    expected = gradients_of(ours, w.ravel(), 15)
    ours.source.state = state
    np.testing.assert_array_equal(gradients_of(ours, w.ravel(), 15), expected)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_formats_duplicates_types_and_names(model, dense_model, table, form):
    """Entries of one column are added up, integers are numbers, blocks may be mappings."""
    X, y, w = table
    pairs = X.copy()
    pairs.data = np.round(4.0 * pairs.data).astype("int16")
    twice = sparse.coo_array(
        (np.tile(pairs.data, 2), np.tile(pairs.tocoo().coords, 2)), shape=X.shape
    )
    twice = (
        twice
        if form == "coo"
        else sparse.csr_array(
            (np.repeat(pairs.data, 2), np.repeat(pairs.indices, 2), 2 * pairs.indptr), shape=X.shape
        ).asformat(form)
    )
    ours = estimator_of(model, [{"y": y, "X": twice, "other": None}])
    theirs = estimator_of(dense_model, [(2.0 * pairs.toarray(), y)])
    found, expected = (gradients_of(each, w.ravel(), 12) for each in (ours, theirs))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    functions = [each.compile_noise() for each in (ours, theirs)]
    np.testing.assert_allclose(
        *(output_of(function, w.ravel(), 7) for function in functions), rtol=1e-9, atol=1e-9
    )


def test_memory_of_the_iterable_may_be_used_again(model, table):
    """Every block reuses the arrays of the previous one; some are shorter than a minibatch."""
    X, y, w = table

    class OneBuffer:
        def __iter__(self):
            values, columns = np.empty(X.nnz), np.empty(X.nnz, np.int32)
            labels = np.empty(N)
            for part, label in blocks_of(X, y):
                values[: part.nnz], columns[: part.nnz] = part.data, part.indices
                labels[: len(label)] = label
                arrays = (values[: part.nnz], columns[: part.nnz], part.indptr)
                yield sparse.csr_array(arrays, shape=part.shape), labels[: len(label)]

    for batch_size in (BATCH, None):
        one, many = (
            estimator_of(model, batches, batch_size=batch_size)
            for batches in (OneBuffer(), blocks_of(X, y))
        )
        np.testing.assert_array_equal(
            gradients_of(one, w.ravel(), 30, 3), gradients_of(many, w.ravel(), 30, 3)
        )


def test_rows_of_a_block_are_in_shuffled_order_in_memory(model, table):
    source = estimator_of(model, blocks_of(table[0], table[1])).source
    source.next_starts(1)
    rows = source.arrays["X_rows"]
    n = len(rows) - BATCH + 1
    assert n in LENGTHS
    np.testing.assert_array_equal(rows[1:n, 0], rows[: n - 1, 1])
    np.testing.assert_array_equal(rows[n:], rows[: BATCH - 1])


@pytest.mark.parametrize("batch_size", [BATCH, None], ids=["resident blocks", "as they come"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, 1:], r"rows of shape \(10,\) for 'X', which has 11 columns\. Use the same"),
        (lambda X: X.toarray(), r"ndarray for the sparse matrix 'X'\. Yield scipy\.sparse"),
        (
            lambda X: X.astype(complex),
            "complex128 for 'X', whose SparseData has dtype float64. Convert",
        ),
        (lambda X: X * np.nan, "'X' in block 2 of batches= holds NaN or infinity; drop or impute"),
        (lambda X: X * np.inf, "'X' in block 2 of batches= holds NaN or infinity; drop or impute"),
        (lambda X: X[:7], r"different numbers of rows: {'X': 7, 'y': 60}"),
        (
            lambda X: sparse.csr_array((X.data, X.indices + 1, X.indptr), shape=X.shape),
            "'X' in block 2 of batches= has entries in columns outside 0 to 10",
        ),
    ],
    ids=["width", "dense", "type", "nan", "infinity", "rows", "columns"],
)
def test_wrong_blocks(model, table, batch_size, change, message):
    X, y, _ = table
    source = estimator_of(model, [(X, y), (change(X), y)], batch_size=batch_size).source

    def take_both_blocks():
        return [source.next_starts(1) for _ in range(2 * N // BATCH)]

    with pytest.raises(ValueError, match=message):
        take_both_blocks()


def test_sparse_rows_for_an_ordinary_container(dense_model, table):
    with pytest.raises(ValueError, match="a sparse matrix for 'X', which is a dense data"):
        estimator_of(dense_model, blocks_of(table[0], table[1]))


@pytest.mark.parametrize("step_type", [pg.SGGMC, pg.gSGNHT, pg.SGLD, pg.SSGLD, pg.SSGNHT])
def test_samplers_draw_the_same_as_from_dense_blocks(model, dense_model, table, step_type):
    X, y, _ = table
    draws = []
    for each, rows in ((model, X), (dense_model, X.toarray())):
        with each:
            step = step_type(
                step_size=1e-3,
                batch_size=BATCH,
                minibatch=["X", "y"],
                batches=row_blocks(rows, y, block_size=24),
                compile_kwargs=INTERPRETED,
            )
            idata = pm.sample(
                draws=15,
                tune=5,
                chains=1,
                step=step,
                random_seed=3,
                progressbar=False,
                compute_convergence_checks=False,
                compile_kwargs=INTERPRETED,
            )
        draws.append(idata.posterior["w"].to_numpy())
    assert np.ptp(draws[0]) > 0.0
    np.testing.assert_allclose(draws[0], draws[1], rtol=1e-6)


def test_processes_draw_what_one_process_draws(model, table):
    X, y, _ = table
    draws = []
    for cores in (1, 2):
        with model:
            step = pg.SGGMC(
                step_size=1e-3,
                friction=100.0,
                batch_size=BATCH,
                minibatch=["X", "y"],
                batches=row_blocks(X, y, block_size=24),
                compile_kwargs=INTERPRETED,
            )
            idata = pm.sample(
                draws=20,
                tune=5,
                chains=2,
                cores=cores,
                step=step,
                random_seed=3,
                progressbar=False,
                compute_convergence_checks=False,
                compile_kwargs=INTERPRETED,
            )
        draws.append(idata.posterior["w"].to_numpy())
    np.testing.assert_array_equal(*draws)

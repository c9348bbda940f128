"""Detection of heterogeneous blocks: warnings for sorted rows, none for shuffled rows."""

import multiprocessing
import warnings

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.datasets import row_blocks, shuffle_rows
from pymc_geodesic.minibatches import heterogeneous_blocks
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows
from pymc_geodesic.minibatches.heterogeneous_blocks import MAX_GROUPS, BlockMeans
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks, StreamedRows

WARNING = "the rows of batches= are not in random order"
N = 3000


def found_in(columns, n_blocks, n_tests=1):
    means = BlockMeans()
    for number, rows in enumerate(np.array_split(columns, n_blocks)):
        means.add_block(number, number + 1, {"X": rows})
    for _ in range(n_tests - 1):
        means.test()
    return means.test()


def columns_of(rng, n=N):
    """Columns for which averages are a poor summary."""
    rare, one, tail = np.zeros(n), np.zeros(n), rng.standard_cauchy(n)
    rare[:10], one[0] = 1.0, 1e9
    far = 1.6e9 + rng.random(n)
    columns = [rare, one, tail, far, rng.normal(size=n), np.ones(n), rng.random(n) < 0.3]
    return rng.permuted(np.column_stack(columns), axis=0)


def alarms(n_blocks, n_times, seed=1):
    rng = np.random.default_rng(seed)
    return sum(found_in(columns_of(rng), n_blocks) is not None for _ in range(n_times))


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [2, 30, 300])
def test_no_alarm_for_rows_in_random_order(n_blocks):
    """At most one in a thousand; three in 400 have probability 0.008."""
    assert alarms(n_blocks, 400) < 3


@pytest.mark.parametrize("n_blocks", [2, 30])
def test_the_probability_of_an_alarm_is_bounded(monkeypatch, n_blocks):
    """At a level with a countable number of alarms."""
    monkeypatch.setattr(heterogeneous_blocks, "FALSE_ALARM_PROBABILITY", 0.6)
    assert alarms(n_blocks, 300) < 0.3 * 300 + 5 * np.sqrt(0.3 * 0.7 * 300)


def test_a_bound_that_forgets_the_tails_is_found(monkeypatch):
    """Without R one large number is a difference of its block."""
    monkeypatch.setattr(heterogeneous_blocks, "_TAIL", 0.0)
    assert alarms(100, 20) == 20


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("n_blocks", [2, 7, 100, 600])
def test_sorted_labels_are_always_found(share, n_blocks):
    labels = np.where(np.arange(100_000) < share * 100_000, 1.0, -1.0)
    for order in (labels, labels[::-1], np.roll(labels, 30_000)):
        assert found_in(order, n_blocks) is not None


def test_slow_drifts_and_single_blocks_are_found():
    """One percent of the rows shifted by one sd, and a mean that drifts by 0.2 sd."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        noise = rng.normal(size=100_000)
        one = noise + (np.arange(100_000) // 1000 == 37)
        found = found_in(one, 100)
        assert (found.first, found.last) == (38, 38)
        assert found.n_sds == pytest.approx(1.0, abs=0.15)
        assert found_in(noise + 0.2 * np.linspace(0, 1, 100_000), 100) is not None
        assert found_in(noise, 100) is None


def test_message():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(4000, 3))
    rows[2000:, 1] += 2.0
    found = found_in(rows, 4)
    assert (found.name, found.column, found.first, found.last) == ("X", 1, 1, 2)
    # Halves that are 2 apart: σ² = 1 + 1, and the mean of a half is 1 off.
    assert found.n_sds == pytest.approx(1 / np.sqrt(2), rel=0.03)
    assert found.n_standard_errors == pytest.approx(np.sqrt(4000 / 2), rel=0.03)
    assert str(found).startswith(
        f"{WARNING}: the mean of column 1 of 'X' in blocks 1 to 2 differs from that of all rows "
        "so far by 0.7 standard deviations"
    )
    assert "more columns" not in str(found)
    assert "and 1 more columns differ" in str(found_in(rows[:, [1, 1, 0]], 4))


def test_little_is_kept_of_many_blocks():
    means = BlockMeans()
    for number in range(10 * MAX_GROUPS):
        means.add_block(number, number + 1, {"X": np.full((2, 3), float(number))})
    assert len(means._sums) <= MAX_GROUPS
    assert means.n_rows == 20 * MAX_GROUPS
    found = means.test()
    assert (found.first, found.last) == (1, 4 * MAX_GROUPS)


def test_threshold_increases_with_the_number_of_tests():
    """The probability of a false alarm is divided among all tests."""
    rows = np.random.default_rng(1).normal(size=1000)
    rows[500:] += 0.6
    assert found_in(rows, 2) is not None
    assert found_in(rows, 2, n_tests=30) is None


@pytest.mark.parametrize(
    ("at_once", "tested"), [(1, [2, 4, 8, 16, 32]), (3, [3, 6, 12, 24, 48]), (16, [16, 32])]
)
def test_blocks_are_tested_as_their_number_doubles(monkeypatch, at_once, tested):
    """Also if several are added at a time, and their number is never a power of two."""
    means, found = BlockMeans(), []
    monkeypatch.setattr(means, "warn", lambda *, is_last: found.append(len(means._seen)))
    for number in range(48):
        means.add_block(number, number + 1, {"X": np.full(2, float(number))})
        if (number + 1) % at_once == 0:
            means.check_periodically(10_000)
    assert found == tested


FORMAT = BlockFormat([DenseRows("X", "float64", (2,)), DenseRows("y", "float64", ())])


def arrays_of(kind):
    """Sorted by label or not."""
    rng = np.random.default_rng(1)
    y = np.repeat([-1.0, 1.0], N // 2)
    if kind == "shuffled":
        y = rng.permutation(y)
    return rng.normal(size=(N, 2)), y


def blocks_source(batches):
    return StreamedBlocks(batches, FORMAT, N, batch_size=10, order="shuffled", draws_per_block=None)


def rows_source(batches):
    return StreamedRows(batches, FORMAT, N, batch_size=10)


def draws(source):
    source.reset(1)
    for _ in range(2 * N // 50):
        source.next_starts(5)


def one_pass(source):
    for _ in source.all_rows():
        pass


def warnings_of(action, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action(*arguments)
    return [str(each.message) for each in caught if WARNING in str(each.message)]


@pytest.mark.parametrize("make", [blocks_source, rows_source])
@pytest.mark.parametrize("route", [one_pass, draws])
def test_sources_warn_once(make, route):
    """By the pass over all rows, or by blocks in the order of the arrays."""
    source = make(row_blocks(*arrays_of("sorted"), block_size=200))
    (message,) = warnings_of(route, source)
    assert "the mean of 'y'" in message
    assert (
        warnings_of(route, source)
        == warnings_of(one_pass, source)
        == warnings_of(draws, source)
        == []
    )
    source = make(row_blocks(*arrays_of("shuffled"), block_size=200))
    assert warnings_of(route, source) == []
    assert source._means.is_done


@pytest.mark.parametrize(("process", "times"), [("worker_chain_0", 1), ("worker_chain_10", 0)])
def test_one_process_warns_for_all(monkeypatch, process, times):
    """PyMC's names of the processes of chains, which all use the same blocks."""
    monkeypatch.setattr(multiprocessing.current_process(), "name", process)
    source = blocks_source(row_blocks(*arrays_of("sorted"), block_size=200))
    assert len(warnings_of(draws, source)) == times
    assert source._means.is_done


def test_stretches_are_a_remedy():
    source = blocks_source(row_blocks(*arrays_of("sorted"), block_size=200, stretches=20))
    assert warnings_of(draws, source) == []


def test_shuffling_is_a_remedy(tmp_path):
    old, new = ([tmp_path / f"{kind}-{name}.npy" for name in "Xy"] for kind in ("old", "new"))
    for path, array in zip(old, arrays_of("sorted"), strict=True):
        np.save(path, array)
    shuffle_rows(old, new, random_seed=1, progressbar=False)
    assert len(warnings_of(draws, blocks_source(row_blocks(*old, block_size=200)))) == 1
    assert warnings_of(draws, blocks_source(row_blocks(*new, block_size=200))) == []


def regression(batches, **settings):
    with pm.Model() as model:
        X, y = pm.Data("X", np.zeros((1, 2))), pm.Data("y", np.zeros(1))
        w = pm.Normal("w", 0.0, 10.0, shape=2)
        pm.Normal("y_obs", X @ w, 1.0, observed=y)
        step = pg.SGGMC(
            minibatch=["X", "y"],
            batches=batches,
            batch_size=50,
            compile_kwargs={"mode": "FAST_COMPILE"},
            **settings,
        )
    step.setup_chain(np.random.default_rng(1), tune=200, draws=30)
    point = model.initial_point()
    for _ in range(200):
        point, _ = step.step(point)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"step_size": 1e-3, "friction": 100.0}], ids=str)
def test_steps_warn(settings):
    """With adapted dynamics, in the pass at the centering point, and with user-specified ones."""
    for kind, times in (("sorted", 1), ("shuffled", 0)):
        batches = row_blocks(*arrays_of(kind), block_size=300)
        assert len(warnings_of(lambda batches=batches: regression(batches, **settings))) == times


def test_labels_of_sparse_rows():
    X, y = arrays_of("sorted")
    batches = [(sparse.csr_array(X[i : i + 300]), y[i : i + 300]) for i in range(0, N, 300)]
    batches = type("Blocks", (list,), {"total_size": N})(batches)
    with pm.Model() as model:
        X = pg.SparseData("X", sparse.csr_array((1, 2)))
        y = pm.Data("y", np.ones(1))
        w = pm.Normal("w", shape=2)
        pg.Hinge("label", X @ w, observed=y)
        step = pg.SGGMC(
            minibatch=["X", "y"],
            batches=batches,
            batch_size=50,
            step_size=1e-3,
            friction=100.0,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    step.setup_chain(np.random.default_rng(1), tune=0, draws=30)
    (message,) = warnings_of(lambda: [step.step(model.initial_point()) for _ in range(20)])
    assert "the mean of 'y'" in message

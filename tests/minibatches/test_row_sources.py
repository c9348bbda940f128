"""Sources of minibatches: rows in memory, streamed rows, and documents."""

import copy

import numpy as np
import pytest

from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows
from pymc_geodesic.minibatches.documents import StreamedDocuments
from pymc_geodesic.minibatches.resident_rows import IndependentRows, RandomRows, ShuffledRows
from pymc_geodesic.minibatches.source import AllRows
from pymc_geodesic.minibatches.streamed_rows import StreamedRows

# Rows are in order, so that they can be identified; the warning is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:the rows of batches= are not in random order")

N_ROWS = 103
BATCH = 10


def data():
    rows = np.arange(N_ROWS)
    return {"X": np.column_stack([rows, -rows]).astype(float), "y": rows}


def seen(source, starts):
    """Rows of each minibatch, identified by their values."""
    return np.array([source.arrays["y"][start : start + source.batch_size] for start in starts])


@pytest.mark.parametrize("kind", [ShuffledRows, IndependentRows, RandomRows])
def test_memory_agrees_with_the_row_numbers(kind):
    source = kind(data(), BATCH)
    source.reset(1)
    for start in source.next_starts(40):
        rows = slice(start, start + BATCH)
        np.testing.assert_array_equal(source.arrays["y"][rows], source.row_indices(start))
        np.testing.assert_array_equal(source.arrays["X"][rows, 0], source.arrays["y"][rows])
        np.testing.assert_array_equal(source.arrays["X"][rows, 1], -source.arrays["y"][rows])
    assert all(array.flags.c_contiguous for array in source.arrays.values())
    assert {name: array.dtype for name, array in source.arrays.items()} == {
        name: array.dtype for name, array in data().items()
    }


def test_shuffled_rows_are_used_equally_often():
    """N rows epochs of N // n blocks use each row exactly n (N // n) times."""
    source = ShuffledRows(data(), BATCH)
    source.reset(3)
    blocks = N_ROWS // BATCH
    counts = np.bincount(seen(source, source.next_starts(N_ROWS * blocks)).ravel())
    np.testing.assert_array_equal(counts, BATCH * blocks)


def test_an_epoch_has_no_row_twice():
    source = ShuffledRows(data(), BATCH)
    source.reset(3)
    for _ in range(5):
        rows = seen(source, source.next_starts(N_ROWS // BATCH)).ravel()
        assert len(np.unique(rows)) == rows.size == N_ROWS // BATCH * BATCH


def test_epochs_leave_out_different_rows_in_different_orders():
    source = ShuffledRows(data(), BATCH)
    source.reset(3)
    epochs = [seen(source, source.next_starts(N_ROWS // BATCH)) for _ in range(4)]
    left_out = [frozenset(range(N_ROWS)) - frozenset(epoch.ravel()) for epoch in epochs]
    assert len(set(left_out)) == 4
    assert all(len(rows) == N_ROWS % BATCH for rows in left_out)
    firsts = [epoch[0].tolist() for epoch in epochs]
    assert len({tuple(first) for first in firsts}) == 4


@pytest.mark.parametrize("kind", [ShuffledRows, IndependentRows])
@pytest.mark.parametrize("sizes", [[7] * 30, [1] * 210, [210], [3, 200, 7], [9, 1400, 1, 1100]])
def test_order_does_not_depend_on_the_number_per_call(kind, sizes):
    one, other = kind(data(), BATCH), kind(data(), BATCH)
    one.reset(5)
    other.reset(5)
    found = np.concatenate([one.next_starts(n) for n in sizes])
    np.testing.assert_array_equal(found, other.next_starts(sum(sizes)))


def test_batch_of_all_rows():
    source = ShuffledRows(data(), N_ROWS)
    source.reset(1)
    for rows in seen(source, source.next_starts(3)):
        np.testing.assert_array_equal(np.sort(rows), np.arange(N_ROWS))


@pytest.mark.parametrize("kind", [ShuffledRows, IndependentRows, RandomRows])
def test_chains_differ_by_their_seed_only(kind):
    orders = []
    for seed in (1, 2, 1):
        source = kind(data(), BATCH)
        source.reset(seed)
        orders.append(seen(source, source.next_starts(50)))
    np.testing.assert_array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], orders[1])


@pytest.mark.parametrize("kind", [ShuffledRows, IndependentRows, RandomRows])
@pytest.mark.parametrize("taken", [0, 4, 10, 33, 1020, 1024, 2100])
def test_state_continues_the_order(kind, taken):
    source = kind(data(), BATCH)
    source.reset(8)
    if taken:
        source.next_starts(taken)
    state = copy.deepcopy(source.state)
    expected = [seen(source, source.next_starts(7)) for _ in range(5)]
    restored = kind(data(), BATCH)
    restored.reset(9)
    restored.next_starts(3)
    restored.state = state
    for rows in expected:
        np.testing.assert_array_equal(seen(restored, restored.next_starts(7)), rows)


@pytest.mark.parametrize("kind", [IndependentRows, RandomRows])
def test_random_orders_use_rows_equally_often_on_average(kind):
    source = kind(data(), BATCH)
    source.reset(1)
    n_batches = 20_000
    counts = np.zeros(N_ROWS)
    for _ in range(20):
        counts += np.bincount(seen(source, source.next_starts(n_batches // 20)).ravel())
    probability = BATCH / N_ROWS
    error = np.sqrt(n_batches * probability)  # no larger than that for either kind
    assert np.abs(counts - n_batches * probability).max() < 5.0 * error


def test_independent_minibatches_have_distinct_rows_and_random_ones_repeat():
    independent, random = IndependentRows(data(), BATCH), RandomRows(data(), BATCH)
    distinct = [len(set(rows)) for rows in seen(independent, independent.next_starts(200))]
    repeated = [len(set(rows)) for rows in seen(random, random.next_starts(200))]
    assert set(distinct) == {BATCH}
    assert min(repeated) < BATCH
    assert random.with_replacement
    assert not independent.with_replacement


def test_noise_of_an_epoch_cancels_and_that_of_independent_blocks_does_not():
    """The reason for the independent order: sums over an epoch have no variance, or all of it."""
    values = np.random.default_rng(1).standard_normal(1000)
    sums = {}
    for kind in (ShuffledRows, IndependentRows):
        source = kind({"y": values}, 10)
        source.reset(1)
        sums[kind] = [seen(source, source.next_starts(100)).sum() for _ in range(300)]
    assert np.std(sums[ShuffledRows]) < 1e-10
    assert np.std(sums[IndependentRows]) == pytest.approx(np.sqrt(1000) * values.std(), rel=0.3)


def test_all_rows():
    source = AllRows()
    source.reset(1)
    np.testing.assert_array_equal(source.next_starts(3), [0, 0, 0])
    assert (source.n_rows, source.batch_size, source.state) == (1, 1, {})


ROW_NUMBERS = BlockFormat([DenseRows("y", "int64", ())])
BLOCKS = [np.arange(4) + 4 * i for i in range(3)]


def stream(batches):
    format = BlockFormat([DenseRows("X", "float64", (2,)), DenseRows("y", "int64", ())])
    return StreamedRows(batches, format, n_rows=12)


@pytest.mark.parametrize(
    "batches",
    [
        [(np.c_[block, block], block) for block in BLOCKS],
        [{"y": block, "X": np.c_[block, block]} for block in BLOCKS],
    ],
    ids=["tuples", "mappings"],
)
def test_streamed_rows(batches):
    source = stream(batches)
    source.reset(0)
    rows = seen(source, source.next_starts(7))
    assert rows.shape == (7, 4)
    np.testing.assert_array_equal(np.sort(rows[:6].reshape(2, 12)), np.tile(np.arange(12), (2, 1)))
    assert source.arrays["X"].shape == (28, 2)
    assert source.arrays["X"].dtype == np.float64
    np.testing.assert_array_equal(source.arrays["X"][:, 1], source.arrays["y"])
    state = dict(source.state)
    expected = seen(source, source.next_starts(2)).copy()
    source.next_starts(2)
    source.state = state
    np.testing.assert_array_equal(seen(source, source.next_starts(2)), expected)


def test_short_last_block_is_filled_from_the_next_pass():
    """So that its rows are used as often as all others."""
    batches = [np.arange(4), np.arange(4, 8), np.arange(8, 10)]
    source = StreamedRows(batches, ROW_NUMBERS, 10)
    source.reset(0)
    taken = seen(source, source.next_starts(6)).ravel()
    state = copy.deepcopy(source.state)
    expected = seen(source, source.next_starts(6)).copy()
    source.state = state
    np.testing.assert_array_equal(seen(source, source.next_starts(6)), expected)
    counts = np.bincount(np.concatenate([taken, expected.ravel()]))
    assert counts.sum() == 48
    assert set(counts) <= {4, 5, 6}  # two blocks are put in order together, and some not yet used


MANY = [np.arange(5 * i, 5 * i + 5) for i in range(40)]


def chain_means(source, seed, values, n_draws, n_steps):
    """Mean of a column over each minibatch of a chain."""
    source.reset(seed)
    return np.concatenate(
        [values[seen(source, source.next_starts(n_steps))].mean(axis=1) for _ in range(n_draws)]
    )


@pytest.mark.parametrize("n_steps", [1, 10])
@pytest.mark.parametrize("n_blocks", [4, 40])
def test_streamed_chains_are_independent(n_blocks, n_steps):
    """Between chains, minibatches at the same step have no more in common than by chance.

    Also if the blocks differ, so that chains in the same block would be correlated.
    """
    rng = np.random.default_rng(1)
    n_rows = 5 * n_blocks
    values = rng.normal(size=n_rows) + np.repeat(rng.normal(size=n_blocks), 5)
    source = StreamedRows(MANY[:n_blocks], ROW_NUMBERS, n_rows)
    chains = np.array(
        [chain_means(source, seed, values, 1600 // n_steps, n_steps) for seed in range(24)]
    )
    correlations = np.corrcoef(chains)[np.triu_indices(24, 1)]
    assert abs(correlations.mean()) < 0.03
    assert np.abs(correlations).max() < 0.4


@pytest.mark.parametrize("taken", [0, 1, 3, 16, 17, 40])
def test_state_continues_a_stream(taken):
    source = StreamedRows(MANY, ROW_NUMBERS, 200)
    source.reset(3)
    for _ in range(taken):
        source.next_starts(3)
    state = copy.deepcopy(source.state)
    expected = [seen(source, source.next_starts(3)) for _ in range(20)]
    restored = StreamedRows(MANY, ROW_NUMBERS, 200)
    restored.reset(9)
    restored.next_starts(2)
    restored.state = state
    assert restored.state == state
    for rows in expected:
        np.testing.assert_array_equal(seen(restored, restored.next_starts(3)), rows)


def test_minibatches_of_a_stream_have_distinct_rows_of_some_blocks():
    source = StreamedRows(MANY, ROW_NUMBERS, 200)
    source.reset(1)
    rows = seen(source, source.next_starts(40))
    assert all(len(set(minibatch)) == 5 for minibatch in rows)
    assert len(set(rows[:16].ravel() // 5)) == 16
    np.testing.assert_array_equal(np.bincount(rows[:32].ravel(), minlength=200).max(), 1)


def test_stream_of_arrays_of_different_lengths():
    with pytest.raises(ValueError, match=r"different numbers of rows: {'X': 4, 'y': 3}"):
        stream([(np.zeros((4, 2)), np.arange(3))])


def test_stream_with_the_wrong_number_of_arrays():
    with pytest.raises(ValueError, match=r"yields 1 arrays for the 2 names of minibatch"):
        stream(BLOCKS)


def test_stream_that_cannot_be_started_again():
    source = StreamedRows((block for block in BLOCKS), ROW_NUMBERS, 12)
    with pytest.raises(ValueError, match=r"batches= is an exhausted generator.*row_blocks"):
        source.next_starts(5)


def test_stream_without_blocks():
    with pytest.raises(ValueError, match="batches= yields no blocks: the list is empty"):
        StreamedRows([], ROW_NUMBERS, 12)
    with pytest.raises(ValueError, match="the first block of batches= has no rows"):
        StreamedRows([np.arange(0)], ROW_NUMBERS, 12)


def test_stream_has_no_row_numbers():
    with pytest.raises(ValueError, match="local= visits the same rows repeatedly"):
        stream([(np.c_[block, block], block) for block in BLOCKS]).row_indices(0)


N_BLOCKS = 20
DOCUMENT_BLOCKS = [np.full((2, 3), float(block)) for block in range(N_BLOCKS)]


@pytest.fixture
def documents():
    return StreamedDocuments(DOCUMENT_BLOCKS, "counts", n_words=3, largest=2, n_rows=2 * N_BLOCKS)


def numbers_of_next(documents, n):
    """Numbers of the next blocks."""
    documents.next_starts(n)
    return [int(block.toarray()[0, 0]) for block in documents._blocks]


def test_chains_begin_at_different_blocks_of_documents(documents):
    firsts = []
    for seed in range(200):
        documents.reset(seed)
        first, second = numbers_of_next(documents, 2)
        assert second == (first + 1) % N_BLOCKS
        firsts.append(first)
    counts = np.bincount(firsts, minlength=N_BLOCKS)
    assert counts.size == N_BLOCKS
    assert (counts > 0).all()  # each with a chance of 1/20
    documents.reset(7)
    assert numbers_of_next(documents, 1) == [firsts[7]]


def test_every_block_of_documents_once_in_a_pass(documents):
    documents.reset(3)
    assert sorted(numbers_of_next(documents, N_BLOCKS)) == list(range(N_BLOCKS))


def test_state_of_documents_continues(documents):
    documents.reset(5)
    numbers_of_next(documents, 4)
    state = documents.state
    expected = numbers_of_next(documents, N_BLOCKS)
    other = StreamedDocuments(DOCUMENT_BLOCKS, "counts", n_words=3, largest=2, n_rows=2 * N_BLOCKS)
    other.state = state
    assert numbers_of_next(other, N_BLOCKS) == expected

"""Streamed blocks that are used for several draws: equal use of rows, and reproducibility."""

import copy
import pickle
import threading

import numpy as np
import pytest

from pymc_geodesic.datasets import row_blocks
from pymc_geodesic.minibatches.block_format import BlockFormat
from pymc_geodesic.minibatches.block_rows import DenseRows
from pymc_geodesic.minibatches.streamed_rows import StreamedBlocks
from tests.grids import cross

# Rows are in order, so that they can be identified; the warning is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore:the rows of batches= are not in random order")

N, BATCH = 120, 5
FORMAT = BlockFormat([DenseRows("X", "float64", (2,)), DenseRows("y", "int64", ())])
ORDERS = ["shuffled", "independent", "random"]


def table(n=N):
    rows = np.arange(n)
    return np.column_stack([rows, -rows]).astype("float32"), rows.astype("int32")


def source_of(batches, n_rows=N, *, batch_size=BATCH, order="shuffled", draws_per_block=None):
    source = StreamedBlocks(
        batches,
        FORMAT,
        n_rows,
        batch_size=batch_size,
        order=order,
        draws_per_block=draws_per_block,
    )
    source.reset(1)
    return source


def blocks_of(lengths):
    """Ordinary arrays in blocks of these lengths."""
    X, y = table(sum(lengths))
    ends = np.cumsum(lengths)
    return [(X[end - n : end], y[end - n : end]) for n, end in zip(lengths, ends, strict=True)]


def take(source, n_steps):
    """Rows of the minibatches of one draw, identified by their values."""
    starts = source.next_starts(n_steps)
    rows = np.concatenate([np.arange(start, start + source.batch_size) for start in starts])
    y = source.arrays["y"][rows]
    np.testing.assert_array_equal(source.arrays["X"][rows], np.column_stack([y, -y]))
    return y.reshape(n_steps, source.batch_size)


@pytest.mark.parametrize("order", ORDERS)
def test_a_draw_takes_rows_of_one_block(order):
    source = source_of(row_blocks(*table(), block_size=40), order=order, draws_per_block=3)
    (first,) = set(take(source, 4).ravel() // 40)
    for draw in range(1, 18):
        assert set(take(source, 4).ravel() // 40) == {(first + draw // 3) % 3}
    assert {a.dtype for a in source.arrays.values()} == {np.dtype(d) for d in ("f8", "i8")}
    assert all(a.flags.c_contiguous for a in source.arrays.values())


def test_default_is_one_pass_over_a_block():
    """Forty rows are four draws of two minibatches of five."""
    source = source_of(row_blocks(*table(), block_size=40))
    epoch = np.concatenate([take(source, 2).ravel() for _ in range(12)])
    np.testing.assert_array_equal(np.sort(epoch), np.arange(N))
    assert not np.array_equal(epoch[:40], np.sort(epoch[:40]))


def test_gradients_between_draws_use_their_rows_only():
    """Four draws of four minibatches, and two minibatches in between."""
    source = source_of(row_blocks(*table(), block_size=40))
    calls = [4, 4, 2, 4, 2] * 6
    epochs = np.concatenate([take(source, n).ravel() for n in calls])
    counts = np.bincount(epochs, minlength=N)
    assert np.ptp(counts.reshape(3, 40).sum(axis=1)) <= 2 * 4 * BATCH


def test_gradients_between_draws_are_parts_of_draws():
    source = source_of(row_blocks(*table(), block_size=40), draws_per_block=10)
    blocks = [[], []]
    for _ in range(60):
        for kind, n in enumerate((6, 2)):
            blocks[kind].append(take(source, n)[0, 0] // 40)
    stays = np.diff(np.flatnonzero(np.diff(blocks[0])))
    np.testing.assert_allclose(stays, 7.5, atol=0.5)  # ten calls would be five draws


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_shorter_than_a_draw_are_joined(order):
    """The noise of a short block would be the same for all of a draw."""
    lengths = np.array([40, 40, 25, 15])
    blocks = np.repeat(np.arange(4), lengths)
    source = source_of(blocks_of(lengths), order=order)
    for _ in range(6):
        assert lengths[np.unique(blocks[take(source, 16)])].sum() >= 80
    source = source_of(blocks_of(lengths), order=order)
    for _ in range(3):
        assert set(blocks[take(source, 60).ravel()]) == {0, 1, 2, 3}


def test_joined_blocks_are_joined_again_by_a_restored_state():
    source = source_of(blocks_of([40, 40, 25, 15]))
    take(source, 16)
    state = source.state
    expected = [take(source, 16) for _ in range(5)]
    restored = source_of(blocks_of([40, 40, 25, 15]))
    restored.state = state
    np.testing.assert_array_equal([take(restored, 16) for _ in range(5)], expected)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("taken", range(1, 9))
def test_a_restored_state_joins_blocks_as_when_loading_began(order, taken):
    """The number of steps per draw changes, as in tuning."""
    lengths, steps = [40, 40, 25, 15], [16, 2, 2, 20, 3, 3, 2, 16, 2, 2, 18, 2, 2, 2]
    source = source_of(blocks_of(lengths), order=order)
    for n in steps[:taken]:
        take(source, n)
    state = copy.deepcopy(source.state)
    restored = source_of(blocks_of(lengths), order=order)
    restored.state = state
    for n in steps[taken:]:
        np.testing.assert_array_equal(take(restored, n), take(source, n))


@pytest.mark.parametrize(
    ("draws_per_block", "lengths", "joined"),
    cross([None, 1, 7], [
        ([40, 40, 40], [[0], [1], [2]]),
        ([40, 40, 13], [[0], [1], [2]]),
        ([40, 40, 3], [[1], [2, 0]]),
        ([3, 40, 40], [[0, 1], [2]]),
        ([2, 0, 40], [[0, 1, 2]]),
        ([40, 3, 40, 2, 17], [[0], [1, 2], [3, 4]]),
        ([20, 90], [[0], [1]]),
    ]),
    ids=str,
)  # fmt: skip
def test_blocks_count_by_their_rows(lengths, joined, draws_per_block):
    """A block that is shorter than a minibatch is joined to the next, at the end to the first."""
    n = sum(lengths)
    source = source_of(blocks_of(lengths), n, draws_per_block=draws_per_block)
    n_draws = 2000
    counts = sum(np.bincount(take(source, 2).ravel(), minlength=n) for _ in range(n_draws))
    parts = np.split(counts, np.cumsum(lengths)[:-1])
    together = [np.concatenate([parts[i] for i in group]).mean() for group in joined]
    np.testing.assert_allclose(together, 2 * BATCH * n_draws / n, rtol=0.015)


def test_gradient_over_an_epoch_is_unbiased():
    """Mean of a column that differs from block to block, with unequal blocks."""
    lengths = [40, 25, 55, 10]
    source = source_of(blocks_of(lengths), 130, draws_per_block=8)
    means = [take(source, 5).mean() for _ in range(26 * 40)]
    assert np.mean(means) == pytest.approx(64.5, rel=0.01)
    equal_weights = np.mean([y.mean() for _, y in blocks_of(lengths)])
    assert abs(equal_weights - 64.5) > 5.0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("taken", [0, 1, 5, 13])
def test_state_continues_the_order(order, taken):
    batches = blocks_of([40, 3, 40, 37])
    source = source_of(batches, order=order, draws_per_block=3)
    for _ in range(taken):
        take(source, 2)
    state = pickle.loads(pickle.dumps(source.state))
    expected = [take(source, 2) for _ in range(12)]
    restored = source_of(batches, order=order, draws_per_block=3)
    restored.reset(9)
    take(restored, 2)
    restored.state = copy.deepcopy(state)
    assert restored.state == state
    for rows in expected:
        np.testing.assert_array_equal(take(restored, 2), rows)
    source.state = state
    np.testing.assert_array_equal(take(source, 2), expected[0])


@pytest.mark.parametrize("order", ORDERS)
def test_chains_differ_by_their_seed_only(order):
    source = source_of(row_blocks(*table(), block_size=40), order=order)
    orders = []
    for seed in (1, 2, 1):
        source.reset(seed)
        orders.append(np.concatenate([take(source, 2) for _ in range(9)]))
    np.testing.assert_array_equal(orders[0], orders[2])
    assert not np.array_equal(orders[0], orders[1])


def test_no_thread_before_the_first_draw_and_none_after_a_block_is_read():
    """Processes fork before the first draw, and again when sampling is over."""
    source = source_of(row_blocks(*table(), block_size=40))
    assert source._loading is None
    take(source, 2)
    thread = source._loading._thread
    thread.join(10)
    assert thread not in threading.enumerate()


def test_next_block_is_read_while_this_one_is_used():
    """Another thread reads the next block in advance."""
    readers = []

    class Batches:
        def __iter__(self):
            for block in blocks_of([40, 40, 40]):
                readers.append(threading.current_thread())
                yield block

    source = source_of(Batches(), draws_per_block=2)
    take(source, 1)
    source._loading._thread.join(10)
    assert readers[-1] is not threading.main_thread()
    n_read = len(readers)
    take(source, 1)
    assert len(readers) == n_read


def test_two_blocks_are_in_memory():
    source = source_of(row_blocks(*table(), block_size=40), draws_per_block=1)
    buffers = set()
    for _ in range(20):
        take(source, 2)
        buffers.add(source.arrays["X"].ctypes.data)
    assert len(buffers) == 2


def test_a_new_chain_reuses_the_memory_of_the_last():
    source = source_of(row_blocks(*table(), block_size=40), draws_per_block=1)
    take(source, 2)
    first = source.arrays["X"].ctypes.data
    source.reset(2)
    take(source, 2)
    assert source.arrays["X"].ctypes.data == first


def test_data_of_the_user_are_not_touched():
    batches = blocks_of([40, 40, 40])
    before = copy.deepcopy(batches)
    source = source_of(batches)
    for _ in range(30):
        take(source, 2)
    for block, original in zip(batches, before, strict=True):
        np.testing.assert_array_equal(block[0], original[0])


class OneBuffer:
    """Yields every block in the memory of the one before."""

    def __iter__(self):
        X, y = np.empty((40, 2), "float32"), np.empty(40, "int32")
        for block in blocks_of([40, 3, 37, 40]):
            n = len(block[1])
            X[:n], y[:n] = block
            yield X[:n], y[:n]


def test_blocks_may_share_their_memory():
    source = source_of(OneBuffer())
    for _ in range(40):
        take(source, 2)
    counts = np.bincount(np.concatenate([take(source, 2).ravel() for _ in range(36)]), minlength=N)
    assert counts.min() > 0


def nan_in_the_second():
    blocks = blocks_of([40, 40])
    blocks[1][0][3, 1] = np.nan
    return blocks


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (nan_in_the_second(), r"NaN for 'X' in block 2; drop or impute"),
        ([*blocks_of([40]), (np.zeros((40, 3)), np.zeros(40, int))], r"shape \(3,\) for 'X'"),
        ([*blocks_of([40]), (np.zeros((40, 2)), np.zeros(40))], "float64 for 'y'.*has dtype int64"),
        ([*blocks_of([40]), (np.zeros((40, 2)), np.zeros(3, int))], "numbers of rows"),
        ([*blocks_of([40]), {"X": np.zeros((40, 2))}], "a mapping without 'y'"),
    ],
)
def test_invalid_blocks_are_reported_when_they_are_read(batches, message):
    source = source_of(batches, draws_per_block=1)

    def take_two_blocks():
        return [take(source, 1) for _ in range(3)]

    with pytest.raises(ValueError, match=message):
        take_two_blocks()


def test_concatenated_blocks_are_named_in_messages():
    blocks = blocks_of([40, 40, 40])
    blocks[1][0][3, 1] = np.nan
    with pytest.raises(ValueError, match=r"in block \d or one of the 2 after it; drop"):
        take(source_of(blocks), 24)
    with pytest.raises(ValueError, match=r"in block \d; drop"):
        take(source_of(blocks[1:2]), 8)


def test_an_iterator_raises():
    source = source_of(block for block in blocks_of([40, 40, 40]))
    with pytest.raises(ValueError, match=r"batches= is an exhausted generator.*a list"):
        [take(source, 8) for _ in range(10)]


@pytest.mark.parametrize("order", ORDERS)
def test_chains_are_independent(order):
    """Blocks differ, so that chains that use the same block at the same time would correlate."""
    blocks = blocks_of([40] * 30)
    rng = np.random.default_rng(1)
    values = rng.normal(size=1200) + np.repeat(rng.normal(size=30), 40)
    source = source_of(blocks, 1200, order=order, draws_per_block=2)
    chains = []
    for seed in range(16):
        source.reset(seed)
        chains.append(np.concatenate([values[take(source, 4)].mean(axis=1) for _ in range(240)]))
    correlations = np.corrcoef(chains)[np.triu_indices(16, 1)]
    assert abs(correlations.mean()) < 0.05


def test_batch_larger_than_the_data():
    with pytest.raises(ValueError, match="batch_size=121 exceeds the 120 rows of all blocks"):
        source_of(row_blocks(*table(), block_size=40), batch_size=121)
    with pytest.raises(ValueError, match="batch_size=5 exceeds the 0 rows"):
        source_of(blocks_of([0, 0]))


class Pieces:
    """An array that can only be read in pieces, and not be copied as a whole."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def pieces(self):
        yield self._array


def test_parts_of_joined_blocks_are_read_into_their_positions():
    """Copies of them would need the memory of another block."""
    source = source_of([(Pieces(X), Pieces(y)) for X, y in blocks_of([40, 40, 40])])
    np.testing.assert_array_equal(np.sort(take(source, 24).ravel()), np.arange(N))


def test_no_row_numbers():
    with pytest.raises(ValueError, match="local= visits the same rows repeatedly"):
        source_of(row_blocks(*table(), block_size=40)).row_indices(0)

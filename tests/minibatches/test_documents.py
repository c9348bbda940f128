"""Blocks of documents that pass by."""

import numpy as np
import pytest

from pymc_geodesic.minibatches.documents import StreamedDocuments

N_BLOCKS = 20
BLOCKS = [np.full((2, 3), float(block)) for block in range(N_BLOCKS)]


@pytest.fixture
def source():
    return StreamedDocuments(BLOCKS, "counts", n_words=3, largest=2, n_rows=2 * N_BLOCKS)


def taken(source, n):
    """Numbers of the next blocks."""
    source.next_starts(n)
    return [int(block.toarray()[0, 0]) for block in source._blocks]


def test_chains_begin_at_different_blocks(source):
    firsts = []
    for seed in range(200):
        source.reset(seed)
        first, second = taken(source, 2)
        assert second == (first + 1) % N_BLOCKS
        firsts.append(first)
    counts = np.bincount(firsts, minlength=N_BLOCKS)
    assert counts.size == N_BLOCKS
    assert (counts > 0).all()  # each with a chance of 1/20
    source.reset(7)
    assert taken(source, 1) == [firsts[7]]


def test_every_block_once_in_a_pass(source):
    source.reset(3)
    assert sorted(taken(source, N_BLOCKS)) == list(range(N_BLOCKS))


def test_state_continues(source):
    source.reset(5)
    taken(source, 4)
    state = source.state
    expected = taken(source, N_BLOCKS)
    other = StreamedDocuments(BLOCKS, "counts", n_words=3, largest=2, n_rows=2 * N_BLOCKS)
    other.state = state
    assert taken(other, N_BLOCKS) == expected

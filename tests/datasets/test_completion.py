import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import docstring_corpus, hold_out_words


def test_every_word_is_in_one_part():
    counts = sparse.random_array((200, 30), density=0.2, rng=np.random.default_rng(1))
    counts.data = np.floor(20 * counts.data)
    observed, held_out = hold_out_words(counts, 0.25, random_seed=1)
    np.testing.assert_array_equal((observed + held_out).toarray(), counts.toarray())
    n = counts.sum()
    assert abs(held_out.sum() - 0.25 * n) < 5 * np.sqrt(n * 0.25 * 0.75)
    assert observed.data.min() > 0
    assert held_out.data.min() > 0


@pytest.mark.parametrize(
    ("counts", "share", "message"),
    [([[0.5, 1.0]], 0.5, "whole"), ([[-1, 1]], 0.5, "whole"), ([[1, 1]], 1.5, "share")],
)
def test_bad_input_is_named(counts, share, message):
    with pytest.raises(ValueError, match=message):
        hold_out_words(counts, share)


def test_docstrings_as_counts():
    options = {"min_share": 0.2, "max_share": 0.5, "min_words": 3, "cache": False}
    counts = docstring_corpus(("json",), features="counts", **options)
    weights = docstring_corpus(("json",), **options)
    np.testing.assert_array_equal(counts.train.indices, weights.train.indices)
    assert np.all(counts.train.data == np.floor(counts.train.data))
    assert counts.train.data.min() >= 1
    with pytest.raises(ValueError, match="features"):
        docstring_corpus(("json",), features="words")

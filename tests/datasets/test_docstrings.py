import numpy as np
import pytest

from pymc_geodesic.datasets import docstring_corpus
from pymc_geodesic.datasets.docstrings import _prose


@pytest.fixture(scope="module")
def corpus():
    return docstring_corpus()


def test_thousands_of_documents_as_unit_vectors(corpus):
    assert corpus.train.shape[0] + corpus.test.shape[0] > 2000
    assert 1500 < len(corpus.vocabulary) < 5000
    for rows in (corpus.train, corpus.test):
        np.testing.assert_allclose(rows.multiply(rows).sum(axis=1), 1.0, rtol=1e-13)
        assert rows.min() >= 0


def test_related_words_cooccur(corpus):
    title = "scipy.linalg.eigh"
    where = corpus.train if title in corpus.train_titles else corpus.test
    titles = corpus.train_titles if title in corpus.train_titles else corpus.test_titles
    row = where[int(np.flatnonzero(titles == title)[0])].toarray().ravel()
    best = corpus.vocabulary[np.argsort(-row)[:12]]
    assert {"eigenvalues", "eigenvectors"} <= set(best)


def test_train_and_test_share_no_document(corpus):
    assert not set(corpus.train_titles) & set(corpus.test_titles)
    share = len(corpus.test_titles) / (len(corpus.test_titles) + len(corpus.train_titles))
    assert 0.15 < share < 0.25


def test_counts_agree_with_tfidf_weights():
    options = {"min_share": 0.2, "max_share": 0.5, "min_words": 3}
    counts = docstring_corpus(("json",), features="counts", **options)
    weights = docstring_corpus(("json",), **options)
    np.testing.assert_array_equal(counts.train.indices, weights.train.indices)
    assert np.all(counts.train.data == np.floor(counts.train.data))
    assert counts.train.data.min() >= 1


def test_code_examples_are_left_out():
    docstring = "Add numbers.\n\n>>> add(1, 2)\n3\n\nIn place of a loop.\n\n    >>> add([1], 2)"
    assert _prose(docstring).split() == ["Add", "numbers.", "In", "place", "of", "a", "loop."]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"min_share": 0.2, "max_share": 0.1}, "bounds of document frequencies"),
        ({"min_share": -0.1, "max_share": 0.5}, "bounds of document frequencies"),
        ({"min_share": 0.1, "max_share": 1.0}, "bounds of document frequencies"),
        ({"features": "words"}, "'tfidf' or 'counts', not 'words'"),
        ({"test_fraction": 1.0}, "test_fraction"),
        ({"packages": ("this",)}, "Widen the bounds"),
    ],
)
def test_invalid_arguments_raise(arguments, message):
    with pytest.raises(ValueError, match=message):
        docstring_corpus(**arguments)

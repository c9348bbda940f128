import json

import numpy as np
import pytest

from pymc_geodesic.datasets import docstring_corpus
from pymc_geodesic.datasets.docstrings import _prose


@pytest.fixture
def cache_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pymc_geodesic"


@pytest.fixture
def corpus(cache_home):
    return docstring_corpus()


def test_thousands_of_documents_as_unit_vectors(corpus):
    assert corpus.train.shape[0] + corpus.test.shape[0] > 2000
    assert 1500 < len(corpus.vocabulary) < 5000
    for rows in (corpus.train, corpus.test):
        np.testing.assert_allclose(rows.multiply(rows).sum(axis=1), 1.0, rtol=1e-13)
        assert rows.min() >= 0


def test_words_mean_what_they_say(corpus):
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


def test_the_cache_gives_the_same_corpus(cache_home, corpus):
    (stored,) = cache_home.glob("docstrings-*.json")
    again = docstring_corpus()
    assert (again.train != corpus.train).nnz == 0
    np.testing.assert_array_equal(again.test_titles, corpus.test_titles)
    # And it is the cache that was read: what is not in it is not in the corpus.
    texts = json.loads(stored.read_text())
    stored.write_text(json.dumps({t: text for t, text in texts.items() if "linalg" in t}))
    fewer = docstring_corpus()
    assert all("linalg" in title for title in fewer.train_titles)


def test_a_broken_cache_is_collected_again(cache_home, corpus):
    (stored,) = cache_home.glob("docstrings-*.json")
    stored.write_text("{")
    assert docstring_corpus().train.shape == corpus.train.shape


def test_code_examples_are_left_out():
    docstring = "Add numbers.\n\n>>> add(1, 2)\n3\n\nIn place of a loop.\n\n    >>> add([1], 2)"
    assert _prose(docstring).split() == ["Add", "numbers.", "In", "place", "of", "a", "loop."]


@pytest.mark.parametrize("band", [(0.2, 0.1), (-0.1, 0.5), (0.1, 1.0)])
def test_the_band_must_be_in_order(band):
    with pytest.raises(ValueError, match="band of document frequencies"):
        docstring_corpus(min_share=band[0], max_share=band[1])


def test_too_little_text_is_an_error(cache_home):
    with pytest.raises(ValueError, match="Widen the band"):
        docstring_corpus(("this",), cache=False)

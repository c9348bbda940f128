import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import count_words, document_frequency, tf_idf, tokenize


def test_words_are_lower_case_letters():
    assert tokenize("Bessel's I_nu(kappa): O(n) in 3 steps, scipy.special") == [
        "bessel",
        "kappa",
        "steps",
        "scipy",
        "special",
    ]


def test_counts_agree_with_counting_by_hand():
    documents = [tokenize("sun moon sun sea"), [], tokenize("tide and moon and tide")]
    vocabulary = ["and", "moon", "sun", "tide"]
    by_hand = [[words.count(word) for word in vocabulary] for words in documents]
    np.testing.assert_array_equal(count_words(documents, vocabulary).toarray(), by_hand)


def test_tf_idf_by_the_formula():
    rng = np.random.default_rng(1)
    counts = rng.poisson(0.4, size=(40, 12)).astype(float)
    counts = counts[counts.sum(axis=1) > 0]
    frequency = (counts > 0).sum(axis=0)
    expected = counts * np.log(len(counts) / (1 + frequency))
    expected /= np.sqrt((expected**2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(tf_idf(sparse.csr_matrix(counts)).toarray(), expected, rtol=1e-13)


def test_tf_idf_refuses_words_that_are_everywhere():
    counts = sparse.csr_matrix(np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 2.0]]))
    with pytest.raises(ValueError, match="column 1 is in 3 of 3 documents"):
        tf_idf(counts)


def test_tf_idf_refuses_empty_documents():
    counts = sparse.csr_matrix(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="row 1 holds no word"):
        tf_idf(counts)


@pytest.mark.parametrize("form", [sparse.csc_matrix, sparse.coo_array, np.asarray])
def test_documents_are_rows_in_every_form(form):
    """Columns of a CSC matrix have other indices than rows."""
    counts = sparse.csr_matrix(np.array([[2, 1, 0, 0, 0], [1, 0, 3, 0, 1], [0, 0, 0, 2, 0]]))
    given = form(counts.toarray())
    np.testing.assert_array_equal(document_frequency(given), [2, 1, 1, 1, 1])
    options = {"n_documents": 9}
    expected = tf_idf(counts, **options).toarray()
    np.testing.assert_allclose(tf_idf(given, **options).toarray(), expected, rtol=1e-15)


def test_words_in_two_places_of_a_row_are_one():
    twice = sparse.csr_matrix((np.ones(3), [0, 0, 1], [0, 3]), shape=(1, 2))
    assert document_frequency(twice).tolist() == [1, 1]
    assert twice.nnz == 3

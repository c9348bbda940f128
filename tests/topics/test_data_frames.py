"""Coordinates of topic models of data frames."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pymc_geodesic.topics import (
    lda,
    lda_gibbs,
    medlda,
    spherical_admixture,
    spherical_admixture_vi,
    top_words,
)
from pymc_geodesic.topics.labeled_documents import labeled_counts

WORDS, TITLES = ["sun", "rain", "snow"], ["mon", "tue", "wed", "thu"]
COUNTS = pd.DataFrame(
    [[3, 0, 1], [2, 1, 0], [0, 4, 1], [0, 3, 2]], index=TITLES, columns=WORDS
)  # fmt: skip
VECTORS = COUNTS.div(np.sqrt((COUNTS**2).sum(axis=1)), axis=0)
LABELS = [1, 1, -1, -1]
QUIET = {"progressbar": False, "random_seed": 1}


@pytest.mark.parametrize(
    "make",
    [
        lambda: lda(COUNTS, 2),
        lambda: medlda(COUNTS, LABELS, 2),
        lambda: spherical_admixture(VECTORS, 2),
    ],
    ids=["lda", "medlda", "spherical_admixture"],
)
def test_models_have_coordinates_of_the_data_frame(make):
    coords = make().coords
    assert list(coords["word"]) == WORDS
    assert list(coords["document"]) == TITLES


def test_samplers_have_coordinates_of_the_data_frame():
    posterior = lda_gibbs(COUNTS, 2, draws=2, tune=0, **QUIET).posterior
    assert posterior["word"].values.tolist() == WORDS
    assert posterior["document"].values.tolist() == TITLES
    posterior = spherical_admixture_vi(VECTORS, 2, draws=2, **QUIET).posterior
    assert posterior["word"].values.tolist() == WORDS


def test_labeled_documents_have_coordinates():
    coords = labeled_counts(COUNTS, LABELS, 2, 1.0, 1.0, None, None, None).coords
    assert (coords["document"], coords["word"]) == (TITLES, WORDS)


def test_top_words_are_the_columns():
    idata = lda_gibbs(COUNTS, 2, draws=20, tune=20, **QUIET)
    words = top_words(idata, n=2, var_name="topics").values
    assert {*words.ravel().tolist()} <= set(WORDS)


def test_explicit_names_take_precedence():
    assert list(lda(COUNTS, 2, vocabulary=["a", "b", "c"]).coords["word"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "counts", [COUNTS.to_numpy(), COUNTS.to_numpy().tolist(), sparse.csr_array(COUNTS.to_numpy())]
)
def test_default_coordinates_are_indices(counts):
    assert list(lda(counts, 2).coords["word"]) == [0, 1, 2]


def test_coordinates_of_wrong_length_raise():
    with pytest.raises(ValueError, match="documents must name the 4 rows of V, but has 1"):
        spherical_admixture(VECTORS, 2, documents=["a"])

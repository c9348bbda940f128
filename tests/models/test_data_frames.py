"""Data frames name rows and columns: what comes of them has these coordinates."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from pymc_geodesic.topics import top_words
from pymc_geodesic.mixtures import dp_categorical_gibbs, dp_categorical_slice, vmf_mixture
from pymc_geodesic.topics import lda, lda_gibbs, medlda, spherical_admixture, spherical_admixture_vi
from pymc_geodesic.sparse.count_matrices import axis_coords
from pymc_geodesic.topics.labelled_documents import labelled_counts

WORDS, TITLES = ["sun", "rain", "snow"], ["mon", "tue", "wed", "thu"]
COUNTS = pd.DataFrame(
    [[3, 0, 1], [2, 1, 0], [0, 4, 1], [0, 3, 2]], index=TITLES, columns=WORDS
)  # fmt: skip
VECTORS = COUNTS.div(np.sqrt((COUNTS**2).sum(axis=1)), axis=0)
LABELS = [1, 1, -1, -1]
QUIET = {"progressbar": False, "random_seed": 1}


@pytest.mark.parametrize(
    ("make", "rows", "columns"),
    [
        (lambda: lda(COUNTS, 2), "document", "word"),
        (lambda: medlda(COUNTS, LABELS, 2), "document", "word"),
        (lambda: spherical_admixture(VECTORS, 2), "document", "word"),
        (lambda: vmf_mixture(VECTORS, 2, start="prior"), None, "coordinate"),
    ],
    ids=["lda", "medlda", "spherical_admixture", "vmf_mixture"],
)
def test_models_take_their_dimensions(make, rows, columns):
    coords = make().coords
    assert list(coords[columns]) == WORDS
    assert rows is None or list(coords[rows]) == TITLES


@pytest.mark.parametrize(
    ("sample", "rows", "columns"),
    [
        (lambda: lda_gibbs(COUNTS, 2, draws=2, tune=0, **QUIET), "document", "word"),
        (lambda: spherical_admixture_vi(VECTORS, 2, draws=2, **QUIET), None, "word"),
        (lambda: dp_categorical_gibbs(COUNTS, draws=2, tune=0, **QUIET), None, "category"),
        (
            lambda: dp_categorical_slice(COUNTS, draws=2, tune=0, keep_assignments=True, **QUIET),
            "row",
            "category",
        ),
    ],
    ids=["lda_gibbs", "spherical_admixture_vi", "gibbs", "slice"],
)
def test_samplers_take_their_dimensions(sample, rows, columns):
    posterior = sample().posterior
    assert posterior[columns].values.tolist() == WORDS
    assert rows is None or posterior[rows].values.tolist() == TITLES


def test_labelled_documents_have_names():
    coords = labelled_counts(COUNTS, LABELS, 2, 1.0, 1.0, None, None, None).coords
    assert (coords["document"], coords["word"]) == (TITLES, WORDS)


def test_top_words_are_the_columns():
    idata = lda_gibbs(COUNTS, 2, draws=20, tune=20, **QUIET)
    words = top_words(idata, n=2, var_name="topics").values
    assert {*words.ravel().tolist()} <= set(WORDS)


def test_names_that_are_given_come_first():
    assert list(lda(COUNTS, 2, vocabulary=["a", "b", "c"]).coords["word"]) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "counts", [COUNTS.to_numpy(), COUNTS.to_numpy().tolist(), sparse.csr_array(COUNTS.to_numpy())]
)
def test_what_has_no_names_is_numbered(counts):
    assert list(lda(counts, 2).coords["word"]) == [0, 1, 2]


def test_names_of_several_parts_are_no_coordinates():
    index = pd.MultiIndex.from_product([["may", "june"], [1, 2]])
    coords = axis_coords(COUNTS.set_index(index), (4, 3), day=("days", None), sky=("skies", None))
    assert list(coords["day"]) == [0, 1, 2, 3]
    assert coords["sky"] == WORDS


def test_names_of_other_lengths_name_the_argument():
    with pytest.raises(ValueError, match="categories must name the 3 columns of counts, but has 1"):
        dp_categorical_gibbs(COUNTS, categories=["a"], draws=2, **QUIET)
    with pytest.raises(ValueError, match="documents must name the 4 rows of V, but has 1"):
        spherical_admixture(VECTORS, 2, documents=["a"])

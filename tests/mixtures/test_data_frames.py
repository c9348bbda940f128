"""Coordinates of mixtures of data frames."""

import numpy as np
import pandas as pd
import pytest

from pymc_geodesic.mixtures import dp_categorical_gibbs, dp_categorical_slice, vmf_mixture

WORDS, TITLES = ["sun", "rain", "snow"], ["mon", "tue", "wed", "thu"]
COUNTS = pd.DataFrame(
    [[3, 0, 1], [2, 1, 0], [0, 4, 1], [0, 3, 2]], index=TITLES, columns=WORDS
)  # fmt: skip
VECTORS = COUNTS.div(np.sqrt((COUNTS**2).sum(axis=1)), axis=0)
QUIET = {"progressbar": False, "random_seed": 1}


def test_a_model_has_coordinates_of_the_data_frame():
    assert list(vmf_mixture(VECTORS, 2, start="prior").coords["coordinate"]) == WORDS


def test_samplers_have_coordinates_of_the_data_frame():
    posterior = dp_categorical_gibbs(COUNTS, draws=2, tune=0, **QUIET).posterior
    assert posterior["category"].values.tolist() == WORDS
    posterior = dp_categorical_slice(
        COUNTS, draws=2, tune=0, keep_assignments=True, **QUIET
    ).posterior
    assert posterior["category"].values.tolist() == WORDS
    assert posterior["row"].values.tolist() == TITLES


def test_coordinates_of_wrong_length_raise():
    with pytest.raises(ValueError, match="categories must name the 3 columns of counts, but has 1"):
        dp_categorical_gibbs(COUNTS, categories=["a"], draws=2, **QUIET)

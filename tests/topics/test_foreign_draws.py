"""Draws of another model, or what is no draws at all, are refused by name."""

import numpy as np
import pytest

from pymc_geodesic.topics import (
    align_topics,
    document_completion_perplexity,
    log_perplexity,
    predict_labels,
    top_words,
    topics_by_class,
)
from tests.foreign_draws import OTHERS, assert_refused

X = np.eye(3)
PREDICTIONS = {
    "predict_labels": lambda idata: predict_labels(idata, X),
    "topics_by_class": lambda idata: topics_by_class(idata, [1, -1, 1]),
    "log_perplexity": lambda idata: log_perplexity(idata, X),
    "align_topics": align_topics,
    "top_words": top_words,
    "document_completion_perplexity": lambda idata: document_completion_perplexity(idata, X, X),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_are_refused(predict, given):
    assert_refused(PREDICTIONS[predict], given)

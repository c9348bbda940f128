"""Draws of other models, and arguments that are not draws, raise errors."""

import numpy as np
import pytest

from pymc_geodesic.topics import (
    align_topics,
    decision_function,
    log_perplexity,
    perplexity,
    predict,
    top_words,
    topics_by_class,
)
from tests.foreign_draws import OTHERS, assert_raises

X = np.eye(3)
PREDICTIONS = {
    "decision_function": lambda idata: decision_function(idata, X),
    "predict": lambda idata: predict(idata, X),
    "topics_by_class": lambda idata: topics_by_class(idata, [1, -1, 1]),
    "log_perplexity": lambda idata: log_perplexity(idata, X),
    "align_topics": align_topics,
    "top_words": top_words,
    "perplexity": lambda idata: perplexity(idata, X, X),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("function", PREDICTIONS)
def test_draws_of_other_models_raise(function, given):
    assert_raises(PREDICTIONS[function], given)

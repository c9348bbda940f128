"""Draws of other models, and arguments that are not draws, raise errors."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.mixtures import (
    component_probabilities,
    log_predictive,
    perplexity,
    predict,
    predict_proba,
)
from tests.foreign_draws import OTHERS, assert_raises

X = np.eye(3)
PREDICTIONS = {
    "predict": lambda idata: predict(idata, X),
    "predict_proba": lambda idata: predict_proba(idata, X),
    "component_probabilities": lambda idata: component_probabilities(idata, X),
    "log_predictive": lambda idata: log_predictive(idata, X),
    "perplexity": lambda idata: perplexity(idata, X),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_raise(predict, given):
    assert_raises(PREDICTIONS[predict], given)


@pytest.mark.parametrize(
    "predict", ["predict", "predict_proba", "component_probabilities", "log_predictive"]
)
def test_arguments_that_are_not_draws_raise(predict):
    with pytest.raises(ValueError, match=f"{predict} takes .* first, as an xarray.DataTree; got"):
        PREDICTIONS[predict](X)


def test_draws_of_experts_without_their_prior_raise():
    shapes = {"sizes": (1, 2, 4), "weights": (1, 2, 4, 2, 3), "mean": (1, 2, 4, 3)}
    posterior = {name: np.ones(shape) for name, shape in shapes.items()}
    idata = az.from_dict({"posterior": posterior | {"lower": np.ones((1, 2, 4, 3, 3))}})
    with pytest.raises(ValueError, match=r"mixtures.infinite_svm or .* no group 'constant_data'"):
        predict_proba(idata, X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((1, 2, 4)), r"'weights' of shape \(1, 2, 4\) do not match 'topics'"),
        (np.full((1, 2, 2), 0.6), "'weights' are negative, or sum to more than one"),
        (np.tile([-0.5, 0.5], (1, 2, 1)), "'weights' are negative, or sum to more than one"),
    ],
)
def test_invalid_mixture_weights_raise(weights, message):
    idata = az.from_dict(
        {"posterior": {"weights": weights, "topics": np.full((1, 2, 2, 3), 1 / 3)}}
    )
    with pytest.raises(ValueError, match=message):
        log_predictive(idata, X)

"""Draws of another model, or what is no draws at all, are refused by name."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.mixtures import (
    component_probabilities,
    expert_probabilities,
    expert_votes,
    mixture_log_predictive,
    mixture_perplexity,
)
from tests.foreign_draws import OTHERS, assert_refused

X = np.eye(3)
PREDICTIONS = {
    "expert_votes": lambda idata: expert_votes(idata, X),
    "expert_probabilities": lambda idata: expert_probabilities(idata, X),
    "component_probabilities": lambda idata: component_probabilities(idata, X),
    "mixture_log_predictive": lambda idata: mixture_log_predictive(idata, X),
    "mixture_perplexity": lambda idata: mixture_perplexity(idata, X),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_are_refused(predict, given):
    assert_refused(PREDICTIONS[predict], given)


@pytest.mark.parametrize(
    "predict", ["expert_votes", "component_probabilities", "mixture_log_predictive"]
)
def test_what_is_no_draws_is_refused(predict):
    with pytest.raises(ValueError, match=f"{predict} takes .* first, as an xarray.DataTree; got"):
        PREDICTIONS[predict](X)


def test_draws_of_experts_without_their_prior_are_refused():
    shapes = {"sizes": (1, 2, 4), "weights": (1, 2, 4, 2, 3), "mean": (1, 2, 4, 3)}
    posterior = {name: np.ones(shape) for name, shape in shapes.items()}
    idata = az.from_dict({"posterior": posterior | {"lower": np.ones((1, 2, 4, 3, 3))}})
    with pytest.raises(ValueError, match=r"mixtures.infinite_svm, .* no group 'constant_data'"):
        expert_votes(idata, X)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones((1, 2, 4)), r"'weights' of shape \(1, 2, 4\) are not those of 'topics'"),
        (np.full((1, 2, 2), 0.6), "'weights' are negative, or sum to more than one"),
        (np.tile([-0.5, 0.5], (1, 2, 1)), "'weights' are negative, or sum to more than one"),
    ],
)
def test_weights_of_classifiers_are_none_of_a_mixture(weights, message):
    idata = az.from_dict(
        {"posterior": {"weights": weights, "topics": np.full((1, 2, 2, 3), 1 / 3)}}
    )
    with pytest.raises(ValueError, match=message):
        mixture_log_predictive(idata, X)

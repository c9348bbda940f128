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
from pymc_geodesic.svm import LinearClassifier
from pymc_geodesic.topics import (
    align_topics,
    document_completion_perplexity,
    log_perplexity,
    predict_labels,
    top_words,
    topics_by_class,
)

X = np.eye(3)
PREDICTIONS = {
    "expert_votes": lambda idata: expert_votes(idata, X),
    "expert_probabilities": lambda idata: expert_probabilities(idata, X),
    "component_probabilities": lambda idata: component_probabilities(idata, X),
    "mixture_log_predictive": lambda idata: mixture_log_predictive(idata, X),
    "mixture_perplexity": lambda idata: mixture_perplexity(idata, X),
    "predict_labels": lambda idata: predict_labels(idata, X),
    "topics_by_class": lambda idata: topics_by_class(idata, [1, -1, 1]),
    "log_perplexity": lambda idata: log_perplexity(idata, X),
    "LinearClassifier": LinearClassifier,
    "align_topics": align_topics,
    "top_words": top_words,
    "document_completion_perplexity": lambda idata: document_completion_perplexity(idata, X, X),
}
OTHERS = {
    "of another model": az.from_dict({"posterior": {"x": np.ones((1, 4, 3))}}),
    "without a posterior": az.from_dict({"sample_stats": {"x": np.ones((1, 4, 3))}}),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_are_refused(predict, given):
    message = "(?i)holds no variable '(topics|weights|beta|zbar|sizes)'|has no group 'posterior'"
    with pytest.raises(ValueError, match=message):
        PREDICTIONS[predict](OTHERS[given])


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


def test_weights_of_another_name_are_listed():
    """The coefficients of a model written by hand are called what its author likes."""
    draws = np.random.default_rng(1).normal(size=(2, 50, 3))
    idata = az.from_dict({"posterior": {"w": draws, "b": draws[..., 0]}})
    with pytest.raises(ValueError, match=r"no variable 'weights'.* weights=; candidates are w\.$"):
        LinearClassifier(idata, cost=2.0)
    assert LinearClassifier(idata, weights="w", intercept="b", cost=2.0).coef.shape == (3,)
    with pytest.raises(ValueError, match="No variable has the dimensions"):
        LinearClassifier(az.from_dict({"posterior": {"b": draws[..., 0]}}))

"""Draws of another model, or what is no draws at all, are refused by name."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.svm import LinearClassifier
from tests.foreign_draws import OTHERS, assert_refused

X = np.eye(3)
PREDICTIONS = {
    "LinearClassifier": LinearClassifier,
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_are_refused(predict, given):
    assert_refused(PREDICTIONS[predict], given)


def test_weights_of_another_name_are_listed():
    """The coefficients of a model written by hand are called what its author likes."""
    draws = np.random.default_rng(1).normal(size=(2, 50, 3))
    idata = az.from_dict({"posterior": {"w": draws, "b": draws[..., 0]}})
    with pytest.raises(ValueError, match=r"no variable 'weights'.* weights=; candidates are w\.$"):
        LinearClassifier(idata, cost=2.0)
    assert LinearClassifier(idata, weights="w", intercept="b", cost=2.0).coef_.shape == (1, 3)
    with pytest.raises(ValueError, match="No variable has the dimensions"):
        LinearClassifier(az.from_dict({"posterior": {"b": draws[..., 0]}}))

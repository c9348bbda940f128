"""Draws of other models, and arguments that are not draws, raise errors."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.svm import decision_function, predict, predict_proba
from tests.foreign_draws import OTHERS, assert_raises

X = np.eye(3)
PREDICTIONS = {
    "decision_function": lambda idata: decision_function(idata, X),
    "predict": lambda idata: predict(idata, X),
    "predict_proba": lambda idata: predict_proba(idata, X),
}


@pytest.mark.parametrize("given", OTHERS)
@pytest.mark.parametrize("predict", PREDICTIONS)
def test_draws_of_other_models_raise(predict, given):
    assert_raises(PREDICTIONS[predict], given)


def test_error_lists_candidate_weights():
    """Hand-written models have other names of coefficients."""
    draws = np.random.default_rng(1).normal(size=(2, 50, 3))
    idata = az.from_dict({"posterior": {"w": draws, "b": draws[..., 0]}})
    with pytest.raises(ValueError, match=r"no variable 'weights'.* var_names=.*weights are w\.$"):
        predict(idata, X)
    scores = decision_function(idata, X, var_names=["w", "b"], average=False)
    np.testing.assert_allclose(scores, draws @ X + draws[..., :1])
    alone = decision_function(idata, X, var_names="w")
    np.testing.assert_allclose(alone, draws.mean((0, 1)))
    with pytest.raises(ValueError, match="no variable 'c', the intercept"):
        predict(idata, X, var_names=["w", "c"])
    with pytest.raises(ValueError, match="No variable has the dimensions"):
        predict(az.from_dict({"posterior": {"b": draws[..., 0]}}), X)

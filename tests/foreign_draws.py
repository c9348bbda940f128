"""Draws of another model than a function requires."""

import arviz as az
import numpy as np
import pytest

OTHERS = {
    "of another model": az.from_dict({"posterior": {"x": np.ones((1, 4, 3))}}),
    "without a posterior": az.from_dict({"sample_stats": {"x": np.ones((1, 4, 3))}}),
}


def assert_raises(predict, given):
    message = "(?i)holds no variable '(topics|weights|beta|zbar|sizes)'|has no group 'posterior'"
    with pytest.raises(ValueError, match=message):
        predict(OTHERS[given])

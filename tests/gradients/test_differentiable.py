"""A term without a gradient is named, with the variables that it depends on."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op

from pymc_geodesic import GMC, SGGMC, SubgradientHMC
from tests.steps.runs import INTERPRETED


class Program(Op):
    """A log-density that another program computes."""

    itypes = (pt.dvector,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.array(-0.5 * np.sum(inputs[0] ** 2))


def draws_around(rng, b, size):
    return rng.normal(b, 1.0, size=size)


LIKELIHOODS = {
    "program": lambda b: pm.Potential("like", Program()(pt.stack([b, b]))),
    "simulator": lambda b: pm.Simulator("like", draws_around, b, epsilon=1.0, observed=[0.0, 1.0]),
}


@pytest.mark.filterwarnings("ignore:.*(rng output|explicit rng):DeprecationWarning")
@pytest.mark.parametrize("step_class", [SGGMC, GMC, SubgradientHMC], ids=lambda s: s.__name__)
@pytest.mark.parametrize("likelihood", LIKELIHOODS.values(), ids=LIKELIHOODS.keys())
def test_the_term_and_the_variable_are_named(likelihood, step_class):
    with pm.Model():
        b, _ = pm.Normal("b"), pm.Normal("a")
        likelihood(b)
        message = "'like' has no gradient in 'b' .*with a step method that needs none"
        with pytest.raises(ValueError, match=message):
            step_class(compile_kwargs=INTERPRETED)
        step_class(["a"], compile_kwargs=INTERPRETED)

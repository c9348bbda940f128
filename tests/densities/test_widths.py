"""Lengths of data along other axes than the rows are numbers, and no dependence on the rows."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_geodesic import SGGMC, UniformSphere
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import manifold_variables
from pymc_geodesic.minibatches.from_arguments import row_source
from tests.steps.runs import INTERPRETED

ROWS = np.random.default_rng(1).normal(size=(60, 3))
LABELS = ROWS[:, 0]
PRIORS = {
    "normal": lambda x: pm.Normal("w", shape=x.shape[1]),
    "last axis": lambda x: pm.Normal("w", shape=x.shape[-1:]),
    "walk": lambda x: pm.GaussianRandomWalk("w", init_dist=pm.Normal.dist(), shape=x.shape[1]),
    "proportions": lambda x: pm.Dirichlet("w", pt.ones(x.shape[1])),
    "direction": lambda x: UniformSphere("w", shape=x.shape[1]),
    "scale": lambda x: pm.Normal("w", 0.0, 1.0 / pt.sqrt(x.shape[1]), shape=3),
}


def regression(prior):
    with pm.Model() as model:
        x, y = pm.Data("x", ROWS), pm.Data("y", LABELS)
        w = prior(x)
        pm.Potential("ridge", -pt.sum(w**2) / x.shape[1])
        pm.Normal("seen", x @ w, 1.0, observed=y)
    return model


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS.keys())
def test_a_prior_of_so_many_coefficients_is_no_term_of_the_rows(prior):
    model = regression(prior)
    source = row_source({"x": ROWS, "y": LABELS}, 10, "shuffled")
    density = RowDensity(model, manifold_variables(model, None), source)
    assert [term.name for term in density.minibatch.row_terms] == ["seen"]


def test_a_prior_that_the_rows_scale_is_refused():
    model = regression(lambda x: pm.Normal("w", 0.0, 1.0 / x.std(axis=0), shape=x.shape[1]))
    with pytest.raises(ValueError, match="'w' is not a sum over the rows"):
        SGGMC(batch_size=10, minibatch=["x", "y"], model=model, compile_kwargs=INTERPRETED)

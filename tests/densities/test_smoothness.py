"""Errors for terms with jumps or without a gradient, which name terms and variables."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op

from pymc_geodesic import GMC, SGGMC, SGLD, Hinge, MulticlassHinge, SubgradientHMC, UniformSphere
from pymc_geodesic.densities.model_terms import logp_terms
from pymc_geodesic.densities.smoothness import find_jumps
from pymc_geodesic.densities.variables import manifold_variables
from tests.steps.runs import INTERPRETED

TIMES = np.linspace(-2.0, 2.0, 30)
SEEN = np.where(TIMES < 0.4, 0.0, 1.0)
SIGNS = np.where(SEEN > 0.0, 1, -1)

JUMPS = {
    "change point": lambda a: pm.Normal("y", pt.switch(a > TIMES, 0.0, 1.0), 1.0, observed=SEEN),
    "indicator": lambda a: pm.Normal("y", 2.0 * pm.math.ge(TIMES, a), 1.0, observed=SEEN),
    "half of a pair": lambda a: pm.Normal("y", pm.Normal("b") * (a > 0), 1.0, observed=SEEN),
    "probability": lambda a: pm.Bernoulli("y", pt.switch(TIMES * a > 0.1, 0.9, 0.1), observed=SEEN),
    "floor": lambda a: pm.Normal("y", pt.floor(a), 1.0, observed=SEEN),
    "sign": lambda a: pm.Normal("y", pt.sign(a), 1.0, observed=SEEN),
    "remainder": lambda a: pm.Normal("y", (3.0 * a) % 2.0, 1.0, observed=SEEN),
    "index": lambda a: pm.Normal("y", pt.arange(9.0)[pt.round(a**2).astype("int64") % 9], 1.0),
    "largest": lambda a: pm.Poisson("y", 1.0 + pt.argmax(pt.stack([a, 0.5])), observed=[1, 2]),
    "penalty": lambda a: pm.Potential("y", pt.switch(a < 0.5, 0.0, -1e6)),
}
NO_JUMPS = {
    "hinge": lambda a: Hinge("y", TIMES * a, observed=SIGNS),
    "classes": lambda a: MulticlassHinge(
        "y", TIMES[:, None] * pt.stack([a, 0.0]), observed=SIGNS > 0
    ),
    "hinge by a switch": lambda a: pm.Potential(
        "y", -pt.switch(1.0 - SIGNS * TIMES * a > 0.0, 1.0 - SIGNS * TIMES * a, 0.0)
    ),
    "Huber": lambda a: pm.Potential(
        "y", -pt.switch(pt.abs(SEEN - a) < 1.0, (SEEN - a) ** 2 / 2, pt.abs(SEEN - a) - 0.5)
    ),
    "interpolation": lambda a: pm.Potential("y", a - pt.floor(a) + pt.floor(a)),
    "asymmetric Laplace": lambda a: pm.AsymmetricLaplace(
        "y", kappa=0.4, mu=a, b=1.0, observed=SEEN
    ),
    "tails in two forms": lambda a: pm.OrderedProbit(
        "y", eta=a, cutpoints=[-1.0, 0.0, 1.0], observed=[0, 1, 3], compute_p=False
    ),
    "censored": lambda a: pm.Censored("y", pm.Normal.dist(a), 0.0, 1.0, observed=SEEN),
    "an end": lambda a: pm.Potential("y", pt.switch(a < 0.5, 0.0, -np.inf)),
    "fixed pieces": lambda a: pm.Normal("y", pt.switch(TIMES > 0.0, a, -a), 1.0, observed=SEEN),
}


def found(term):
    with pm.Model() as model:
        term(pm.Normal("a"))
        UniformSphere("mu", shape=3)
    return find_jumps(model, manifold_variables(model, None), logp_terms(model))


@pytest.mark.parametrize("term", JUMPS.values(), ids=JUMPS.keys())
def test_jumps_are_reported_with_their_variable(term):
    assert found(term) == [("y", ["a"])]


@pytest.mark.parametrize("term", NO_JUMPS.values(), ids=NO_JUMPS.keys())
def test_continuous_piecewise_functions_are_accepted(term):
    assert found(term) == []


@pytest.mark.parametrize("order", [1, -1])
def test_some_rows_represent_all(order):
    """The checked rows are evenly spaced: times may be sorted, with a late change."""
    times = np.linspace(-2.0, 2.0, 1000)[::order]
    with pm.Model() as model:
        tau, _ = pm.Normal("tau"), pm.Normal("b")
        time, seen = pm.Data("time", times), pm.Data("seen", np.sign(times))
        pm.Normal("y", pt.switch(time < tau, -1.0, 1.0), 1.0, observed=seen)
        pm.Normal("z", 0.0, 1.0, observed=np.zeros(1000))
    variables, terms = manifold_variables(model, None), logp_terms(model)
    assert find_jumps(model, variables, terms, ["time", "seen"]) == [("y", ["tau"])]


def test_data_that_minibatch_leaves_out_are_named_as_before():
    with pm.Model():
        time = pm.Data("time", np.linspace(-2.0, 2.0, 1000))
        pm.Normal("y", time * pm.Normal("b"), 1.0, observed=np.zeros(1000))
        with pytest.raises(ValueError, match=r"a block of rows of .* does not match"):
            SGGMC(batch_size=10, minibatch=["time"], compile_kwargs=INTERPRETED)


def test_missing_values_where_some_rows_represent_all():
    y = np.linspace(0.0, 1.0, 400)
    y[7] = np.nan
    with pm.Model():
        mean = pm.Normal("a") * pm.Data("time", np.ones(len(y)))
        with pytest.warns(UserWarning, match="imputed"):
            pm.Normal("y", mean, 1.0, observed=y)
        with pytest.raises(ValueError, match="observed values of 'y' contain NaN"):
            SGGMC(batch_size=10, minibatch=["time"])


def change_point():
    with pm.Model() as model:
        tau, levels = pm.Uniform("tau", -2.0, 2.0), pm.Normal("levels", 0.0, 2.0, shape=2)
        time = pm.Data("time", TIMES)
        mean = pt.switch(time < tau, levels[0], levels[1])
        pm.Normal("y", mean, 1.0, observed=pm.Data("seen", SEEN))
    return model


@pytest.mark.parametrize("step_class", [SGGMC, SGLD], ids=lambda step: step.__name__)
def test_a_change_point_needs_a_metropolis_correction(step_class):
    """Its gradient is zero, so that the draws of τ would be those of the prior."""
    rows = {"batch_size": 5, "minibatch": ["time", "seen"], "compile_kwargs": INTERPRETED}
    message = (
        "the log-density of 'y' jumps as a function of 'tau'"
        ".*Sample 'tau' with pm.Slice, GMC or NUTS"
    )
    with change_point():
        with pytest.raises(ValueError, match=message):
            step_class(**rows)
        step_class(["levels"], **rows)
        SubgradientHMC(compile_kwargs=INTERPRETED)


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
        message = (
            "'like' has no gradient with respect to 'b' .*with a step method without gradients"
        )
        with pytest.raises(ValueError, match=message):
            step_class(compile_kwargs=INTERPRETED)
        step_class(["a"], compile_kwargs=INTERPRETED)

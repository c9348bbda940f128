"""Counts from gradients: observed counts, expected counts, normalized probabilities, errors."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_geodesic import SCIR, SGRLD
from pymc_geodesic.counts.model_checks import LikelihoodChecks
from tests.steps.runs import INTERPRETED

RNG = np.random.default_rng(1)
P = RNG.dirichlet(np.ones(4))
Q = RNG.dirichlet(np.ones(4), 2)
LABELS = RNG.integers(3, size=30)  # the fourth category never occurs
COUNTS = np.bincount(LABELS, minlength=4).astype(float)
STREAM = np.zeros(2, dtype=np.uint64)
TABLE = RNG.multinomial(9, [0.5, 0.3, 0.2, 0.0], size=6)


def counts_at(step, point, argument=0):
    """Counts and exposures of a step where its variables have these values."""
    step.estimator.set_others(step.model.initial_point())
    values = np.concatenate([np.ravel(point[v.name]) for v in step.variables]).astype(float)
    counts, exposures = np.empty(values.size), np.empty(values.size)
    assert step.estimator.estimate(values, argument, STREAM, counts, exposures) == -1
    return counts, exposures


def counts_change(step):
    """Return whether counts depend on the point."""
    checks = LikelihoodChecks(
        "SCIR",
        step.model,
        step.variables,
        step.estimator,
        step.sampler.layout,
        allows_negative=False,
    )
    return checks.dependence().counts


def make(model, step_class=SCIR, **kwargs):
    with model:
        return step_class(compile_kwargs=INTERPRETED, **kwargs)


def categorical(w):
    pm.Categorical("y", w, observed=LABELS)


def categorical_normalised(w):
    pm.Categorical("y", w / w.sum(axis=-1, keepdims=True), observed=LABELS)


def categorical_doubly_normalised(w):
    p = (w / w.sum()) / pt.sum(2.0 * w)
    pm.Categorical("y", p / p.sum(), observed=LABELS)


def multinomial(w):
    pm.Multinomial("y", n=COUNTS.sum(), p=w, observed=COUNTS)


def multinomial_normalised(w):
    pm.Multinomial("y", n=COUNTS.sum(), p=w / pt.sum(w), observed=COUNTS)


def potential(w):
    pm.Potential("y", pt.sum(COUNTS * pt.log(w)) - COUNTS.sum() * pt.log(pt.sum(w)))


def latent_labels(w):
    """Discrete variables of another step method, with probabilities w."""
    pm.Categorical("y", w, shape=30, initval=LABELS)


@pytest.mark.parametrize(
    "likelihood",
    [
        categorical,
        categorical_normalised,
        categorical_doubly_normalised,
        multinomial,
        multinomial_normalised,
        potential,
        latent_labels,
    ],
)
def test_counts_however_the_likelihood_is_written(likelihood):
    with pm.Model() as model:
        likelihood(pm.Dirichlet("w", np.full(4, 0.1)))
    step = make(model, vars=["w"])
    for p in (P, np.array([1e-280, 0.5, 0.5, 1e-290])):
        np.testing.assert_allclose(counts_at(step, {"w": p})[0], COUNTS, rtol=1e-9, atol=1e-12)
    assert not counts_change(step)


def test_rows_of_a_matrix():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(4, 0.1), shape=(2, 4))
        pm.Multinomial("y", n=9, p=w[[0, 0, 1, 0, 1, 0]], observed=TABLE)
    counts = counts_at(make(model), {"w": Q})[0].reshape(2, 4)
    np.testing.assert_allclose(counts[0], TABLE[[0, 1, 3, 5]].sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(counts[1], TABLE[[2, 4]].sum(axis=0), rtol=1e-12)


@pytest.mark.parametrize("normalise", [False, True])
def test_expected_counts_of_a_mixture(normalise):
    """By Fisher's identity, expected counts are the responsibilities times the counts."""
    weights = np.array([0.3, 0.7])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(4, 0.1), shape=(2, 4))
        p = pt.dot(weights, w)
        if normalise:
            p = p / p.sum()
        pm.Multinomial("y", n=COUNTS.sum(), p=p, observed=COUNTS)
    step = make(model)
    expected = COUNTS * weights[:, None] * Q / (weights @ Q)
    np.testing.assert_allclose(counts_at(step, {"w": Q})[0], expected.ravel(), rtol=1e-9)
    assert counts_change(step)


def test_concentration_of_dirichlet_multinomial_data():
    """ω ∂ log p = s ω (ψ(y + sω) − ψ(sω)), with the sum of the concentrations known."""
    from scipy.special import psi

    s = 5.0
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(4))
        pm.DirichletMultinomial("y", n=COUNTS.sum(), a=s * w, observed=COUNTS)
    expected = s * P * (psi(COUNTS + s * P) - psi(s * P))
    np.testing.assert_allclose(counts_at(make(model), {"w": P})[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("route", ["data", "minibatch"])
def test_minibatches_are_scaled_and_average_to_all_rows(route):
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(4, 0.1))
        if route == "data":
            pm.Categorical("y", w, observed=pm.Data("z", LABELS))
            arguments = {"batch_size": 5, "minibatch": ["z"], "control_variates": True}
        else:
            batch = pm.Minibatch(LABELS.astype("int32"), batch_size=5)
            pm.Categorical("y", w, observed=batch, total_size=30)
            arguments = {"minibatch_order": "shuffled", "control_variates": True}
    step = make(model, **arguments)
    starts = step.estimator.next_minibatches(6)  # an epoch
    estimates = [counts_at(step, {"w": P}, start)[0] for start in starts]
    assert np.ptp(estimates, axis=0).max() > 5.0
    np.testing.assert_allclose(np.mean(estimates, axis=0), COUNTS, rtol=1e-12, atol=1e-12)
    center = step.sampler.control_variates.count_all_rows(P)
    np.testing.assert_allclose(center.counts, COUNTS, rtol=1e-12, atol=1e-12)


def test_other_minibatches_of_control_variates():
    """Centered estimates of data with fixed counts have no noise."""
    with pm.Model() as model:
        pm.Categorical("y", pm.Dirichlet("w", np.ones(4)), observed=pm.Data("z", LABELS))
    step = make(model, batch_size=5, minibatch=["z"], control_variates=True)
    variates = step.sampler.control_variates
    variates.fix_center(variates.count_all_rows(P))
    step.setup_chain(np.random.default_rng(1), 0, 1)
    for start in step.estimator.next_minibatches(3):
        estimates = counts_at(step, {"w": Q[0]}, start)
        corrected, _ = variates.correct(int(start), *estimates, STREAM)
        np.testing.assert_allclose(corrected, COUNTS, atol=1e-9)


@pytest.mark.parametrize("route", ["data", "minibatch", "computed"])
def test_control_variates_use_data_after_set_data(route):
    others = np.random.default_rng(2).integers(1, 4, size=30)
    with pm.Model() as model:
        z = pm.Data("z", LABELS.astype("int32"))
        w = pm.Dirichlet("w", np.full(4, 0.1))
        rows = {"batch_size": 5, "minibatch": ["z"]} if route == "data" else {}
        if route == "computed":
            z = 3 - (3 - z)
        observed = z if route == "data" else pm.Minibatch(z, batch_size=5)
        pm.Categorical("y", w, observed=observed, total_size=30)
    step = make(model, control_variates=True, **rows)
    with model:
        pm.set_data({"z": others.astype("int32")})
    step.setup_chain(np.random.default_rng(1), 0, 1)
    counts = np.bincount(others, minlength=4)
    center = step.sampler.control_variates.count_all_rows(P)
    np.testing.assert_allclose(center.counts, counts, rtol=1e-12, atol=1e-12)
    starts = step.estimator.next_minibatches(6)  # an epoch
    estimates = [counts_at(step, {"w": P}, start)[0] for start in starts]
    np.testing.assert_allclose(np.mean(estimates, axis=0), counts, rtol=1e-12, atol=1e-12)


def poisson_rate(g):
    pm.Poisson("y", g * np.array([1.0, 2.0, 0.5]), observed=[3, 0, 5])
    return 8.0, 3.5


def exponential_rate(g):
    pm.Exponential("y", g, observed=[0.5, 1.5])
    return 2.0, 2.0


def precision(g):
    pm.Normal("y", 1.0, tau=g, observed=[0.0, 3.0])
    return 1.0, 2.5


def gamma_rate(g):
    pm.Gamma("y", 4.0, g, observed=[0.5, 1.5])
    return 8.0, 2.0


def no_likelihood(g):
    return 0.0, 0.0


@pytest.mark.parametrize(
    "likelihood", [poisson_rate, exponential_rate, precision, gamma_rate, no_likelihood]
)
def test_counts_and_exposures_of_gamma_variables(likelihood):
    with pm.Model() as model:
        count, exposure = likelihood(pm.Gamma("g", 2.0, 3.0))
    step = make(model)
    for value in (0.1, 4.0):
        found = counts_at(step, {"g": value})
        np.testing.assert_allclose(np.ravel(found), [count, exposure], rtol=1e-9, atol=1e-9)


def test_log_normal_variables():
    """Linear term and precision of the likelihood of the logarithm."""
    data = np.array([1.0, 2.0, 4.0])
    with pm.Model() as model:
        x = pm.LogNormal("x", 0.3, 2.0)
        pm.LogNormal("y", pm.math.log(x), 0.5, observed=data)
    step = make(model)
    for value in (0.1, 4.0):
        found = counts_at(step, {"x": value})
        np.testing.assert_allclose(np.ravel(found), [np.log(data).sum() / 0.25, 12.0], rtol=1e-9)
    first, second = step.sampler.priors(model.initial_point())
    np.testing.assert_allclose([first[0], second[0]], [0.3 / 4.0, 1.0 / 4.0])


def test_both_kinds_in_one_step():
    """Counts and exposures of a product are separated for each variable."""
    with pm.Model() as model:
        pm.Gamma("g", 2.0, 3.0, shape=2)
        pm.Gamma("f", 1.0, 1.0)
        pm.Dirichlet("w", np.ones(4))
        pm.Poisson("y", model["g"] * model["f"], observed=[3, 4])
        pm.Categorical("z", model["w"], observed=LABELS)
    g, f = np.array([0.5, 3.0]), 2.0
    counts, exposures = counts_at(make(model), {"g": g, "f": f, "w": P})
    np.testing.assert_allclose(counts, [3, 4, 7, *COUNTS], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(exposures, [f, f, g.sum(), 0, 0, 0, 0], atol=1e-9)


# Errors.


def one_minus(w):
    pm.Bernoulli("y", 1.0 - w[0], observed=[1, 1, 0])


def log_ratio(w):
    pm.Normal("y", pt.log(w[0] / w[1]), 1.0, observed=0.3)


def weighted(w):
    p = w * np.array([1.0, 2.0, 3.0, 4.0])
    pm.Categorical("y", p / p.sum(), observed=LABELS)


@pytest.mark.parametrize("likelihood", [one_minus, log_ratio, weighted])
def test_a_likelihood_with_negative_counts_raises_an_error_with_its_name(likelihood):
    with pm.Model() as model:
        likelihood(pm.Dirichlet("weights", np.ones(4)))
    with pytest.raises(ValueError, match=r"SCIR cannot sample 'weights'.*no negative parameter"):
        make(model)
    make(model, SGRLD)


def test_a_gamma_variable_with_another_likelihood_raises():
    with pm.Model() as model:
        pm.Normal("y", pm.Gamma("g", 2.0, 3.0), 1.0, observed=[1.0, 2.0])
    with pytest.raises(ValueError, match="SCIR cannot sample 'g'"):
        make(model)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_log_normal_variable_with_another_likelihood_raises(sign):
    with pm.Model() as model:
        x = pm.LogNormal("x", 0.0, 1.0)
        pm.Normal("y", sign * x**2, 1.0, observed=[1.0, 2.0])
    with pytest.raises(ValueError, match="SCIR cannot sample 'x'"):
        make(model)
    with pytest.raises(ValueError, match="SGRLD samples Dirichlet and Gamma variables"):
        make(model, SGRLD, vars=["x"])


def test_a_prior_that_depends_on_the_step_raises():
    with pm.Model() as model:
        c = pm.Gamma("c", 2.0, 1.0)
        pm.Dirichlet("w", c * np.ones(3))
    with pytest.raises(ValueError, match="prior of 'w' depends on 'c'"):
        make(model)
    make(model, vars=["w"])


def test_a_prior_that_depends_on_rows_raises():
    with pm.Model() as model:
        x = pm.Data("x", np.ones(4))
        w = pm.Dirichlet("w", x)
        pm.Categorical("y", w, observed=pm.Data("z", LABELS[:4]))
        pm.Potential("v", pt.sum(x))
    with pytest.raises(ValueError, match="prior of 'w' depends on rows of 'x'"):
        make(model, batch_size=2, minibatch=["x", "z"])


def test_other_variables_raise():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Dirichlet("w", np.ones(3))
    with pytest.raises(ValueError, match=r"'x' has another distribution\. Leave it"):
        make(model, vars=["x"])
    with pytest.raises(ValueError, match="Unknown variable 'v'"):
        make(model, vars=["v"])
    assert [v.name for v in make(model).variables] == ["w"]
    with pm.Model() as without:
        pm.Normal("x")
    with pytest.raises(ValueError, match="this model has only"):
        make(without)


def test_control_variates_need_minibatches_and_no_other_variables():
    with pm.Model() as model:
        pm.Categorical("y", pm.Dirichlet("w", np.ones(4)), observed=pm.Data("z", LABELS))
    with pytest.raises(ValueError, match="to minibatches only"):
        make(model, control_variates=True)
    with pm.Model() as model:
        share = pm.Beta("share", 1.0, 1.0)
        p = share * pm.Dirichlet("w", np.ones(4)) + (1.0 - share) / 4.0
        pm.Categorical("y", p, observed=pm.Data("z", LABELS))
    with pytest.raises(ValueError, match="share"):
        make(model, vars=["w"], control_variates=True, batch_size=5, minibatch=["z"])


def test_a_single_row():
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        pm.Categorical("y", w, observed=pm.Data("labels", [1]))
    step = make(model, minibatch="labels", batch_size=1)
    counts, _ = counts_at(step, {"w": np.full(3, 1 / 3)})
    np.testing.assert_allclose(counts, [0.0, 1.0, 0.0], atol=1e-12)

"""SCIR and SGRLD with likelihoods that are not counts, against posteriors on a grid."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

from pymc_geodesic import SCIR, SGGMC, SGRLD
from tests.grids import slow
from tests.steps.runs import INTERPRETED, run_steps, sample, start
from tests.steps.simplex_grid import exact_on_simplex

RNG = np.random.default_rng(1)
N = 100
FACTORS = RNG.gamma(0.3, size=(N, 3)) * [2.0, 1.0, 0.3]
X = RNG.normal(size=(N, 3))
Y = (1.5 * np.array([0.8, 0.14, 0.06]) * X).sum(axis=-1) + 0.5 * RNG.normal(size=N)
every_step = pytest.mark.parametrize(
    "step_class", [SCIR, slow(SGRLD)], ids=lambda step: step.__name__
)


def make(model, step_class=SCIR, vars=("w",), compile_kwargs=INTERPRETED, **kwargs):
    with model:
        return step_class(list(vars), compile_kwargs=compile_kwargs, **kwargs)


def draws_of(model, step_class, draws=1500, tune=200, **kwargs):
    """Draws of long runs, with compiled functions."""
    step = make(model, step_class, compile_kwargs=None, **kwargs)
    return sample(model, step, draws=draws, tune=tune)


def assert_posterior(draws, exact, sds=0.15, rtol=0.1):
    """Compare every coordinate: mean within parts of the sd, and the sd."""
    mean, sd = exact
    assert np.abs((draws.mean(axis=0) - mean) / sd).max() < sds
    np.testing.assert_allclose(draws.std(axis=0), sd, rtol=rtol)


def mixture_likelihood(w):
    return np.log(FACTORS @ w.T).sum(axis=0)


def regression_likelihood(w):
    """Of y ~ N(b x·w, ½), with b ~ N(0, 1) summed over."""
    z, y = X @ w.T / 0.5, Y / 0.5
    precision = 1.0 + (z**2).sum(axis=0)
    return 0.5 * (z.T @ y) ** 2 / precision - 0.5 * np.log(precision)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_class", "step_size"),
    [(SCIR, 0.05), slow(SGRLD, 1e-3)],
)
def test_streamed_rows_that_multiply_a_simplex_inside_a_sum(step_class, step_size):
    """Their placeholders in the model are zeros, for which the sum is constant on the simplex.

    Only SCIR depends on the form of the sum.
    """
    with pm.Model() as model:
        x = pm.Data("x", np.zeros((10, 3)))
        w = pm.Dirichlet("w", np.ones(3))
        pm.Potential("y", pt.log((x * w).sum(axis=-1)))
    idata = draws_of(
        model, step_class, minibatch=["x"], batches=[FACTORS], total_size=N, step_size=step_size,
        n_steps=40, draws=800,
    )  # fmt: skip
    assert_posterior(idata.posterior["w"].values[0], exact_on_simplex(mixture_likelihood))


@pytest.mark.slow
@every_step
def test_uninformative_first_rows_of_a_minibatch(step_class):
    """The first rows are ones, for which the sum is one."""
    rows = np.concatenate([np.ones((N, 3)), FACTORS / FACTORS.max()])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        batch, ones = pm.Minibatch(rows, np.ones(2 * N), batch_size=N)
        pm.Bernoulli("y", (batch * w).sum(axis=-1), observed=ones, total_size=2 * N)
    idata = draws_of(model, step_class, n_steps=40)
    assert_posterior(idata.posterior["w"].values[0], exact_on_simplex(mixture_likelihood))


N_POSTERIORS = 2000


def independent_draws(model, **kwargs):
    """Draws of a model of many posteriors that do not depend on each other."""
    step = make(model, compile_kwargs=None, n_steps=50, **kwargs)
    idata = sample(model, step, draws=20, tune=20)
    return idata.posterior["w"].values[0]


@pytest.mark.slow
def test_a_factor_whose_counts_have_no_constant_sum():
    """The density is proportional to exp(5 w₁)."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2), shape=(N_POSTERIORS, 2))
        pm.Potential("t", 5.0 * w[:, 0].sum())
    draws = independent_draws(model, step_size=0.03)
    mean, sd = draws[..., 0].mean(), draws[..., 0].std()
    assert abs(mean - 0.8068) < 0.006
    assert sd == pytest.approx(0.1821, rel=0.04)


@pytest.mark.slow
def test_unknown_topics_of_one_text():
    """Words (5, 5, 2), each from one of two topics; exact moments by the sum over assignments."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(3, 0.3), shape=(N_POSTERIORS, 2, 3))
        texts = np.tile([5, 5, 2], (N_POSTERIORS, 1))
        pm.Multinomial("y", n=12, p=0.5 * w[:, 0] + 0.5 * w[:, 1], observed=texts)
    draws = independent_draws(model, step_size=0.03).reshape(-1, 3)
    np.testing.assert_allclose(draws.mean(axis=0), [0.4036, 0.4036, 0.1928], atol=0.01)
    np.testing.assert_allclose(draws.std(axis=0), [0.3262, 0.3262, 0.1958], rtol=0.012)


@pytest.fixture(scope="module")
def regression():
    with pm.Model() as model:
        b = pm.Normal("b", 0.0, 1.0)  # begins at zero, where w has no influence
        w = pm.Dirichlet("w", np.ones(3))
        pm.Normal("y", (b * w * X).sum(axis=-1), 0.5, observed=Y)
    return model


@pytest.mark.slow
def test_sgrld_with_nuts_tunes_to_a_likelihood_without_counts(regression):
    idata = draws_of(regression, SGRLD, n_steps=40)
    assert_posterior(idata.posterior["w"].values[0], exact_on_simplex(regression_likelihood))


def test_scir_names_unsupported_terms_before_sampling(regression):
    with pytest.raises(ValueError, match=r"SCIR cannot sample 'w'.*SGRLD"):
        make(regression)


def test_the_step_of_sgrld_resolves_the_likelihood_and_the_noise_of_minibatches():
    with pm.Model() as model:
        x, y = pm.Data("x", X), pm.Data("y", Y)
        w = pm.Dirichlet("w", np.ones(3))
        pm.Normal("v", (1.5 * w * x).sum(axis=-1), 0.5, observed=y)

    def likelihood(w):
        return -2.0 * ((Y[:, None] - 1.5 * X @ w.T) ** 2).sum(axis=0)

    idata = draws_of(model, SGRLD, minibatch=["x", "y"], batch_size=25, n_steps=40)
    assert_posterior(idata.posterior["w"].values[0], exact_on_simplex(likelihood))
    assert 0.0 < float(idata.sample_stats["variance_inflation"][0, -1]) < 0.0501


def test_unsupported_form_hidden_by_initial_values_raises():
    """With b at zero the likelihood of g is a constant, which is of any form."""
    with pm.Model() as model:
        b, g = pm.Normal("b", 0.0, 1.0), pm.Gamma("g", 2.0, 1.0)
        pm.Normal("y", b * g, 1.0, observed=[1.0, 2.0])
    with pytest.raises(ValueError, match="SCIR cannot sample 'g'"):
        make(model, vars=["g"])


def test_unsupported_form_in_few_rows_raises_while_tuning():
    slopes = np.zeros(400)
    slopes[7] = 1.0
    with pm.Model() as model:
        x = pm.Data("x", slopes)
        pm.Normal("y", x * pm.Gamma("g", 2.0, 1.0), 1.0, observed=pm.Data("v", slopes))
    step = make(model, vars=["g"], minibatch=["x", "v"], batch_size=4)
    with pytest.raises((ValueError, SamplingError), match="SCIR cannot sample 'g'"):
        run_steps(step, start(model, step, tune=200, draws=1), 200)


# Blocks of unequal length.


LABELS = np.repeat([0, 1, 2], [60, 30, 11])
LENGTHS = (50, 50, 1)


def labels_in_blocks():
    shuffled = np.random.default_rng(1).permutation(LABELS)
    return np.split(shuffled, np.cumsum(LENGTHS)[:-1])


@pytest.mark.parametrize("step_class", [SCIR, slow(SGRLD), SGGMC], ids=lambda step: step.__name__)
def test_rows_of_blocks_of_unequal_length_count_the_same(step_class):
    """Over as many minibatches as there are rows in one, each row is seen as often as another."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        pm.Categorical("y", w, observed=pm.Data("z", LABELS[:2]))
    step = make(model, step_class, minibatch=["z"], batches=labels_in_blocks(), total_size=101)
    estimator = step.estimator
    gradient = estimator if step_class is SGGMC else estimator.gradient
    assert estimator.source.batch_size == 50
    position = np.array([0.2, 0.3, 0.5])
    arguments = estimator.next_minibatches(101)
    mean = np.mean([gradient.gradient_at(position, int(each)) for each in arguments], axis=0)
    counts = np.array([60.0, 30.0, 11.0])
    if step_class is SGGMC:
        with model:
            whole = SGGMC(["w"], minibatch=["z"], batches=[LABELS], total_size=101,
                          compile_kwargs=INTERPRETED)  # fmt: skip
        expected = whole.estimator.gradient_at(
            position, int(whole.estimator.next_minibatches(1)[0])
        )
    else:
        expected = counts / position
    np.testing.assert_allclose(mean, expected, rtol=1e-9)


# Tuning.


@pytest.mark.slow
@pytest.mark.parametrize("tune", [0, 1, slow(2), slow(3)])
def test_a_short_tuning_phase_keeps_no_early_step_size(tune):
    """After tuning of any length the bound on the noise is the final one, not that of the start."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        pm.Categorical("y", w, observed=pm.Data("z", LABELS))
    step = make(model, minibatch=["z"], batch_size=5)
    stats = sample(model, step, draws=5, tune=tune).sample_stats
    assert 0.0 < float(stats["variance_inflation"][0, -1]) < 0.0501

"""Defaults of SGLD and SSGNHT on a hinge loss; arguments that disable adaptation."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import SGLD, SSGNHT, Hinge
from pymc_geodesic.minibatches.resident_rows import IndependentRows, ShuffledRows
from tests.grids import by_default, slow
from tests.steps.runs import INTERPRETED, sample

N_ROWS, BATCH = 4000, 50
UNITS = np.array([0.01, 1000.0])
STEPS = [SGLD, SSGNHT]


@pytest.fixture(scope="module")
def classifier():
    """Data of two columns whose units differ by a factor of 10⁵; the second is far from zero."""
    rng = np.random.default_rng(1)
    X = rng.normal([0.0, 1.5], size=(N_ROWS, 2))
    y = np.where(X @ [1.0, -0.5] + rng.logistic(size=N_ROWS) > 0.0, 1.0, -1.0)
    return X * UNITS, y


@pytest.fixture(scope="module")
def model(classifier):
    X, y = classifier
    with pm.Model() as model:
        features, labels = pm.Data("X", X), pm.Data("y", y)
        w = pm.Normal("w", 0.0, 5.0 / UNITS)
        Hinge("label", features @ w, observed=labels)
    return model


@pytest.fixture(scope="module")
def exact(model):
    """Mean and standard deviations by quadrature."""
    density = model.compile_logp()
    axes, centre, width = np.linspace(-1.0, 1.0, 41), np.zeros(2), 5.0
    for _ in range(6):  # zoom in
        grid = np.array([(a, b) for a in axes for b in axes]) * width + centre
        logarithm = np.array([density({"w": point / UNITS}) for point in grid])
        weight = np.exp(logarithm - logarithm.max())
        weight /= weight.sum()
        centre = weight @ grid
        deviation = np.sqrt(weight @ (grid - centre) ** 2)
        width = max(5.0 * deviation.max(), width / 8.0)
    assert width < 6.0 * deviation.max()
    assert deviation.min() > width / 40.0
    return centre, deviation


@pytest.mark.slow
@pytest.mark.parametrize("step_class", by_default([SGLD], of=STEPS), ids=lambda step: step.__name__)
def test_draws_are_a_posterior_sample(model, exact, step_class):
    """About 1,000 effective draws: means within 0.12 sds, standard deviations within 8 %.

    The kernel of SSGNHT has its exact distributions in `test_ssgnht.py`, by default.
    """
    with model:
        step = step_class(batch_size=BATCH, minibatch=["X", "y"])
    idata = sample(model, step, draws=2000, tune=600)
    draws = idata.posterior["w"].values[0] * UNITS
    mean, deviation = exact
    assert np.abs((draws.mean(axis=0) - mean) / deviation).max() < 0.12
    assert np.abs(draws.std(axis=0) / deviation - 1.0).max() < 0.08
    assert not idata.sample_stats["diverging"].any()


BY_HAND = [
    (SGLD, {"step_size": 0.01}),
    (SGLD, {"preconditioner": "adagrad"}),
    (SGLD, {"metric": None}),
    slow(SSGNHT, {"step_size": 0.01}),
    (SSGNHT, {"diffusion": 2.0}),
    (SSGNHT, {"thermostat_inertia": 1.0}),
    slow(SSGNHT, {"metric": None}),
]


@pytest.mark.parametrize(("step_class", "given"), BY_HAND, ids=str)
def test_user_specified_parameters_are_used_unchanged(model, step_class, given):
    with model:
        step = step_class(
            batch_size=BATCH, minibatch=["X", "y"], compile_kwargs=INTERPRETED, **given
        )
    assert not step.adaptation.whitens
    step.setup_chain(np.random.default_rng(1), tune=10, draws=10)
    assert not step.adaptation.whitens
    step.step(model.initial_point())
    assert step.sampler.parameters.n_steps == 10
    if step_class is not SSGNHT:
        assert type(step.estimator.source) is ShuffledRows


def test_known_noise_needs_independent_minibatches(model):
    with model:
        step = SGLD(batch_size=BATCH, minibatch=["X", "y"], compile_kwargs=INTERPRETED)
    assert type(step.estimator.source) is IndependentRows


@pytest.mark.parametrize("step_class", [SGLD, slow(SSGNHT)], ids=lambda step: step.__name__)
def test_all_rows_without_tuning_stay_in_their_memory(model, step_class):
    """Their function writes the log-density after the gradient, also without adaptation."""
    with model:
        step = step_class(metric=None, compile_kwargs=INTERPRETED)
    step.setup_chain(np.random.default_rng(1), tune=0, draws=3)
    point = model.initial_point()
    for _ in range(3):
        point, (stats,) = step.step(point)
        assert np.isfinite(point["w"]).all()
    assert step.estimator.gradient_at(step.sampler.position, 0).shape == (2,)
    assert not stats["diverging"]


@pytest.mark.parametrize("step_class", STEPS, ids=lambda step: step.__name__)
def test_parameters_are_those_of_the_last_draw(model, step_class):
    with model:
        step = step_class(
            metric=None, batch_size=BATCH, minibatch=["X", "y"], compile_kwargs=INTERPRETED
        )
    step.setup_chain(np.random.default_rng(1), tune=10, draws=10)
    assert step.sampler.parameters is None
    _, (stats,) = step.step(model.initial_point())
    assert step.sampler.parameters.step_size == stats["step_size"]

"""Starting points of chains, reuse of tuned parameters, and warnings of short chains."""

import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz import plot_energy
from scipy.special import iv

from pymc_geodesic import (
    GMC,
    SCIR,
    SGGMC,
    SGLD,
    SGRLD,
    SSGNHT,
    PeriodicVonMises,
    SubgradientHMC,
    UniformSphere,
    UniformStiefel,
    gSGNHT,
)
from pymc_geodesic.adaptation.annealed_parameters import SETTINGS
from pymc_geodesic.datasets import make_vmf_mixture
from tests.grids import slow
from tests.steps.runs import INTERPRETED, run_steps, sample, start

KAPPA = 60.0


@pytest.fixture(scope="module")
def mixture():
    """Five groups of texts with related mean directions."""
    rng = np.random.default_rng(3)
    means = rng.normal(size=(5, 50)) / np.sqrt(50.0)
    means += 0.8 * rng.normal(size=50) / np.sqrt(50.0)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    texts, group = make_vmf_mixture(means, KAPPA, 3709, random_seed=0)
    centres = np.array([texts[group == k].sum(axis=0) for k in range(5)])
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    with pm.Model() as model:
        rows = pm.Data("texts", texts)
        mu = UniformSphere("mu", shape=(5, 50))
        pm.Potential("mixture", pt.logsumexp(KAPPA * rows @ mu.T, axis=1))
    return model, centres


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [gSGNHT, slow(SGGMC)], ids=lambda step: step.__name__)
def test_tuning_keeps_the_mode_it_starts_in(mixture, step_class):
    """The mean directions of the groups stay with their groups."""
    model, centres = mixture
    with model:
        step = step_class(minibatch="texts", batch_size=100)
    for seed in range(3):
        run = sample(
            model, step, tune=200, draws=20, initvals={"mu": centres}, random_seed=seed,
            discard_tuned_samples=False, compile_kwargs=None,
        )  # fmt: skip
        for phase in (run.warmup_posterior, run.posterior):
            assert (phase["mu"].values[0] * centres).sum(axis=-1).min() > 0.995


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 5))
    slopes = np.array([1.0, -1.0, 0.5, 2.0, 0.0])
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 10.0, shape=5)
        columns, values = pm.Data("X", X), pm.Data("y", rng.normal(X @ slopes))
        pm.Normal("y_obs", columns @ w, 1.0, observed=values)
    return model, slopes


def initial_bias(step):
    """Bias of the temperature with which annealing begins."""
    return step.adaptation.state["measured"]["initial_bias"]


@pytest.mark.parametrize(
    "step_class", [gSGNHT, slow(SGGMC), SSGNHT], ids=lambda step: step.__name__
)
def test_first_temperature_depends_on_the_start(regression, step_class):
    """From zero, hundreds of standard deviations away, and from the posterior mean."""
    model, slopes = regression
    with model:
        step = step_class(
            minibatch=["X", "y"], batch_size=100, metric=None, compile_kwargs=INTERPRETED
        )
    point = start(model, step, tune=100, draws=10)
    run_steps(step, point, 1)
    far = initial_bias(step)
    step.setup_chain(np.random.default_rng(1), 100, 10)
    run_steps(step, {**point, "w": slopes}, 1)
    assert far == (150.0 if step_class is SSGNHT else SETTINGS.initial_bias)
    assert initial_bias(step) == SETTINGS.near_bias


def test_temperature_of_tuning_can_be_set(regression):
    model, slopes = regression
    for temperature, bias in ((1.0, 0.02), (1.5, 0.5), (4.0, 3.0)):
        with model:
            step = SGGMC(
                minibatch=["X", "y"], batch_size=100, tune_temperature=temperature,
                compile_kwargs=INTERPRETED,
            )  # fmt: skip
        point = start(model, step, tune=100, draws=10)
        run_steps(step, {**point, "w": slopes}, 1)
        assert initial_bias(step) == pytest.approx(bias)
    for step_class in (SGGMC, gSGNHT, SSGNHT):
        with model, pytest.raises(ValueError, match=r"tune_temperature .* at least 1, got 0\.5"):
            step_class(tune_temperature=0.5, compile_kwargs=INTERPRETED)


@pytest.mark.parametrize("step_class", [SGGMC, slow(gSGNHT), slow(SSGNHT), SGLD, GMC])
def test_tuned_parameters_are_reused(regression, step_class):
    """By a chain without tuning; a chain with tuning starts again."""
    model, slopes = regression
    # with n_steps= all draws have the same step size
    rows = {"n_steps": 2} if step_class is GMC else {"minibatch": ["X", "y"], "batch_size": 100}
    with model:
        step = step_class(**rows, compile_kwargs=INTERPRETED)
    names = ["step_size", *{SGGMC: ["friction"], gSGNHT: ["friction"]}.get(step_class, [])]
    first = sample(model, step, tune=60, draws=5, initvals={"w": slopes}).sample_stats
    again = sample(model, step, tune=0, draws=5, initvals={"w": slopes}, random_seed=2).sample_stats
    for name in names:
        np.testing.assert_array_equal(again[name], first[name])
    other = sample(model, step, tune=60, draws=5, initvals={"w": slopes}, random_seed=3)
    if step_class is SGLD:  # whose longest step is the same in every chain
        return
    tuned = "friction" if "friction" in names else "step_size"
    assert float(other.sample_stats[tuned][0, -1]) != float(first[tuned][0, -1])


UNCORRECTED = [SGGMC, SGLD, slow(gSGNHT), slow(SSGNHT)]


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [*UNCORRECTED, GMC, slow(SubgradientHMC), SCIR, slow(SGRLD)])
def test_a_tuned_step_does_not_start_again_without_burn_in(step_class):
    """With ``tune=0`` at the initial point, whose draws would enter the result."""
    rng = np.random.default_rng(1)
    on_simplex = step_class in (SCIR, SGRLD)
    with pm.Model() as model:
        if on_simplex:
            rows = pm.Data("rows", rng.choice(3, p=[0.7, 0.2, 0.1], size=2000))
            w = pm.Dirichlet("w", np.ones(3))
            pm.Categorical("y", w, observed=rows)
        else:
            rows = pm.Data("rows", rng.normal(1.0, 1.0, 2000))
            w = pm.Normal("w", 0.0, 10.0, initval=5.0)
            pm.Normal("y", w, 1.0, observed=rows)
        exact = step_class in (GMC, SubgradientHMC)
        settings = {"n_steps": 2} if exact else {"minibatch": ["rows"], "batch_size": 100}
        step = step_class(**settings, compile_kwargs=INTERPRETED)
    run = {"chains": 2, "draws": 20}
    tuned = sample(model, step, tune=60, **run)
    with pytest.raises(pm.exceptions.SamplingError, match=r"'w' would start at the initial point"):
        sample(model, step, tune=0, **run)
    last = tuned.posterior["w"].values[:, -1]
    again = sample(model, step, tune=0, initvals=[{"w": one} for one in last], **run)
    used = tuned.sample_stats["step_size"].values[-1, -1]
    np.testing.assert_allclose(again.sample_stats["step_size"], used)
    before, after = (np.atleast_3d(trees.posterior["w"].values) for trees in (tuned, again))
    mean, sd = before.mean(axis=(0, 1)), before.std(axis=(0, 1))
    assert (np.abs(after[:, :5] - mean) < 6.0 * sd).all()


@pytest.mark.parametrize("step_class", [SGGMC, GMC])
def test_a_step_that_was_never_tuned_needs_a_warm_up(regression, step_class, caplog):
    """As in the main process after a run with several cores, whose chains tune elsewhere.

    In whitened coordinates there is an error, and a warning where curvature and noise are measured.
    """
    model, slopes = regression
    rows = {} if step_class is GMC else {"minibatch": ["X", "y"], "batch_size": 100}
    with model:
        whitened = step_class(**rows, compile_kwargs=INTERPRETED)
        free = step_class(metric=None, **rows, compile_kwargs=INTERPRETED)
        dynamics = {"friction": 100.0} if rows else {}
        fixed = step_class(step_size=1e-4, **dynamics, **rows, compile_kwargs=INTERPRETED)
    with pytest.raises(pm.exceptions.SamplingError, match=r"has not been tuned.*tune > 0"):
        sample(model, whitened, tune=0, draws=3, initvals={"w": slopes})
    for step, warned in ((free, True), (fixed, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "pymc"):
            sample(model, step, tune=0, draws=3, initvals={"w": slopes}, quiet=False)
        assert ("has not been tuned in this process" in caplog.text) == warned


def test_friction_is_the_mean_over_variables():
    with pm.Model() as model:
        pm.Normal("a", shape=2)
        pm.Normal("b")
        step = SGGMC(step_size=0.1, compile_kwargs=INTERPRETED)
    point = start(model, step, tune=0, draws=2)
    step.adaptation._measured.update(1.0, np.array([1000.0, 0.0]))
    _, (stat, *_) = run_steps(step, point, 2)
    friction = step.sampler.parameters.friction  # of a[0], a[1] and b
    assert friction[0] > 2.0 * friction[2]
    assert stat["friction"] == pytest.approx(0.5 * (friction[0] + friction[2]))


@pytest.mark.parametrize("step_class", [GMC, SubgradientHMC], ids=lambda step: step.__name__)
def test_energy_and_log_density(step_class):
    """As PyMC's HMC has them: H of the draw with its velocity, and log π of the model."""
    with pm.Model() as model:
        pm.Normal("a", 3.0, 2.0, shape=3)
        pm.Uniform("b", 0.0, 2.0)
        log_density = model.compile_logp(mode="FAST_COMPILE")
        step = step_class(compile_kwargs=INTERPRETED)
    point = start(model, step, tune=300, draws=300)
    points, stats = run_steps(step, point, 300)
    lp = np.array([stat["lp"] for stat in stats])
    np.testing.assert_allclose(lp, [log_density(point) for point in points], rtol=1e-10)
    kinetic = np.array([stat["energy"] for stat in stats]) + lp
    assert kinetic.min() > 0.0
    # a draw keeps the H of its path, whose end has a velocity of four coordinates
    assert kinetic[100:].mean() == pytest.approx(2.0, abs=0.35)
    run = sample(model, step, draws=50, tune=20)
    assert plot_energy(run, backend="none") is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    "step_class", [slow(SGLD), slow(SGGMC), GMC], ids=lambda step: step.__name__
)
def test_wrapped_angles_have_the_right_distribution(step_class, caplog):
    """With κ = 1/2 a chain goes around often: scale and effective size are those of the circle."""
    with pm.Model() as model:
        PeriodicVonMises("a", 0.3, 0.5)
        step = step_class(compile_kwargs=INTERPRETED)
    angles = sample(model, step, draws=6000, tune=1000).posterior["a"].values[0] - 0.3
    assert abs(np.cos(angles).mean() - iv(1, 0.5) / iv(0, 0.5)) < 0.05
    assert abs(np.sin(angles).mean()) < 0.05
    assert "effective sample size" not in caplog.text


@pytest.mark.parametrize("step_class", [SGGMC, slow(SGLD), GMC], ids=lambda step: step.__name__)
def test_one_short_chain_warns(step_class):
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Normal("wide", 0.0, 1000.0)
    kwargs = {"friction": 1.0} if step_class is SGGMC else {}
    for names, h, warns in ((None, 0.02, True), (["wide"], 0.02, True), (["x"], 0.8, False)):
        with model:
            step = step_class(names, step_size=h, n_steps=20, **kwargs, compile_kwargs=INTERPRETED)
        point = run_steps(step, start(model, step, tune=1, draws=250), 1)[0][-1]
        step.stop_tuning()
        _, stats = run_steps(step, point, 250)
        assert all(stat["warning"] is None for stat in stats[:-1])
        warning = stats[-1]["warning"]
        assert (warning is not None) == warns
        if warns:
            assert "effective sample size of '" in warning.message
            assert "more draws" in warning.message
            assert ("Let one step sample all variables" in warning.message) == (names is not None)


def test_remedy_of_slow_frames_whitens_them():
    """Two axes with a posterior variance a hundred times as large within their plane as outside."""
    with pm.Model() as model:
        frame = UniformStiefel("frame", shape=(5, 2))
        pm.Potential("plane", -5000.0 * (frame[2:] ** 2).sum() - 0.5 * frame[0, 1] ** 2)
        step = GMC(compile_kwargs=INTERPRETED)
    point = run_steps(step, start(model, step, tune=200, draws=250), 200)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 250)
    message = stats[-1]["warning"].message
    assert "effective sample size of 'frame[" in message
    assert "manifolds={'frame': pg.manifolds.Euclidean}" in message


@pytest.mark.parametrize("step_class", [SGLD, slow(SSGNHT)], ids=lambda step: step.__name__)
def test_minibatches_of_one_row_warn_about_slow_mixing(step_class):
    """With the noise of one of 200 rows, 20,000 steps are a few independent draws."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 2))
    with pm.Model() as model:
        w = pm.Normal("w", shape=2)
        columns, values = pm.Data("X", X), pm.Data("y", rng.normal(X @ [1.0, -1.0]))
        pm.Normal("y_obs", columns @ w, 1.0, observed=values)
        step = step_class(minibatch=["X", "y"], batch_size=1, metric=None)
    point = run_steps(step, start(model, step, tune=1000, draws=2000), 1000)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 2000)
    assert all(stat["warning"] is None for stat in stats[:-1])
    assert "effective sample size of '" in stats[-1]["warning"].message

"""Posteriors with kinks, and step methods on unconstrained values."""

from itertools import product

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import SamplingError
from scipy import optimize

from pymc_geodesic import (
    SGGMC,
    SGLD,
    SSGNHT,
    PolynomialDecay,
    SubgradientHMC,
    UniformSphere,
    gSGNHT,
)
from pymc_geodesic.adaptation.annealed_parameters import (
    AnnealedMeasurements,
    EulerAnnealing,
    euler_noise_bias,
)
from pymc_geodesic.diagnostics import temperature_summary
from pymc_geodesic.manifolds import Euclidean, Product
from pymc_geodesic.runtime.streams import fill_normal
from pymc_geodesic.samplers.dynamics import thermostat_inertia_of
from tests.grids import by_default, cross, slow
from tests.steps.runs import INTERPRETED, run_steps, sample, start

N_ROWS, BATCH = 1000, 100


def hinge_model(X, y):
    with pm.Model() as model:
        features, labels = pm.Data("X", X), pm.Data("y", y)
        w = pm.Normal("w", shape=2)
        pm.Potential("hinge", -pm.math.maximum(0.0, 1.0 - labels * (features @ w)))
    return model


@pytest.fixture(scope="module")
def classifier():
    """A thousand points of the unit square with noisy labels."""
    rng = np.random.default_rng(1)
    X = rng.uniform(size=(N_ROWS, 2))
    y = np.where(rng.uniform(size=N_ROWS) < 1.0 / (1.0 + np.exp(-3.0 * (X @ [1.0, -1.0]))), 1, -1)
    return X, y.astype(float)


@pytest.fixture(scope="module")
def model(classifier):
    return hinge_model(*classifier)


@pytest.fixture(scope="module")
def exact(classifier):
    """Mean and covariance of the posterior, by quadrature."""
    X, y = classifier

    def energy(w):
        losses = sum(np.maximum(0.0, 1.0 - b * (w @ a)) for a, b in zip(X, y, strict=True))
        return 0.5 * np.sum(w**2, axis=-1) + losses

    middle = optimize.minimize(energy, np.zeros(2), method="Nelder-Mead").x
    offsets = np.stack(np.meshgrid(*2 * [np.linspace(-0.7, 0.7, 141)], indexing="ij"), -1)
    grid = middle + offsets.reshape(-1, 2)
    energies = energy(grid)
    weight = np.exp(energies.min() - energies)
    edge = np.abs(grid - middle).max(axis=1) > 0.69
    assert weight[edge].max() < 1e-4
    weight /= weight.sum()
    mean = weight @ grid
    return mean, (grid - mean).T @ ((grid - mean) * weight[:, None])


def in_standard_deviations(posterior, exact):
    """Errors of the means, and ratios of the standard deviations."""
    mean, covariance = exact
    draws, deviation = posterior["w"].values[0], np.sqrt(np.diag(covariance))
    return (draws.mean(axis=0) - mean) / deviation, draws.std(axis=0) / deviation


def make(model, step_class, **kwargs):
    with model:
        return step_class(**({"compile_kwargs": INTERPRETED} | kwargs))


def test_subgradient_hmc_is_exact(model, exact):
    step = make(model, SubgradientHMC, compile_kwargs=None)
    posterior = sample(model, step, draws=8000, tune=500).posterior
    errors, ratios = in_standard_deviations(posterior, exact)
    # some three thousand effective draws
    assert np.abs(errors).max() < 0.07
    assert np.abs(ratios - 1.0).max() < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [SGLD, slow(SSGNHT)], ids=lambda step: step.__name__)
def test_minibatches_of_a_hinge_loss(model, exact, step_class):
    """After tuning: means within 0.1 posterior sds, standard deviations within 10 %."""
    step = make(
        model, step_class, n_steps=100, batch_size=BATCH, minibatch=["X", "y"], compile_kwargs=None
    )
    posterior = sample(model, step, draws=10_000, tune=1000).posterior
    errors, ratios = in_standard_deviations(posterior, exact)
    assert np.abs(errors).max() < 0.1
    assert np.abs(ratios - 1.0).max() < 0.1


@pytest.mark.parametrize("step_class", [SGLD, slow(SSGNHT), gSGNHT], ids=lambda step: step.__name__)
def test_tuning_between_kinks(model, step_class):
    """The curvature of a hinge loss is zero over short distances; long steps would diverge."""
    step = make(model, step_class, metric=None, compile_kwargs=None)
    for seed in range(3):
        idata = sample(model, step, draws=50, tune=100, random_seed=seed)
        assert not idata.sample_stats["diverging"].any()
        assert np.abs(idata.posterior["w"]).max() < 10.0
        assert 0.003 < float(idata.sample_stats["step_size"][0, -1]) < 0.06


@pytest.mark.parametrize("batch", [slow({}), {"batch_size": BATCH, "minibatch": ["X", "y"]}])
def test_temperature_of_ssgnht(model, batch):
    step = make(model, SSGNHT, compile_kwargs=None, **batch)
    idata = sample(model, step, draws=1000, tune=500)
    assert float(temperature_summary(idata)["mean"][0]) == pytest.approx(1.0, abs=0.05)


def test_tuning_reaches_the_posterior_first():
    """100 steps from w = 0 cover three quarters: the first are long, at a high temperature."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.ones(20_000), rng.normal(size=(20_000, 4))])
    y = np.where(X @ np.linspace(2.0, -2.0, 5) + rng.logistic(size=20_000) > 0.0, 1.0, -1.0)

    def energy(w):
        slack = np.maximum(0.0, 1.0 - y * (X @ w))
        return 0.5 * w @ w + slack.sum(), w - (y * (slack > 0.0)) @ X

    middle = optimize.minimize(energy, np.zeros(5), jac=True, method="L-BFGS-B").x
    with pm.Model() as model:
        features, labels = pm.Data("X", X), pm.Data("y", y)
        w = pm.Normal("w", shape=5)
        pm.Potential("hinge", -pm.math.maximum(0.0, 1.0 - labels * (features @ w)))
    step = make(model, SSGNHT, metric=None, batch_size=BATCH, minibatch=["X", "y"])
    for seed in (1, 2, 3):
        points, stats = run_steps(step, start(model, step, tune=500, draws=1, seed=seed), 10)
        assert not any(stat["diverging"] for stat in stats)
        left = np.linalg.norm(points[-1]["w"] - middle) / np.linalg.norm(middle)
        assert left < 0.25


@pytest.mark.parametrize(
    ("step_class", "schedule"),
    cross([SGLD, SSGNHT], [PolynomialDecay(1e-3, b=5, gamma=0.6), lambda t: 1e-3 / (t + 1), 2e-3]),
)
def test_step_sizes_are_used_as_given(model, step_class, schedule):
    step = make(model, step_class, step_size=schedule)
    points, stats = run_steps(step, start(model, step, tune=4, draws=4), 4)
    step.stop_tuning()
    stats += run_steps(step, points[-1], 4)[1]
    expected = [schedule(t) if callable(schedule) else schedule for t in range(8)]
    np.testing.assert_array_equal([stat["step_size"] for stat in stats], expected)


def test_diffusion_is_used_as_given(model):
    """With the inertia of the paper; the thermostat starts at A."""
    step = make(model, SSGNHT, step_size=1e-6, diffusion=30.0)
    _, stats = run_steps(step, start(model, step, tune=0, draws=2), 2)
    assert [stat["diffusion"] for stat in stats] == [30.0, 30.0]
    assert stats[0]["thermostat"] == pytest.approx(30.0, abs=1e-3)
    for arguments, inertia in (({}, 1.0), ({"thermostat_inertia": 0.5}, 0.5)):
        step = make(model, SSGNHT, step_size=1e-3, diffusion=30.0, n_steps=1, **arguments)
        _, (one, two) = run_steps(step, start(model, step, tune=0, draws=2), 2)
        change = 1e-3 * (one["temperature"] - 1.0) / inertia
        assert two["thermostat"] - one["thermostat"] == pytest.approx(change, rel=1e-6)


def test_default_inertia():
    product = Product([("w", Euclidean(2), 1)])
    assert thermostat_inertia_of(None, product, np.array([30.0]), np.ones(1)) == pytest.approx(
        11.0 / 900.0
    )


def test_adagrad_of_a_draw(classifier, model):
    """The inner steps of one draw by hand, with the gradient of all the data."""
    X, y = classifier
    step = make(model, SGLD, step_size=0.3, preconditioner="adagrad", n_steps=3)
    point = start(model, step, tune=0, draws=2) | {"w": np.array([0.3, -0.2])}
    w, squares, noise = point["w"].copy(), np.zeros(2), np.empty(2)
    stream = step.sampler.stream.copy()
    for _ in range(3):
        gradient = -w + (y * (y * (X @ w) < 1.0)) @ X
        squares += gradient**2
        metric = 1.0 / (1.0 + np.sqrt(squares))
        fill_normal(stream, noise)
        w += 0.5 * 0.3**2 * metric * gradient + 0.3 * np.sqrt(metric) * noise
    (drawn,), _ = run_steps(step, point, 1)
    np.testing.assert_allclose(drawn["w"], w, rtol=1e-12)
    np.testing.assert_allclose(step.sampler.dynamics.squares, squares, rtol=1e-12)


@pytest.mark.slow
def test_every_variable_moves_in_unconstrained_space():
    """Simplices, positive numbers and unit vectors, with the Jacobians of their transforms."""
    with pm.Model() as model:
        pm.Dirichlet("theta", [4.0, 2.0, 6.0])
        pm.Gamma("tau", 5.0, 2.0)
        UniformSphere("mu", shape=3)
    step = make(model, SubgradientHMC, compile_kwargs=None)
    assert {str(variable.manifold) for variable in step.variables} == {
        "Euclidean(n=2)",
        "Euclidean(n=1)",
        "Euclidean(n=3)",
    }
    posterior = sample(model, step, draws=3000, tune=500).posterior
    means = posterior.mean(("chain", "draw"))
    np.testing.assert_allclose(means["theta"], np.array([4.0, 2.0, 6.0]) / 12.0, atol=0.02)
    assert float(means["tau"]) == pytest.approx(2.5, abs=0.15)
    np.testing.assert_allclose(means["mu"], 0.0, atol=0.1)
    np.testing.assert_allclose((posterior["mu"] ** 2).mean(("chain", "draw")), 1 / 3, atol=0.04)


@pytest.mark.slow
def test_naive_langevin_of_a_dirichlet():
    """Multinomial counts: the posterior of the proportions is known."""
    counts = np.array([30, 10, 60])
    with pm.Model() as model:
        theta = pm.Dirichlet("theta", np.ones(3))
        pm.Multinomial("counts", 100, theta, observed=counts)
    step = make(model, SGLD, n_steps=50, compile_kwargs=None)
    posterior = sample(model, step, draws=2000, tune=500).posterior
    mean = posterior["theta"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, (counts + 1) / 103.0, atol=0.01)
    assert float(posterior["theta"].std(("chain", "draw"))[0]) == pytest.approx(0.0451, rel=0.1)


def test_warning_if_euler_underestimates_the_variance(model):
    """A friction of one half per step takes a quarter of the variance."""
    step = make(model, SSGNHT, step_size=0.01, diffusion=50.0, thermostat_inertia=0.05)
    middle = start(model, step, tune=20, draws=300) | {"w": np.array([1.5, -1.5])}
    point = run_steps(step, middle, 20)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 300)
    assert all(stat["warning"] is None for stat in stats[:-1])
    message = stats[-1]["warning"].message
    assert "SSGNHT[w]: The loss of variance by Euler's method with a thermostat of 0." in message
    assert "the draws are narrower than the posterior" in message
    assert "Omit step_size and diffusion if they are set" in message
    assert "gSGNHT" in message


def test_warning_names_the_arguments_of_ssgnht(model):
    step = make(
        model, SSGNHT, step_size=0.01, diffusion=1.0, thermostat_inertia=1e6, batch_size=5,
        minibatch=["X", "y"],
    )  # fmt: skip
    point = run_steps(step, start(model, step, tune=1, draws=100), 1)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 100)
    message = stats[-1]["warning"].message
    assert "The kinetic temperature with step size 0.01 and diffusion 1 is" in message
    assert "the draws are wider" in message
    assert "Omit step_size and diffusion if they are set" in message


def test_warning_if_no_friction_is_left(model):
    """The noise of one step alone is above temperature 1."""
    step = make(
        model, SSGNHT, step_size=0.05, diffusion=1.0, batch_size=5, minibatch=["X", "y"]
    )  # fmt: skip
    point = run_steps(step, start(model, step, tune=200, draws=100), 200)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 100)
    assert stats[-1]["thermostat"] == pytest.approx(1.0 / 0.05)
    message = stats[-1]["warning"].message
    assert "with the thermostat at its bound, 1/step_size = 20, is" in message
    assert "Omit step_size and diffusion if they are set" in message


def test_warning_if_one_variable_has_no_friction_left():
    """Its thermostat is at the bound, and that of a variable without data far from it."""
    X = np.random.default_rng(1).normal(size=(100, 2))
    with pm.Model() as model:
        mean, other = pm.Normal("mean", shape=2), pm.Normal("other", shape=2)
        rows = pm.Data("X", X)
        pm.Normal("x", mean + 0.0 * other, 1.0, observed=rows)
        step = SSGNHT(step_size=0.05, diffusion=1.0, batch_size=5, minibatch=["X"])
    point = run_steps(step, start(model, step, tune=200, draws=100), 200)[0][-1]
    step.stop_tuning()
    _, stats = run_steps(step, point, 100)
    assert stats[-1]["thermostat"] < 0.9 / 0.05
    assert "with the thermostat at its bound" in stats[-1]["warning"].message


def test_start_without_finite_values():
    with pm.Model() as model:
        pm.Normal("a")
        pm.Potential("never", pm.math.log(-1.0 - model["a"] ** 2))
    step = make(model, SubgradientHMC)
    with pytest.raises(SamplingError, match=r"for 'a', at any step size.*never: nan.*model\.debug"):
        step.step(start(model, step, tune=1, draws=1))


@pytest.mark.parametrize(
    ("step_class", "step_size", "tune"),
    by_default(
        [(SGLD, None, 5), (SSGNHT, 0.1, 0), (SGGMC, None, 5)],
        of=product([SGLD, SSGNHT, SGGMC], [None, 0.1], [0, 5]),
    ),
)
def test_start_without_a_gradient(step_class, step_size, tune):
    X = np.array([[1.0], [np.nan]])
    with pm.Model() as model:
        pm.Normal("b")
        pm.Normal("y", X @ pm.Normal("a", shape=1), 1.0, observed=np.ones(2))
    step = make(model, step_class, step_size=step_size)
    with pytest.raises(
        SamplingError, match=r"y: nan}. The data of 'y' contain NaN in row 1: drop or impute"
    ):
        step.step(start(model, step, tune=tune, draws=1))


@pytest.mark.parametrize(
    ("step_class", "arguments", "message"),
    [
        (
            SGLD,
            {"preconditioner": "adam"},
            r"preconditioner='adam' is unknown\. .*'adagrad'",
        ),
        (SSGNHT, {"diffusion": -1.0}, "diffusion must be positive, got -1.0"),
        (SSGNHT, {"thermostat_inertia": 0.0}, "thermostat_inertia must be positive, got 0.0"),
        (SGLD, {"minibatch": ["X"], "batch_size": 2000}, "batch_size=2000 exceeds the 1000"),
        (SGLD, {"total_size": 5}, "total_size= needs minibatches"),
        (SGLD, {"minibatch_order": "sorted"}, "minibatch_order='sorted' is unknown"),
        (SubgradientHMC, {"target_accept": 1.5}, "target_accept must lie between 0 and 1"),
    ],
)
def test_errors(model, step_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, step_class, **arguments)


def measurements(n_noises, curvature, noise, n=300, final_bias=0.05, **options):
    """Many equal measurements, after the end of the annealing."""
    measured = AnnealedMeasurements(n_noises, final_bias=final_bias, **options)
    measured.reset(10)
    for _ in range(n):
        measured.update(curvature, noise)
    return measured


def overdamped_step_size(model, measured, epoch=None):
    """Step size that `SGLD` chooses."""
    adaptation = make(model, SGLD, metric=None).adaptation
    adaptation._measured, adaptation._epoch = measured, epoch
    return adaptation._step_size()


class TestOverdampedStepSize:
    @pytest.mark.parametrize("noise", [0.0, 10.0, 1e4])
    def test_bias_is_the_allowed_one(self, model, noise):
        """(V/λ) tanh(h²λ/4) + h²λ/4, for noise along one direction and for isotropic noise."""
        for dim in (1, 7):
            measured = measurements(2, 4.0, np.array([dim * noise, dim * noise**2]))
            pull = overdamped_step_size(model, measured) ** 2 * 4.0 / 4.0
            assert noise / 4.0 * np.tanh(pull) + pull == pytest.approx(0.05, rel=1e-9)

    def test_noise_that_cancels_over_an_epoch_allows_longer_steps(self, model):
        measured = measurements(2, 1.0, np.array([1e4, 1e8]))
        independent = overdamped_step_size(model, measured)
        shuffled = [overdamped_step_size(model, measured, epoch) for epoch in (2, 20, 10**7)]
        assert shuffled[0] > shuffled[1] > 1.5 * independent
        assert shuffled[2] == pytest.approx(independent, rel=0.01)

    def test_first_steps_are_stable(self, model):
        measured = AnnealedMeasurements(2, final_bias=0.05)
        measured.reset(1000)
        measured.update(9.0, None)
        assert measured.allowed_bias > 1.0
        assert overdamped_step_size(model, measured) ** 2 * 9.0 <= 1.0 + 1e-9


def test_bias_of_euler_is_the_allowed_one():
    rule, measured = EulerAnnealing(), AnnealedMeasurements(2, final_bias=0.05, initial_bias=150.0)
    measured.reset(10)
    measured.update(1e-6, np.array([1e4, 0.0]))
    step_size = rule.step_size(measured)
    bias = rule.bias(measured, step_size, rule.friction(measured, step_size))
    np.testing.assert_allclose(bias, [measured.allowed_bias, 0.0])
    assert bias[0] > 30.0


def test_thermostats_of_tuning(model):
    """ξ is near A while the target temperature is above 1, and free afterwards."""
    step = make(model, SSGNHT, metric=None, batch_size=BATCH, minibatch=["X", "y"])
    _, stats = run_steps(step, start(model, step, tune=100, draws=1), 100)
    friction = np.array([stat["diffusion"] for stat in stats])
    thermostat = np.array([stat["thermostat"] for stat in stats])
    np.testing.assert_allclose(thermostat[:50], friction[:50], rtol=0.05)
    assert not np.any(thermostat[75:] == friction[75:])


def test_friction_of_euler_is_small():
    rule, measured = EulerAnnealing(), measurements(2, 1.0, np.array([1e4, 10.0]))
    step_size = rule.step_size(measured)
    np.testing.assert_allclose(rule.friction(measured, step_size) * step_size, 0.05)
    assert euler_noise_bias(step_size, 0.05, 1e4) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("order", "epoch"), [("shuffled", N_ROWS // BATCH), ("independent", None), ("random", None)]
)
def test_epochs_that_tuning_assumes(model, order, epoch):
    step = make(
        model, SGLD, metric=None, batch_size=BATCH, minibatch=["X", "y"], minibatch_order=order
    )
    assert step.adaptation._epoch == epoch

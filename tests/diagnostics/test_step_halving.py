"""Step halving: bias of a step size, significance and coupling."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.diagnostics import halving, step_halving
from pymc_geodesic.diagnostics.halving import CoupledChains, compare_chains
from tests.grids import slow

STEP = 0.8


def euler(n_draws, n_chains, order=1):
    """Coupled chains of x ← (1 − a)x + σν, a = h²/2, for a normal distribution with mean 1.

    With σ² = 2a the variance is 1/(1 − a/2), an error of order one in a; with σ² = 2a − a² + a³ it
    is off by order two.
    """
    rng = np.random.default_rng(1)
    pulls = [0.5 * STEP**2 / 2**level for level in range(3)]
    spreads = [np.sqrt(2 * a if order == 1 else 2 * a - a**2 + a**3) for a in pulls]
    x, drawn = np.ones((3, n_chains)), np.empty((3, n_draws, n_chains))
    for draw in range(n_draws):
        for _ in range(4):
            noise = rng.normal(size=(4, n_chains))
            for level in (2, 1, 0):
                for each in noise:
                    x[level] += -pulls[level] * (x[level] - 1.0) + spreads[level] * each
                noise = (noise[::2] + noise[1::2]) / np.sqrt(2.0) if len(noise) > 1 else noise
        drawn[:, draw] = x
    variances = [s**2 / (2 * a - a**2) for a, s in zip(pulls, spreads, strict=True)]
    return drawn, np.sqrt(variances)


@pytest.mark.parametrize("order", [1, 2])
def test_order_and_limit_of_a_scheme_in_closed_form(order):
    drawn, sds = euler(10_000, 8, order)
    result = compare_chains(drawn, [f"x[{i}]" for i in range(8)], np.array([0.8, 0.57, 0.4]))
    table = result.table
    expected = np.log(sds[0] / sds[1])
    z = (table["delta_log_sd"] - expected) / table["delta_log_sd_se"]
    assert abs(z).max() < 4.0
    assert abs(z).mean() > 0.2  # the errors are not overestimated
    assert result.order == order
    assert result.correlation > 0.95
    # at step zero the variance is 1, up to the next order and Monte Carlo error
    before = np.abs(np.log(sds[2]))
    after = np.abs(np.log(table["sd_extrapolated"].values.mean()))
    assert after < 0.35 * before + 0.004
    assert "posterior sds" in str(result)


def test_insignificant_differences_are_not_extrapolated():
    """Three runs of one distribution, whose differences are noise."""
    rng = np.random.default_rng(1)
    common = rng.normal(size=(4000, 1))
    drawn = common + 0.1 * rng.normal(size=(3, 4000, 1))
    result = compare_chains(drawn, ["x"], np.array([0.4, 0.2, 0.1]), order=1)
    assert np.isnan(result.table["mean_extrapolated"]).all()
    assert np.isnan(result.table["sd_extrapolated"]).all()
    assert "not significant" in str(result)
    assert result.order == 1


def test_moments_are_extrapolated_and_standard_deviations_are_not():
    """With exact shifts: the error of the mean is 4, 2, 1 times δ, the sd is constant."""
    x = np.random.default_rng(1).normal(size=20_000)
    drawn = np.stack([x + shift for shift in (0.4, 0.2, 0.1)])[..., np.newaxis]
    result = compare_chains(drawn, ["x"], np.array([0.4, 0.2, 0.1]))
    row = result.table.sel(quantity="x")
    assert result.order == 1
    assert float(row["delta_mean"]) == pytest.approx(0.2 / x.std())
    assert float(row["mean_extrapolated"]) == pytest.approx(x.mean(), abs=1e-9)
    assert float(row["delta_log_sd"]) == pytest.approx(0.0, abs=1e-9)


@pytest.fixture(scope="module")
def data():
    return np.random.default_rng(1).normal(2.0, 1.0, size=(2000, 2))


@pytest.fixture(scope="module")
def normal(data):
    """A normal posterior with covariance I / 2000."""
    with pm.Model() as model:
        x = pm.Data("data", data)
        mean = pm.Normal("mean", 0.0, 100.0, shape=2)
        pm.Normal("y", mean, 1.0, observed=x)
    return model


def tuned(model, step, n_tune=300):
    step.setup_chain(np.random.default_rng(1), n_tune, 100)
    point = model.initial_point(random_seed=1)
    for _ in range(n_tune):
        point, _ = step.step(point)
    step.stop_tuning()
    return step


@pytest.mark.parametrize("kind", [pg.SGGMC, slow(pg.gSGNHT), slow(pg.SGLD)])
def test_coupled_chains_have_the_right_distribution(normal, data, kind):
    """The schemes are exact for a normal distribution, so that only wrong noise has an effect."""
    with normal:
        step = tuned(normal, kind(batch_size=50, minibatch=["data"]))
    chains = CoupledChains(step.sampler, 3)
    drawn = np.stack([chains.advance() for _ in range(2500)], axis=1)[:, 100:]
    sd = 1.0 / np.sqrt(2000)
    np.testing.assert_allclose(
        drawn.mean(axis=1), np.tile(data.mean(axis=0), (3, 1)), atol=0.2 * sd
    )
    np.testing.assert_allclose(drawn.std(axis=1), sd, rtol=0.08)
    for j in range(2):
        assert np.corrcoef(drawn[:, :, j]).min() > 0.9


def test_noise_of_the_wrong_variance_is_detected(normal, monkeypatch):
    """The mutant gives the coarser chain noise of the wrong variance."""
    with normal:
        step = tuned(normal, pg.SGGMC(batch_size=50, minibatch=["data"]))
    tape = halving.new_tape
    chains = CoupledChains(step.sampler, 2)
    monkeypatch.setattr(
        halving,
        "new_tape",
        lambda noise: tape(noise * (1.2 if len(noise) == step.sampler.parameters.n_steps else 1.0)),
    )
    drawn = np.stack([chains.advance() for _ in range(1500)], axis=1)[:, 100:]
    assert np.all(drawn[0].std(axis=0) * np.sqrt(2000) > 1.08)


def test_bias_of_a_fixed_step_size_in_closed_form():
    """Euler's scheme for a normal distribution of variance 1 has variance 1/(1 − h²/4)."""
    with pm.Model() as model:
        pm.Normal("x", shape=4)
    result = step_halving(
        model, lambda: pg.SGLD(step_size=0.9, n_steps=3), draws=6000, tune=20, random_seed=1
    )
    table = result.table
    expected = 0.5 * np.log((1.0 - 0.9**2 / 8.0) / (1.0 - 0.9**2 / 4.0))
    z = (table["delta_log_sd"] - expected) / table["delta_log_sd_se"]
    assert abs(z).max() < 4.0
    assert (table["delta_log_sd"] > 5.0 * table["delta_log_sd_se"]).all()
    assert result.order == 1
    np.testing.assert_allclose(result.step_sizes, [0.9, 0.9 / np.sqrt(2.0), 0.45])
    limit = table["sd_extrapolated"].values
    assert np.abs(limit.mean() - 1.0) < 0.5 * np.abs(table["sd"].values.mean() - 1.0)


@pytest.mark.parametrize("order", ["random", "shuffled"])
def test_minibatch_bias_decreases_with_the_step_size(normal, order):
    """Independent noise of variance V gives the variance 1 + hV/2C; over epochs it sums to zero."""
    sd, step, variance = 1.0 / np.sqrt(2000), 0.05, 20.0
    result = step_halving(
        normal,
        lambda: pg.SGGMC(
            step_size=step * sd,
            friction=1.0 / sd,
            n_steps=20,
            batch_size=100,
            minibatch=["data"],
            minibatch_order=order,
        ),
        draws=2500,
        tune=100,
        random_seed=1,
    )
    change = result.table["delta_log_sd"]
    error = result.table["delta_log_sd_se"]
    if order == "random":
        inflation = 0.5 * step * variance
        expected = 0.5 * np.log((1.0 + inflation) / (1.0 + 0.5 * inflation))
        assert (abs(change - expected) < 4.0 * error + 0.01).all()
        assert (change > 4.0 * error).all()
        assert result.correlation > 0.85
    else:
        assert (abs(change) < 0.04).all()
        assert result.correlation > 0.7


def test_thermostats_belong_to_their_chains(normal):
    """The thermostat of gSGNHT compensates noise, with less friction for shorter steps."""
    sd = 1.0 / np.sqrt(2000)
    with normal:
        step = tuned(
            normal,
            pg.gSGNHT(
                step_size=0.05 * sd,
                friction=1.0 / sd,
                n_steps=10,
                batch_size=100,
                minibatch=["data"],
                minibatch_order="random",
            ),
            100,
        )
    chains = CoupledChains(step.sampler, 2)
    drawn, thermostats = [], []
    for _ in range(2500):
        drawn.append(chains.advance())
        thermostats.append([float(each.thermostat[0]) * sd for each in chains._dynamics])
    np.testing.assert_allclose(np.std(drawn[500:], axis=0), sd, rtol=0.12)
    long, short = np.mean(thermostats[500:], axis=0)
    assert long - short == pytest.approx(0.25, abs=0.1)  # of h V / 2 with V = 20


def test_step_argument_is_not_modified(normal):
    with normal:
        step = pg.SGLD(step_size=0.01, n_steps=4)
    step_halving(normal, step, draws=20, tune=5, random_seed=1)
    settings = step.sampler.parameters
    assert (settings.step_size, settings.n_steps) == (0.01, 4)


@pytest.mark.slow
def test_directions_are_coupled():
    with pm.Model() as model:
        mu = pg.UniformSphere("mu", shape=3)
        pg.VonMisesFisher("y", mu, 20.0, observed=np.eye(3)[[0, 0, 1]])
    result = step_halving(model, pg.gSGNHT, draws=600, tune=300, random_seed=1)
    assert result.correlation > 0.8
    assert result.table["quantity"].values.tolist() == ["mu[0]", "mu[1]", "mu[2]"]
    assert len(result.step_sizes) == 3
    assert result.step_sizes[1] == pytest.approx(0.5 * result.step_sizes[0])


def test_coordinate_names():
    with pm.Model() as model:
        pm.HalfNormal("scale")
        pm.Normal("x", shape=(1, 2))
    result = step_halving(model, pg.SGLD, draws=200, tune=100, random_seed=1)
    assert result.table["quantity"].values.tolist() == ["scale_log__", "x[0, 0]", "x[0, 1]"]
    assert result.step_sizes[1] == pytest.approx(np.sqrt(0.5) * result.step_sizes[0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pg.GMC(), "Metropolis correction"),
        (lambda: pg.SGGMC(["mean"]), r"leaves \['other'\]"),
        (lambda: pg.SGLD(preconditioner="adagrad"), "changes from draw to draw"),
        (lambda: pg.SGGMC(step_size=pg.PolynomialDecay(0.1, 1.0, 0.3)), "changes from draw to"),
    ],
)
def test_unsupported_steps_raise(make, message):
    with pm.Model() as model:
        pm.Normal("mean")
        pm.Normal("other")
    with pytest.raises(ValueError, match=message):
        step_halving(model, make, draws=10, tune=5)


def test_streamed_rows_raise_before_tuning():
    blocks = [(np.zeros(20),), (np.ones(20),)]
    with pm.Model() as model:
        rows = pm.Data("rows", np.zeros(1))
        pm.Normal("y", pm.Normal("mean"), observed=rows)
    for order in ("shuffled", "independent"):
        with model:
            step = pg.SGGMC(
                minibatch=["rows"], batches=blocks, batch_size=5, total_size=40,
                minibatch_order=order, compile_kwargs={"mode": "FAST_COMPILE"},
            )  # fmt: skip
        with pytest.raises(ValueError, match="Omit batches="):
            step_halving(model, step, draws=10, tune=10**9)


def test_swapped_arguments_raise(normal):
    with normal:
        step = pg.SGLD()
    with pytest.raises(ValueError, match=r"model is a SGLD .* step_halving\(model, step\)"):
        step_halving(step, normal)
    with pytest.raises(ValueError, match=r"takes a step method or a function .* got dict"):
        step_halving(normal, {})


def test_invalid_order_raises(normal):
    with pytest.raises(ValueError, match="order=3"):
        step_halving(normal, pg.SGGMC, order=3)

"""The kernel Stein discrepancy: zero for exact draws, positive for wrong means or variances."""

import re
from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy.signal import lfilter

import pymc_geodesic as pg
from pymc_geodesic.diagnostics import ksd
from pymc_geodesic.diagnostics.posterior_draws import autocorrelation_times
from pymc_geodesic.diagnostics.stein_discrepancy import (
    bootstrap_weights,
    compute_discrepancy,
    compute_p_value,
    compute_statistics,
)
from pymc_geodesic.diagnostics.stein_kernel import stein_sample
from pymc_geodesic.gradients.scores import PosteriorScore
from tests.grids import slow

MU = np.array([0.48, 0.6, 0.64])
KAPPA = 5.0
FRAME = np.array([[2.0, 0.0], [0.0, 1.5], [1.0, 0.0]])
COVARIANCE = np.array([[4.0, 0.3], [0.3, 0.04]])


def mixed_model():
    """A correlated normal vector, a positive variable, a direction and a frame."""
    with pm.Model() as model:
        pm.MvNormal("x", [1.0, -2.0], cov=COVARIANCE)
        pm.Gamma("s", 3.0, 2.0)
        pg.VonMisesFisher("u", mu=MU, kappa=KAPPA)
        pg.MatrixVonMisesFisher("X", FRAME)
    return model


def idata_of(draws, n_chains=2):
    return az.from_dict(
        {
            "posterior": {
                name: value.reshape(n_chains, -1, *value.shape[1:]) for name, value in draws.items()
            }
        }
    )


@pytest.fixture(scope="module")
def model():
    return mixed_model()


@pytest.fixture(scope="module")
def exact():
    """Independent draws of all variables, 4,000 of each."""
    distributions = [
        pm.MvNormal.dist([1.0, -2.0], cov=COVARIANCE, size=4000),
        pm.Gamma.dist(3.0, 2.0, size=4000),
        pg.VonMisesFisher.dist(MU, KAPPA, size=4000),
        pg.MatrixVonMisesFisher.dist(FRAME, size=4000),
    ]
    values = pm.draw(distributions, random_seed=1, mode="FAST_COMPILE")
    return dict(zip("xsuX", values, strict=True))


@pytest.fixture(scope="module")
def score(model):
    return PosteriorScore(model)


@pytest.fixture(scope="module")
def sample(score, exact):
    return stein_sample(
        idata_of(exact), score, metric="auto", bandwidth="median", beta=-0.5, max_draws=None
    )


def parts(sample, size):
    """Split draws into samples."""
    for first in range(0, len(sample), size):
        part = slice(first, first + size)
        yield replace(
            sample,
            positions=sample.positions[part],
            fields=sample.fields[part],
            chains=sample.chains[part],
        )


@pytest.mark.slow
def test_exact_draws_are_rejected_at_the_nominal_level(sample):
    """More than eight rejections in 40 samples at the 5 % level have probability 1/5,000."""
    rng = np.random.default_rng(1)
    p_values = []
    for part in parts(sample, 100):
        weights = bootstrap_weights(part.chains, 0.0, 300, rng)
        p_values.append(compute_p_value(*compute_statistics(part, weights, "U")))
    assert np.sum(np.array(p_values) <= 0.05) <= 8
    # uniform p-values have a mean of 1/2 with a standard deviation of 0.046
    assert abs(np.mean(p_values) - 0.5) < 0.2


def test_mean_is_zero_without_the_diagonal_and_not_with_it(sample):
    values, with_diagonal = [], []
    nothing = np.zeros((40, 1))
    for part in parts(sample, 40):
        values.append(compute_statistics(part, nothing, "U")[0])
        with_diagonal.append(compute_statistics(part, nothing, "V")[0])
        np.testing.assert_allclose(
            part.kernel_diagonal(), np.diagonal(part.kernel_rows(0, 40)), rtol=1e-12
        )
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values)) < 4.0 * error
    assert np.mean(with_diagonal) > 10.0 * error


def stretched(value):
    """Deviations from the mean are 30 % too large: a temperature of 1.7.

    In six samples of this length p was between 0.01 and 0.1 with 15 %, and with 30 % the smallest
    value that this number of bootstrap samples can give.
    """
    centre = value.mean(axis=0)
    return centre + 1.3 * (value - centre)


def hot_directions(_):
    distribution = pg.VonMisesFisher.dist(mu=MU, kappa=KAPPA / 2.0, size=4000)
    return pm.draw(distribution, random_seed=2, mode="FAST_COMPILE")


def uniform_frames(_):
    return pg.manifolds.Stiefel(3, 2).random_point(np.random.default_rng(1), 4000)


@pytest.mark.parametrize(
    ("name", "distort"),
    [
        ("x", stretched),
        slow("x", lambda value: value + np.array([0.6, 0.0])),
        slow("s", lambda value: 1.2 * value),
        ("u", hot_directions),
        ("X", uniform_frames),
    ],
    ids=["variance", "mean", "transformed", "sphere", "Stiefel"],
)
def test_one_incorrect_variable_is_detected(score, exact, name, distort):
    wrong = exact | {name: distort(exact[name])}
    assert compute_discrepancy(idata_of(wrong), score, random_seed=1).p_value <= 0.002


def test_result_reports_the_settings(score, exact):
    result = compute_discrepancy(idata_of(exact), score, max_draws=500, n_bootstrap=50)
    assert (result.n_draws, result.thin, result.metric) == (500, 8, "dense")
    assert result.bootstrap.shape == (50,)
    assert "from 500 draws (one of 8)" in str(result)
    assert "bootstrap" not in repr(result)


@pytest.mark.usefixtures("interpreted")
def test_excluded_variables_are_conditioned_on():
    with pm.Model() as model:
        centre = pm.Normal("centre", 0.0, 3.0)
        pm.Normal("x", centre, 0.5)
    rng = np.random.default_rng(1)
    centres = rng.normal(0.0, 3.0, size=600)
    values = centres + rng.normal(0.0, 0.5, size=600)
    score = PosteriorScore(model, var_names="x")
    right = idata_of({"centre": centres, "x": values})
    assert compute_discrepancy(right, score, random_seed=1).p_value > 0.01
    apart = idata_of({"centre": rng.permutation(centres), "x": values})
    assert compute_discrepancy(apart, score, random_seed=1).p_value <= 0.002


@pytest.mark.usefixtures("interpreted")
def test_units_of_the_model_do_not_matter():
    with pm.Model() as model:
        pm.MvNormal("x", [1.0, -2.0], cov=COVARIANCE)
    with pm.Model() as large:
        pm.MvNormal("x", [1e3, -2.0], cov=COVARIANCE * np.outer([1e3, 1.0], [1e3, 1.0]))
    draws = np.random.default_rng(1).multivariate_normal([1.2, -2.0], COVARIANCE, size=300)
    one = ksd(idata_of({"x": draws}), model, random_seed=1)
    other = ksd(idata_of({"x": draws * [1e3, 1.0]}), large, random_seed=1)
    assert one.statistic == pytest.approx(other.statistic, rel=1e-6)
    assert one.p_value == other.p_value


def flat_formula(z, score, length, beta):
    """The kernel in Euclidean space by Gorham and Mackey, for all pairs."""
    apart = z[:, np.newaxis] - z
    squares = np.sum(apart**2, axis=-1) / length**2
    base = 1.0 + squares
    kernel = score @ score.T * base**beta
    along_x = np.einsum("ia,ija->ij", score, apart) / length**2
    along_y = np.einsum("ja,ija->ij", score, apart) / length**2
    kernel += 2.0 * beta * (along_y - along_x) * base ** (beta - 1.0)
    kernel -= 2.0 * beta * z.shape[1] * base ** (beta - 1.0) / length**2
    return kernel - 4.0 * beta * (beta - 1.0) * squares * base ** (beta - 2.0) / length**2


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("kind", ["U", "V"])
def test_value_is_that_of_the_formula(kind):
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(2), cov=COVARIANCE)
    draws = np.random.default_rng(1).normal(size=(300, 2))
    result = ksd(
        idata_of({"x": draws}), model, statistic=kind, metric=None, bandwidth=0.7, beta=-0.3
    )
    kernel = flat_formula(draws, -np.linalg.solve(COVARIANCE, draws.T).T, 0.7, -0.3)
    if kind == "U":
        np.fill_diagonal(kernel, 0.0)
    pairs = 300 * 299 if kind == "U" else 300**2
    assert result.statistic == pytest.approx(kernel.sum() / pairs, rel=1e-10)


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(5000, 3))
    labels = rng.random(5000) < 1.0 / (1.0 + np.exp(-features @ [1.0, -0.5, 0.2]))
    with pm.Model() as model:
        X, y = pm.Data("X", features), pm.Data("y", labels.astype(float))
        w = pm.Normal("w", 0.0, 3.0, shape=3)
        pm.Bernoulli("label", logit_p=X @ w, observed=y)
    return model


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_minibatches_with_control_variates_agree_with_all_rows(regression):
    with regression:
        idata = pm.sample(
            draws=400, tune=300, chains=2, cores=1, step=pg.GMC(), random_seed=1,
            progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip
    whole = ksd(idata, regression, random_seed=1)
    minibatches = PosteriorScore(regression, batch_size=50, minibatch=["X", "y"])
    few = compute_discrepancy(idata, minibatches, random_seed=1)
    assert whole.p_value > 0.02
    assert few.p_value > 0.02
    sd = whole.bootstrap.std()
    assert abs(few.statistic - whole.statistic) < 4.0 * sd
    shifted = idata.copy()
    deviation = idata.posterior["w"].std(("chain", "draw"))
    shifted["posterior"] = idata.posterior.to_dataset() + 0.5 * deviation
    assert compute_discrepancy(shifted, minibatches, random_seed=1).p_value <= 0.002


def test_gradients_are_those_of_the_model(model, score, exact):
    """Against PyMC's gradients, in Euclidean coordinates."""
    thinned = idata_of(exact).posterior.to_dataset().isel(draw=[3, 4])
    stacked = thinned.stack(sample=("chain", "draw"), create_index=False)
    points = score.points(stacked.transpose("sample", ...))
    positions = score.positions(points)
    gradients, log_density = score(positions, points)
    logp = model.compile_logp(mode="FAST_COMPILE")
    dlogp = model.compile_dlogp([model["x"], model["s"]], mode="FAST_COMPILE")
    for point, gradient in zip(points, gradients, strict=True):
        np.testing.assert_allclose(gradient[:3], dlogp(point), rtol=1e-8)
    change = [float(logp(point)) for point in points]
    # PyMC's density of a free direction or frame has a constant radial part
    np.testing.assert_allclose(np.diff(log_density), np.diff(change), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_transforms_of_all_kinds_lead_to_values():
    """A random bound, a simplex, and a discrete variable."""
    with pm.Model() as model:
        top = pm.HalfNormal("top")
        below = pm.Uniform("below", 0.0, top)
        pm.Dirichlet("share", [2.0, 3.0, 4.0])
        pm.Bernoulli("flag", 0.3)
        pm.Normal("level", pm.math.log(below), 1.0)
    names = ["top", "below", "share", "flag", "level"]
    values = pm.draw([model[name] for name in names], draws=600, random_seed=1, mode="FAST_COMPILE")
    draws = dict(zip(names, values, strict=True))
    idata = idata_of(draws)
    score = PosteriorScore(model)
    stacked = idata.posterior.to_dataset().stack(sample=("chain", "draw"), create_index=False)
    points = score.points(stacked.transpose("sample", ...))
    ratio = draws["below"] / draws["top"]
    log_share = np.log(draws["share"])
    centred = log_share - log_share.mean(axis=1, keepdims=True)
    expected = {
        "top_log__": np.log(draws["top"]),
        "below_interval__": np.log(ratio) - np.log1p(-ratio),
        "share_simplex__": centred[:, :-1],
        "flag": draws["flag"],
        "level": draws["level"],
    }
    for name, value in expected.items():
        np.testing.assert_allclose([point[name] for point in points], value, rtol=1e-9)
    assert score.product.size == 5
    assert compute_discrepancy(idata, score, random_seed=1).p_value > 0.01
    wrong = idata_of(draws | {"below": 0.7 * draws["below"]})
    assert compute_discrepancy(wrong, score, random_seed=1).p_value <= 0.002


@pytest.mark.usefixtures("interpreted")
def test_pm_minibatch_gradients_are_unbiased():
    rows = np.random.default_rng(1).normal(1.0, 1.0, size=500)
    with pm.Model() as drawn:
        few = pm.Minibatch(rows, batch_size=20)
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=few, total_size=500)
    with pm.Model() as whole:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1.0, observed=rows)
    idata = idata_of({"mean": np.random.default_rng(1).normal(1.0, 0.05, size=60)})
    few, all_rows = (ksd(idata, model, n_bootstrap=20) for model in (drawn, whole))
    assert few.statistic == pytest.approx(all_rows.statistic, rel=1e-9)


def test_autocorrelation_time_of_an_autoregression():
    noise = np.random.default_rng(1).normal(size=(4, 20_000, 1))
    series = lfilter([1.0], [1.0, -0.8], noise, axis=1)
    assert autocorrelation_times(series)[0] == pytest.approx(9.0, rel=0.1)
    apart = series + np.array([0.0, 10.0, 20.0, 30.0])[:, np.newaxis, np.newaxis]
    assert autocorrelation_times(apart)[0] == pytest.approx(9.0, rel=0.1)


def test_multipliers_are_correlated_within_chains_only():
    chains = np.repeat([0, 1], 50)
    weights = bootstrap_weights(chains, 5.0, 40_000, np.random.default_rng(1))
    correlation = weights @ weights.T / weights.shape[1]
    expected = np.exp(-np.abs(np.arange(50)[:, np.newaxis] - np.arange(50)) / 5.0)
    np.testing.assert_allclose(correlation[:50, :50], expected, atol=0.035)
    np.testing.assert_allclose(correlation[:50, 50:], 0.0, atol=0.035)


@pytest.mark.parametrize("decay", [0.0, 0.6])
@pytest.mark.slow
def test_level_for_autocorrelated_draws(decay):
    """At most 10 % of 100 samples of the right distribution are rejected at the 5 % level."""
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    score, rng, rejected = PosteriorScore(model), np.random.default_rng(1), 0
    for _ in range(100):
        noise = rng.normal(size=(2, 350, 2))
        draws = lfilter([np.sqrt(1.0 - decay**2)], [1.0, -decay], noise, axis=1)[:, 50:]
        idata = az.from_dict({"posterior": {"x": draws}})
        rejected += (
            compute_discrepancy(idata, score, n_bootstrap=200, random_seed=rng).p_value <= 0.05
        )
    assert rejected <= 12


def test_swapped_arguments_raise(model, exact):
    with pytest.raises(
        ValueError, match=r"not a pm.Model\. Pass the arguments in the order ksd\(idata, model\)"
    ):
        ksd(model, idata_of(exact))


def test_posterior_without_a_variable_raises(score, exact):
    with pytest.raises(ValueError, match=r"lacks \['X'\]"):
        compute_discrepancy(idata_of({name: exact[name] for name in "xsu"}), score)


def test_constant_draws_raise(score, exact):
    stuck = np.broadcast_to(exact["u"][:1], exact["u"].shape)
    with pytest.raises(ValueError, match="all draws of 'u' are equal"):
        compute_discrepancy(idata_of(exact | {"u": stuck}), score)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"statistic": "W"}, "statistic='W'"),
        ({"beta": 0.5}, "beta must lie between"),
        ({"bandwidth": "mean"}, "bandwidth must be"),
        ({"dependence": -1.0}, "dependence=-1.0 is"),
        ({"metric": "full"}, "metric='full'"),
        ({"n_bootstrap": 0}, "n_bootstrap must"),
        ({"max_draws": 2}, "too few"),
    ],
)
def test_invalid_arguments_raise(score, exact, arguments, message):
    with pytest.raises(ValueError, match=message):
        compute_discrepancy(idata_of(exact), score, **arguments)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_draws_of_another_shape_raise(shape):
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    idata = az.from_dict({"posterior": {"x": np.zeros((2, 10, *shape))}})
    message = f"draws of 'x' have shape {re.escape(str(shape))}, but the model has .2,."
    with pytest.raises(ValueError, match=message):
        ksd(idata, model)

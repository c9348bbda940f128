"""SCIR and SGRLD as PyMC steps: exact and sparse posteriors, state, stats, tuning."""

import math

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import SamplingError
from pymc.step_methods.state import equal_dataclass_values
from scipy import stats
from scipy.special import softmax

from pymc_geodesic import SCIR, SGRLD, PolynomialDecay
from tests.grids import cross, slow
from tests.steps.runs import INTERPRETED, assert_same_draws, run_steps, sample, start

LABELS = np.repeat([0, 1, 2], [80, 15, 5])
PRIOR = np.array([0.1, 0.5, 2.0, 1e-3, 0.1])
SHAPES = PRIOR + np.array([80.0, 15.0, 5.0, 0.0, 0.0])
SEEN = (0, 1, 2, 4)  # the fourth component is below the smallest number half of the time
every_step = pytest.mark.parametrize(
    "step_class", [SCIR, slow(SGRLD)], ids=lambda step: step.__name__
)  # SCIR or SGRLD, whose common base class has the attributes these tests use
MINIBATCH = {"batch_size": 10, "minibatch": ["z"]}


def dirichlet_model():
    with pm.Model() as model:
        z = pm.Data("z", LABELS)
        w = pm.Dirichlet("w", PRIOR)
        pm.Categorical("y", w, observed=z)
    return model


@pytest.fixture(scope="module")
def model():
    return dirichlet_model()


def make(model, step_class=SCIR, vars=None, **kwargs):
    with model:
        return step_class(vars, compile_kwargs=INTERPRETED, **kwargs)


def independent_ends(step, seed, n=200):
    """ω of draws far enough apart to count as independent."""
    point = start(step.model, step, tune=0, draws=n, seed=seed)
    values = np.array([point["w_simplex__"] for point in run_steps(step, point, n)[0]])
    logs = np.column_stack([values, -values.sum(axis=1)])
    return softmax(logs, axis=1)


@pytest.mark.slow
def test_full_data_chains_are_exact_draws(model):
    """Over 20 seeds the p-values of each marginal are uniform, sparse components too."""
    step = make(model, step_size=8.0, n_steps=1)
    runs = [independent_ends(step, seed) for seed in range(20)]
    for j in SEEN:
        dist = stats.beta(SHAPES[j], SHAPES.sum() - SHAPES[j])
        p_values = [stats.kstest(w[:, j], dist.cdf).pvalue for w in runs]
        assert stats.kstest(p_values, "uniform").pvalue > 0.01
        assert stats.kstest(np.concatenate(runs)[:, j], dist.cdf).pvalue > 0.01


@pytest.mark.slow
def test_longer_chains_of_short_steps_are_exact_too(model):
    step = make(model, step_size=0.5, n_steps=15)
    full = independent_ends(step, 1, n=600)
    for j in SEEN:
        dist = stats.beta(SHAPES[j], SHAPES.sum() - SHAPES[j])
        assert stats.kstest(full[:, j], dist.cdf).pvalue > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("concentration", [1.0, slow(0.03), 1e-3])
def test_prior_only(concentration):
    """Marginals of ω in the log, against exact gamma ratios; nothing is zero or undefined."""
    with pm.Model() as model:
        pm.Dirichlet("w", np.full(5, concentration), shape=(2, 5))
    idata = sample(model, make(model, step_size=10.0, n_steps=1), draws=1000, tune=0)
    w = idata.posterior["w"].values[0]
    assert np.isfinite(w).all()
    assert w.min() > 0.0
    np.testing.assert_allclose(w.sum(axis=-1), 1.0, rtol=1e-9)
    dist = stats.beta(concentration, 4.0 * concentration)
    # Compare where doubles can: the fraction of draws below is that of the exact distribution.
    floor = 1e-290
    for row in range(2):
        draws = w[:, row, 0]
        below = draws < floor
        assert stats.binomtest(int(below.sum()), len(draws), dist.cdf(floor)).pvalue > 1e-3
        seen = draws[~below & (draws < 1.0 - 1e-12)]
        low, high = dist.cdf(floor), dist.cdf(1.0 - 1e-12)
        assert (
            stats.kstest(seen, lambda x, a=low, b=high: (dist.cdf(x) - a) / (b - a)).pvalue > 1e-3
        )


def test_minibatch_of_all_rows(model):
    one = sample(model, make(model, step_size=1.0), draws=30, tune=0)
    other = sample(model, make(model, step_size=1.0, batch_size=100, minibatch=["z"]), draws=30,
                   tune=0)  # fmt: skip
    assert_same_draws(one, other, rtol=1e-9)


def test_gamma_posteriors_are_exact():
    """A Poisson rate, a precision, an exponential rate and a simplex, by one step."""
    rng = np.random.default_rng(1)
    counts, waits, values = rng.poisson(3.0, 12), rng.exponential(2.0, 7), rng.normal(0, 3, 9)
    with pm.Model() as model:
        rate = pm.Gamma("rate", 2.0, 0.5, shape=2)
        pm.Poisson("counts", rate[[0, 1] * 6], observed=counts)
        speed = pm.Gamma("speed", 0.3, 1.0)
        pm.Exponential("waits", speed, observed=waits)
        tau = pm.Gamma("tau", 1.0, 10.0)
        pm.Normal("values", 0.0, tau=tau, observed=values)
        pm.Dirichlet("w", np.ones(3))
    step = make(model, step_size=6.0, n_steps=1)
    posterior = sample(model, step, draws=1000, tune=10).posterior
    for draws, shape, exposure in (
        (posterior["rate"][0, :, 0], 2.0 + counts[::2].sum(), 0.5 + 6.0),
        (posterior["rate"][0, :, 1], 2.0 + counts[1::2].sum(), 0.5 + 6.0),
        (posterior["speed"][0], 0.3 + 7.0, 1.0 + waits.sum()),
        (posterior["tau"][0], 1.0 + 4.5, 10.0 + 0.5 * (values**2).sum()),
    ):
        assert stats.kstest(draws, stats.gamma(shape, scale=1.0 / exposure).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_log_normal_posteriors_are_exact():
    data = np.random.default_rng(2).lognormal(1.0, 0.5, 40)
    with pm.Model() as model:
        x = pm.LogNormal("x", 0.0, 2.0)
        y = pm.Data("y", data)
        pm.LogNormal("v", pm.math.log(x), 0.5, observed=y)
    precision = 0.25 + 40 / 0.25
    dist = stats.lognorm(precision**-0.5, scale=math.exp(np.log(data).sum() / 0.25 / precision))
    full = sample(model, make(model, step_size=6.0, n_steps=1), draws=1000, tune=10)
    assert stats.kstest(full.posterior["x"][0], dist.cdf).pvalue > 1e-3
    step = make(model, batch_size=4, minibatch=["y"])
    part = sample(model, step, draws=600, tune=100)
    assert float(part.sample_stats["variance_inflation"][0, -1]) < 0.0501
    assert abs(np.log(part.posterior["x"].values).mean() - np.log(dist.median())) < 0.05


def test_parameters_of_the_prior_follow_other_steps():
    """ω given its concentration, which another step moves."""
    with pm.Model() as model:
        c = pm.Uniform("c", 0.5, 20.0)
        pm.Dirichlet("w", c * np.ones(4))
    step = make(model, vars=["w"], step_size=10.0, n_steps=1)
    point = start(model, step, tune=0, draws=1)
    sds = []
    for concentration in (1.0, 19.0):
        share = (concentration - 0.5) / 19.5
        point["c_interval__"] = np.array(math.log(share / (1.0 - share)))
        values = np.array([p["w_simplex__"] for p in run_steps(step, point, 400)[0]])
        sds.append(values.std(axis=0).mean())
    assert sds[0] > 3.0 * sds[1]


def test_discrete_labels_of_another_step():
    """Counts are those of the present labels."""
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        pm.Categorical("z", w, shape=50, initval=np.zeros(50, dtype=int))
    step = make(model, vars=["w"], step_size=10.0, n_steps=1)
    point = start(model, step, tune=0, draws=1)
    for label in (0, 2):
        point["z"] = np.full(50, label)
        (*_, last), _ = run_steps(step, point, 3)
        value = np.append(last["w_simplex__"], -last["w_simplex__"].sum())
        assert np.argmax(value) == label


# Noise, tuning and stats.


def test_tuning_bounds_the_inflation(model):
    step = make(model, **MINIBATCH)
    idata = sample(model, step, draws=50, tune=100)
    stat = idata.sample_stats
    assert 0.02 < float(stat["variance_inflation"][0, -1]) < 0.0501
    assert len(np.unique(stat["step_size"])) == 1
    assert (stat["n_grad"] == 10).all()


@pytest.mark.slow
def test_the_tuned_step_has_the_variance_of_the_posterior(model):
    """Up to the 5 % that tuning allows and the error of a long chain."""
    idata = sample(model, make(model, n_steps=40, **MINIBATCH), draws=10_000, tune=500)
    w = idata.posterior["w"].values[0]
    for j in (0, 1, 2):
        dist = stats.beta(SHAPES[j], SHAPES.sum() - SHAPES[j])
        assert abs(w[:, j].mean() - dist.mean()) < 0.1 * dist.std()
        assert 0.9 < w[:, j].var() / dist.var() < 1.15


def test_control_variates_remove_the_noise_of_fixed_counts(model):
    """Also the inflation of corollary 3.2: the tuned step size is the maximum."""
    step = make(model, control_variates=True, **MINIBATCH)
    stat = sample(model, step, draws=20, tune=40).sample_stats
    assert float(stat["variance_inflation"][0, -1]) < 1e-9
    assert float(stat["step_size"][0, -1]) == pytest.approx(5.0)
    assert (stat["n_grad"] == 20).all()
    assert (stat["count_clips"] == 0).all()


def mixture_model():
    rng = np.random.default_rng(3)
    topics = rng.dirichlet(np.full(6, 0.5), 2)
    counts = np.array([rng.multinomial(20, topics[i % 2]) for i in range(200)])
    weights = np.array([[0.9, 0.1], [0.1, 0.9]] * 100)
    with pm.Model() as model:
        x, weight = pm.Data("x", counts), pm.Data("weight", weights)
        w = pm.Dirichlet("w", np.ones(6), shape=(2, 6))
        pm.Multinomial("y", n=20, p=pm.math.dot(weight, w), observed=x)
    return model


@pytest.mark.slow
def test_control_variates_reduce_the_noise_of_expected_counts():
    model = mixture_model()
    noise = []
    for control_variates in (False, True):
        step = make(
            model, control_variates=control_variates, batch_size=10, minibatch=["x", "weight"],
            step_size=0.01,
        )  # fmt: skip
        stats = sample(model, step, draws=100, tune=100).sample_stats
        noise.append(float(stats["variance_inflation"][0, -1]))
    assert noise[1] < 0.1 * noise[0]


def test_an_inflated_variance_is_reported(model, caplog):
    sample(model, make(model, step_size=1.0, **MINIBATCH), draws=30, tune=30, quiet=False)
    assert "relative increase of the variance by minibatch noise with step size 1 is" in caplog.text


def test_a_schedule_is_followed(model):
    schedule = PolynomialDecay(0.3, b=5.0, gamma=0.6)
    stat = sample(
        model, make(model, step_size=schedule, **MINIBATCH), draws=20, tune=5
    ).sample_stats
    np.testing.assert_allclose(stat["step_size"][0], [schedule(5 + i) for i in range(20)])


@every_step
def test_same_seed_same_draws(model, step_class):
    runs = [
        sample(model, make(model, step_class, **MINIBATCH), draws=20, tune=20, random_seed=seed)
        for seed in (1, 1, 2)
    ]
    assert_same_draws(runs[0], runs[1])
    assert not np.array_equal(runs[0].posterior["w"], runs[2].posterior["w"])


@pytest.mark.parametrize("options", [{}, {"control_variates": True}], ids=str)
def test_replay_from_a_saved_state(model, options):
    one, other = (make(model, **MINIBATCH, **options) for _ in range(2))
    point = run_steps(one, start(model, one, tune=12, draws=10), 9)[0][-1]
    other.setup_chain(np.random.default_rng(9), 12, 10)
    other.sampling_state = one.sampling_state
    assert equal_dataclass_values(one.sampling_state, other.sampling_state)
    expected, found = run_steps(one, point, 5)[0], run_steps(other, point, 5)[0]
    for a, b in zip(expected, found, strict=True):
        # A replayed step reads log θ again only if the point is not the one it wrote.
        np.testing.assert_array_equal(a["w_simplex__"], b["w_simplex__"])


@every_step
def test_a_step_survives_pickling(model, step_class):
    step = make(model, step_class, **MINIBATCH)
    copy = cloudpickle.loads(cloudpickle.dumps(step))
    points = [run_steps(s, start(s.model, s, tune=5, draws=5), 4)[0][-1] for s in (step, copy)]
    np.testing.assert_array_equal(points[0]["w_simplex__"], points[1]["w_simplex__"])


def test_one_and_two_processes_agree(model):
    runs = [
        sample(model, make(model, **MINIBATCH), draws=20, tune=20, chains=2, cores=cores)
        for cores in (1, 2)
    ]
    assert_same_draws(*runs)
    assert not np.array_equal(runs[0].posterior["w"][0], runs[0].posterior["w"][1])


@pytest.mark.slow
def test_several_simplices_are_the_same_in_two_processes():
    """Bitwise, although exponentials of views and copies may differ in the last bit."""
    with pm.Model() as model:
        pm.Dirichlet("w", np.full(12, 0.5), shape=(3, 12))
    runs = [sample(model, make(model), draws=20, tune=5, chains=2, cores=cores) for cores in (1, 2)]
    assert_same_draws(*runs)


def test_a_model_without_simplices_and_gamma_variables():
    with pm.Model() as model:
        pm.Exponential("rate", 2.0)
    with pytest.raises(ValueError, match=r"has only \['rate'\]\. .*as Gamma\(1, λ\)"):
        make(model)


@pytest.mark.parametrize("begin", [1e-300, slow(1e-20)])
def test_rates_that_start_near_zero_converge(begin):
    """Rounding of counts must not become an exposure, which would keep them near zero."""
    with pm.Model() as model:
        pm.Poisson("y", pm.Gamma("rate", 2.0, 1.0), observed=[3, 4])
    step = make(model)
    point = {**start(model, step, tune=2, draws=2), "rate_log__": np.array(np.log(begin))}
    points, _ = run_steps(step, point, 3)
    assert all(point["rate_log__"] > -3.0 for point in points)
    noise = step.sampling_state.sampler_state["adaptation"]["noise"]
    np.testing.assert_allclose(noise["exposures"] / noise["count"], 2.0, rtol=1e-6)


@pytest.mark.parametrize(("step_class", "value"), cross([SCIR, SGRLD], [np.inf, np.nan]))
def test_initial_values_off_the_open_simplex(step_class, value):
    """PyMC's transform makes infinity of a zero."""
    with pm.Model() as model:
        pm.Dirichlet("w", np.ones(2))
    step = make(model, step_class)
    point = {**start(model, step, tune=0, draws=1), "w_simplex__": np.array([value])}
    with pytest.raises(ValueError, match=r"w is zero, .* a positive initial value \(initval=\)"):
        step.step(point)


def test_blocks_of_rows_from_an_iterable():
    """For a likelihood with a sum to be analyzed, whose rows are not in the model."""
    with pm.Model() as model:
        z = pm.Data("z", LABELS[:5])
        w = pm.Dirichlet("w", PRIOR)
        pm.Categorical("y", w / w.sum(), observed=z)
    labels = np.random.default_rng(1).permutation(LABELS)
    blocks = [labels[i : i + 20] for i in range(0, 100, 20)]
    step = make(model, minibatch=["z"], batches=blocks, total_size=100, step_size=0.05)
    posterior = sample(model, step, draws=400, tune=50).posterior
    assert abs(float(posterior["w"][..., 0].mean()) - SHAPES[0] / SHAPES.sum()) < 0.03


def test_points_changed_by_other_steps_are_read(model):
    step = make(model, step_size=1e-9, n_steps=1)
    point = run_steps(step, start(model, step, tune=0, draws=2), 1)[0][-1]
    moved = {**point, "w_simplex__": np.array([1.0, 0.5, -3.0, 0.3])}
    (there,), _ = run_steps(step, moved, 1)
    np.testing.assert_allclose(there["w_simplex__"], moved["w_simplex__"], atol=1e-2)


def test_simplices_without_a_transform():
    with pm.Model() as model:
        pm.Dirichlet("w", np.full(4, 0.01), default_transform=None, initval=[0.5, 0.5, 0.0, 0.0])
        pm.Gamma("g", 0.01, 1.0, default_transform=None)
    idata = sample(model, make(model, step_size=10.0, n_steps=1), draws=500, tune=0)
    w, g = idata.posterior["w"].values[0], idata.posterior["g"].values[0]
    assert min(w.min(), g.min()) > 0.0
    np.testing.assert_allclose(w.sum(axis=1), 1.0, rtol=1e-12)
    assert abs(np.mean(w[:, 0] > 0.5) - 0.25) < 0.1


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_together_with_nuts():
    rng = np.random.default_rng(4)
    data = np.concatenate([rng.normal(-2.0, 1.0, 60), rng.normal(2.0, 1.0, 20)])
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        mu = pm.Normal("mu", 0.0, 5.0, shape=2, initval=[-1.0, 1.0])
        pm.NormalMixture("y", w, mu, 1.0, observed=data)
    step = make(model)  # and pm.sample gives the other variable to NUTS
    posterior = sample(model, step, draws=150, tune=100).posterior
    assert abs(float(posterior["w"][..., 0].mean()) - 0.75) < 0.06
    np.testing.assert_allclose(posterior["mu"].mean(("chain", "draw")), [-2.0, 2.0], atol=0.4)


# Errors.


def test_a_negative_count_raises_an_error_with_its_name():
    with pm.Model() as model:
        w = pm.Dirichlet("weights", np.ones(2))
        sign = pm.Data("sign", np.array([1.0, 1.0]))
        pm.Potential("y", pm.math.sum(sign * pm.math.log(w)))
    step = make(model)
    point = start(model, step, tune=0, draws=5)
    with model:
        pm.set_data({"sign": [1.0, -1.0]})
    step.estimator.refresh_data()
    with pytest.raises(SamplingError, match="cannot sample 'weights': at its component 1"):
        run_steps(step, point, 2)


@every_step
def test_an_undefined_gradient_is_retried_in_tuning_and_raises_later(step_class):
    with pm.Model() as model:
        w = pm.Dirichlet("weights", np.ones(2))
        factor = pm.Data("factor", np.array([1.0, 1.0]))
        pm.Potential("y", pm.math.sum(factor * pm.math.log(w)))
    step = make(model, step_class, step_size=0.2)
    point = run_steps(step, start(model, step, tune=4, draws=5), 1)[0][-1]
    with model:
        pm.set_data({"factor": [1.0, np.nan]})
    step.estimator.refresh_data()
    points, stat = run_steps(step, point, 2)
    assert all(s["diverging"] for s in stat)
    assert [s["step_size"] for s in stat] == [0.2, 0.1]
    np.testing.assert_allclose(points[-1]["weights_simplex__"], point["weights_simplex__"])
    step.tune = False
    with pytest.raises(SamplingError, match=r"'weights'.*step size"):
        run_steps(step, point, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_size": -1.0}, "step_size must be positive"),
        ({"n_steps": 0}, "n_steps must be an integer of at least 1, got 0"),
        ({"minibatch": ["x"], "batch_size": 10}, "'x'"),
    ],
)
def test_wrong_arguments(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, **arguments)


def test_a_concentration_that_is_not_positive_is_named():
    with pm.Model() as model:
        c = pm.Normal("c")
        pm.Dirichlet("w", pm.math.stack([c, c + 3.0]), initval=[0.5, 0.5])
    step = make(model, vars=["w"])
    point = start(model, step, tune=0, draws=1)
    point["c"] = np.array(-1.0)
    with pytest.raises(ValueError, match=r"Dirichlet prior of 'w'.*not positive"):
        step.step(point)


def test_a_prior_of_data_is_read_when_a_chain_begins():
    with pm.Model() as model:
        a = pm.Data("a", np.array([100.0, 1.0]))
        pm.Dirichlet("w", a)
    step = make(model, step_size=8.0)
    assert independent_ends(step, 1, 50)[:, 0].mean() > 0.9
    pm.set_data({"a": np.array([1.0, 100.0])}, model=model)
    assert independent_ends(step, 1, 50)[:, 0].mean() < 0.1

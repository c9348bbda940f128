"""Topics of documents in shards: the posterior of all documents."""

import functools

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.distributed.shard_actor import Job, ShardActor
from pymc_geodesic.distributed.shards import StepSpec, step_spec
from pymc_geodesic.topics import lda, lda_gibbs
from tests.distributed.inline import InlineClient
from tests.grids import slow

pytestmark = pytest.mark.usefixtures("interpreted")
QUIET = {"progressbar": False, "compute_convergence_checks": False}
SIZES = (20, 35, 25)
OPTIONS = {
    "local": ["theta"], "minibatch": ["counts"], "batch_size": 20, "step_size": 0.02,
    "n_steps": 8, "local_draws": 1, "local_tune": 1,
}  # fmt: skip


def heterogeneous_parts(seed=1):
    """Documents of one topic, in heterogeneous shards of unequal size."""
    rng = np.random.default_rng(seed)
    parts = []
    for size in SIZES:
        weights = np.array([4.0, 3.0, 2.0, 1.0, 0.5]) * np.exp(0.2 * rng.normal(size=5))
        counts = rng.multinomial(12, weights / weights.sum(), size=size)
        parts.append(sparse.csr_array(counts))
    return parts


def sampled(client=None, kind=pg.SCIR, parts=None, **arguments):
    """Draws of a model whose documents have the first of two topics with probability 1 − 10⁻⁶."""
    parts = heterogeneous_parts() if parts is None else parts
    model = lda(parts[0][:2], 2, alpha=[1e4, 1e-4], beta=1.0)
    options = OPTIONS | {name: arguments.pop(name) for name in OPTIONS if name in arguments}
    arguments = {"draws": 20, "tune": 10, "chains": 2, "random_seed": 5} | arguments
    return pg.distributed.sample(
        model, functools.partial(kind, **options), client or InlineClient(),
        shards=[{"counts": part} for part in parts], conducive=False, **arguments, **QUIET,
    )  # fmt: skip


def errors(idata, parts):
    """Errors of the means of the first topic in exact sds, and ratios of sds."""
    shape = 1.0 + sum(part.sum(axis=0) for part in parts)
    mean = shape / shape.sum()
    sd = np.sqrt(mean * (1.0 - mean) / (shape.sum() + 1.0))
    draws = idata.posterior["topics"].values[:, :, 0].reshape(-1, len(mean))
    return (draws.mean(axis=0) - mean) / sd, draws.std(axis=0) / sd


def is_exact(idata, parts):
    of_mean, of_sd = errors(idata, parts)
    return np.abs(of_mean).max() < 0.2 and np.abs(of_sd - 1.0).max() < 0.2


@pytest.fixture(scope="module")
def undisturbed():
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        return sampled()


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        slow(pg.SCIR, {"draws": 2000}),
        slow(pg.SGRLD, {"draws": 4000, "step_size": 1e-4, "n_steps": 4}),
    ],
)
def test_topics_of_heterogeneous_shards_have_the_posterior_of_all_documents(
    kind, arguments, caplog
):
    """With known topics of all words the posterior is a Dirichlet distribution.

    Counts of labels of heterogeneous shards have theirs in `test_sampling.py`, by default.
    """
    idata = sampled(kind=kind, tune=100, **arguments)
    assert is_exact(idata, heterogeneous_parts())
    assert "documents of different shards" not in caplog.text
    assert "theta" not in idata.posterior


@pytest.mark.slow
def test_mutant_that_counts_each_document_once(monkeypatch):
    """Independent of the visit probability; see `test_shard_actor.py` for rows."""

    def build(spec, model, total_size):
        return spec.step_class(model=model, total_size=total_size // len(SIZES), **spec.arguments)

    monkeypatch.setattr(StepSpec, "build", build)
    assert not is_exact(sampled(draws=800, tune=100), heterogeneous_parts())


@pytest.mark.slow
def test_heterogeneous_documents_warn(caplog):
    inflation = sampled(visit=25)["shards"].attrs["variance_inflation"]
    assert inflation > 1
    assert "The documents of different shards imply topics that are" in caplog.text
    assert f"increases the variance of the draws by {100 * inflation:.0f} %" in caplog.text


@pytest.mark.slow
def test_variance_inflation_by_long_visits_is_predicted(caplog):
    """Minibatches inflate the variance of SCIR in the same way, which predicts the inflation."""
    idata = sampled(draws=4000, tune=100, visit=25)
    inflation = idata["shards"].attrs["variance_inflation"]
    assert inflation > 1
    shape = 1.0 + sum(part.sum(axis=0) for part in heterogeneous_parts())
    mean = shape / shape.sum()
    exact = mean * (1.0 - mean) / (shape.sum() + 1.0)
    found = idata.posterior["topics"].values[:, :, 0].var(axis=(0, 1))
    assert 0.6 < (found.sum() / exact.sum() - 1.0) / inflation < 1.6
    assert "The documents of different shards imply topics that are" in caplog.text
    assert f"increases the variance of the draws by {100 * inflation:.0f} %" in caplog.text


@pytest.mark.slow
def test_identical_shards_do_not_warn(caplog):
    parts = [heterogeneous_parts()[1]] * 3
    idata = sampled(parts=parts, visit=10)
    assert idata["shards"]["shift"].max() < 0.5
    assert idata["shards"].attrs["variance_inflation"] < 0.1
    assert "documents of different shards" not in caplog.text


@pytest.mark.slow
def test_draws_are_the_same_on_any_number_of_workers(undisturbed):
    """See `test_sampling.py` for rows."""
    for workers in (2, 3):
        other = sampled(InlineClient(workers))
        np.testing.assert_array_equal(other.posterior["topics"], undisturbed.posterior["topics"])
    other = sampled(random_seed=6)
    assert not np.array_equal(other.posterior["topics"], undisturbed.posterior["topics"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "number"), [slow("configure", 1), ("visit", 7), slow("topic_drift", 1)]
)
def test_lost_workers_do_not_change_draws(undisturbed, method, number):
    client = InlineClient(2, lose={("inline://0", method): number})
    idata = sampled(client)
    assert client.workers == ["inline://1"]
    assert idata["shards"]["reloads"].sum() >= 1
    np.testing.assert_array_equal(idata.posterior["topics"], undisturbed.posterior["topics"])
    np.testing.assert_array_equal(idata["shards"]["shift"], undisturbed["shards"]["shift"])


@pytest.mark.slow
def test_result(undisturbed):
    """Chains have different initial topics, each draw has another shard, θ is omitted."""
    assert dict(undisturbed.posterior.sizes) == {"chain": 2, "draw": 20, "topic": 2, "word": 5}
    stats = undisturbed.sample_stats
    assert (stats["shard"].values[:, 1:] != stats["shard"].values[:, :-1]).any()
    assert (stats["shard"][0] != stats["shard"][1]).all()
    assert undisturbed["shards"]["n_rows"].values.tolist() == list(SIZES)
    first = sampled(tune=0, draws=3, n_steps=1).posterior["topics"].values
    assert not np.array_equal(first[0, 0], first[1, 0])
    assert sampled(discard_tuned_samples=False).warmup_posterior["topics"].shape[1] == 10


@pytest.mark.slow
def test_step_method_of_the_model():
    """Constructed in the model, which has the documents of a minibatch.

    `test_sampling.py` has it for rows, by default.
    """
    parts = heterogeneous_parts()
    arguments = {"draws": 4, "tune": 2, "chains": 1, "random_seed": 1, "conducive": False} | QUIET
    runs = []
    for is_made in (False, True):
        model = lda(parts[0], 2, alpha=0.5, beta=1.0)
        step = functools.partial(pg.SCIR, **OPTIONS)
        with model:
            step = step() if is_made else step
        shards = [{"counts": part} for part in parts]
        runs.append(pg.distributed.sample(model, step, InlineClient(), shards=shards, **arguments))
    np.testing.assert_array_equal(runs[0].posterior["topics"], runs[1].posterior["topics"])


def two_topics(n, seed=2):
    rng = np.random.default_rng(seed)
    topics = np.array([[5, 3, 1, 0.1], [0.1, 1, 3, 5]])
    theta = rng.dirichlet([0.5, 0.5], size=n)
    mixtures = theta @ (topics / topics.sum(axis=1, keepdims=True))
    return np.array([rng.multinomial(6, row / row.sum()) for row in mixtures])


def order_free(topics):
    """Functions of the topics that do not depend on their order, shape (draw, 4)."""
    gram = np.einsum("mki,mkj->mij", topics, topics)
    return np.stack([gram[:, 0, 0], gram[:, 0, 1], gram[:, 2, 3], gram[:, 0, 3]], axis=1)


@pytest.mark.slow
def test_unknown_topics_have_the_posterior_of_collapsed_gibbs():
    documents = two_topics(18)
    prior = {"alpha": 0.5, "beta": 0.5}
    gibbs = lda_gibbs(documents, 2, **prior, draws=20_000, tune=100, random_seed=1)
    counts = sparse.csr_array(documents)
    step = functools.partial(
        pg.SCIR, local=["theta"], minibatch=["counts"], step_size=0.05, n_steps=4, local_tune=4,
        local_draws=2,
    )  # fmt: skip
    idata = pg.distributed.sample(
        lda(counts[:1], 2, **prior), step, InlineClient(), conducive=False, draws=8000, tune=200,
        shards=[{"counts": counts[:7]}, {"counts": counts[7:]}], chains=2, random_seed=1, **QUIET,
    )  # fmt: skip
    found = order_free(np.concatenate(idata.posterior["topics"].values))
    exact = order_free(gibbs.posterior["topics"].values[0])
    sd = exact.std(axis=0)
    np.testing.assert_allclose((found.mean(axis=0) - exact.mean(axis=0)) / sd, 0.0, atol=0.2)
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.15)


def loaded_shard(documents, **options):
    counts = sparse.csr_array(documents)
    model = lda(counts[:2], 2, alpha=0.5, beta=0.5)
    step = functools.partial(pg.SCIR, **OPTIONS | {"batch_size": 5} | options)
    job = cloudpickle.dumps(Job(model, step_spec(step, model), expands=False))
    shard = ShardActor(job, {"counts": counts}, 0.5)
    shard.configure(None, None, 0, 100)
    return shard, model.initial_point(random_seed=1)


@pytest.mark.slow
def test_state_size_does_not_depend_on_the_number_of_documents():
    lengths = []
    for n in (10, 400):
        shard, start = loaded_shard(two_topics(n))
        state, draws = shard.visit(shard.start_chain(start, 1), 8, 2, shard=0, ends_tuning=False)
        lengths.append(len(state))
        assert set(draws.values) == {"topics_simplex__"}
        assert draws.values["topics_simplex__"].shape == (8, 2, 3)
    assert abs(lengths[1] - lengths[0]) < 0.02 * lengths[0]


def same_after_other_visits():
    shard, start = loaded_shard(two_topics(30))
    state, _ = shard.visit(shard.start_chain(start, 1), 4, 2, shard=0, ends_tuning=False)
    first = shard.visit(state, 5, 3, shard=0, ends_tuning=False)
    shard.visit(state, 7, 4, shard=0, ends_tuning=False)
    again = shard.visit(state, 5, 3, shard=0, ends_tuning=False)
    return all(np.array_equal(first[1].values[name], again[1].values[name]) for name in first[1][0])


def test_documents_restart_in_every_visit():
    assert same_after_other_visits()


@pytest.mark.slow
def test_mutant_that_keeps_proportions_between_visits(monkeypatch):
    """Draws would depend on workers and their losses."""

    def go_on(step, point):
        point = dict(point)
        if not step.estimator._values.size:
            step.estimator.forget_local()
        step.estimator.write_local(point)
        step._has_local_values = True
        return point

    monkeypatch.setattr(pg.SCIR, "restart_local", go_on)
    assert not same_after_other_visits()


def documents_of_six_visits():
    """Documents of a chain, five of thirty per visit, with another chain in between."""
    shard, start = loaded_shard(two_topics(30), n_steps=1)
    source, seen = shard._step.estimator.source, []
    next_starts = source.next_starts
    source.next_starts = lambda n: seen.append(next_starts(n)) or seen[-1]
    state, other, blocks = shard.start_chain(start, 1), shard.start_chain(start, 2), []
    for visit in range(6):
        seen.clear()
        state, _ = shard.visit(state, 1, 10 + visit, shard=0, ends_tuning=False)
        blocks.append(np.concatenate(seen))
        other, _ = shard.visit(other, 4, 20 + visit, shard=0, ends_tuning=False)
    return set(np.add.outer(np.concatenate(blocks), np.arange(5)).ravel() % 30)


def test_minibatch_order_of_documents_continues_from_visit_to_visit():
    assert len(documents_of_six_visits()) == 30


def test_mutant_whose_minibatch_order_restarts_leaves_documents_out(monkeypatch):
    monkeypatch.setattr(StepSpec, "continues_minibatch_order", False)
    assert len(documents_of_six_visits()) < 30


@pytest.mark.slow
def test_variables_that_depend_on_proportions_are_omitted():
    with lda(np.ones((2, 4)), 2, alpha=0.5, beta=0.5) as model:
        pm.Deterministic("mean_theta", model["theta"].mean(axis=0))
        pm.Deterministic("first", model["topics"][0, 0])
    counts = sparse.csr_array(two_topics(30))
    idata = pg.distributed.sample(
        model, functools.partial(pg.SCIR, **OPTIONS | {"batch_size": 10}), InlineClient(),
        shards=[{"counts": counts}], draws=3, tune=0, chains=1, conducive=False, **QUIET,
    )  # fmt: skip
    assert set(idata.posterior.data_vars) == {"topics", "first"}
    np.testing.assert_allclose(idata.posterior["first"], idata.posterior["topics"][..., 0, 0])


@pytest.mark.parametrize("kept_as", ["name", "names", "variable", "value"])
def test_local_variables_are_serialized_by_name(kept_as):
    model = lda(np.ones((2, 4)), 2)
    theta = model["theta"]
    local = {
        "name": "theta",
        "names": ("theta",),
        "variable": [theta],
        "value": model.rvs_to_values[theta],
    }
    step = functools.partial(pg.SCIR, **OPTIONS | {"local": local[kept_as]})
    spec = step_spec(step, model)
    assert spec.arguments["local"] == spec.local_names == ["theta"]


@pytest.mark.parametrize(
    ("kind", "options", "conducive", "message"),
    [
        (pg.SCIR, {}, True, r"words of documents .* pass conducive=False"),
        (pg.SCIR, {"control_variates": True}, True, "control_variates= is not available"),
        (pg.SCIR, {"local": ["topic"]}, False, "Unknown variable 'topic'"),
        (pg.SGGMC, {}, False, r"local=\['theta'\] has one value per row, .* SCIR or SGRLD"),
    ],
)
def test_unavailable_options_raise(kind, options, conducive, message):
    counts = sparse.csr_array(np.ones((4, 3)))
    arguments = {"local": ["theta"], "minibatch": ["counts"], "batch_size": 2} | options
    with pytest.raises(ValueError, match=message):
        pg.distributed.sample(
            lda(counts, n_topics=2), functools.partial(kind, **arguments), InlineClient(),
            shards=[{"counts": counts}], conducive=conducive, **QUIET,
        )  # fmt: skip


def test_proportions_of_a_fixed_number_of_documents():
    counts = sparse.csr_array(np.ones((4, 3)))
    with pm.Model() as model:
        data = pg.SparseData("counts", counts[:2])
        topics = pm.Dirichlet("topics", np.ones(3), shape=(2, 3))
        theta = pm.Dirichlet("theta", np.ones(2), shape=(2, 2))
        pm.Potential("words", pg.sparse.admixture_log_likelihood(data, theta, topics))
    step = functools.partial(pg.SCIR, local=["theta"], minibatch=["counts"], batch_size=2)
    with pytest.raises(ValueError, match=r"'theta' has 2 rows, .* counts.shape\[0\]"):
        pg.distributed.sample(
            model, step, InlineClient(), shards=[{"counts": counts}], conducive=False, **QUIET
        )

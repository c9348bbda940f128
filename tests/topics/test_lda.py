"""Latent Dirichlet allocation: likelihood, steps, streams, perplexity, edge cases."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.graph.replace import vectorize_graph
from scipy import sparse

from pymc_geodesic import SCIR, SGGMC, SGRLD, PolynomialDecay, SparseData
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.runtime.threads import Workers
from pymc_geodesic.sparse import admixture_log_likelihood
from pymc_geodesic.topics import lda, lda_gibbs, perplexity, top_words
from tests.grids import slow
from tests.steps.runs import INTERPRETED

QUIET = {
    "progressbar": False,
    "compute_convergence_checks": False,
    "random_seed": 1,
    "chains": 1,
}


def stream(seed=1):
    return new_stream(np.random.default_rng(seed))


# --- likelihood


@pytest.fixture(scope="module")
def counts():
    counts = np.random.default_rng(0).poisson(0.5, size=(40, 8))
    counts[3] = 0  # an empty document
    counts[:, 5] = 0  # a word that never occurs
    return counts


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_likelihood_is_that_of_the_dense_formula(counts):
    model = lda(counts, 3, alpha=0.5, beta=[0.2] * 8)
    point = model.initial_point(random_seed=1)
    with pm.Model() as dense:
        topics = pm.Dirichlet("topics", 0.2 * np.ones(8), shape=(3, 8))
        theta = pm.Dirichlet("theta", 0.5 * np.ones(3), shape=(40, 3))
        pm.Potential("words", (counts * pm.math.log(theta @ topics)).sum())
    log_density = dense.compile_logp(**INTERPRETED)(point)
    gradient = dense.compile_dlogp(**INTERPRETED)(point)
    assert model.compile_logp(**INTERPRETED)(point) == pytest.approx(log_density, rel=1e-12)
    found = model.compile_dlogp(**INTERPRETED)(point)
    np.testing.assert_allclose(found, gradient, rtol=1e-10, atol=1e-10)


def test_compiled_gradient_is_that_of_the_dense_formula(counts):
    rng = np.random.default_rng(1)
    shares, words = rng.dirichlet(np.ones(3), size=40), rng.dirichlet(np.ones(8), size=3)
    with pm.Model():
        data = SparseData("counts", sparse.csr_array(counts))
    theta, topics = pt.dmatrix("theta"), pt.dmatrix("topics")
    gradient = pt.grad(admixture_log_likelihood(data, theta, topics).sum(), [theta, topics])
    of_theta, of_topics = pytensor.function([theta, topics], gradient, mode="NUMBA")(shares, words)
    ratios = counts / (shares @ words)
    np.testing.assert_allclose(of_theta, ratios @ words.T, rtol=1e-10)
    np.testing.assert_allclose(of_topics, shares.T @ ratios, rtol=1e-10)


def test_likelihood_is_vectorized_over_draws_of_the_proportions(counts):
    with pm.Model():
        data = SparseData("counts", sparse.csr_array(counts))
    rng = np.random.default_rng(1)
    topics, draws = rng.dirichlet(np.ones(8), size=3), rng.dirichlet(np.ones(3), size=(5, 40))
    theta = pt.dmatrix("theta")
    one = admixture_log_likelihood(data, theta, topics)
    many = vectorize_graph(one, {theta: pt.as_tensor(draws)})
    expected = [np.sum(counts * np.log(each @ topics), axis=1) for each in draws]
    np.testing.assert_allclose(many.eval(mode="FAST_COMPILE"), expected, rtol=1e-12)


def test_dimensions_and_data(counts):
    words = [f"w{i}" for i in range(8)]
    model = lda(sparse.coo_array(counts), 3, vocabulary=words)
    assert model.named_vars_to_dims["words"] == ("document",)
    assert model.coords["word"] == tuple(words)
    assert {"alpha", "beta", "counts_values", "counts_columns", "counts_rows"} == {
        data.name for data in model.data_vars
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[0.5, 1.0]], 2), "whole numbers"),
        (([[-1, 1]], 2), "whole numbers"),
        ((np.ma.masked_equal([[1, 9]], 9), 2), "counts has missing values"),
        (([[np.nan, 1]], 2), "counts has missing values"),
        (([[1, 1]], 1), "n_topics"),
        (([[1, 1]], 2, 0.0), "alpha"),
        (([[1, 1]], 2, [0.1, 0.1, 0.1]), "alpha"),
        (([[1, 1]], 2, 0.1, -1.0), "beta"),
        (([[1], [2]], 2), "two words"),
    ],
)
def test_invalid_input_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        lda(*arguments)


@pytest.mark.parametrize("function", [lda, lda_gibbs])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"documents": ["a"]}, "documents must name the 3 rows of counts, but has 1"),
        ({"vocabulary": list("abcde")}, "vocabulary must name the 4 columns of counts, but has 5"),
    ],
)
def test_names_of_wrong_length_raise(function, names, message):
    with pytest.raises(ValueError, match=message):
        function(np.ones((3, 4)), 2, **names)


# --- steps


def corpus(n_documents=60, seed=3):
    rng = np.random.default_rng(seed)
    topics = np.array([[4, 4, 4, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 4, 4, 4]]) + 0.05
    theta = rng.dirichlet([0.2, 0.2], size=n_documents)
    mixtures = theta @ (topics / topics.sum(axis=1, keepdims=True))
    return np.array([rng.multinomial(30, row / row.sum()) for row in mixtures])


def sample(step, model, draws=30, tune=10, **kwargs):
    with model:
        return pm.sample(draws=draws, tune=tune, step=step(), **(QUIET | kwargs))


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("method", [SCIR, slow(SGRLD)])
def test_steps_find_the_topics(method):
    documents = corpus()
    model = lda(documents, 2, alpha=0.2, beta=0.1)
    idata = sample(
        lambda: method(
            local=["theta"], minibatch=["counts"], batch_size=20,
            step_size=PolynomialDecay(0.3 if method is SCIR else 1e-3, b=20, gamma=0.6),
        ),
        model, draws=100, tune=200,
    )  # fmt: skip
    words = top_words(idata, var_name="topics", n=3).values
    assert {frozenset(row) for row in words.tolist()} == {
        frozenset({0, 1, 2}),
        frozenset({5, 6, 7}),
    }
    theta = idata.posterior["theta"].values
    np.testing.assert_allclose(theta.sum(axis=-1), 1.0, rtol=1e-9)
    share = documents[:, :4].sum(axis=1) / documents.sum(axis=1)
    found = theta.mean(axis=(0, 1))[:, 0]
    assert abs(np.corrcoef(share, found)[0, 1]) > 0.98


def order_free(tree):
    """Functions of the topics that do not depend on their order, shape (draws, 4)."""
    topics = tree.posterior["topics"].values[0]
    gram = np.einsum("mki,mkj->mij", topics, topics)
    return np.stack([gram[:, 0, 0], gram[:, 0, 1], gram[:, 2, 3], gram[:, 0, 3]], axis=1)


@pytest.mark.slow
def test_all_documents_give_the_posterior_of_collapsed_gibbs():
    """Topics given counts, and counts given topics, are tested separately.

    Those are `test_topic_run.py` and `test_lda_enumeration.py`.
    """
    documents = np.array([[3, 1, 0, 0], [0, 2, 1, 0], [0, 0, 2, 2], [1, 0, 0, 3], [2, 2, 0, 0]])
    prior = {"alpha": 0.5, "beta": 0.5}
    gibbs = lda_gibbs(documents, 2, **prior, draws=20_000, tune=100, random_seed=1)
    idata = sample(
        lambda: SCIR(
            local=["theta"], minibatch=["counts"], step_size=0.1, n_steps=20, local_draws=2,
            local_tune=1,
        ),
        lda(documents, 2, **prior), draws=3000, tune=50,
    )  # fmt: skip
    exact = order_free(gibbs)
    batches = order_free(idata).reshape(30, 100, 4).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 30 + exact.var(axis=0) / 5000)
    assert np.abs((batches.mean(axis=0) - exact.mean(axis=0)) / error).max() < 5
    np.testing.assert_allclose(batches.mean(axis=0), exact.mean(axis=0), rtol=0.1)


@pytest.mark.slow
def test_geodesic_monte_carlo_of_the_proportions_agrees_with_collapsed_gibbs():
    documents = np.array([[3, 1, 0, 0], [0, 2, 1, 0], [0, 0, 2, 2], [1, 0, 0, 3], [2, 2, 0, 0]])
    prior = {"alpha": 1.0, "beta": 1.5}
    gibbs = lda_gibbs(documents, 2, **prior, draws=20_000, tune=100, random_seed=1)
    model = lda(documents, 2, **prior)
    idata = sample(
        lambda: SGGMC(local=["theta"], minibatch=["counts"], batch_size=5),
        model, draws=6000, tune=2000,
    )  # fmt: skip
    exact = order_free(gibbs)
    batches = order_free(idata).reshape(30, 200, 4).mean(axis=1)
    error = np.sqrt(batches.var(axis=0, ddof=1) / 30 + exact.var(axis=0) / 5000)
    assert np.abs((batches.mean(axis=0) - exact.mean(axis=0)) / error).max() < 5
    np.testing.assert_allclose(batches.mean(axis=0), exact.mean(axis=0), rtol=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_edge_cases_give_finite_positive_draws():
    """Empty documents, unused words, a very long document, small concentrations, all rows."""
    documents = np.zeros((6, 5))
    documents[0, :2] = [70_000, 60_000]
    documents[2, 1:3] = 1
    documents[3, 3] = 2
    for options in ({"batch_size": 2}, {}):
        for method, step_size in ((SCIR, 0.5), (SGRLD, 1e-6)):
            idata = sample(
                lambda method=method, step_size=step_size, options=options: method(
                    local=["theta"], minibatch=["counts"], step_size=step_size, n_steps=2,
                    local_draws=2, local_tune=2, **options,
                ),
                lda(documents, 3, alpha=1e-3, beta=1e-3), draws=5, tune=2,
            )  # fmt: skip
            for name in ("topics", "theta"):
                values = idata.posterior[name].values
                assert np.isfinite(values).all()
                assert (values > 0).all()
                np.testing.assert_allclose(values.sum(axis=-1), 1.0, rtol=1e-9)


def streamed(blocks, **kwargs):
    options = {"step_size": 0.3, "n_steps": 2} | kwargs
    return lambda: SCIR(local=["theta"], minibatch=["counts"], batches=blocks, **options)


def blocks_of_documents():
    documents = sparse.csr_array(corpus())
    return [documents[i : i + 25] for i in range(0, 60, 25)]  # the last one is shorter


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_streamed_documents():
    """Sparse or dense blocks; θ belongs to the current block."""
    blocks = blocks_of_documents()
    model = lda(blocks[0], 2, alpha=0.2, beta=0.1)
    dense = [{"counts": block.toarray().astype(int)} for block in blocks]
    runs = [
        sample(streamed(form, total_size=60), model, draws=10, tune=5) for form in (blocks, dense)
    ]
    assert runs[0].posterior["theta"].shape == (1, 10, 25, 2)
    np.testing.assert_array_equal(runs[0].posterior["topics"], runs[1].posterior["topics"])


@pytest.mark.slow
def test_streamed_documents_have_the_posterior_of_collapsed_gibbs():
    blocks = blocks_of_documents()
    model = lda(blocks[0], 2, alpha=0.2, beta=0.1)
    options = {"step_size": 0.03, "n_steps": 20, "local_tune": 2, "local_draws": 1}
    idata = sample(streamed(blocks, total_size=60, **options), model, draws=1500, tune=100)
    gibbs = lda_gibbs(corpus(), 2, alpha=0.2, beta=0.1, draws=20_000, tune=200, random_seed=1)
    found, exact = order_free(idata), order_free(gibbs)
    np.testing.assert_allclose(
        (found.mean(axis=0) - exact.mean(axis=0)) / exact.std(axis=0), 0.0, atol=0.25
    )
    np.testing.assert_allclose(found.std(axis=0), exact.std(axis=0), rtol=0.1)


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("method", "step_size"), [slow(SCIR, 0.05), (SGRLD, 2e-4)])
def test_short_last_block_is_weighted_by_its_size(method, step_size):
    """One document of 101 has a unique word; all documents have the same topic."""
    documents = np.array([np.bincount(np.arange(i, i + 8) % 5, minlength=6) for i in range(101)])
    documents[-1] = [0, 0, 0, 0, 0, 12]
    blocks = [documents[i : i + 50] for i in (0, 50, 100)]
    assert [len(block) for block in blocks] == [50, 50, 1]
    model = lda(blocks[0], 2, alpha=[1e4, 1e-4], beta=1.0)
    idata = sample(
        lambda: method(
            local=["theta"], minibatch=["counts"], batches=blocks, total_size=101,
            step_size=step_size, n_steps=30, local_draws=1, local_tune=0,
        ),
        model, draws=600, tune=50,
    )  # fmt: skip
    shape = 1.0 + documents.sum(axis=0)
    mean = shape / shape.sum()
    sd = np.sqrt(mean * (1.0 - mean) / (shape.sum() + 1.0))
    found = idata.posterior["topics"].values[0, :, 0]
    np.testing.assert_allclose((found.mean(axis=0) - mean) / sd, 0.0, atol=0.25)
    np.testing.assert_allclose(found.std(axis=0), sd, rtol=0.15)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("streams", [False, True])
def test_replay_from_a_saved_state_and_any_number_of_cores(streams):
    documents = sparse.csr_array(corpus())
    blocks = [documents[i : i + 30] for i in (0, 30)]
    with lda(blocks[0] if streams else documents, 2) as model:
        options = {"batches": blocks, "total_size": 60} if streams else {"batch_size": 30}
        step = SCIR(
            local=["theta"], minibatch=["counts"], step_size=0.3, n_steps=2, rng=1, **options
        )
        point = model.initial_point(random_seed=1)
    for _ in range(3):
        point, _ = step.step(point)
    saved = step.sampling_state
    begin = {name: np.array(value) for name, value in point.items()}
    ends = []
    for workers in (1, 2):
        step.sampling_state = saved
        step.estimator.workers = Workers()
        step.estimator.workers._n_threads = workers
        after = {name: np.array(value) for name, value in begin.items()}
        for _ in range(3):
            after, _ = step.step(after)
        assert (step.estimator.workers._pool is None) == (workers == 1)
        ends.append({name: np.array(value) for name, value in after.items()})
    for name in begin:
        np.testing.assert_array_equal(ends[0][name], ends[1][name])
        assert not np.array_equal(ends[0][name], begin[name])


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"minibatch": ["alpha"], "batch_size": 1}, "name of the counts"),
        (
            {"minibatch": ["counts"], "batches": [np.ones((9, 4))], "total_size": 9},
            "number of documents of the largest block",
        ),
        ({"minibatch": ["counts"], "batches": [np.ones((2, 3))], "total_size": 9}, "4 words"),
        ({"minibatch": ["counts"], "batches": [np.ones((2, 4)) / 2], "total_size": 9}, "counts"),
        ({"minibatch": ["counts"], "batches": [np.ones((2, 4))]}, "total_size"),
        ({"minibatch": ["counts"], "control_variates": True}, "control_variates"),
        ({"minibatch": ["counts"], "local_draws": 0}, "local_draws"),
    ],
)
def test_invalid_arguments_raise(options, message):
    model = lda(np.ones((3, 4)), 2)

    def make_and_run():
        step = SCIR(local=["theta"], model=model, **options)
        step.step(model.initial_point(random_seed=1))

    with pytest.raises(ValueError, match=message):
        make_and_run()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("step_class", [SCIR, SGRLD])
def test_minibatches_of_documents_need_local_proportions(step_class):
    model = lda(np.ones((3, 4)), 2)
    with pytest.raises(ValueError, match=r"3 rows for 1 documents; .*local="):
        step_class(minibatch=["counts"], batch_size=1, model=model)


@pytest.mark.usefixtures("interpreted")
def test_other_likelihoods_raise():
    with pm.Model() as scaled:
        data = SparseData("counts", sparse.csr_array(np.ones((3, 4))))
        topics = pm.Dirichlet("topics", np.ones(4), shape=(2, 4))
        theta = pm.Dirichlet("theta", np.ones(2), shape=(3, 2))
        pm.Potential("words", 2.0 * admixture_log_likelihood(data, theta, topics))
    with pytest.raises(ValueError, match="does not support"):
        SCIR(local=["theta"], minibatch=["counts"], model=scaled)
    with lda(np.ones((3, 4)), 2) as larger:
        pm.Gamma("rate", 1.0, 1.0)
    with pytest.raises(ValueError, match="one global variable"):
        SCIR(local=["theta"], minibatch=["counts"], model=larger)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("initval", [0.0, 1.0])
def test_prior_that_differs_between_documents_raises(initval):
    with pm.Model() as model:
        data = SparseData("counts", sparse.csr_array(np.ones((3, 4))))
        slope = pm.Normal("slope", initval=initval)
        concentration = pt.exp(slope * np.arange(3.0))[:, None] * np.ones(2)
        topics = pm.Dirichlet("topics", np.ones(4), shape=(2, 4))
        theta = pm.Dirichlet("theta", concentration, shape=(3, 2))
        pm.Potential("words", admixture_log_likelihood(data, theta, topics))
    with pytest.raises(ValueError, match="same concentration for all documents"):
        SCIR(["topics"], local=["theta"], minibatch=["counts"], model=model)


# --- perplexity


def test_perplexity_takes_alpha_from_the_draws_and_validates_input():
    idata = lda_gibbs(corpus(), 2, draws=3, tune=20, random_seed=1)
    held = np.ones((1, 8))
    value = perplexity(idata, held, held, random_seed=1)
    assert value == perplexity(idata, held, held, alpha=0.1, random_seed=1)
    with pytest.raises(ValueError, match="alpha"):
        perplexity(np.ones((2, 8)) / 8, held, held)
    with pytest.raises(ValueError, match="8"):
        perplexity(idata, np.ones((1, 7)), held)
    with pytest.raises(ValueError, match="no word"):
        perplexity(idata, held, 0 * held)
    counted = np.stack([np.ones(8) / 8, np.ones(8)])
    with pytest.raises(ValueError, match="those of topic 1 sum to 8: divide each row"):
        perplexity(counted, held, held, alpha=0.1)
    with pytest.raises(ValueError, match="documents"):
        perplexity(idata, np.ones((2, 8)), held)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("method", [SCIR, slow(SGRLD)])
def test_minibatch_without_words(method):
    """A minibatch without words is possible before any other."""
    documents = corpus(n_documents=20)
    documents[:] = 0
    documents[-1, 0] = 3
    model = lda(documents, 2, alpha=0.2, beta=0.1)
    idata = sample(
        lambda: method(local=["theta"], minibatch=["counts"], batch_size=1, step_size=0.01), model
    )
    assert np.isfinite(idata.posterior["topics"]).all()
    assert idata.posterior["topics"].min() > 0

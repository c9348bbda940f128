"""Max-margin topics: conditional distributions against enumeration, mutants, invalid input."""

import itertools
from importlib import import_module

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from pymc_geodesic.kernels.hinge_augmentation import draw_scales, draw_weights
from pymc_geodesic.runtime.streams import new_stream
from pymc_geodesic.schedules import PolynomialDecay
from pymc_geodesic.topics import medlda_gibbs, medlda_ssgrld
from pymc_geodesic.topics.labeled_documents import Hinge, LabeledCounts
from pymc_geodesic.topics.lda_gibbs import Tokens, Totals, count_assignments
from pymc_geodesic.topics.max_margin import (
    AUGMENTED,
    MULTICLASS,
    ONE_VS_REST,
    collapsed_max_margin_sweep,
    sample_assignments,
)
from pymc_geodesic.topics.medlda_ssgrld import MaxMarginTopics, TopicSettings
from tests.grids import slow
from tests.mutants import Mutant
from tests.topics.labeled_documents import corpus

WORDS = np.array([0, 0, 1, 1, 2], dtype=np.int32)
STARTS = np.array([0, 3, 5])
COUNTS = np.array([[2, 1, 0], [0, 1, 1]])
ALPHA, BETA = np.array([0.6, 0.9]), np.array([0.7, 0.9, 0.5])
STATES = np.array(list(itertools.product(range(2), repeat=5)))
ONE_HOT = np.eye(2)[STATES]
ZBAR = np.stack([ONE_HOT[:, a:b].mean(axis=1) for a, b in itertools.pairwise(STARTS)], axis=1)
COST, MARGIN = 1.5, 0.8
ETA = {1: np.array([[1.4], [-0.7]]), 3: np.array([[1.4, -0.3, 0.2], [-0.7, 0.9, -1.1]])}
SIGNS = {1: np.array([[1.0], [-1.0]]), 3: np.array([[-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]])}
SCALES = np.array([[0.5], [1.7]])


def log_dirichlet_multinomial(counts, concentration):
    """Log-probability of labels with these counts, in a given order; last axis summed."""
    total = gammaln(concentration.sum()) - gammaln(concentration.sum() + counts.sum(axis=-1))
    return total + np.sum(gammaln(concentration + counts) - gammaln(concentration), axis=-1)


def log_lda():
    """Of all assignments, with topics and proportions summed out."""
    log_p = sum(
        log_dirichlet_multinomial(ONE_HOT[:, a:b].sum(axis=1), ALPHA)
        for a, b in itertools.pairwise(STARTS)
    )
    of_words = np.einsum("sik,iv->skv", ONE_HOT, np.eye(3)[WORDS])
    return log_p + log_dirichlet_multinomial(of_words, BETA).sum(axis=1)


def log_psi(zbar, eta, signs, loss):
    """Log pseudo-likelihood of documents, shape (..., D), of mean assignments (..., D, K)."""
    scores = zbar @ eta
    if loss == MULTICLASS:
        own = np.where(signs > 0, scores, 0.0).sum(axis=-1)
        rival = np.where(signs > 0, -np.inf, scores).max(axis=-1)
        return -COST * np.maximum(0.0, MARGIN + rival - own)
    slack = MARGIN - signs * scores
    if loss == AUGMENTED:
        return (-((SCALES + 0.5 * COST * slack) ** 2) / (2 * SCALES)).sum(axis=-1)
    return -COST * np.maximum(0.0, slack).sum(axis=-1)


def normalised(log_p):
    p = np.exp(log_p - log_p.max())
    return p / p.sum()


def z_scores_of_assignments(sweep, loss, n_classes, n=20_000):
    """Difference of the distribution of assignments under sweeps from enumeration."""
    eta, signs = ETA[n_classes], SIGNS[n_classes]
    exact = normalised(log_lda() + log_psi(ZBAR, eta, signs, loss).sum(axis=1))
    assignments = np.zeros(5, dtype=np.int32)
    totals = Totals(np.empty((2, 2)), np.empty((3, 2)), np.empty(2))
    count_assignments(Tokens(STARTS, WORDS, assignments), totals)
    stream = new_stream(np.random.default_rng(1))
    seen = np.zeros(32)
    for _ in range(n):
        for _ in range(8):
            sweep(
                STARTS, WORDS, ALPHA, BETA, eta.T.copy(), signs,
                np.broadcast_to(SCALES, signs.shape).copy(),
                COST, MARGIN, loss, stream, assignments, *totals,
            )  # fmt: skip
        seen[int("".join(map(str, assignments)), 2)] += 1
    np.testing.assert_array_equal(totals[2], totals[0].sum(axis=0))
    in_topics = [np.eye(2)[assignments[a:b]].sum(axis=0) for a, b in itertools.pairwise(STARTS)]
    np.testing.assert_array_equal(totals[0], in_topics)
    return (seen - n * exact) / np.sqrt(n * exact * (1 - exact))


@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [slow(ONE_VS_REST, 1), (ONE_VS_REST, 3), (AUGMENTED, 1), (MULTICLASS, 3)],
)
def test_collapsed_sweeps_sample_assignments_exactly(loss, n_classes):
    assert np.abs(z_scores_of_assignments(collapsed_max_margin_sweep, loss, n_classes)).max() < 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    [
        Mutant(name, collapsed_max_margin_sweep, edit=edit)
        for name, edit in {
            "token left in its score": ("others[j] -= share * eta[j, topic]", "others[j] -= 0.0"),
            "share of one more token": ("max(last - first, 1)", "(last - first + 1)"),
            "token left in its document": (
                "in_document[k] + alpha",
                "1.0 + in_document[k] + alpha",
            ),
            "words of a topic not summed": (
                "_word[k] + own_beta) * inverse[k]",
                "_word[k] + own_beta)",
            ),
        }.items()
    ],
    ids=str,
)
def test_mutants_of_sweeps_are_detected(mutant):
    z = z_scores_of_assignments(mutant.compile(), ONE_VS_REST, 1)
    assert np.abs(z).max() > 5


# --- scales and weights of data augmentation


def test_scales_are_reciprocals_of_inverse_gaussian_variables():
    rng = np.random.default_rng(1)
    for slack in (-6.0, -0.01, 0.3, 300.0):
        mean = 1.0 / (0.5 * COST * abs(slack))
        drawn = 1.0 / draw_scales(rng, np.full(20_000, slack), COST)
        assert stats.kstest(drawn, stats.invgauss(mean).cdf).pvalue > 1e-4
    at_kink = draw_scales(rng, np.zeros(20_000), COST)
    assert stats.kstest(at_kink, stats.chi2(1).cdf).pvalue > 1e-4


def test_scales_integrate_to_the_hinge():
    slack = np.array([-2.0, -0.1, 0.4, 3.0])
    half = 0.5 * COST
    root = np.linspace(1e-6, 12.0, 400_001)  # λ = root², which removes the pole
    density = np.exp(-((root**2 + half * slack[:, None]) ** 2) / (2 * root**2))
    integral = 2.0 * np.trapezoid(density, root, axis=1) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(integral, np.exp(-COST * np.maximum(0, slack)), rtol=1e-5)


def test_weights_given_scales_are_normal():
    rng = np.random.default_rng(2)
    x, y, scales = rng.normal(size=(6, 2)), np.array([1.0, -1, 1, 1, -1, -1]), rng.gamma(2, size=6)
    options = {"cost": COST, "margin": MARGIN, "prior_scale": 1.3}
    drawn = np.array([draw_weights(rng, x, y, scales, **options) for _ in range(20_000)])
    grid = np.stack(np.meshgrid(*[np.linspace(-6, 6, 241)] * 2, indexing="ij"), axis=-1)
    slack = MARGIN - y * (grid @ x.T)
    log_p = (-((scales + 0.5 * COST * slack) ** 2) / (2 * scales)).sum(axis=-1)
    p = normalised(log_p - (grid**2).sum(axis=-1) / (2 * 1.3**2))
    mean = np.einsum("ij,ijk->k", p, grid)
    second = np.einsum("ij,ijk,ijl->kl", p, grid, grid)
    error = drawn.std(axis=0) / np.sqrt(len(drawn))
    assert np.abs((drawn.mean(axis=0) - mean) / error).max() < 5
    products = np.einsum("nk,nl->nkl", drawn, drawn)
    error = products.std(axis=0) / np.sqrt(len(drawn))
    assert np.abs((products.mean(axis=0) - second) / error).max() < 5


# --- the whole of it


def functions_of(zbar, weights):
    """Statistics whose means are compared, shape (..., 9)."""
    in_first, in_second, of_first, of_second = np.broadcast_arrays(
        zbar[..., 0, 0], zbar[..., 1, 0], weights[..., 0], weights[..., 1]
    )
    return np.stack(
        [
            in_first, in_second, in_first**2, in_first * in_second, of_first, of_second,
            of_first**2, of_second**2, of_first * in_first,
        ],
        axis=-1,
    )  # fmt: skip


def exact_means():
    """By enumeration of the assignments and quadrature over the weights."""
    line = np.linspace(-6, 6, 121)
    grid = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    log_p = log_lda()[:, None] - 0.5 * (grid**2).sum(axis=1)
    scores = np.einsum("sdk,gk->sgd", ZBAR, grid)
    slack = np.maximum(0.0, MARGIN - SIGNS[1][:, 0] * scores)
    p = normalised(log_p - COST * slack.sum(axis=-1))
    values = functions_of(ZBAR[:, None], grid[None])
    return np.einsum("sg,sgf->f", p, values)


def z_scores_of_chain(draws, **options):
    idata = medlda_gibbs(
        COUNTS, [1, -1], 2, ALPHA, BETA, COST, MARGIN, draws=draws, tune=100, random_seed=3,
        var_names=["weights", "zbar"], **options,
    )  # fmt: skip
    values = functions_of(idata.posterior["zbar"].values[0], idata.posterior["weights"].values[0])
    batches = values.reshape(50, draws // 50, -1).mean(axis=1)
    return (batches.mean(axis=0) - exact_means()) / (batches.std(axis=0, ddof=1) / np.sqrt(50))


@pytest.mark.parametrize("draws", [10_000, slow(20_000)])
@pytest.mark.parametrize("augmented", [True, slow(False)])
def test_data_augmentation_has_the_exact_posterior(augmented, draws):
    """The mutants below have errors of at least 20 standard errors after 10,000 draws."""
    assert np.abs(z_scores_of_chain(draws, augmented_topics=augmented)).max() < 4.5


@pytest.mark.parametrize("names", [slow(["draw_weights"]), ["draw_scales", "draw_weights"]])
def test_cost_that_is_not_halved_is_detected(monkeypatch, names):
    """The authors' c is half of the cost, a likely source of error."""
    module = import_module("pymc_geodesic.topics.medlda_gibbs")

    def doubled_scales(rng, slack, cost):
        return draw_scales(rng, slack, 2 * cost)

    def doubled_weights(*args, cost, **options):
        return draw_weights(*args, cost=2 * cost, **options)

    doubled = {"draw_scales": doubled_scales, "draw_weights": doubled_weights}
    for name in names:
        monkeypatch.setattr(module, name, doubled[name])
    assert np.abs(z_scores_of_chain(5_000)).max() > 8


# --- documents given topics


PHI = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]])  # by word
DOCUMENT = np.array([0, 0, 2, 1], dtype=np.int32)


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "n_classes"), [(ONE_VS_REST, 3), (MULTICLASS, 3)])
def test_documents_given_topics_are_exact(loss, n_classes):
    states = np.array(list(itertools.product(range(2), repeat=4)))
    in_topic = np.eye(2)[states]
    zbar = in_topic.mean(axis=1)
    eta, signs = ETA[n_classes], SIGNS[n_classes][:1]
    log_p = log_dirichlet_multinomial(in_topic.sum(axis=1), ALPHA)
    log_p = log_p + np.log(PHI[DOCUMENT, states]).sum(axis=1)
    p = normalised(log_p + log_psi(zbar, eta, signs, loss))
    exact_counts = np.einsum("s,sik,iv->vk", p, in_topic, np.eye(3)[DOCUMENT])
    step = 1e-6
    exact_gradient = np.empty_like(eta)
    for index in np.ndindex(*eta.shape):
        shifted = eta.copy()
        shifted[index] += step
        change = log_psi(zbar, shifted, signs, loss) - log_psi(zbar, eta, signs, loss)
        exact_gradient[index] = p @ change / step

    n = 50_000
    words = np.tile(DOCUMENT, n)
    counts, gradient, in_topics = np.zeros((3, 2)), np.zeros(eta.T.shape), np.empty((n, 2))
    assignments = np.zeros(len(words), dtype=np.int32)
    sample_assignments(
        np.arange(n + 1) * 4, words, np.arange(n), np.arange(3, dtype=np.int32), PHI, ALPHA,
        eta.T.copy(), np.tile(signs, (n, 1)), COST, MARGIN, loss, 10, 2,
        new_stream(np.random.default_rng(1)), assignments, counts, gradient, in_topics,
    )  # fmt: skip
    np.testing.assert_allclose(counts / n, exact_counts, atol=5 * 0.5 / np.sqrt(n))
    np.testing.assert_allclose(counts.sum(axis=1) / n, [2.0, 1.0, 1.0], rtol=1e-9)
    np.testing.assert_allclose(gradient.T / n, exact_gradient, atol=5 * 0.5 * COST / np.sqrt(n))
    np.testing.assert_array_equal(in_topics, np.eye(2)[assignments.reshape(n, 4)].sum(axis=1))
    seen = np.bincount(assignments.reshape(n, 4) @ [8, 4, 2, 1], minlength=16)
    assert np.abs((seen - n * p) / np.sqrt(n * p * (1 - p))).max() < 5


# --- minibatches


def z_scores_of_dynamics(sampler, topic_step, weight_step, thin=5):
    """Errors of means under stochastic dynamics."""
    data, hinge = LabeledCounts(STARTS, WORDS, SIGNS[1], ALPHA, BETA), Hinge(COST, MARGIN, 1.0)
    settings = {"batch_size": 2, "n_discarded": 0, "n_kept": 1, "exact_transitions": True}
    settings |= {"has_thermostat": False, "diffusion": 1.0, "memoize": False} | sampler
    chain = MaxMarginTopics(data, hinge, TopicSettings(**settings), np.random.default_rng(1))
    values = np.empty((8000, 9))
    for draw in range(len(values)):
        for _ in range(thin):
            chain.step(topic_step, weight_step)
        zbar = chain.in_topics / np.diff(STARTS)[:, None]
        values[draw] = functions_of(zbar, chain.eta[0])
    batches = values.reshape(40, 200, -1).mean(axis=1)
    return (batches.mean(axis=0) - exact_means()) / (batches.std(axis=0, ddof=1) / np.sqrt(40))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "topic_step", "weight_step"),
    [
        slow({"memoize": True, "batch_size": 1}, 1.0, 0.25),
        ({"memoize": True, "has_thermostat": True}, 1.0, 0.05),
        slow({}, 0.1, 0.25),
        ({"exact_transitions": False}, 0.02, 0.25),
    ],
    ids=["memoized, one by one", "memoized, thermostat", "SCIR", "SGRLD"],
)
def test_small_steps_have_the_exact_posterior(sampler, topic_step, weight_step):
    assert np.abs(z_scores_of_dynamics(sampler, topic_step, weight_step)).max() < 4.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    ["noise too small", *map(slow, ("sign of the gradient", "counts of a minibatch not scaled"))],
)
def test_mutants_of_dynamics_are_detected(monkeypatch, fault):
    move = MaxMarginTopics._update_weights
    options, topic_step = {"memoize": True}, 1.0
    if fault == "sign of the gradient":
        monkeypatch.setattr(
            MaxMarginTopics, "_update_weights", lambda self, g, h: move(self, -g, h)
        )
    elif fault == "noise too small":

        def weaker(self, gradient, step_size):
            before = self.eta.copy()
            drift = 0.5 * step_size**2 * (gradient - before)
            move(self, gradient, step_size)
            self.eta[:] = before + drift + 0.85 * (self.eta - before - drift)

        monkeypatch.setattr(MaxMarginTopics, "_update_weights", weaker)
    else:
        options, topic_step = {"batch_size": 1}, 0.1
        module = import_module("pymc_geodesic.topics.medlda_ssgrld")
        add_counts = module.add_counts

        def unscaled(prior, slots, counts, scale, shape):
            add_counts(prior, slots, counts, 1.0, shape)

        monkeypatch.setattr(module, "add_counts", unscaled)
    assert np.abs(z_scores_of_dynamics(options, topic_step, 0.25)).max() > 6


# --- what users see


def test_draws_are_reproducible_and_learn_the_labels():
    counts, labels = corpus()
    counts[5] = 0
    options = {"n_topics": 3, "margin": 30.0, "draws": 10, "tune": 20, "random_seed": 1}
    first = medlda_gibbs(counts, 2 * labels - 1, chains=2, **options)
    second = medlda_gibbs(counts, 2 * labels - 1, chains=2, **options)
    for name in ("topics", "weights", "zbar"):
        np.testing.assert_array_equal(first.posterior[name], second.posterior[name])
    assert not np.array_equal(first.posterior["zbar"][0], first.posterior["zbar"][1])
    np.testing.assert_allclose(first.posterior["topics"].sum("word"), 1.0)
    sums = first.posterior["zbar"].sum("topic").values
    assert np.all(sums[..., 5] == 0)
    np.testing.assert_allclose(np.delete(sums, 5, axis=-1), 1.0)
    assert first.sample_stats["accuracy"][:, -1].min() > 0.95
    assert first.sample_stats["documents"].values[0].tolist() == [60.0 * s for s in range(21, 31)]
    classes = medlda_gibbs(counts, labels, var_names=["weights"], classes=["a", "b"], **options)
    assert dict(classes.posterior.sizes) == {"chain": 1, "draw": 10, "topic": 3, "class": 2}
    assert classes.sample_stats["accuracy"][0, -1] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("topics_by", ["SCIR", "SGRLD"])
@pytest.mark.parametrize("memoize", [True, False])
def test_minibatches_learn_the_labels(topics_by, memoize):
    counts, labels = corpus()
    counts[5] = 0
    options = {
        "n_topics": 3, "margin": 30.0, "draws": 10, "tune": 150, "batch_size": 13, "random_seed": 1,
        "topics_by": topics_by, "memoize": memoize,
    }  # fmt: skip
    if topics_by == "SGRLD":
        options["topic_step"] = PolynomialDecay(0.01, b=10, gamma=0.6)
    first = medlda_ssgrld(counts, 2 * labels - 1, chains=2, **options)
    second = medlda_ssgrld(counts, 2 * labels - 1, chains=2, **options)
    for name in ("topics", "weights", "zbar"):
        np.testing.assert_array_equal(first.posterior[name], second.posterior[name])
        assert not np.array_equal(first.posterior[name][0], first.posterior[name][1])
    np.testing.assert_allclose(first.posterior["topics"].sum("word"), 1.0)
    sums = first.posterior["zbar"].sum("topic").values
    np.testing.assert_allclose(np.delete(sums, 5, axis=-1), 1.0)
    assert first.sample_stats["accuracy"][:, -1].min() > 0.95
    assert first.sample_stats["documents"].values[0].tolist() == [13.0 * s for s in range(151, 161)]
    many = medlda_ssgrld(counts, labels, loss="multiclass", weights_by="SSGLD", **options)
    assert dict(many.posterior["weights"].sizes) == {"chain": 1, "draw": 10, "topic": 3, "class": 2}
    assert many.sample_stats["accuracy"][0, -1] > 0.95
    scores = many.posterior["zbar"].values[0, -1] @ many.posterior["weights"].values[0, -1]
    every = np.arange(60)
    losses = np.maximum(0.0, 30.0 + scores[every, 1 - labels] - scores[every, labels])
    np.testing.assert_allclose(many.sample_stats["loss"][0, -1], losses.mean())


def test_diverging_weights_raise():
    counts, labels = corpus()
    with pytest.raises(FloatingPointError, match=r"weight_step=1e\+200\. Use a smaller"):
        medlda_ssgrld(counts, 2 * labels - 1, 2, weight_step=1e200, weights_by="SSGLD", draws=5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "hinge"}, "loss must be one of"),
        ({"loss": "multiclass"}, "needs labels 0"),
        ({"topics_by": "SGLD"}, "topics_by must be one of"),
        ({"weights_by": "HMC"}, "weights_by must be one of"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"sweeps": (1, 0)}, "sweeps"),
        ({"topic_step": -1.0}, "topic_step must be positive"),
    ],
)
def test_invalid_settings_raise(arguments, message):
    good = {"counts": np.ones((3, 4)), "labels": [1, -1, 1], "n_topics": 2, "draws": 1, "tune": 0}
    with pytest.raises(ValueError, match=message):
        medlda_ssgrld(**(good | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [1, -1]}, "one label for each of the 3 rows"),
        ({"labels": [1, -1, 0]}, "must be -1 or \\+1"),
        ({"labels": [0, 0, 0]}, "all the same"),
        ({"labels": [1, 1, 1]}, "all the same, 1"),
        ({"labels": [-1, -1, -1]}, "all the same, -1"),
        ({"labels": np.ma.masked_equal([1, -1, 1], -1)}, "labels has missing values"),
        ({"classes": ["no", "yes"]}, r"labels are -1 and \+1"),
        ({"labels": [0, 0, 0], "classes": ["no"]}, "at least two classes"),
        ({"labels": [0.5, 1, 2]}, "must be integers"),
        ({"labels": [2, 0, 2]}, "no label of 'labels' is 1, .* or give classes="),
        ({"cost": 0.0}, "cost must be positive"),
        ({"n_topics": 1}, "n_topics must be an integer of at least 2"),
        ({"var_names": ["theta"]}, "got 'theta'"),
        ({"alpha": -1.0}, "alpha"),
    ],
)
def test_invalid_input_raises(arguments, message):
    good = {"counts": np.ones((3, 4)), "labels": [1, -1, 1], "n_topics": 2, "draws": 1, "tune": 0}
    with pytest.raises(ValueError, match=message):
        medlda_gibbs(**(good | arguments))

"""The hinge pseudo-likelihoods: values, subgradients, draws, model integration."""

from typing import ClassVar

import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from pymc.testing import BaseTestDistributionRandom, assert_support_point_is_expected
from scipy import special, stats

from pymc_geodesic.distributions import Hinge, MulticlassHinge
from pymc_geodesic.distributions.labels import label_probabilities, probability_of_plus_one
from tests.grids import slow

MODES = ["NUMBA", slow("CVM"), slow("JAX")]
SCORES = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, -2.0], [3.0, 3.0, 4.0], [2.0, 2.0, -1.0]])
"""Rows with ties: of all scores, of label and rival, and of two rivals at the kink."""


def evaluate(variable, **kwargs):
    return variable.eval(mode="FAST_COMPILE", **kwargs)


def binary_loss(y, s, cost, margin):
    return cost * max(0.0, margin - y * s)


def multiclass_loss(y, s, cost, margin):
    rivals = np.delete(s, y, axis=-1).max(axis=-1)
    return cost * np.maximum(0.0, margin + rivals - s[..., y])


@pytest.mark.usefixtures("interpreted")
class TestHingeRandom(BaseTestDistributionRandom):
    pymc_dist = Hinge
    pymc_dist_params: ClassVar = {"score": 0.3, "cost": 2.0, "margin": 0.5}
    expected_rv_op_params: ClassVar = pymc_dist_params
    reference_dist_params: ClassVar = pymc_dist_params
    checks_to_run: ClassVar = [
        "check_pymc_params_match_rv_op",
        "check_pymc_draws_match_reference_not_numba",
        "check_rv_size",
    ]

    def reference_dist(self):
        rng = self.get_random_state(reset=True)

        def draw(size, score, cost, margin):
            psi = [np.exp(-binary_loss(y, score, cost, margin)) for y in (-1, 1)]
            return np.where(rng.random(size) < psi[1] / sum(psi), 1, -1)

        return draw


@pytest.mark.usefixtures("interpreted")
class TestMulticlassHingeRandom(BaseTestDistributionRandom):
    pymc_dist = MulticlassHinge
    pymc_dist_params: ClassVar = {
        "scores": np.array([0.3, 0.9, -0.5]),
        "cost": 2.0,
        "margin": 0.5,
    }
    expected_rv_op_params: ClassVar = pymc_dist_params
    sizes_to_check: ClassVar = [None, (), 2, (2, 3)]
    sizes_expected: ClassVar = [(), (), (2,), (2, 3)]
    checks_to_run: ClassVar = ["check_pymc_params_match_rv_op", "check_rv_size"]


# Values ---------------------------------------------------------------------------------------


def test_binary_logp_is_the_loss():
    rng = np.random.default_rng(1)
    s, y = rng.normal(size=(4, 1, 5)), rng.choice([-1, 1], size=(4, 3, 5))
    cost, margin = rng.uniform(0, 3, size=(3, 1)), rng.uniform(0, 3, size=5)
    found = evaluate(pm.logp(Hinge.dist(s, cost, margin), y))
    assert found.shape == (4, 3, 5)
    for i, j, k in np.ndindex(found.shape):
        loss = binary_loss(y[i, j, k], s[i, 0, k], cost[j, 0], margin[k])
        assert found[i, j, k] == pytest.approx(-loss, rel=1e-13)


def test_multiclass_logp_is_the_loss():
    rng = np.random.default_rng(1)
    s, y = rng.normal(size=(4, 1, 5, 3)), rng.integers(3, size=(4, 2, 5))
    cost, margin = rng.uniform(0, 3, size=(2, 1)), rng.uniform(0, 3, size=5)
    found = evaluate(pm.logp(MulticlassHinge.dist(s, cost, margin), y))
    assert found.shape == (4, 2, 5)
    for i, j, k in np.ndindex(found.shape):
        loss = multiclass_loss(y[i, j, k], s[i, 0, k], cost[j, 0], margin[k])
        assert found[i, j, k] == pytest.approx(-loss, rel=1e-13)


def test_two_classes_are_the_binary_hinge_of_the_difference():
    rng = np.random.default_rng(1)
    s, y = rng.normal(size=(50, 2)), rng.integers(2, size=50)
    two = evaluate(pm.logp(MulticlassHinge.dist(s, 1.5, 0.7), y))
    one = evaluate(pm.logp(Hinge.dist(s[:, 1] - s[:, 0], 1.5, 0.7), 2 * y - 1))
    np.testing.assert_allclose(two, one, rtol=1e-13)


# Subgradients ---------------------------------------------------------------------------------


def compile_gradient(distribution, shape, labels, mode, **parameters):
    scores = pt.tensor("scores", shape=shape)
    density = pm.logp(distribution.dist(scores, **parameters), labels)
    return pytensor.function([scores], pt.grad(density.sum(), scores), mode=mode)


@pytest.mark.filterwarnings("ignore:Skipping Check")  # JAX cannot raise while it computes
@pytest.mark.parametrize("mode", MODES)
def test_binary_gradient_also_at_the_kink(mode):
    if mode == "JAX":
        pytest.importorskip("jax")
    y = np.array([1, 1, 1, -1, -1, -1])
    s = y * np.array([0.2, 0.5, 0.7, 0.2, 0.5, 0.7])  # below, at and above the kink
    gradient = compile_gradient(Hinge, s.shape, y, mode, cost=3.0, margin=0.5)
    np.testing.assert_array_equal(gradient(s), [3.0, 0.0, 0.0, -3.0, 0.0, 0.0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Skipping Check")
@pytest.mark.parametrize("mode", MODES)
def test_multiclass_gradient_at_ties_is_a_subgradient(mode):
    """Loss(s') >= Loss(s) + g·(s' − s) for all s', also in the directions that break the ties."""
    if mode == "JAX":
        pytest.importorskip("jax")
    directions = np.random.default_rng(1).normal(size=(300, 3))
    directions = np.concatenate([directions, 1e-3 * directions, np.eye(3), -np.eye(3)])
    scores, labels = np.tile(SCORES, (3, 1)), np.repeat(np.arange(3), len(SCORES))
    gradient = compile_gradient(MulticlassHinge, scores.shape, labels, mode, cost=2.0)
    for label, gradients in enumerate(np.split(-gradient(scores), 3)):
        for s, g in zip(SCORES, gradients, strict=True):
            here = multiclass_loss(label, s, 2.0, 1.0)
            there = multiclass_loss(label, s + directions, 2.0, 1.0)
            assert np.all(there >= here + directions @ g - 1e-12)
            # The weights of the rivals form a convex combination.
            rivals = np.delete(g, label)
            assert np.all(rivals >= 0)
            assert rivals.sum() == -g[label]
            assert g[label] == (-2.0 if here > 0 else 0.0)


def test_gradient_of_a_maximum_is_not_a_subgradient_at_ties():
    """The test above detects the gradient of a maximum, hence the choice of one rival."""
    s = pt.dvector("s")
    loss = pt.maximum(0.0, 1.0 + pt.max(s[1:]) - s[0])
    gradient = evaluate(pt.grad(loss, s), inputs_to_values={s: np.ones(3)})
    assert gradient[1:].sum() == 2.0


def test_gradient_through_a_linear_score():
    rng = np.random.default_rng(1)
    X, y, w = rng.normal(size=(40, 3)), rng.choice([-1, 1], size=40), pt.dvector("w")
    density = pm.logp(Hinge.dist(X @ w, 0.7, 1.2), y).sum()
    at = rng.normal(size=3)
    found = evaluate(pt.grad(density, w), inputs_to_values={w: at})
    np.testing.assert_allclose(found, 0.7 * (y * (y * (X @ at) < 1.2)) @ X, rtol=1e-12)


# Draws ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["NUMBA", slow("CVM")])
def compiled_draws(request):
    score, scores, cost = pt.dvector("score"), pt.dvector("scores"), pt.dscalar("cost")
    rngs = pt.random.rng("first"), pt.random.rng("second")
    size = pt.lscalar("size")
    outputs = [
        Hinge.dist(score, cost, 0.8, size=(size, score.shape[0]), rng=rngs[0]),
        MulticlassHinge.dist(scores, cost, 0.8, size=(size,), rng=rngs[1]),
    ]
    function = pytensor.function([*rngs, score, scores, cost, size], outputs, mode=request.param)

    def draw(score, scores, cost, size):
        first, second = np.random.default_rng(1).spawn(2)
        return function(first, second, score, scores, cost, size)

    return draw


@pytest.mark.parametrize("cost", [0.0, 0.4, 3.0, 1e4])
def test_draws_have_the_normalized_probabilities(compiled_draws, cost):
    score, scores, n = np.array([-3.0, -0.5, 0.0, 0.3]), np.array([0.5, 0.9, -0.3, 0.9]), 40_000
    signs, labels = compiled_draws(score, scores, cost, n)
    assert set(np.unique(signs)) <= {-1, 1}
    psi = np.array([[-binary_loss(y, s, cost, 0.8) for y in (-1, 1)] for s in score])
    expected = special.softmax(psi, axis=1)[:, 1]
    counts = np.sum(signs == 1, axis=0)
    assert np.all(stats.binom.sf(counts - 1, n, expected) > 1e-5)
    assert np.all(stats.binom.cdf(counts, n, expected) > 1e-5)
    psi = np.array([-multiclass_loss(y, scores, cost, 0.8) for y in range(4)])
    expected = special.softmax(psi)
    counts = np.bincount(labels, minlength=4)
    assert np.all(counts[expected < 1e-12] == 0)
    kept = expected > 1e-12
    assert stats.chisquare(counts[kept], n * expected[kept] / expected[kept].sum()).pvalue > 1e-5


def test_probabilities_in_numpy_are_those_of_the_log_density():
    rng = np.random.default_rng(1)
    s = rng.normal(size=(30, 4))
    psi = np.stack([evaluate(pm.logp(MulticlassHinge.dist(s, 1.3, 0.6), y)) for y in range(4)], -1)
    expected = np.exp(psi) / np.exp(psi).sum(-1, keepdims=True)
    np.testing.assert_allclose(label_probabilities(s, 1.3, 0.6), expected, rtol=1e-12)
    psi = [evaluate(pm.logp(Hinge.dist(s, 1.3, 0.6), y)) for y in (-1, 1)]
    expected = np.exp(psi[1]) / (np.exp(psi[0]) + np.exp(psi[1]))
    np.testing.assert_allclose(probability_of_plus_one(s, 1.3, 0.6), expected, rtol=1e-12)


# Model integration ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 2))
    return X, np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0, 1, -1)


def make_model(X, y, **kwargs):
    with pm.Model(coords={"feature": ["a", "b"]}) as model:
        X = pm.Data("X", X, dims=("row", "feature"))
        y = pm.Data("y", y, dims="row")
        w = pm.Normal("w", 0, 1, dims="feature")
        Hinge("label", X @ w, 1.0, 1.0, observed=y, dims="row", **kwargs)
    return model


@pytest.mark.parametrize("dtype", ["int64", "int8", "float64", "float32"])
def test_log_density_of_a_model(data, dtype):
    X, y = data
    model = make_model(X, y.astype(dtype), total_size=180)
    w = np.array([0.8, -0.3])
    expected = -3 * sum(binary_loss(a, b, 1.0, 1.0) for a, b in zip(y, X @ w, strict=True))
    logp = model.compile_logp(vars=model.observed_RVs, mode="FAST_COMPILE")
    assert logp({"w": w}) == pytest.approx(expected, rel=1e-6)


def test_printed_model(data):
    assert "label ~ Hinge(f(X, w), 1, 1)" in make_model(*data).str_repr()


def test_minibatch_and_pickle(data):
    X, y = data
    with pm.Model() as model:
        batch, labels = pm.Minibatch(X, y.astype(float), batch_size=6)
        w = pm.Normal("w", 0, 1, shape=2)
        Hinge("label", batch @ w, observed=labels, total_size=60)
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    logp = copy.compile_logp(vars=copy.observed_RVs, mode="FAST_COMPILE")
    assert logp({"w": np.zeros(2)}) == pytest.approx(-60.0)


def test_minibatch_of_integers_raises(data):
    X, y = data
    with pm.Model():
        batch, labels = pm.Minibatch(X, y, batch_size=6)
        with pytest.raises(TypeError, match=r"of 'label' to it as y.astype\(float\)"):
            Hinge("label", batch @ np.ones(2), observed=labels, total_size=60)
        with pytest.raises(TypeError):  # the reason for the check
            pm.Bernoulli("other", 0.5, observed=labels, total_size=60)


@pytest.mark.usefixtures("interpreted")
def test_posterior_predictive_draws_follow_the_new_data(data):
    X, y = data
    model = make_model(X, y)
    idata = az.from_dict(
        {"posterior": {"w": np.tile([1.0, 0.0], (1, 20, 1))}},
        coords={"feature": ["a", "b"]},
        dims={"w": ["feature"]},
    )
    with model:
        pm.set_data({"X": [[50.0, 0.0], [-50.0, 0.0]], "y": [1, 1]})
        predicted = pm.sample_posterior_predictive(
            idata,
            random_seed=1,
            progressbar=False,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    labels = predicted.posterior_predictive["label"]
    assert labels.dims == ("chain", "draw", "row")
    np.testing.assert_array_equal(labels.mean(("chain", "draw")), [1, -1])


@pytest.mark.usefixtures("interpreted")
def test_multiclass_model_with_dims():
    rng = np.random.default_rng(1)
    with pm.Model(coords={"class": list("abc"), "row": range(7)}) as model:
        scores = pm.Normal("scores", 0, 1, dims=("row", "class"))
        MulticlassHinge("label", scores, observed=rng.integers(3, size=7), dims="row")
        prior = pm.sample_prior_predictive(
            30, random_seed=1, compile_kwargs={"mode": "FAST_COMPILE"}
        )
    assert set(np.unique(prior.prior_predictive["label"])) == {0, 1, 2}
    assert prior.prior_predictive["label"].dims == ("chain", "draw", "row")
    assert "MulticlassHinge" in pm.model_to_mermaid(model)


@pytest.mark.usefixtures("interpreted")
def test_support_points_are_the_most_probable_labels():
    for distribution, score, size, expected in [
        (Hinge, [-1.0, 2.0], None, [-1, 1]),
        (Hinge, 0.5, (2,), [1, 1]),
        (MulticlassHinge, SCORES, None, [0, 0, 2, 0]),
        (MulticlassHinge, SCORES[2], (2,), [2, 2]),
    ]:
        with pm.Model() as model:
            distribution("x", score, size=size)
        assert_support_point_is_expected(model, np.array(expected), check_finite_logp=True)


def test_single_precision():
    with pytensor.config.change_flags(floatX="float32"):
        for distribution, score in (
            (Hinge, np.float32(0.25)),
            (MulticlassHinge, np.array([0, 0.25, -1], "float32")),
        ):
            density = pm.logp(distribution.dist(score), np.int8(1))
            assert density.dtype == "float32"
            assert evaluate(density) == -0.75


# Errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (lambda: Hinge.dist(0.3), 0),
        (lambda: Hinge.dist(0.3), 2),
        (lambda: Hinge.dist(0.3, cost=-1.0), 1),
        (lambda: Hinge.dist(0.3, margin=-1.0), 1),
        (lambda: Hinge.dist(0.3, cost=np.nan), 1),
        (lambda: MulticlassHinge.dist([0.3, 0.1]), 2),
        (lambda: MulticlassHinge.dist([0.3, 0.1]), -1),
        (lambda: MulticlassHinge.dist([0.3, 0.1], cost=-1.0), 1),
        (lambda: MulticlassHinge.dist([0.3, 0.1], margin=-1.0), 1),
    ],
)
def test_bad_labels_and_parameters_raise_at_evaluation(variable, value):
    with pytest.raises(ParameterValueError, match=r"labels are .*, cost >= 0, margin >= 0"):
        evaluate(pm.logp(variable(), value))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([1, 0, 1], r"'y' must be -1 or \+1, but the label of row 1 is 0; labels 0 and 1 become"),
        ([1, 2, 1], r"row 1 is 2; two classes become -1 and \+1"),
        ([1.0, np.nan, 1], "missing values .*row 1: drop these rows"),
        (["a", "b", "a"], r"must be numbers, got <U1; number the classes"),
    ],
)
def test_observed_signs_are_checked(labels, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        Hinge("y", np.zeros(3), observed=labels)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 3], "'y' must be integers from 0 to 2, .*row 2 is 3; number the classes"),
        ([0, -1, 1], "row 1 is -1"),
        ([0.5, 1, 1], "row 0 is 0.5"),
        (np.ma.masked_equal([0, 1, 1], 0), "missing values"),
    ],
)
def test_observed_classes_are_checked(labels, message):
    with pm.Model(), pytest.raises(ValueError, match=message):
        MulticlassHinge("y", np.zeros((3, 3)), observed=labels)


@pytest.mark.parametrize("container", [np.asarray, lambda y: pm.Data("y", y)])
@pytest.mark.parametrize(
    ("scores", "labels", "remedy"),
    [
        ((6,), (6, 1), r"one label for each score: a column of labels .* np\.ravel\(y\)"),
        ((6,), (5,), "the rows of both are the same observations"),
        ((6, 1), (6,), r"a column of scores becomes a vector by scores\[:, 0\]"),
    ],
)
def test_labels_and_scores_of_different_shapes_raise(container, scores, labels, remedy):
    with pm.Model():
        X = pm.Data("X", np.ones((6, 2)))
        score = X @ pm.Normal("w", shape=(2, *scores[1:]))
        y = container(np.ones(labels))
        with pytest.raises(ValueError, match=f"'label' have the shape .*{remedy}"):
            Hinge("label", score, observed=y)


@pytest.mark.parametrize("labels", [(6,), (4, 6), (1,)])
def test_labels_may_share_scores(labels):
    with pm.Model() as model:
        score = pm.Normal("score", shape=(6,) if labels[-1] == 6 else (1,))
        Hinge("label", score, observed=np.ones(labels))
    assert model["label"].type.shape == labels


def test_labels_beyond_a_dimension_of_the_model_and_indicators():
    with pm.Model(coords={"class": ["a", "b", "c"]}):
        X = pm.Data("X", np.ones((4, 2)))
        W = pm.Normal("W", shape=2)[:, None] + pm.Normal("b", dims="class")
        with pytest.raises(ValueError, match="'y' must be integers from 0 to 2"):
            MulticlassHinge("y", X @ W, observed=[1, 2, 3, 1])
        with pytest.raises(ValueError, match=r"np\.argmax\(y, axis=-1\) makes numbers"):
            MulticlassHinge("y", X @ W, observed=np.eye(3)[[0, 1, 2, 0]])


def test_data_containers_are_checked_too(data):
    X, y = data
    with pytest.raises(ValueError, match="labels 0 and 1 become"):
        make_model(X, (y + 1) // 2)


def test_single_score_raises():
    with pytest.raises(ValueError, match=r"at least two classes .* use Hinge"):
        MulticlassHinge.dist(np.zeros((5, 1)))


@pytest.mark.parametrize("argument", ["cost", "margin"])
def test_random_cost_or_margin_warns(argument):
    """Without a normalizing constant the pseudo-likelihood is largest at zero loss."""
    with pm.Model():
        free = pm.HalfNormal("free")
        score = pm.Normal("w") * np.array([1.0, -2.0])
        with pytest.warns(UserWarning, match=f"the {argument} of 'two' depends on 'free'"):
            Hinge("two", score, **{argument: 2.0 * free}, observed=[1, -1])
        with pytest.warns(UserWarning, match=f"the {argument} of 'many' depends on 'free'"):
            MulticlassHinge(
                "many", pt.stack([score, -score], axis=1), **{argument: free}, observed=[0, 1]
            )
        Hinge("fixed", score, pm.Data("cost", 3.0), observed=[1, -1])

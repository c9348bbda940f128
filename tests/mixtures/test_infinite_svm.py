"""The infinite support vector machine: conditional distributions, partitions, predictions."""

import itertools

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from pymc_geodesic.mixtures import (
    dp_multinomial_logit_sgnht,
    infinite_svm,
    predict,
    predict_proba,
)
from pymc_geodesic.mixtures.expert_gibbs import (
    HINGE,
    LOGIT,
    Experts,
    add_row,
    add_subgradient,
    augment_weights,
    compute_row_loss,
    log_predictive,
    remove_row,
)

P = 3


def experts_of(n_experts, p, rng):
    scatter = np.cov(rng.normal(size=(p, 20)))
    lower = np.linalg.cholesky(np.atleast_2d(scatter))
    return Experts(
        np.zeros(n_experts), np.zeros((n_experts, p)), np.tile(lower, (n_experts, 1, 1)),
        np.zeros((n_experts, 2, p)),
    ), lower @ lower.T  # fmt: skip


def test_sizes_means_and_scatters_follow_their_rows():
    """Against the sums of the definition, after rows were added and removed."""
    rng = np.random.default_rng(1)
    (experts, scatter), strength, scratch = experts_of(1, P, rng), 0.3, np.empty(P)
    rows = rng.normal(1.0, 2.0, size=(30, P))
    for row in rows:
        add_row(experts, 0, row, strength, scratch)
    for row in rows[:12]:
        remove_row(experts, 0, row, strength, scratch)
    left = rows[12:]
    kappa = strength + len(left)
    mean = left.sum(axis=0) / kappa
    expected = scatter + left.T @ left - kappa * np.outer(mean, mean)
    assert experts.sizes[0] == len(left)
    np.testing.assert_allclose(experts.mean[0], mean, rtol=1e-10)
    lower = np.tril(experts.lower[0])
    np.testing.assert_allclose(lower @ lower.T, expected, rtol=1e-9)


def test_predictive_density():
    rng = np.random.default_rng(2)
    (experts, scatter), kappa, nu = experts_of(1, P, rng), 4.5, 9.0
    x = rng.normal(size=P)
    df = nu - P + 1
    exact = stats.multivariate_t(np.zeros(P), scatter * (kappa + 1) / (kappa * df), df)
    found = log_predictive(experts.mean[0], experts.lower[0], kappa, nu, x, np.empty(P))
    assert found == pytest.approx(exact.logpdf(x), rel=1e-10)


@pytest.mark.slow
def test_augmentation_draws_from_the_conditional_distribution():
    """One row of three classes and one feature: mean and variance of η by quadrature on a grid."""
    rng = np.random.default_rng(3)
    features, labels = np.array([[1.3]]), np.array([1])
    weights, sizes = np.zeros((1, 3, 1)), np.ones(1)
    n_draws, cost, margin = 20_000, 3.0, 1.5
    draws = np.empty((n_draws, 3))
    for draw in range(n_draws):
        augment_weights(
            rng, weights, sizes, features, labels, np.zeros(1, dtype=int),
            cost=cost, margin=margin, prior_scale=1.0,
        )  # fmt: skip
        draws[draw] = weights[0, :, 0]
    axis = np.linspace(-5.0, 5.0, 101)
    a, b, c = np.meshgrid(axis, axis, axis, indexing="ij")
    loss = np.maximum(0.0, margin + 1.3 * np.maximum(a, c) - 1.3 * b)
    mass = np.exp(-cost * loss - 0.5 * (a**2 + b**2 + c**2))
    mass /= mass.sum()
    for index, values in enumerate((a, b, c)):
        mean = float((mass * values).sum())
        sd = float(np.sqrt((mass * (values - mean) ** 2).sum()))
        assert abs(draws[:, index].mean() - mean) < 0.06 * sd
        assert draws[:, index].std() == pytest.approx(sd, rel=0.05)


def partitions(n):
    """All partitions of n rows, as the label of each row's block."""
    found = set()
    for labels in itertools.product(range(n), repeat=n):
        names: dict[int, int] = {}
        found.add(tuple(names.setdefault(each, len(names)) for each in labels))
    return sorted(found)


X_SMALL = np.array([[-1.0], [-0.4], [0.9], [1.4]])
Y_SMALL = np.array([0, 1, 1, 0])


def exact_probabilities(alpha, strength, cost=1.0, margin=None):
    """Probability of every partition, weights integrated by quadrature; logit without a margin."""
    m0, psi0, nu0 = X_SMALL.mean(), np.var(X_SMALL, ddof=1), 3.0

    def log_normal(rows):
        kappa, nu = strength + len(rows), nu0 + len(rows)
        mean = (strength * m0 + rows.sum()) / kappa
        psi = psi0 + strength * m0**2 + (rows**2).sum() - kappa * mean**2
        return (
            0.5 * np.log(strength / kappa) + gammaln(nu / 2) - gammaln(nu0 / 2)
            + 0.5 * nu0 * np.log(psi0) - 0.5 * nu * np.log(psi)
        )  # fmt: skip

    def log_likelihood(rows, labels):
        # two classes: the difference of the two weights is N(0, 2)
        signs = 2 * labels - 1

        def density(w):
            scores = signs * w * rows
            loss = np.logaddexp(0, -scores) if margin is None else np.maximum(0, margin - scores)
            return np.exp(-cost * loss.sum() - w**2 / 4)

        return np.log(integrate.quad(density, -12, 12, limit=200)[0] / np.sqrt(4 * np.pi))

    logs = {}
    for each in partitions(len(X_SMALL)):
        blocks = np.array(each)
        total = 0.0
        for block in range(max(each) + 1):
            rows, labels = X_SMALL[blocks == block, 0], Y_SMALL[blocks == block]
            total += np.log(alpha) + gammaln(len(rows)) + log_normal(rows)
            total += log_likelihood(rows, labels)
        logs[each] = total
    largest = max(logs.values())
    mass = {each: np.exp(value - largest) for each, value in logs.items()}
    whole = sum(mass.values())
    return {each: value / whole for each, value in mass.items()}


def assert_sizes_agree(idata, of_partitions, slack):
    exact: dict[tuple, float] = {}
    for each, probability in of_partitions.items():
        sizes = tuple(sorted(np.bincount(each)))
        exact[sizes] = exact.get(sizes, 0.0) + probability
    found = idata.posterior["sizes"].values[0]
    for sizes, probability in exact.items():
        share = np.mean([tuple(sorted(row[row > 0])) == sizes for row in found])
        # the effective sample size is at least 20 % of the number of draws
        error = np.sqrt(probability * (1 - probability) * 5 / len(found))
        assert abs(share - probability) < 4 * error + slack, (sizes, share, probability)


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("augmentation", marks=pytest.mark.slow), "ssgnht"])
def test_partitions_have_their_probabilities(method):
    """Sizes of the blocks of all partitions of four rows, against their enumeration."""
    settings = {"cost": 2.0, "margin": 1.0, "alpha": 1.5, "strength": 0.2}
    idata = infinite_svm(
        X_SMALL, Y_SMALL, **settings, intercept=False, method=method, batch_size=4, n_steps=30,
        draws=5_000, tune=200, random_seed=1, progressbar=False, max_experts=6,
    )  # fmt: skip
    assert_sizes_agree(idata, exact_probabilities(**settings), 0.015 * (method == "ssgnht"))


@pytest.mark.slow
def test_partitions_of_logit_models_have_their_probabilities():
    settings = {"alpha": 1.5, "strength": 0.2}
    idata = dp_multinomial_logit_sgnht(
        X_SMALL, Y_SMALL, **settings, intercept=False, batch_size=4, n_steps=30, draws=5_000,
        tune=200, random_seed=1, progressbar=False, max_experts=6,
    )  # fmt: skip
    assert_sizes_agree(idata, exact_probabilities(**settings), 0.015)


@pytest.fixture(scope="module")
def crossed():
    """Two clusters whose labels are separated by different lines."""
    rng = np.random.default_rng(4)
    side = rng.integers(2, size=600)
    X = rng.normal(size=(600, 2)) + 5.0 * side[:, None]
    y = np.where(side == 0, X[:, 0] > 0, X[:, 1] < 5).astype(int)
    return X, y


@pytest.mark.slow
@pytest.mark.parametrize("method", ["augmentation", "ssgnht"])
def test_experts_classify_data_that_are_not_linearly_separable(crossed, method):
    X, y = crossed
    train, test = slice(0, 400), slice(400, 600)
    idata = infinite_svm(
        X[train], y[train], 5.0, method=method, draws=60, tune=100, random_seed=1,
        progressbar=False,
    )  # fmt: skip
    votes = predict_proba(idata, X[test], kind="votes")
    np.testing.assert_allclose(votes.sum("class"), 1.0)
    assert float(np.mean(votes.argmax("class") == y[test])) > 0.93
    np.testing.assert_array_equal(predict(idata, X[test]), votes.argmax("class"))
    labels = predict_proba(idata, X[test])
    np.testing.assert_allclose(labels.sum("class"), 1.0)
    assert float(np.mean(labels.argmax("class") == y[test])) > 0.9
    assert 2 <= int(idata.sample_stats["n_experts"].median()) <= 5
    again = infinite_svm(
        X[train], y[train], 5.0, method=method, draws=60, tune=100, random_seed=1,
        progressbar=False,
    )  # fmt: skip
    np.testing.assert_array_equal(again.posterior["weights"], idata.posterior["weights"])


def test_logit_experts_are_accurate_and_calibrated(crossed):
    X, _ = crossed
    rng = np.random.default_rng(5)
    scores = np.where(X[:, 0] + X[:, 1] < 5, 2 * X[:, 0], 2 * (5 - X[:, 1]))
    y = (rng.random(600) < 1 / (1 + np.exp(-scores))).astype(int)
    idata = dp_multinomial_logit_sgnht(
        X[:400], y[:400], prior_scale=3.0, draws=60, tune=60, random_seed=1, progressbar=False
    )
    found = predict_proba(idata, X[400:]).values
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    right = np.mean(found.argmax(axis=1) == y[400:])
    np.testing.assert_array_equal(predict(idata, X[400:]), found.argmax(axis=1))
    error = np.sqrt(np.sum(found.max(axis=1) * (1 - found.max(axis=1)))) / 200
    assert abs(right - found.max(axis=1).mean()) < 4 * error
    votes = predict_proba(idata, X[400:], kind="votes").values
    log_score = np.log(found[np.arange(200), y[400:]]).mean()
    assert log_score > np.log(np.clip(votes, 1e-3, 1)[np.arange(200), y[400:]]).mean()
    assert right > 0.75


def test_gradients_are_those_of_the_losses():
    rng = np.random.default_rng(6)
    weights, row = rng.normal(size=(4, 3)), rng.normal(size=3)
    for label, loss in itertools.product(range(4), (HINGE, LOGIT)):
        gradient, scores = np.zeros((4, 3)), np.empty(4)
        add_subgradient(weights, row, label, 1.7, loss, 2.0, scores, gradient)
        for index in np.ndindex(4, 3):
            change = np.zeros((4, 3))
            change[index] = 1e-6
            up = compute_row_loss(weights + change, row, label, 1.7, loss, scores)
            down = compute_row_loss(weights - change, row, label, 1.7, loss, scores)
            assert gradient[index] == pytest.approx(-(up - down) / 1e-6, abs=1e-6)
    shares = np.exp(weights @ row) / np.exp(weights @ row).sum()
    found = [compute_row_loss(weights, row, label, 1.7, LOGIT, scores) for label in range(4)]
    np.testing.assert_allclose(np.exp(-np.array(found)), shares)


def test_invalid_arguments_raise(crossed):
    X, y = crossed
    with pytest.raises(ValueError, match="one label for each of the 600 rows"):
        infinite_svm(X, y[:5])
    with pytest.raises(ValueError, match="column 1 of X is constant"):
        infinite_svm(np.column_stack([X[:, 0], np.ones(600)]), y)
    broken = X.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match="X has missing values"):
        infinite_svm(broken, y)
    with pytest.raises(ValueError, match="X has missing values"):
        infinite_svm(np.ma.masked_invalid(broken), y)
    with pytest.raises(ValueError, match="alpha must be a positive number, got -1"):
        infinite_svm(X, y, alpha=-1)
    with pytest.raises(ValueError, match='choose "ssgnht" or "augmentation"'):
        infinite_svm(X, y, method="gibbs")
    with pytest.raises(ValueError, match="batch_size=601 exceeds the 600 rows"):
        infinite_svm(X, y, batch_size=601)
    with pytest.raises(ValueError, match="y has missing values"):
        infinite_svm(X, np.ma.masked_equal(y, 1))
    with pytest.raises(ValueError, match=r"'y' must be -1 or \+1, but the label of row"):
        infinite_svm(X, np.where(y, 3, -1))
    with pytest.raises(ValueError, match=r"labels -1 and \+1, but there are 3 classes"):
        infinite_svm(X, np.where(y, 1, -1), n_classes=3)
    with pytest.raises(ValueError, match=r"no label of 'y' is 0, .* or give n_classes="):
        infinite_svm(X, y + 1)
    with pytest.raises(ValueError, match="one class only"):
        infinite_svm(X, np.zeros(600, dtype=int))
    idata = infinite_svm(X, y, draws=2, tune=0, random_seed=1, progressbar=False)
    with pytest.raises(ValueError, match="X has 3 features, but the model has 2"):
        predict(idata, np.ones((2, 3)))
    with pytest.raises(ValueError, match="n_draws must be a positive integer, got 0"):
        predict(idata, np.ones((2, 2)), n_draws=0)
    with pytest.raises(ValueError, match="X has missing values"):
        predict(idata, [[np.nan, 0.0]])
    with pytest.raises(ValueError, match='choose "label" or "votes"'):
        predict_proba(idata, X, kind="vote")


def test_classes_are_the_labels(crossed):
    X, y = crossed
    options = {"draws": 10, "tune": 20, "random_seed": 1, "progressbar": False}
    signs, numbers = (infinite_svm(X, each, 5.0, **options) for each in (2 * y - 1, y))
    votes = predict_proba(signs, X, kind="votes")
    np.testing.assert_array_equal(votes, predict_proba(numbers, X, kind="votes"))
    assert votes["class"].values.tolist() == [-1, 1]
    assert float(np.mean(predict(signs, X) == 2 * y - 1)) > 0.8


def test_too_many_experts_raise():
    """Any row that draws a new expert raises the error."""
    X = np.linspace(-3.0, 3.0, 40)[:, None]
    with pytest.raises(RuntimeError, match="needs more than max_experts=2 experts"):
        infinite_svm(
            X, X[:, 0] > 0, alpha=5.0, max_experts=2, draws=20, tune=0, random_seed=1,
            progressbar=False,
        )  # fmt: skip

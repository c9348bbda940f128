"""Maximum-margin topics as a PyMC model: its density, and samplers that run it."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy import stats

import pymc_geodesic as pg
from pymc_geodesic.topics import decision_function, medlda, predict
from tests.topics.labeled_documents import corpus


@pytest.mark.parametrize("n_classes", [None, 3])
def test_the_density_is_that_of_its_formula(n_classes):
    counts, labels = corpus(6)
    rng = np.random.default_rng(1)
    labels = 2 * labels - 1 if n_classes is None else np.arange(6) % 3
    cost, margin, tau, alpha, beta = 2.5, 1.3, 0.7, 0.8, 1.2
    model = medlda(counts, labels, 2, alpha, beta, cost, margin, prior_scale=tau)
    topics, theta = rng.dirichlet(np.ones(8), size=2), rng.dirichlet(np.ones(2), size=6)
    weights = rng.normal(size=(2,) if n_classes is None else (2, n_classes))
    scores = theta @ weights
    if n_classes is None:
        loss = np.maximum(0, margin - labels * scores)
    else:
        own = scores[np.arange(6), labels]
        rivals = np.where(np.eye(3)[labels] > 0, -np.inf, scores).max(axis=1)
        loss = np.maximum(0, margin + rivals - own)
    exact = (
        stats.norm(0, tau).logpdf(weights).sum()
        + sum(stats.dirichlet(np.full(8, beta)).logpdf(row) for row in topics)
        + sum(stats.dirichlet(np.full(2, alpha)).logpdf(row) for row in theta)
        + (counts * np.log(theta @ topics)).sum()
        - cost * loss.sum()
    )
    inputs = [model.rvs_to_values[model[name]] for name in ("topics", "theta", "weights")]
    for name in ("topics", "theta"):
        model.rvs_to_transforms[model[name]] = None
    found = pm.pytensorf.compile(
        inputs, model.logp(), on_unused_input="ignore", mode="FAST_COMPILE"
    )
    np.testing.assert_allclose(found(topics, theta, weights), exact, rtol=1e-10)


@pytest.mark.slow
def test_minibatches_learn_the_labels():
    counts, labels = corpus(120)
    signs = 2 * labels - 1
    model = medlda(counts[:80], signs[:80], 3, margin=30.0)
    with model:
        idata = pm.sample(
            draws=40, tune=200, chains=1, random_seed=1, progressbar=False,
            compute_convergence_checks=False, var_names=["topics", "weights"],
            step=pg.SGGMC(
                local=["theta"], minibatch=["counts", "y"], batch_size=20, step_size=0.002
            ),
        )  # fmt: skip
    predicted = predict(idata, counts[80:], features="proportions", random_seed=1)
    assert np.mean(predicted.values == signs[80:]) > 0.9


def test_predictions_from_proportions_are_those_of_assignments_with_the_prior_added():
    rng = np.random.default_rng(2)
    counts, alpha = corpus(5)[0], np.array([0.5, 2.0])
    eta = rng.normal(size=2)
    idata = from_dict(
        {
            "posterior": {
                "topics": rng.dirichlet(np.ones(8), size=(1, 1, 2)), "weights": eta[None, None]
            },
            "constant_data": {"alpha": alpha},
        },
        dims={"topics": ["topic", "word"], "weights": ["topic"]},
    )  # fmt: skip
    by_assignments, by_proportions = (
        decision_function(idata, counts, features=features, random_seed=1).values
        for features in ("assignments", "proportions")
    )
    expected = (30 * by_assignments + alpha @ eta) / (30 + alpha.sum())
    np.testing.assert_allclose(by_proportions, expected)
    with pytest.raises(ValueError, match='`features` must be "assignments" or "proportions"'):
        predict(idata, counts, features="theta")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [1, -1]}, "one label for each of the 3 rows"),
        ({"labels": [0, 0, 0]}, "labels are all the same"),
        ({"margin": -1.0}, "margin must be positive"),
        ({"counts": -np.ones((3, 4))}, "counts must be whole numbers"),
    ],
)
def test_invalid_input_raises(arguments, message):
    good = {"counts": np.ones((3, 4)), "labels": [1, -1, 1], "n_topics": 2}
    with pytest.raises(ValueError, match=message):
        medlda(**(good | arguments))

"""Scores and labels of new documents, and the topics of classes."""

import itertools

import numpy as np
import pytest
import xarray as xr
from arviz_base import from_dict

from pymc_geodesic.topics import decision_function, predict, topics_by_class

ALPHA = np.array([0.6, 1.5])
PHI = np.array([[[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]], [[0.2, 0.2, 0.6], [0.5, 0.4, 0.1]]])
COUNTS = np.array([[2, 1, 0], [0, 0, 0], [0, 1, 3]])


def draws(weights, **more):
    dims = {"weights": ["topic", "class"][: weights.ndim - 2], "topics": ["topic", "word"]}
    dims["zbar"] = ["document", "topic"]
    posterior = {"topics": PHI[None], "weights": weights} | more
    return from_dict({"posterior": posterior, "constant_data": {"alpha": ALPHA}}, dims=dims)


def exact_mean_assignment(counts, phi):
    """E[z̄ | w, φ] by enumeration of the topics of all tokens."""
    words = np.repeat(np.arange(3), counts)
    total, mean = 0.0, np.zeros(2)
    for z in itertools.product(range(2), repeat=len(words)):
        p, seen = 1.0, np.zeros(2)
        for word, topic in zip(words, z, strict=True):
            p *= (ALPHA[topic] + seen[topic]) * phi[topic, word]
            seen[topic] += 1
        total += p
        mean += p * seen / max(len(words), 1)
    return mean / total


def test_scores_are_those_of_enumeration():
    eta = np.array([[[[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]], [[-1.0, 0.5, 2.0], [4.0, 0.0, 1.0]]]])
    expected = np.mean(
        [
            [exact_mean_assignment(row, phi) @ one for row in COUNTS]
            for phi, one in zip(PHI, eta[0], strict=True)
        ],
        axis=0,
    )
    options = {"n_sweeps": 20_000, "random_seed": 1}
    found = decision_function(draws(eta), COUNTS, **options)
    assert found.dims == ("document", "class")
    np.testing.assert_allclose(found, expected, atol=0.03)
    labels = predict(draws(eta), COUNTS, **options)
    np.testing.assert_array_equal(labels, expected.argmax(axis=1))
    binary = draws(eta[..., 0])
    np.testing.assert_allclose(
        decision_function(binary, COUNTS, **options), expected[:, 0], atol=0.03
    )
    signs = predict(binary, COUNTS, **options)
    np.testing.assert_array_equal(signs, np.where(expected[:, 0] > 0, 1, -1))


def test_labels_are_the_names_of_the_classes():
    eta = np.array([[[[1.0, -2.0], [0.0, 5.0]], [[1.0, -2.0], [0.0, 5.0]]]])
    named = draws(eta)
    named["posterior"] = named["posterior"].to_dataset().assign_coords({"class": ["sun", "sea"]})
    numbers = predict(draws(eta), COUNTS, random_seed=1).values
    assert len(set(numbers)) == 2
    expected = np.array(["sun", "sea"])[numbers]
    np.testing.assert_array_equal(predict(named, COUNTS, random_seed=1), expected)


def test_subset_of_draws():
    eta = np.array([[[1.0, -1.0], [100.0, 300.0]]])
    first = decision_function(draws(eta), COUNTS, n_draws=1, n_sweeps=2000, random_seed=1)
    expected = [exact_mean_assignment(row, PHI[0]) @ eta[0, 0] for row in COUNTS]
    np.testing.assert_allclose(first, expected, atol=0.1)
    with pytest.raises(ValueError, match="n_draws=3 exceeds the 2 draws"):
        decision_function(draws(eta), COUNTS, n_draws=3)


def test_features_are_those_of_the_model_of_the_draws():
    eta, options = np.array([[[1.0, -1.0], [2.0, 0.5]]]), {"n_sweeps": 20, "random_seed": 1}
    with_theta = draws(eta, theta=np.full((1, 2, 3, 2), 0.5))
    proportions = decision_function(with_theta, COUNTS, features="proportions", **options)
    assignments = decision_function(draws(eta), COUNTS, features="assignments", **options)
    assert not np.allclose(proportions, assignments, atol=0.01)
    xr.testing.assert_equal(decision_function(with_theta, COUNTS, **options), proportions)
    xr.testing.assert_equal(decision_function(draws(eta), COUNTS, **options), assignments)


def test_masked_counts_raise():
    with pytest.raises(ValueError, match="X has missing values"):
        decision_function(draws(np.ones((1, 2, 2))), np.ma.masked_equal(COUNTS, 3))


def test_topics_of_classes():
    labels = np.array([1, -1, 1])
    zbar = np.array([[[[0.9, 0.1], [0.3, 0.7], [0.7, 0.3]], [[0.7, 0.3], [0.1, 0.9], [0.5, 0.5]]]])
    idata = draws(np.zeros((1, 2, 2)), zbar=zbar)
    table = topics_by_class(idata, labels, list("abc"), n=2)
    np.testing.assert_allclose(table["proportions"], [[0.2, 0.8], [0.7, 0.3]])
    assert table["class"].values.tolist() == [-1, 1]
    assert table["salient"].values.tolist() == [1, 0]
    mean = PHI.mean(axis=0)
    expected = [[list("abc")[i] for i in np.argsort(-mean[topic])[:2]] for topic in (1, 0)]
    assert table["word"].values.tolist() == expected
    for arguments, message in (
        (([1, 2],), "one label for each of the 3 documents"),
        ((labels, ["a"]), "`vocabulary` has 1 words"),
    ):
        with pytest.raises(ValueError, match=message):
            topics_by_class(idata, *arguments)

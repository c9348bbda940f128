import arviz as az
import numpy as np
import pytensor.tensor as pt
import pytest
import xarray as xr

from pymc_geodesic.kernels.stick_breaking import stick_breaking_weights
from pymc_geodesic.mixtures.vmf_mixture import log_weights
from pymc_geodesic.topics import align_topics, top_words

CHAINS, DRAWS, TOPICS, WORDS, DOCUMENTS = 3, 100, 5, 12, 4


def distinct_topics(rng):
    """Topics without common frequent words."""
    topics = 0.1 * rng.random((TOPICS, WORDS))
    for k in range(TOPICS):
        topics[k, 2 * k : 2 * k + 2] += [1.0, 0.7]
    return topics / np.linalg.norm(topics, axis=1, keepdims=True)


@pytest.fixture
def shuffled():
    """Noisy copies of the same topics, permuted in each chain, and their proportions."""
    rng = np.random.default_rng(2)
    truth = distinct_topics(rng)
    proportions = rng.dirichlet(np.ones(TOPICS), size=DOCUMENTS)
    beta = truth + 0.01 * rng.normal(size=(CHAINS, DRAWS, TOPICS, WORDS))
    theta = np.broadcast_to(proportions, (CHAINS, DRAWS, DOCUMENTS, TOPICS))
    of_chain = rng.permuted(np.tile(np.arange(TOPICS), (CHAINS, 1)), axis=-1)
    order = np.repeat(of_chain[:, None], DRAWS, axis=1)
    # One chain swaps topics halfway.
    order[0, DRAWS // 2 :] = np.roll(order[0, DRAWS // 2 :], 1, axis=-1)
    idata = az.from_dict(
        {
            "posterior": {
                "beta": np.take_along_axis(beta, order[..., None], axis=2),
                "theta": np.take_along_axis(theta, order[:, :, None, :], axis=3),
                "kappa": rng.gamma(5.0, size=(CHAINS, DRAWS)),
            },
            "sample_stats": {"temperature": np.ones((CHAINS, DRAWS))},
        },
        dims={"beta": ["topic", "word"], "theta": ["document", "topic"]},
    )
    return idata, truth, proportions


def test_alignment_recovers_one_order(shuffled):
    idata, truth, proportions = shuffled
    aligned = align_topics(idata)
    cosine = aligned.posterior["beta"].values.mean(axis=(0, 1)) @ truth.T
    order = cosine.argmax(axis=1)
    assert sorted(order) == list(range(TOPICS))
    error = aligned.posterior["beta"].values - truth[order]
    assert np.abs(error).max() < 0.06
    # Other variables with the topic dimension are permuted, too.
    expected = np.broadcast_to(proportions[:, order], aligned.posterior["theta"].shape)
    np.testing.assert_allclose(aligned.posterior["theta"].values, expected)


def test_alignment_repairs_r_hat(shuffled):
    idata, *_ = shuffled
    before = az.rhat(idata, var_names="beta")["beta"].max()
    after = az.rhat(align_topics(idata), var_names="beta")["beta"].max()
    assert before > 1.5
    assert after < 1.1


def test_alignment_does_not_change_other_variables(shuffled):
    idata, *_ = shuffled
    kept = idata.posterior["beta"].copy(deep=True)
    aligned = align_topics(idata)
    assert idata.posterior["beta"].identical(kept)
    assert aligned.posterior["kappa"].identical(idata.posterior["kappa"])
    assert aligned["sample_stats"].identical(idata["sample_stats"])
    assert aligned.posterior["beta"].dims == kept.dims


def test_a_reference_fixes_the_order(shuffled):
    idata, truth, _ = shuffled
    aligned = align_topics(idata, reference=truth[::-1])
    np.testing.assert_allclose(
        aligned.posterior["beta"].mean(("chain", "draw")), truth[::-1], atol=0.01
    )


def test_topics_that_differ_stay_different():
    rng = np.random.default_rng(3)
    one, other = distinct_topics(rng), distinct_topics(rng)[:, ::-1]
    beta = np.stack([np.tile(topics, (DRAWS, 1, 1)) for topics in (one, other)])
    beta = beta + 0.01 * rng.normal(size=beta.shape)
    aligned = align_topics(az.from_dict({"posterior": {"beta": beta}}))
    assert az.rhat(aligned)["beta"].max() > 1.5


def test_inconsistent_arguments_raise(shuffled):
    idata, truth, _ = shuffled
    with pytest.raises(ValueError, match="no variable 'phi'"):
        align_topics(idata, var_name="phi")
    with pytest.raises(ValueError, match=r"dimensions \(chain, draw, topic, word\)"):
        align_topics(idata, var_name="kappa")
    with pytest.raises(ValueError, match="`reference` has shape"):
        align_topics(idata, reference=truth[:2])
    with pytest.raises(ValueError, match="Set the number of words by n="):
        top_words(idata, 10)
    with pytest.raises(ValueError, match="`vocabulary` has 2 words"):
        top_words(idata, ["sun", "moon"])
    with pytest.raises(ValueError, match="`n` must be between 1 and the 12 words"):
        top_words(idata, n=13)


def test_top_words_of_shuffled_draws(shuffled):
    idata, truth, _ = shuffled
    vocabulary = [f"word{i}" for i in range(WORDS)]
    expected = {tuple(f"word{i}" for i in np.argsort(-row)[:2]) for row in truth}
    table = top_words(idata, vocabulary, n=2)
    assert list(table.columns) == [1, 2]
    assert {tuple(row) for row in table.values} == expected
    assert len(str(table).splitlines()) == 2 + len(truth)


def test_top_words_print_within_80_columns(shuffled, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    idata, *_ = shuffled
    vocabulary = [f"polynomial{letter}" for letter in "abcdefghijkl"]
    printed = repr(top_words(idata, vocabulary, n=10))
    assert max(map(len, printed.splitlines())) <= 80
    assert "..." not in printed
    assert top_words(idata, vocabulary, n=10)[[1, 2]].shape[1] == 2


def test_top_words_takes_the_words_of_the_coordinate(shuffled):
    idata, *_ = shuffled
    words = {"word": [f"w{i}" for i in range(WORDS)]}
    named = az.from_dict(
        {"posterior": {"beta": idata.posterior["beta"].values}},
        dims={"beta": ["topic", "word"]},
        coords=words,
    )
    assert str(top_words(named).values[0, 0]).startswith("w")


def test_sticks_give_the_aligned_weights(shuffled):
    """Predictive draws compute the weights from the sticks."""
    idata = shuffled[0]
    rng = np.random.default_rng(3)
    sticks = rng.beta(1.0, 2.0, size=(CHAINS, DRAWS, TOPICS - 1))
    of_sticks = log_weights(pt.as_tensor(sticks[0, 0])).eval()
    weights = stick_breaking_weights(sticks)
    np.testing.assert_allclose(np.log(weights[0, 0]), of_sticks, rtol=1e-12)
    more = {
        "sticks": (("chain", "draw", "stick"), sticks),
        "weights": (("chain", "draw", "topic"), weights),
    }
    idata["posterior"] = xr.DataTree(idata.posterior.to_dataset().assign(more))
    posterior = align_topics(idata).posterior
    assert np.abs(posterior["weights"].values - weights).max() > 0.1
    again = stick_breaking_weights(posterior["sticks"].values)
    np.testing.assert_allclose(again, posterior["weights"].values, rtol=1e-9, atol=1e-15)

"""Examples load, and those of the SGGMC paper run on small problems."""

import json
import sys
from functools import partial

import numpy as np
import pytensor
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.datasets import Corpus, make_shared_mean_mixture
from tests.examples.scripts import ROOT, load, script_paths
from tests.grids import slow

EXAMPLES = script_paths("examples")


@pytest.fixture(autouse=True)
def interpreted():
    """Run without compilation."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def example(name):
    return load(ROOT / "examples" / f"{name}.py")


@pytest.fixture
def corpus():
    """A small corpus."""
    rng = np.random.default_rng(1)
    rows = rng.gamma(0.5, size=(30, 12))
    rows = sparse.csr_matrix(rows / np.linalg.norm(rows, axis=1, keepdims=True))
    names = np.array([f"d{i}" for i in range(30)])
    words = np.array([f"w{i}" for i in range(12)])
    return Corpus(rows[:20], rows[20:], words, names[:20], names[20:])


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_loads_and_has_a_docstring(path):
    module = load(path)
    assert module.__doc__
    assert callable(getattr(module, "main", None)) == ("__main__" in path.read_text())


def test_toy_circle(monkeypatch):
    module = example("toy_circle")
    means, _ = next(iter(module.READINGS.values()))
    monkeypatch.setitem(module.PUBLISHED, "n_steps", 2)
    every = module.make_samplers(2)
    few = {name: every[name] for name in list(every)[:2]} | {"GMC, tuned": every["GMC, tuned"]}
    monkeypatch.setattr(module, "make_samplers", lambda thinning: few)
    results = module.run(means, draws=100, tune=4, thinning=2, chains=1)
    distances = module.report(means, results)
    assert set(distances) == set(few)
    assert all(0.0 <= distance <= 1.0 for distance in distances.values())
    module.plot(means, results, "title")


def test_density_of_the_toy_circle():
    module = example("toy_circle")
    means, _ = next(iter(module.READINGS.values()))
    probabilities = module.bin_probabilities(means)
    bins = np.searchsorted(module.EDGES, means) - 1
    assert probabilities.sum() == pytest.approx(1.0)
    assert 1.8 < probabilities[bins[1]] / probabilities[bins[0]] < 2.2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning:arviz_stats")  # chains that stay in a mode
def test_vmf_mixture(monkeypatch):
    module = example("vmf_mixture_on_circle")
    points = make_shared_mean_mixture(random_seed=module.DATA_SEED)[:60]
    monkeypatch.setattr(module, "POINTS_PER_BIN", 1)
    truth = module.quadrature(points)
    assert truth.joint.sum() == pytest.approx(1.0)
    assert 0.0 < truth.weight < 1.0
    every = module.make_samplers(2)
    names = ("SGGMC, batch 50, tuned", "gSGNHT, batch 50, tuned", "GMC, tuned")
    monkeypatch.setattr(module, "make_samplers", lambda longer: {n: every[n] for n in names})
    results = module.run(points, draws=8, tune=4)
    weights = module.report(truth, results)
    assert all(0.0 <= weight <= 1.0 for weight in weights.values())
    module.plot(truth, results)


@pytest.mark.slow
def test_admixture_by_hand(monkeypatch, tmp_path, capsys):
    module = example("spherical_admixture_by_hand")
    short = {"n_steps": 2, "local_tune": 1, "local_draws": 1, "local_steps": 2}
    monkeypatch.setattr(pg, "SGGMC", partial(pg.SGGMC, **short))
    sizes = ["--documents", "60", "--words", "8", "--topics", "2", "--draws", "16", "--tune", "4"]
    monkeypatch.setattr(sys, "argv", ["script", *sizes, "--output", str(tmp_path)])
    module.main()
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("Largest relative difference")
    assert all(float(word.strip(",")) < 1e-8 for word in first.split() if "e-" in word)
    assert (tmp_path / "spherical_admixture_by_hand.png").exists()


@pytest.mark.slow
def test_topics_of_docstrings(monkeypatch, tmp_path, capsys, corpus):
    module = example("spherical_topics_of_docstrings")
    monkeypatch.setattr(module, "docstring_corpus", lambda: corpus)
    once = module.sample

    def small(model, name, step, options, **settings):
        step = step | {"batch_size": min(step["batch_size"], 10), "n_steps": 2, "local_steps": 2}
        return once(model, name, step, options, **settings | {"draws": 16})

    monkeypatch.setattr(module, "sample", small)
    sizes = ["--topics", "2", "--explore", "4", "--tune", "4", "--draws", "4", "--chains", "1"]
    monkeypatch.setattr(sys, "argv", ["script", *sizes, "--output", str(tmp_path)])
    module.main()
    printed = capsys.readouterr().out
    assert "spherical k-means centers" in printed
    assert {path.stem for path in tmp_path.iterdir()} == {"perplexity", "topics", "temperature"}


def small_run(module, corpus, name, seconds):
    numbers = {"n_topics": module.N_TOPICS, "alpha": 10.0, "kappa": 50.0, "sigma": 20.0}
    numbers["kappa0"] = 20.0
    if name in module.VARIATIONAL:
        return module.run_variational(
            corpus.train, corpus.test, numbers, seconds=seconds, every=seconds / 2,
            **module.VARIATIONAL[name],
        )[0]  # fmt: skip
    model = pg.topics.spherical_admixture(corpus.train, **numbers)
    step = module.steps(model, corpus.train.shape[0])[name]()
    point = module.starting_point(model, corpus.train, np.random.default_rng(1))
    return module.run(step, point, model, corpus.test, seconds=seconds, tune=2, every=seconds / 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", [slow("gSGNHT, tuned"), "VI", slow("stochastic VI")])
def test_topics_of_20news(monkeypatch, tmp_path, corpus, name):
    module = example("spherical_topics_of_20news")
    monkeypatch.setattr(module, "N_TOPICS", 2)
    monkeypatch.setattr(module, "BATCH_SIZE", 10)
    monkeypatch.setitem(module.VARIATIONAL, "stochastic VI", {"batch_size": 10})
    seen = small_run(module, corpus, name, 0.5)
    assert len(set(map(len, seen.values()))) == 1
    assert np.all(np.isfinite(seen["perplexity"]))
    assert "log-perplexity" in module.format_summary(seen)
    module.plot({name: seen}, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").exists()


def test_topics_of_20news_on_its_data(monkeypatch, data_home):
    """A hundred documents of the real data, with the words that most of them have."""
    module = example("spherical_topics_of_20news")
    whole = module.load_20news_different()
    words = np.argsort(-np.asarray(whole.train[:100].sum(axis=0)).ravel())[:50]
    parts = []
    for rows in (whole.train[:100, words], whole.test[:20, words]):
        dense = rows.toarray() + 1e-3
        parts.append(sparse.csr_matrix(dense / np.linalg.norm(dense, axis=1, keepdims=True)))
    part = Corpus(*parts, whole.vocabulary[words], whole.train_titles[:100], whole.test_titles[:20])
    monkeypatch.setattr(module, "N_TOPICS", 3)
    seen = small_run(module, part, "SGGMC, tuned", 0.5)
    assert np.all(np.isfinite(seen["perplexity"]))


@pytest.mark.slow
def test_topic_features(monkeypatch, capsys):
    """Texts of two groups with disjoint vocabularies."""
    module = example("topic_features")
    rng, groups = np.random.default_rng(1), np.tile(["one", "other"], 20)
    rates = np.where(groups[:, np.newaxis] == "one", [6.0] * 4 + [0.3] * 4, [0.3] * 4 + [6.0] * 4)
    counts = rng.poisson(rates) + 1
    weights = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    words = np.array([f"w{i}" for i in range(8)])

    def texts(data_home, features="tfidf"):
        rows = sparse.csr_matrix(weights if features == "tfidf" else counts)
        return Corpus(rows[:24], rows[24:], words, groups[:24], groups[24:])

    monkeypatch.setattr(module, "load_20news_different", texts)
    monkeypatch.setattr(module, "topics_by_others", lambda *_, **__: {})
    monkeypatch.setattr(module, "N_TOPICS", 2)
    monkeypatch.setattr(module, "BATCH_SIZE", 10)
    spheres = {"alpha": 1.0, "kappa": 100.0, "sigma": 1.0, "kappa0": 1.0}
    monkeypatch.setattr(module, "SPHERES", spheres)
    few_draws = module.by_sampler(4)
    monkeypatch.setattr(module, "by_sampler", lambda draws: few_draws)
    monkeypatch.setattr(sys, "argv", ["script", "--quick"])
    module.main()
    table = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert len(table) == 4
    assert table["SAM, variational inference"]["accuracy"][0] > 0.8
    assert all(0.0 <= each["accuracy"][0] <= 1.0 for each in table.values())

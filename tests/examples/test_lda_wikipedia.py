"""The example of online topics, on a few small documents."""

import sys

import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import CompletionCorpus, hold_out_words
from tests.examples.scripts import ROOT, load


@pytest.fixture
def module(monkeypatch):
    module = load(ROOT / "examples" / "lda_wikipedia.py")
    monkeypatch.setattr(module, "N_TOPICS", 3)
    monkeypatch.setattr(module, "N_STEPS", 2)
    monkeypatch.setattr(module, "BATCH_SIZE", 5)
    monkeypatch.setattr(module, "REVISITED_BATCH", 10)
    schedules = {"h0": (0.1,), "b": (10.0, 20.0), "gamma": (0.6,)}
    grid = {"SCIR": schedules, "SGRLD": {}, module.REVISITED: schedules}
    monkeypatch.setattr(module, "GRID", grid)
    return module


@pytest.fixture
def corpus():
    counts = sparse.csr_matrix(np.random.default_rng(1).poisson(1.0, size=(60, 12)))
    parts = hold_out_words(counts[40:], random_seed=1)
    return CompletionCorpus(counts[:40].astype(float), *parts, np.arange(12).astype(str))


@pytest.mark.slow
def test_grid_curves_and_figure(module, corpus, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(module, "load_wikipedia", lambda folder: corpus)
    samplers = ["SCIR", module.REVISITED]
    for names in (["grid", *samplers], [*samplers, "scikit-learn"]):
        sizes = ["--seeds", "1", "2", "--every", "10", "--visits", "5", "--output", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["script", *sizes, "--only", *names])
        module.main()
    printed = capsys.readouterr().out
    assert printed.count("SCIR {'h0': 0.1") == 2
    assert "SCIR         seed 2: 40 documents" in printed
    assert "SCIR, revisited seed 2: 200 documents" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"lda_wikipedia.json", "lda_wikipedia.png"}
    monkeypatch.setattr(sys, "argv", ["script", "--only", "SGRLD", "--output", str(tmp_path)])
    with pytest.raises(SystemExit):
        module.main()


def test_perplexity_of_the_true_topics(module, corpus):
    topics = np.full((3, 12), 1.0 / 12.0)
    seen = module.watch(iter([(1.0, 10, topics, 0.1)]), corpus, every=10, seconds=2.0)
    assert seen["perplexity"] == pytest.approx([12.0])
    assert seen["averaged"] == pytest.approx([12.0])

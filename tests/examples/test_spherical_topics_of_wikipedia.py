"""The example of spherical topics of many pages, on a generated folder of few."""

import json
import sys
from functools import partial

import numpy as np
import pytensor
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.datasets.folder import sparse_arrays
from tests.examples.scripts import ROOT, load

N_PAGES, N_WORDS = 1100, 30


@pytest.fixture
def folder(tmp_path):
    """Counts of words of short pages, as the loader reads them."""
    rng = np.random.default_rng(1)
    chances = rng.gamma(0.3, size=(3, N_WORDS)) + 0.02
    chances /= chances.sum(axis=1, keepdims=True)
    counts = rng.multinomial(30, chances[rng.integers(3, size=N_PAGES)])
    counts[:, 0] += 1  # a word of all pages has tf-idf weight zero
    held_out = np.minimum(counts, rng.random(counts.shape) < 0.3)
    held_out[np.arange(N_PAGES), counts.argmax(axis=1)] = 1
    arrays = sparse_arrays(sparse.csr_matrix(counts), "X")
    arrays |= sparse_arrays(sparse.csr_matrix(held_out), "H")
    words = np.array([f"word{i}" for i in range(N_WORDS)])
    np.savez(tmp_path / "wiki_bow_7702.npz", allow_pickle=False, vocab=words, **arrays)
    return tmp_path


@pytest.fixture
def module(monkeypatch):
    module = load(ROOT / "examples" / "spherical_topics_of_wikipedia.py")
    monkeypatch.setattr(module, "LARGEST_DOCUMENT_SHARE", 0.9)
    monkeypatch.setattr(module, "N_WORDS", 20)
    monkeypatch.setattr(module, "BATCH_SIZE", 10)
    small = {"n_topics": 3, "alpha": 2.0, "kappa": 80.0, "sigma": 20.0, "kappa0": 20.0}
    for name, value in small.items():
        monkeypatch.setitem(module.SETTINGS, name, value)
    short = {"n_steps": 2, "local_tune": 1, "local_draws": 1, "local_steps": 2}
    for name, step in module.SAMPLERS.items():
        monkeypatch.setitem(module.SAMPLERS, name, partial(step, **short))
    return module


@pytest.mark.slow
def test_all_methods_their_figure_and_the_last_line(module, folder, monkeypatch, capsys):
    options = ["--quick", "--seconds", "0.4", "--data", str(folder), "--output", str(folder)]
    monkeypatch.setattr(sys, "argv", ["script", *options])
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        module.main()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("100 pages and 1000 held out, 20 words")
    figures = json.loads(printed[-1])
    assert set(figures["curves"]) == {*module.SAMPLERS, *module.VARIATIONAL, module.CONTINUED}
    for curve in figures["curves"].values():
        assert len(set(map(len, curve.values()))) == 1
        assert np.all(np.isfinite(curve["perplexity"]))
        assert np.all(np.diff(curve["seconds"]) > 0)
    mean = figures["baselines"]["corpus mean"]["perplexity"]
    assert figures["curves"]["VI"]["perplexity"][-1] < mean
    assert 0 < figures["peak_memory_gib"] < 100
    assert (folder / "spherical_topics_of_wikipedia.png").exists()


def test_pages_stay_sparse_and_point_in_directions(module, folder):
    corpus = module.load_wikipedia(folder)
    pages = module.read_pages(corpus, None)
    for part in pages[:2]:
        assert sparse.issparse(part)
        np.testing.assert_allclose(np.sqrt(part.multiply(part).sum(axis=1)), 1.0)
    model = pg.topics.spherical_admixture(pages.train, **module.SETTINGS)
    assert model["V_values"].get_value().size == pages.train.nnz

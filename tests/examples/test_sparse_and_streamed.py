"""The examples with rows on disk and with sparse rows run, on small data."""

import json
import sys

import numpy as np
import pytensor
import pytest
from scipy import sparse

from tests.examples.scripts import ROOT, load


@pytest.fixture(autouse=True)
def interpreted():
    """Compile nothing: the draws are few."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


def test_higgs_from_disk(monkeypatch, tmp_path):
    module = load(ROOT / "examples" / "higgs_from_disk.py")
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=(300, 3)), np.ones(300)])
    y = np.where(X[:, 0] > 0.2, 1, -1)
    monkeypatch.setattr(module, "read_higgs", lambda data: (X[:200], y[:200], X[200:], y[200:]))
    small = {"BATCH": 10, "N_STEPS": 5, "BLOCK": 500, "N_TUNE": 3}
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "auxiliary_precisions", module.auxiliary_precisions.py_func)
    settings = dict(module.SAMPLERS)
    settings["SSGNHT, long steps"] = (module.pg.SSGNHT, {"step_size": 1e-2, "diffusion": 10.0})
    monkeypatch.setattr(module, "SAMPLERS", settings)
    sizes = ["--rows", "2000", "--seconds", "0.3", "--sweeps", "4", "--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["script", *sizes, "--output", str(tmp_path)])
    module.main()
    summary = json.loads((tmp_path / "higgs_from_disk.json").read_text())
    assert summary["Gibbs: accuracy after the sweeps"][-1] > 90.0
    assert {path.name for path in tmp_path.iterdir()} == {
        "higgs_from_disk.json",
        "higgs_from_disk.png",
    }


def test_svm_20newsgroups(monkeypatch, tmp_path):
    module = load(ROOT / "examples" / "svm_20newsgroups.py")

    def few_documents(data, n_words=None):
        width = n_words or 60
        rng = np.random.default_rng(1)
        groups = np.arange(240) % module.N_GROUPS
        rows = 0.2 * rng.random((240, width)) * (rng.random((240, width)) < 0.2)
        rows[np.arange(240), groups] = 1.0
        rows = sparse.csr_matrix(rows)
        return module.Documents(rows[:160], groups[:160], rows[160:], groups[160:])

    monkeypatch.setattr(module, "read_documents", few_documents)
    monkeypatch.setattr(module, "WIDTHS", (30, 60))
    monkeypatch.setattr(module, "BATCH", 20)
    sizes = ["--tune", "10", "--draws", "20", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["script", *sizes])
    module.main()
    summary = json.loads((tmp_path / "svm_20newsgroups.json").read_text())
    assert summary["LinearSVC"] == 100.0
    for loss in module.SETTINGS:
        assert summary[loss]["accuracy"] > 50.0, loss
    assert (tmp_path / "svm_20newsgroups.png").exists()


def test_features_of_20newsgroups(monkeypatch):
    """Stop words are gone, rows have unit length, the width is as wanted."""
    module = load(ROOT / "examples" / "svm_20newsgroups.py")
    counts = sparse.csr_matrix(np.array([[2, 1, 0, 3], [0, 4, 1, 0], [1, 0, 5, 0]]))
    arrays = {"vocab": np.array(["orbit", "the", "goal", "engine"])}
    for part, groups in (("tr", [1, 2, 3]), ("te", [3, 2, 1])):
        arrays |= {
            f"X{part}_data": counts.data,
            f"X{part}_indices": counts.indices,
            f"X{part}_indptr": counts.indptr,
            f"X{part}_shape": np.array(counts.shape),
            f"y{part}": np.array(groups),
        }
    monkeypatch.setattr(module, "read_arrays", lambda *args, **kwargs: arrays)
    every, two = module.read_documents(None), module.read_documents(None, 2)
    assert every.train.shape == (3, 4)
    assert every.train[:, 1].nnz == 0
    np.testing.assert_allclose(sparse.linalg.norm(every.train, axis=1), 1.0)
    np.testing.assert_array_equal(every.test_groups, [2, 1, 0])
    assert two.train.shape == (3, 2)

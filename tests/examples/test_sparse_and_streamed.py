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
    """Run without compilation."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture
def higgs(monkeypatch):
    """The example on few rows and features."""
    module = load(ROOT / "examples" / "higgs_from_disk.py")
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=(300, 3)), np.ones(300)])
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=300) > 0.2, 1, -1)
    monkeypatch.setattr(module, "read_higgs", lambda data: (X[:200], y[:200], X[200:], y[200:]))
    small = {"BATCH": 10, "N_STEPS": 5, "BLOCK": 500}
    for name, value in small.items():
        monkeypatch.setattr(module, name, value)
    name = module.SHORT[1]
    monkeypatch.setattr(module, "SLOW", {name: (*module.SLOW[name][:3], 20)})
    passes, traces = sys.modules["higgs_passes"], sys.modules["higgs_traces"]
    monkeypatch.setattr(passes, "auxiliary_precisions", passes.auxiliary_precisions.py_func)
    monkeypatch.setattr(traces, "PLOTTED", 10)
    return module


def test_higgs_from_disk(higgs, monkeypatch, tmp_path):
    sizes = ["--rows", "2000", "--test-rows", "500", "--seconds", "0.2", "--sweeps", "3"]
    sizes += ["--seeds", "1", "--long-seeds", "1", "--folder", str(tmp_path / "rows")]
    monkeypatch.setattr(sys, "argv", ["script", *sizes, "--output", str(tmp_path / "output")])
    higgs.main()
    summary = json.loads((tmp_path / "output" / "higgs_from_disk.json").read_text())
    assert min(summary["accuracy"]["mode"]) > 70.0
    assert min(summary["accuracy"]["Gibbs, second half"]) > 70.0
    assert {path.name for path in (tmp_path / "output").iterdir()} == {
        "higgs_from_disk.json",
        "higgs_from_disk.png",
        "higgs_temperature.png",
    }
    assert (tmp_path / "rows" / "y.bin").stat().st_size == 2000


def test_control_variates_leave_the_posterior_of_higgs_as_it_is(higgs):
    """Log-posteriors differ by a constant; at the center no row has a gradient left."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(50, 4)).astype("float32"), rng.choice([-1, 1], 50).astype("int8")
    center = rng.normal(size=4)
    blocks = higgs.StreamedFrom(higgs.pg.datasets.row_blocks(X, y, block_size=20), 1)
    plain, controlled = (higgs.build_model(4, controlled=each) for each in (False, True))
    for model in (plain, controlled):
        model.set_data("X", X)
        model.set_data("y", y)
    controlled.set_data("center", center)
    controlled.set_data("slope", higgs.slope(blocks, center))
    points = [{"coordinates": value} for value in [*rng.normal(size=(5, 4)), center]]
    logp = [[model.compile_logp()(point) for point in points] for model in (plain, controlled)]
    np.testing.assert_allclose(np.ptp(np.subtract(*logp)), 0.0, atol=1e-4)
    of_rows = controlled.logp(vars=[controlled["label"]])
    value = controlled.rvs_to_values[controlled["coordinates"]]
    gradient = controlled.compile_fn(pytensor.grad(of_rows, value))
    np.testing.assert_array_equal(gradient(points[-1]), 0.0)
    assert np.abs(gradient(points[0])).max() > 1.0


@pytest.mark.slow
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

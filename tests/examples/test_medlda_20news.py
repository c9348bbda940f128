"""The MedLDA examples on texts of two and three classes."""

import json

import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets.folder import sparse_arrays
from tests.examples.scripts import ROOT, load


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small data files of the example."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("data")
    words = np.array(["the", *(f"word{i}" for i in range(19))])
    chances = np.full((20, 20), 1.0)
    chances[np.arange(20), np.arange(20)] = 30.0

    def part(labels):
        rows = [rng.multinomial(40, chances[j] / chances[j].sum()) for j in labels]
        return sparse.csr_matrix(np.array(rows))

    for name, train, test in (
        ("medlda_binary", np.repeat([0, 1], 70), np.repeat([0, 1], 20)),
        ("20news_bow_61188", np.repeat(np.arange(20), 15), np.repeat(np.arange(20), 5)),
    ):
        arrays = sparse_arrays(part(train + 1 if name == "medlda_binary" else train), "Xtr")
        arrays |= sparse_arrays(part(test + 1 if name == "medlda_binary" else test), "Xte")
        shift = 0 if name == "medlda_binary" else 1
        names = np.array([f"group{j}" for j in range(20)])
        np.savez(
            folder / f"{name}.npz", ytr=train + shift, yte=test + shift, vocab=words,
            label_names=names, **arrays,
        )  # fmt: skip
    return folder


@pytest.mark.slow
def test_quick_run_prints_its_results(folder, tmp_path, capsys):
    module = load(ROOT / "examples" / "medlda_20news.py")
    module.main(["--quick", "--data", str(folder), "--output", str(tmp_path)])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["texts"] == {"train": 140, "test": 40, "words": 19}  # "the" is a stop word
    by_way = found["medlda"]["20"]
    assert list(by_way) == list(module.samplers(20, sweeps=1, passes=1))
    assert by_way["data augmentation"]["documents"] == 60 * 140
    assert by_way["data augmentation"]["accuracy"] > 0.9
    assert by_way["SSGRLD (SCIR)"]["accuracy"] > 0.9
    assert by_way["passive-aggressive"]["accuracy"] > 0.9
    assert found["baselines"]["LinearSVC, all words"]["accuracy"] > 0.9
    assert found["salient_words"]["alt.atheism"][0] == "word0"
    assert (tmp_path / "medlda_20news.png").stat().st_size > 0


@pytest.mark.slow
def test_all_groups(folder, tmp_path, capsys):
    module = load(ROOT / "examples" / "medlda_20groups.py")
    module.main(["--quick", "--data", str(folder), "--output", str(tmp_path)])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    for curve in found["curves"].values():
        assert curve["documents"] == sorted(curve["documents"])
        assert curve["accuracy"][-1] > 2 / 20
    assert set(found["salient_words"]) == {f"group{j}" for j in range(20)}
    assert found["LinearSVC"]["accuracy"] > 0.9
    assert (tmp_path / "medlda_20groups.png").stat().st_size > 0


def test_topics_by_other_packages_are_proportions(monkeypatch):
    module = load(ROOT / "examples" / "topic_baselines.py")
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    rng = np.random.default_rng(1)
    train, test = (sparse.csr_array(rng.poisson(2.0, size=(n, 6))) for n in (12, 5))
    for name, shares in module.topics_by_others(2, 0.5, 0.5, sweeps=5, seed=1).items():
        learned, predicted = shares(train, test)
        assert learned.shape == (12, 2), name
        np.testing.assert_allclose(predicted.sum(axis=1), np.ones(5))
    words = module.tokens(train)
    assert [len(one) for one in words] == train.sum(axis=1).tolist()

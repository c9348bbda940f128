"""Clusters of users by the pages they visit, on small data."""

import json

import numpy as np
import pytest
from scipy import sparse

from tests.examples.scripts import ROOT, load


@pytest.mark.slow
def test_results_are_the_last_line(monkeypatch, tmp_path, capsys):
    script = load(ROOT / "examples" / "dp_mixture_msweb.py")
    rng = np.random.default_rng(1)
    kinds = np.kron(np.eye(3), np.full((1, 4), 0.25))
    visits = np.array([rng.multinomial(5, kinds[i % 3]) for i in range(360)])
    areas = np.array([f"area {i}" for i in range(12)])
    data = sparse.csr_array(visits[:300]), sparse.csr_array(visits[300:]), areas
    monkeypatch.setattr(script, "load_users", lambda folder: data)
    monkeypatch.setattr(script, "BATCH", 50)
    monkeypatch.setattr(script, "SEEDS", 2)
    few = {name: (one[0], 60, 2) for name, one in script.make_samplers(1, 1).items()}
    monkeypatch.setattr(script, "make_samplers", lambda *numbers: few)
    script.main(["--quick", "--output", str(tmp_path)])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["perplexity per visit"]
    assert set(found) == set(few)
    truth = 4 * 3 ** (1 / 5)  # one of three kinds, then five areas out of four each
    for name, one in found.items():
        assert one["perplexity_of_all_chains"] == pytest.approx(truth, rel=0.1), name
        assert "curves" not in one
    assert (tmp_path / "dp_mixture_msweb.png").stat().st_size > 10_000

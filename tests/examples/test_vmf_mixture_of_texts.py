"""Clusters of texts, on small data."""

import json

import numpy as np
import pytest
from scipy import sparse

from pymc_geodesic.datasets import make_vmf_mixture
from tests.examples.scripts import ROOT, load


@pytest.mark.slow
def test_results_are_the_last_line(monkeypatch, tmp_path, capsys):
    script = load(ROOT / "examples" / "vmf_mixture_of_texts.py")
    points, group = make_vmf_mixture(np.eye(5), 30.0, 200, random_seed=1)
    monkeypatch.setattr(
        script, "load_texts", lambda data, n_words: (sparse.csr_array(points), group, None)
    )
    homes, _ = make_vmf_mixture(np.eye(3)[:2], 30.0, 40, random_seed=1)
    monkeypatch.setattr(script, "load_household", lambda data: homes)
    script.main(["--quick", "--output", str(tmp_path)])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    for name in script.methods(found):
        assert found["texts"][name]["adjusted_rand"] > 0.9, name
    assert found["texts"]["posterior, one concentration"]["r_hat"] < 1.1
    assert (tmp_path / "vmf_mixture_of_texts.png").stat().st_size > 10_000

"""The examples about simplices, on small problems."""

import matplotlib.pyplot as plt
import numpy as np
import pytensor
import pytest

from tests.examples.scripts import ROOT, load


@pytest.fixture(autouse=True)
def interpreted():
    """Run without compilation."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield


@pytest.fixture
def simplex():
    return load(ROOT / "examples" / "sparse_simplex.py")


@pytest.mark.parametrize("data", ["sparse", "dense"])
def test_distances_to_the_known_posterior(simplex, data):
    exact = simplex.exact_draws(data, 1, n=4000)
    other = np.random.default_rng(1).dirichlet(1.5 * simplex.posterior_shapes(data), 4000)
    for distance in (simplex.component_distance, simplex.vector_distance):
        assert distance(exact, data) < 0.025
    assert simplex.vector_distance(other, data) > 0.03


@pytest.mark.slow
def test_samplers_are_compared(simplex, monkeypatch):
    monkeypatch.setattr(simplex, "PROPORTIONS", (0.1,))
    monkeypatch.setattr(simplex, "SEEDS", (1,))
    monkeypatch.setattr(simplex, "GRID_SEEDS", (100,))
    monkeypatch.setattr(simplex, "STEPS", 100)
    monkeypatch.setattr(simplex, "GRIDS", {"SCIR": np.array([1.0]), "SGRLD": np.array([2e-3])})
    draws, distances = simplex.box_plots(50)
    assert distances["SCIR"][0] < 0.25 < 0.4 < distances["SGRLD"][0]
    found = simplex.by_proportion("sparse")
    assert found["SCIR"].shape == found["SGRLD"].shape == (1, 1)
    assert found["SCIR"].mean() < 0.5 * found["SGRLD"].mean()
    assert isinstance(simplex.plot_boxes(draws), plt.Figure)
    assert isinstance(simplex.plot_distances({"sparse": found, "dense": found}), plt.Figure)


@pytest.mark.slow
def test_control_variates_are_compared(monkeypatch, capsys):
    example = load(ROOT / "examples" / "count_control_variates.py")
    monkeypatch.setattr(example, "DOCUMENTS", 60)
    monkeypatch.setattr(example, "BATCHES", (10,))
    monkeypatch.setattr("sys.argv", ["count_control_variates.py", "--draws", "20"])
    example.main()
    rows = [line.split("|") for line in capsys.readouterr().out.splitlines() if "%" in line]
    noise = {row[2].strip(): float(row[3]) for row in rows}
    assert noise["yes"] < 0.2 * noise["no"]

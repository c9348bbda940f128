"""Plots of warm-up and temperature, and plotting backends."""

import ast
import sys
from pathlib import Path

import arviz as az
import numpy as np
import pytest

import pymc_geodesic
from pymc_geodesic.diagnostics import plot_temperature, plot_warmup
from pymc_geodesic.diagnostics.panels import import_backend
from pymc_geodesic.diagnostics.warmup import phase_starts
from tests.back_ends import BACKENDS, assert_drawn, require


@pytest.fixture(scope="module")
def idata():
    rng = np.random.default_rng(1)
    draws = (2, 150)
    phase = np.repeat([["explore", "tune"]], 2, axis=0).repeat(75, axis=1)
    stats = {"temperature": rng.gamma(9.0, 1 / 9, size=draws)}
    return az.from_dict(
        {
            "posterior": {"x": rng.normal(size=draws)},
            "sample_stats": stats | {"step_size": np.full(draws, 0.1)},
            "warmup_sample_stats": stats
            | {"step_size": rng.gamma(2.0, size=draws), "phase": phase},
        },
        save_warmup=True,
    )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("plot", "n_panels"), [(plot_warmup, 2), (plot_temperature, 1)])
def test_plots_need_no_arguments_but_idata(idata, plot, n_panels, backend):
    require(backend)
    assert_drawn(plot(idata, backend=backend), backend, n_panels)


def panel(collection, name, **selection):
    return collection.get_target(name, selection)


def test_temperature_has_a_running_mean_per_chain(idata):
    ax = plot_temperature(idata, backend="matplotlib").get_target("temperature", {})
    last = [line.get_ydata()[-1] for line in ax.lines if len(line.get_ydata()) == 150]
    np.testing.assert_allclose(last, idata.sample_stats["temperature"].mean("draw"))


def test_warmup_shows_phases_and_both_groups(idata):
    collection = plot_warmup(idata, "temperature", backend="matplotlib")
    ax = panel(collection, "temperature")
    draw, value = ax.lines[1].get_data()
    np.testing.assert_array_equal(draw, np.arange(-150, 150))
    np.testing.assert_array_equal(value[150:], idata["sample_stats"]["temperature"][1])
    bands = [(each.get_xy()[:, 0].min(), each.get_xy()[:, 0].max()) for each in ax.patches]
    assert bands == [(-150.0, -75.0), (-75.0, 0.0)]
    mixed = np.array([["explore", "tune", "tune"], ["explore", "explore", "tune"]])
    assert phase_starts(mixed, np.arange(3)) == [("explore", 0.0), ("tune", 1.5)]
    with pytest.raises(ValueError, match="discard_tuned_samples=False"):
        plot_warmup(az.from_dict({"posterior": {"x": np.zeros((1, 5))}}))
    with pytest.raises(ValueError, match=r"contain no \['energy'\]"):
        plot_warmup(idata, "energy")


def test_warmup_of_a_sampler_without_phases(idata):
    tree = idata.copy()
    tree["warmup_sample_stats"] = tree["warmup_sample_stats"].to_dataset().drop_vars("phase")
    ax = panel(plot_warmup(tree, backend="matplotlib"), "step_size")
    assert len(ax.patches) == 1
    assert ax.get_ylabel() == "log10 step_size"


@pytest.mark.parametrize("name", BACKENDS)
def test_missing_backend_raises(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"backend='{name}' needs {name}: pip install"):
        import_backend(name)


def test_backends_are_imported_lazily():
    for path in Path(pymc_geodesic.__file__).parent.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [each.name for each in getattr(node, "names", [])]
            names.append(getattr(node, "module", None) or "")
            if isinstance(node, ast.Import | ast.ImportFrom):
                roots = {name.split(".")[0] for name in names}
                assert not roots & {"matplotlib", "plotly", "bokeh", "arviz_plots"}, path.name

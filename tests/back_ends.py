"""Plotting backends, and checks of their panels."""

import pytest

BACKENDS = ("matplotlib", "plotly", "bokeh")


def require(backend):
    """Skip the test if a backend is not installed."""
    pytest.importorskip(backend)
    if backend == "plotly":
        pytest.importorskip("webcolors")  # which ArviZ needs for plotly


def panels_of(collection):
    return [
        each for variable in collection.viz["plot"].data_vars.values()
        for each in variable.values.ravel()
    ]  # fmt: skip


def assert_drawn(collection, backend, n_panels):
    """A collection has nonempty panels of this backend."""
    assert collection.backend == backend
    assert len(panels_of(collection)) == n_panels
    figure = collection.get_viz("figure")
    if backend == "matplotlib":
        figure.canvas.draw()
        assert all(ax.lines or ax.patches for ax in panels_of(collection))
    elif backend == "plotly":
        assert len(figure.to_json()) > 1000
        assert len(figure.data) >= n_panels
    else:
        from bokeh.embed import json_item

        assert json_item(figure)["doc"]["roots"]
        assert all(each.renderers for each in panels_of(collection))

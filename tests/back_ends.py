"""Back ends of plots, and what all of them must have drawn."""

import pytest

BACKENDS = ("matplotlib", "plotly", "bokeh")


def require(backend):
    """Skip where a back end is not installed."""
    pytest.importorskip(backend)
    if backend == "plotly":
        pytest.importorskip("webcolors")  # which ArviZ needs for plotly


def panels_of(collection):
    return [
        each for variable in collection.viz["plot"].data_vars.values()
        for each in variable.values.ravel()
    ]  # fmt: skip


def assert_drawn(collection, backend, n_panels):
    """A collection has panels of this back end, and something in each."""
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

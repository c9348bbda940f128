"""Panels of plots for all backends of ArviZ, and shapes that its backend interface lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from arviz_base import rcParams

from pymc_geodesic.diagnostics.posterior_draws import SAMPLE_DIMS

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

BACKENDS = ("matplotlib", "plotly", "bokeh")
GRAY, LIGHT, DARK = "#808080", "#d0d0d0", "#202020"
COLORS = ("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#717581")


class Pen:
    """Draws into one panel of any backend.

    Parameters
    ----------
    backend : {"matplotlib", "plotly", "bokeh"}
        Name of the backend.
    target : object
        Panel of this backend, from ArviZ.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_geodesic.diagnostics.panels import Pen, panels
    >>> collection = panels(xr.Dataset({"x": 0.0}), "matplotlib")
    >>> pen = Pen("matplotlib", collection.get_target("x", {}))
    >>> pen.line([0.0, 1.0], [0.0, 1.0]).get_xdata().tolist()
    [0.0, 1.0]
    """

    def __init__(self, backend: str, target: Any) -> None:
        self.backend, self.target = backend, target
        self.module = import_backend(backend)

    def line(self, x: Any, y: Any, *, color: str = DARK, width: float = 1.5, **style: Any) -> Any:
        """Draw a line, with gaps at NaN."""
        return self.module.line(np.asarray(x), np.asarray(y), self.target, color=color,
                                width=width, **style)  # fmt: skip

    def points(
        self, x: Any, y: Any, *, color: str = DARK, size: float = 3.0, alpha: float = 1.0
    ) -> Any:
        """Draw points of about `size` pixels."""
        area = size if self.backend == "bokeh" else size**2
        # without an edge, which would be dark for translucent points
        return self.module.scatter(np.asarray(x), np.asarray(y), self.target, facecolor=color,
                                   edgecolor=color, width=0, size=area, alpha=alpha)  # fmt: skip

    def area(self, x: Any, y: Any, *, color: str, alpha: float = 0.5) -> Any:
        """Fill polygons, which NaN separates."""
        x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
        if self.backend == "plotly":
            import plotly.graph_objects as go

            trace = go.Scatter(x=x, y=y, fill="toself", mode="lines", fillcolor=color,
                               opacity=alpha, line={"width": 0}, showlegend=False,
                               hoverinfo="skip")  # fmt: skip
            return self.target.add_trace(trace)
        gaps = np.flatnonzero(~np.isfinite(x))
        xs, ys = (
            [part for each in np.split(values, gaps) if (part := each[np.isfinite(each)]).size]
            for values in (x, y)
        )
        if self.backend == "bokeh":
            return self.target.patches(
                [*map(list, xs)], [*map(list, ys)], fill_color=color, fill_alpha=alpha,
                line_color=None,
            )  # fmt: skip
        return [
            self.target.fill(a, b, color=color, alpha=alpha, linewidth=0)[0]
            for a, b in zip(xs, ys, strict=True)
        ]

    def text(self, x: float, y: float, string: str, *, color: str = DARK, **align: Any) -> Any:
        """Write text at a position."""
        size = "9pt" if self.backend == "bokeh" else 9 if self.backend == "matplotlib" else 11
        return self.module.text(x, y, string, self.target, color=color, size=size, **align)

    def title(self, string: str) -> None:
        """Set the title of the panel."""
        size = {"bokeh": "11pt", "matplotlib": 11, "plotly": 14}[self.backend]
        self.module.title(string, self.target, size=size)

    def labels(self, x: str, y: str) -> None:
        """Set the labels of the axes."""
        self.module.xlabel(x, self.target)
        self.module.ylabel(y, self.target)

    def set_limits(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Set the limits of both axes."""
        self.module.xlim(x, self.target)
        self.module.ylim(y, self.target)

    def equal_axes(self, x: tuple[float, float], y: tuple[float, float]) -> None:
        """Set equal scales, and hide the axes."""
        if self.backend == "matplotlib":
            self.target.set_aspect("equal")
        elif self.backend == "bokeh":
            width = self.target.width - 30
            self.target.frame_width = width
            self.target.frame_height = round(width * (y[1] - y[0]) / (x[1] - x[0]))
            self.target.grid.visible = False
            self.target.outline_line_color = None
        else:
            axis = self.target.figure.get_subplot(self.target.row, self.target.col).xaxis
            name = axis.plotly_name.replace("axis", "")
            self.target.update_yaxes(scaleanchor=name, scaleratio=1, constrain="domain")
            self.target.update_xaxes(constrain="domain")
            self.target.figure.update_layout(plot_bgcolor="rgba(0,0,0,0)")
        self.set_limits(x, y)
        if self.backend == "matplotlib":  # the layout ignores the title of an axis that is off
            self.target.set(xticks=[], yticks=[])
            self.target.spines[:].set_visible(False)
        else:
            self.module.remove_axis(self.target, axis="both")

    def legend(self, entries: Mapping[str, str]) -> None:
        """Add a legend of colors."""
        nothing = [np.nan, np.nan]
        if self.backend == "matplotlib":
            for label, color in entries.items():
                self.target.plot(nothing, nothing, color=color, linewidth=3, label=label)
            self.target.legend(fontsize="small", loc="best")
        elif self.backend == "bokeh":
            from bokeh.models import Legend, LegendItem

            items = [
                LegendItem(label=label, renderers=[
                    self.target.line(nothing, nothing, color=color, line_width=3)
                ])
                for label, color in entries.items()
            ]  # fmt: skip
            self.target.add_layout(Legend(items=items, label_text_font_size="9pt"), "below")
        else:
            known = {trace.name for trace in self.target.figure.data}
            for label, color in entries.items():
                if label not in known:  # one legend for all panels
                    self.line(nothing, nothing, color=color, width=3, name=label, showlegend=True)


def import_backend(backend: str) -> ModuleType:
    """Import a backend of ArviZ, when a plot is drawn and not with the package.

    Parameters
    ----------
    backend : {"matplotlib", "plotly", "bokeh"}
        Name of the backend.

    Returns
    -------
    module

    Raises
    ------
    ImportError
        If the library is not installed.
    ValueError
        If the backend is unknown.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.panels import import_backend
    >>> import_backend("matplotlib").__name__
    'arviz_plots.backend.matplotlib'
    """
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be one of {BACKENDS}, got {backend!r}.")
    try:
        import_module(backend)
        return import_module(f"arviz_plots.backend.{backend}")
    except ImportError as error:
        raise ImportError(
            f"backend={backend!r} needs {backend}: pip install 'arviz-plots[{backend}]'"
        ) from error


def backend_name(backend: str | None) -> str:
    """Return the backend, by default ArviZ's ``rcParams["plot.backend"]``.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics.panels import backend_name
    >>> backend_name("bokeh")
    'bokeh'
    """
    chosen = rcParams["plot.backend"] if backend is None else backend
    return "matplotlib" if chosen == "none" and backend is None else chosen


def panels(
    data: xr.Dataset,
    backend: str | None = None,
    *,
    core: Sequence[str] = (),
    size: tuple[int, int] = (400, 400),
    col_wrap: int = 3,
    figure_kwargs: Mapping[str, Any] | None = None,
) -> PlotCollection:
    """Make one panel for each variable and each index of its dimensions.

    Parameters
    ----------
    data : xarray.Dataset
        Data to show.
    backend : str, optional
        Name of the backend.
    core : sequence of str
        Dimensions, in addition to ``chain`` and ``draw``, that one panel shows.
    size : (int, int)
        Size of one panel in pixels.
    col_wrap : int
        Number of columns.
    figure_kwargs : mapping, optional
        Passed to ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> from pymc_geodesic.diagnostics.panels import panels
    >>> data = xr.Dataset({"x": ("site", np.arange(3))})
    >>> panels(data, "matplotlib").viz["plot"]["x"].sizes["site"]
    3
    """
    name = backend_name(backend)
    import_backend(name)
    from arviz_plots import PlotCollection

    apart = [dim for dim in data.dims if dim not in (*SAMPLE_DIMS, *core)]
    coords = {dim: np.arange(data.sizes[dim]) for dim in apart if dim not in data.coords}
    data = data.assign_coords(coords)
    number = sum(
        int(np.prod([each.sizes[dim] for dim in apart if dim in each.dims]))
        for each in data.data_vars.values()
    )
    figure = dict(figure_kwargs or {})
    columns = min(number, col_wrap)
    rows = -(-number // columns)
    if "figsize" not in figure:  # the user's is in inches, the unit of ArviZ
        figure |= {"figsize": (size[0] * columns, size[1] * rows), "figsize_units": "dots"}
    if name == "matplotlib":
        figure.setdefault("layout", "constrained")
    if name == "plotly":
        figure.setdefault("vertical_spacing", 0.3 / rows if rows > 1 else None)
    collection = PlotCollection.wrap(
        data, cols=["__variable__", *apart], col_wrap=columns, backend=name, figure_kwargs=figure
    )
    if name == "plotly":
        margin = {"l": 60, "r": 20, "t": 50, "b": 50}
        collection.get_viz("figure").update_layout(margin=margin)
    return collection


def draw(
    collection: PlotCollection, label: str, panel: Callable[[Pen, xr.DataArray, str], Any]
) -> None:
    """Draw every panel.

    Parameters
    ----------
    collection : arviz_plots.PlotCollection
        From `panels`.
    label : str
        Name in ``collection.viz`` of the objects that `panel` returns.
    panel : callable
        Function of a pen, the data of the panel, and its name.

    Examples
    --------
    >>> import xarray as xr
    >>> from pymc_geodesic.diagnostics.panels import draw, panels
    >>> collection = panels(xr.Dataset({"x": ("site", [1.0, 2.0])}), "matplotlib")
    >>> draw(collection, "title", lambda pen, part, name: print(name, part.item()))
    x[0] 1.0
    x[1] 2.0
    """

    def visual(
        part: xr.DataArray, target: Any, var_name: str, sel: Mapping[str, Any], **_: Any
    ) -> Any:
        name = var_name + (f"[{', '.join(map(str, sel.values()))}]" if sel else "")
        return panel(Pen(collection.backend, target), part, name)

    collection.map(visual, label, subset_info=True, store_artist=False)

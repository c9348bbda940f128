"""Densities of angles, around the circle or along a line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.panels import COLOURS, DARK, GREY, Pen, draw, panels
from pymc_geodesic.directional.circles import Dial, planes
from pymc_geodesic.directional.regions import directional_hdr, probability

if TYPE_CHECKING:
    from arviz_plots import PlotCollection
from pymc_geodesic.diagnostics.plots.canvas import new_axes
from pymc_geodesic.directional.kinds import directions

GRID = np.linspace(-np.pi, np.pi, 721)


def plot_circular_density(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    kind: Literal["polar", "linear"] = "polar",
    density: Callable[[np.ndarray], np.ndarray] | None = None,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    compass: bool = False,
    ci_prob: float | None = None,
    group: str = "posterior",
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Density of angles and of directions in the plane, with the highest-density region.

    The curve is that of `directional_density`, per radian; where the region of the probability
    `ci_prob` is, the area below is filled. `plot_circle_density` shows bins instead, on
    matplotlib axes.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions in the plane, or angles; by default all, see `direction_variables`.
    kind : {"polar", "linear"}
        Around a circle, with the height of the curve above it, or along a line from −180° to 180°.
    density : callable, optional
        Density with respect to the angle in radians, vectorised, to compare with; it is scaled to
        integrate to one.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are the same.
    compass : bool
        Angles clockwise from north; for ``kind="polar"``. The components of a direction in the
        plane are then (north, east): swap those of (east, north), which are refused where labels
        of their dimension tell them.
    ci_prob : float, optional
        Probability of the region; ``rcParams["stats.ci_prob"]`` by default.
    group : str
        Group of the tree.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **figure
        Passed to the back end's function that makes the figure, as ``figsize=``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If there is no such variable, or no such `kind`.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_circular_density
    >>> wind = np.random.default_rng(1).vonmises(0.5, 3.0, size=(2, 300))
    >>> idata = az.from_dict({"posterior": {"wind": wind}})
    >>> plot_circular_density(idata, angles="wind", kind="linear").backend
    'matplotlib'
    """
    if kind not in ("polar", "linear"):
        raise ValueError(f"`kind` must be 'polar' or 'linear', got {kind!r}.")
    data, core = planes(idata, var_names, angles, group, compass)
    prob = probability(ci_prob)
    size = (400, 400) if kind == "polar" else (500, 320)
    collection = panels(data, backend, core=core, size=size, **figure)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 2)
        region = directional_hdr(rows, ci_prob=prob, axial=axial)
        height = region.density(np.stack([np.cos(GRID), np.sin(GRID)], axis=-1))
        filled = np.where(height >= region.level, height, 0.0)
        lines = [(height, COLOURS[0])]
        if density is not None:
            value = np.asarray(density(GRID), dtype=float)
            lines.append((value / np.trapezoid(value, GRID), DARK))
        if kind == "polar":
            _around(pen, filled, lines, compass)
        else:
            _along(pen, filled, lines)
        if density is not None:
            pen.key({"draws": COLOURS[0], "density": DARK})
        pen.title(f"{name}: {prob:.0%} region")

    draw(collection, "density", panel)
    return collection


def _around(
    pen: Pen, filled: np.ndarray, lines: list[tuple[np.ndarray, str]], compass: bool
) -> None:
    """Draw curves outside of a circle, whose radius is their largest height."""
    top = max(height.max() for height, _ in lines)
    dial = Dial(pen, 2.05 * top, compass)
    base = np.full(GRID.shape, top)
    dial.area(np.r_[GRID, GRID[::-1]], np.r_[top + filled, base], color=COLOURS[0], alpha=0.4)
    for height, color in lines:
        dial.line(GRID, top + height, color=color)
    dial.line(GRID, base, color=GREY, width=1.0)
    dial.rule(circles=(1.0,))


def _along(pen: Pen, filled: np.ndarray, lines: list[tuple[np.ndarray, str]]) -> None:
    degrees = np.degrees(GRID)
    pen.area(np.r_[degrees, degrees[::-1]], np.r_[filled, 0.0 * filled], color=COLOURS[0],
             alpha=0.4)  # fmt: skip
    for height, color in lines:
        pen.line(degrees, height, color=color)
    pen.labels("angle (degrees)", "density per radian")
    ticks = np.arange(-180, 181, 90)
    pen.module.xticks(ticks, [f"{tick}°" for tick in ticks], pen.target)
    top = max(height.max() for height, _ in lines)
    pen.window((-180.0, 180.0), (0.0, 1.05 * top))


def plot_circle_density(
    draws: xr.DataTree | np.ndarray,
    var_name: str | None = None,
    *,
    density: Callable[[np.ndarray], np.ndarray] | None = None,
    bins: int = 63,
    group: str = "posterior",
    label: str | None = None,
    ax: Any | None = None,
) -> Any:
    """Plot the angles of draws on the circle, beside a density where one is known.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., 2)
        Draws of a unit vector in the plane.
    var_name : str, optional
        Name of the variable in the tree.
    density : callable, optional
        Density with respect to the angle in radians, vectorised; it is scaled to integrate to 1.
    bins : int
        Number of bins around the circle; the default is near the width 0.1 of the SGGMC
        paper's toy experiment.
    group : str
        Group of the tree.
    label : str, optional
        Label of the draws in the legend.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default. Several calls with the same axes compare
        samplers.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If the draws are not vectors of length 2.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_shared_mean_mixture
    >>> from pymc_geodesic.directional import plot_circle_density
    >>> ax = plot_circle_density(make_shared_mean_mixture(random_seed=1), bins=20)
    >>> ax.get_xlabel()
    'angle (radians)'
    """
    points = directions(draws, var_name, 2, group)
    ax = new_axes(ax, figsize=(6, 3.5))
    angle = np.arctan2(points[:, 1], points[:, 0])
    height, edges = np.histogram(angle, bins=bins, range=(-np.pi, np.pi), density=True)
    ax.stairs(height, edges, fill=True, alpha=0.4, label=label or "draws")
    if density is not None:
        grid = np.linspace(-np.pi, np.pi, 1001)
        value = density(grid)
        ax.plot(grid, value / np.trapezoid(value, grid), color="black", label="density")
    ax.set(xlabel="angle (radians)", ylabel="density", xlim=(-np.pi, np.pi))
    ax.set_ylim(bottom=0)
    ax.set_xticks([-np.pi, -np.pi / 2, 0, np.pi / 2, np.pi], ["-π", "-π/2", "0", "π/2", "π"])
    ax.legend()
    return ax

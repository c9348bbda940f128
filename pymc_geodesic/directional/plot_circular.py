"""Plots of angles and directions in the plane: rose diagram and circular density."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.diagnostics.panels import COLORS, DARK, GRAY, LIGHT, Pen, draw, panels
from pymc_geodesic.directional.direction_variables import rename_last, select_variables
from pymc_geodesic.directional.mean_direction import directional_mean
from pymc_geodesic.directional.regions import hdi, hdr, resolve_probability

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


GRID = np.linspace(-np.pi, np.pi, 721)
"""Angles at which densities are evaluated, in radians."""


def select_plane_vectors(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None,
    group: str,
    coords: Mapping[Any, Any] | None,
    sample_dims: str | Sequence[str] | None,
    angles: str | Sequence[str],
    compass: bool,
) -> xr.Dataset:
    """Return angles and directions in the plane as vectors along ``component_``.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_circular import select_plane_vectors
    >>> idata = az.from_dict({"posterior": {"angle": np.zeros((2, 10))}})
    >>> select_plane_vectors(idata, None, "posterior", None, None, "angle", False)["angle"].dims
    ('chain', 'draw', 'component_')
    """
    variables = select_variables(
        idata, var_names, group, coords, sample_dims, angles,
        kinds=("direction", "angle"), length=2,
    )  # fmt: skip
    if compass:
        for each in variables.values():
            require_north_first(each)
    return xr.Dataset({name: as_vectors(each) for name, each in variables.items()})


def as_vectors(variable: xr.DataArray) -> xr.DataArray:
    """Return an angle or a direction in the plane as a vector along ``component_``."""
    if variable.attrs["manifold"] == "angle":
        values = np.stack([np.cos(variable.values), np.sin(variable.values)], axis=-1)
        coords = {name: each for name, each in variable.coords.items() if name in variable.dims}
        return xr.DataArray(values, dims=(*variable.dims, "component_"), coords=coords)
    return rename_last(variable)


def require_north_first(variable: xr.DataArray) -> None:
    """Raise ``ValueError`` if the components of a direction are labeled (east, north).

    Examples
    --------
    >>> import xarray as xr
    >>> from pymc_geodesic.directional.plot_circular import require_north_first
    >>> wind = xr.DataArray([0.6, 0.8], coords={"axis": ["north", "east"]})
    >>> require_north_first(wind.assign_attrs(manifold="direction"))
    """
    if variable.attrs["manifold"] == "angle":
        return
    last = variable.dims[-1]
    if last not in variable.coords:
        return
    labels = [str(label).lower() for label in variable.coords[last].values]
    if len(labels) == 2 and (
        labels[0][:4] == "east" or labels[1][:5] == "north" or labels == ["e", "n"]
    ):
        raise ValueError(
            f"compass=True expects the components (north, east), but {last!r} of {variable.name!r} "
            f"has the labels {tuple(labels)}: the plot would be mirrored. Swap them: "
            f"idata.isel({last}=[1, 0])"
        )


class PolarAxes:
    """Polar coordinates in a panel, counterclockwise from the right or clockwise from the top.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_circular import PolarAxes
    >>> [round(float(each), 9) for each in PolarAxes(None, 1.0, True).to_plane(np.pi / 2, 1.0)]
    [1.0, 0.0]
    """

    def __init__(self, pen: Pen | None, rim: float, compass: bool = False) -> None:
        self.pen, self.rim, self.compass = pen, rim, compass

    def to_plane(self, angle: Any, radius: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return Cartesian coordinates of an angle and a radius."""
        turn = np.pi / 2 - np.asarray(angle) if self.compass else np.asarray(angle)
        return radius * np.cos(turn), radius * np.sin(turn)

    def line(self, angle: np.ndarray, radius: np.ndarray, **style: Any) -> None:
        """Draw a line."""
        assert self.pen is not None
        self.pen.line(*self.to_plane(angle, radius), **style)

    def area(self, angle: np.ndarray, radius: np.ndarray, **style: Any) -> None:
        """Fill an area."""
        assert self.pen is not None
        x, y = self.to_plane(angle, radius)
        self.pen.area(x.ravel(), y.ravel(), **style)

    def draw_grid(self, circles: Sequence[float] = (0.5, 1.0)) -> None:
        """Draw circles, rays and their labels."""
        assert self.pen is not None
        turn = np.linspace(0.0, 2 * np.pi, 181)
        for fraction in circles:
            self.line(turn, np.full(turn.shape, fraction * self.rim), color=GRAY, width=0.7)
        for degrees in range(0, 360, 45):
            angle = np.radians(degrees)
            self.line(np.full(2, angle), np.array([0.0, self.rim]), color=LIGHT, width=0.5)
            x, y = self.to_plane(angle, 1.13 * self.rim)
            self.pen.text(float(x), float(y), self._label(degrees))
        edge = 1.25 * self.rim
        self.pen.equal_axes((-edge, edge), (-edge, edge))

    def _label(self, degrees: int) -> str:
        if self.compass:
            return {0: "N", 90: "E", 180: "S", 270: "W"}.get(degrees, f"{degrees}°")
        return f"{degrees}°"


def rose_radii(angle: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the edges of the sectors and their radii, for a total area of one.

    A sector of the angle :math:`2\pi / b` that contains the proportion p of the angles has the
    radius :math:`\sqrt{b p / \pi}`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_circular import rose_radii
    >>> _, radius = rose_radii(np.array([0.1, 0.2, 3.0]), 8)
    >>> round(float((radius**2 * np.pi / 8).sum()), 12)
    1.0
    """
    edges = np.linspace(0.0, 2 * np.pi, bins + 1)
    counts, _ = np.histogram(angle % (2 * np.pi), edges)
    return edges, np.sqrt(bins * counts / counts.sum() / np.pi)


def plot_rose(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    bins: int = 24,
    compass: bool = False,
    ci_prob: float | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Rose diagram of angles and of directions in the plane.

    The area of a sector is proportional to its number of draws. The line shows the mean direction;
    its length is the resultant length in units of the outer circle. The arc is the shortest that
    contains the probability `ci_prob`.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions in the plane, or angles; by default all, see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are equivalent; both are shown.
    bins : int
        Number of sectors.
    compass : bool
        Angles are clockwise from north, at the top, instead of counterclockwise from the right, and
        the components of a direction are (north, east). Labels (east, north) of the components
        raise an error.
    ci_prob : float, optional
        Probability of the arc; ``rcParams["stats.ci_prob"]`` by default.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection
        ``.savefig`` writes the figure, ``.viz`` contains the panels.

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If there is no such variable, labels are (east, north) with `compass`, or `bins` is not a
        positive integer.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_rose
    >>> wind = np.random.default_rng(1).vonmises(0.5, 3.0, size=(2, 300))
    >>> idata = az.from_dict({"posterior": {"wind": wind}})
    >>> plot_rose(idata, angles="wind", compass=True).backend
    'matplotlib'
    """
    check_integers(bins=(bins, 1))
    prob = resolve_probability(ci_prob)
    data = select_plane_vectors(idata, var_names, group, coords, sample_dims, angles, compass)
    collection = panels(data, backend, core=("component_",), **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 2)
        angle = np.arctan2(rows[:, 1], rows[:, 0])
        edges, radius = rose_radii(np.r_[angle, angle + np.pi] if axial else angle, bins)
        polar = PolarAxes(pen, 1.12 * radius.max(), compass)
        turn = np.linspace(edges[:-1], edges[1:], 12, axis=1)
        zero, gap = np.zeros((bins, 1)), np.full((bins, 1), np.nan)
        polar.area(
            np.hstack([zero, turn, zero, gap]),
            np.hstack([zero, np.repeat(radius[:, None], 12, axis=1), zero, gap]),
            color=COLORS[0],
        )
        low, high = hdi(angle, ci_prob=prob, axial=axial)
        arc = low + np.linspace(0.0, (high - low) % (np.pi if axial else 2 * np.pi), 90)
        center = directional_mean(rows, axial)
        mean = np.arctan2(center.mean[1], center.mean[0])
        for half in (0.0, np.pi) if axial else (0.0,):
            polar.line(arc + half, np.full(arc.shape, 0.97 * polar.rim), color=COLORS[2], width=4)
            radius = np.array([0.0, center.resultant_length * polar.rim])
            polar.line(np.full(2, mean + half), radius, color=DARK, width=2.5)
        polar.draw_grid()
        pen.title(f"{name}: mean and shortest {prob:.0%} arc")

    draw(collection, "rose", panel)
    return collection


def plot_circular_density(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    kind: Literal["polar", "linear"] = "polar",
    density: Callable[[np.ndarray], np.ndarray] | None = None,
    compass: bool = False,
    ci_prob: float | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Density of angles and of directions in the plane, with the highest-density region.

    The curve is the kernel density estimate of `hdr`, per radian; the area below it is filled over
    the highest-density region.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions in the plane, or angles; by default all, see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are equivalent.
    kind : {"polar", "linear"}
        Density over a circle, or over an axis from −180° to 180°.
    density : callable, optional
        Vectorized density of the angle in radians for comparison; it is normalized.
    compass : bool
        Angles are clockwise from north, for ``kind="polar"``, and the components of a direction are
        (north, east). Labels (east, north) of the components raise an error.
    ci_prob : float, optional
        Probability of the region; ``rcParams["stats.ci_prob"]`` by default.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap`` of ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If there is no such variable, or `kind` is unknown.

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
    prob = resolve_probability(ci_prob)
    data = select_plane_vectors(idata, var_names, group, coords, sample_dims, angles, compass)
    size = (400, 400) if kind == "polar" else (500, 320)
    collection = panels(data, backend, core=("component_",), size=size, **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 2)
        region = hdr(rows, ci_prob=prob, axial=axial)
        height = region.density(np.stack([np.cos(GRID), np.sin(GRID)], axis=-1))
        filled = np.where(height >= region.level, height, 0.0)
        lines = [(height, COLORS[0])]
        if density is not None:
            value = np.asarray(density(GRID), dtype=float)
            lines.append((value / np.trapezoid(value, GRID), DARK))
        if kind == "polar":
            _draw_polar(pen, filled, lines, compass)
        else:
            _draw_linear(pen, filled, lines)
        if density is not None:
            pen.legend({"draws": COLORS[0], "density": DARK})
        pen.title(f"{name}: {prob:.0%} region")

    draw(collection, "density", panel)
    return collection


def _draw_polar(
    pen: Pen, filled: np.ndarray, lines: list[tuple[np.ndarray, str]], compass: bool
) -> None:
    """Draw curves outside a circle, whose radius is their maximum."""
    top = max(height.max() for height, _ in lines)
    polar = PolarAxes(pen, 2.05 * top, compass)
    base = np.full(GRID.shape, top)
    polar.area(np.r_[GRID, GRID[::-1]], np.r_[top + filled, base], color=COLORS[0], alpha=0.4)
    for height, color in lines:
        polar.line(GRID, top + height, color=color)
    polar.line(GRID, base, color=GRAY, width=1.0)
    polar.draw_grid(circles=(1.0,))


def _draw_linear(pen: Pen, filled: np.ndarray, lines: list[tuple[np.ndarray, str]]) -> None:
    degrees = np.degrees(GRID)
    pen.area(np.r_[degrees, degrees[::-1]], np.r_[filled, 0.0 * filled], color=COLORS[0],
             alpha=0.4)  # fmt: skip
    for height, color in lines:
        pen.line(degrees, height, color=color)
    pen.labels("angle (degrees)", "density per radian")
    ticks = np.arange(-180, 181, 90)
    pen.module.xticks(ticks, [f"{tick}°" for tick in ticks], pen.target)
    top = max(height.max() for height, _ in lines)
    pen.set_limits((-180.0, 180.0), (0.0, 1.05 * top))

"""Directions in space, on maps and on the globe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_geodesic.diagnostics.plots.panels import (
    COLOURS,
    DARK,
    Pen,
    backend_name,
    draw,
    panels,
)
from pymc_geodesic.directional.density import directional_density, thinned
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.maps import Globe, Map, Mollweide, Scene, Schmidt
from pymc_geodesic.directional.mean_direction import centre_of
from pymc_geodesic.directional.outlines import outline
from pymc_geodesic.directional.regions import probabilities, regions_of

if TYPE_CHECKING:
    from arviz_plots import PlotCollection
from pymc_geodesic.diagnostics.plots.canvas import pyplot
from pymc_geodesic.directional.kinds import directions

PROJECTIONS = ("equal_area", "mollweide", "3d")

SEEN_FROM_ABOVE = {
    "east_north_up": np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
    "north_east_down": np.diag([-1.0, 1.0, 1.0]),
}
"""Rows times this are south, east and down, whose map around (0, 0, 1) is what one sees looking
down, from within, with east on the right and north at the top."""


def plot_sphere(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    projection: Literal["equal_area", "mollweide", "3d"] = "equal_area",
    ci_probs: float | Sequence[float] | None = None,
    axial: bool = False,
    centre: ArrayLike | None = None,
    extent: float | None = None,
    lower_hemisphere: Literal["east_north_up", "north_east_down"] | None = None,
    max_points: int = 1000,
    group: str = "posterior",
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Directions in space with outlines of their highest-density regions.

    Two maps keep areas, so that equal numbers of points cover equal areas where the density is
    the same: Lambert's azimuthal one, the Schmidt net of geologists, and Mollweide's of the
    whole sphere. The third is the globe from outside, with the far side paler; plotly's
    can be turned.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions with three components; by default all, see `direction_variables`.
    projection : {"equal_area", "mollweide", "3d"}
        The map.
    ci_probs : float or sequence of float, optional
        Probabilities of the regions that are outlined; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default, none with ``()``.
    axial : bool
        Whether x and −x are the same: both are shown.
    centre : array_like, shape (3,), optional
        Direction in the middle of the map, the mean direction by default, seen from outside with
        z upward. Of Mollweide's map it sets the longitude, by default 0°, or 180° where the mean
        direction is within 60° of it.
    extent : float, optional
        Degrees from the middle of an equal-area map to its rim; by default the draws fit in. The
        title says how many are beyond it.
    lower_hemisphere : {"east_north_up", "north_east_down"}, optional
        Geologists' equal-area net: the lower hemisphere seen from above, north at the top and east
        on the right. It says what the three components are; declination and inclination make
        vectors of the second kind, see `from_declination_inclination`.
    max_points : int
        Draws are thinned evenly to this number.
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
        If there is no such variable, `projection` or `lower_hemisphere`, `centre` is no vector in
        space, or the lower hemisphere is asked for with another map, centre or extent.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_sphere
    >>> x = np.random.default_rng(1).normal([0.0, 5.0, 5.0], 1.0, size=(2, 150, 3))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> plot_sphere(az.from_dict({"posterior": {"mu": mu}})).backend
    'matplotlib'
    """
    if projection not in PROJECTIONS:
        raise ValueError(f"`projection` must be one of {PROJECTIONS}, got {projection!r}.")
    if centre is not None and np.shape(centre) != (3,):
        raise ValueError(
            f"`centre` must be a vector of 3 components, got the shape {np.shape(centre)}; "
            "`from_lonlat` makes one of a longitude and a latitude."
        )
    turn = np.eye(3)
    if lower_hemisphere is not None:
        turn = _seen_from_above(lower_hemisphere, projection, centre, extent)
        centre, extent = (0.0, 0.0, 1.0), 90.0
    variables = chosen(idata, var_names, ("direction",), group=group, length=3)
    probs = probabilities(ci_probs)
    collection = sphere_panels(variables, projection, backend, **figure)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 3) @ turn
        mean = centre_of(rows, axial).mean
        shown = np.concatenate([rows, -rows]) if axial else rows
        net = make_map(pen, projection, shown, mean, centre, extent)
        net.frame()
        net.points(thinned(shown, max_points), color=COLOURS[0], alpha=0.35)
        draw_regions(net, rows, mean, probs, axial)
        net.points(np.stack([mean, -mean]) if axial else mean[None], color=DARK, size=7.0)
        if lower_hemisphere is not None:
            net.name_quarters()
        net.title(_title(name, net, probs) + _left_out(net, shown, len(rows)))

    draw(collection, "sphere", panel)
    return collection


def _seen_from_above(
    components: str, projection: str, centre: ArrayLike | None, extent: float | None
) -> np.ndarray:
    """Return the matrix that turns rows for the lower hemisphere; see `plot_sphere`."""
    if components not in SEEN_FROM_ABOVE:
        raise ValueError(
            f"`lower_hemisphere` must be one of {tuple(SEEN_FROM_ABOVE)}, what the components of "
            f"the directions are; got {components!r}."
        )
    if projection != "equal_area" or centre is not None or extent is not None:
        raise ValueError(
            "`lower_hemisphere` is an equal-area map around the direction down, out to 90°: leave "
            "`projection`, `centre` and `extent` out."
        )
    return SEEN_FROM_ABOVE[components]


def _left_out(net: Map, shown: np.ndarray, n_draws: int) -> str:
    """Say which share of the draws a map has no place for."""
    share = 1.0 - min(np.count_nonzero(net.holds(shown)) / n_draws, 1.0)
    return f", {max(share, 0.005):.0%} beyond it" if share > 0 else ""


def sphere_panels(
    variables: dict[str, xr.DataArray], projection: str, backend: str | None, **figure: Any
) -> PlotCollection:
    """Make a panel for every direction in space; see `panels`."""
    data = xr.Dataset(
        {
            name: each.rename({each.dims[-1]: "component_"}).drop_vars(
                "component_", errors="ignore"
            )
            for name, each in variables.items()
        }
    )
    size = (560, 320) if projection == "mollweide" else (420, 440)
    wrap = 2 if projection == "mollweide" else 3
    if projection == "3d" and backend_name(backend) == "plotly":
        apart = [dim for dim in data.dims if dim not in ("chain", "draw", "component_")]
        number = sum(
            int(np.prod([each.sizes[dim] for dim in apart if dim in each.dims]))
            for each in data.data_vars.values()
        )
        columns = min(number, wrap)
        figure.setdefault("specs", [[{"type": "scene"}] * columns] * -(-number // columns))
    return panels(data, backend, core=("component_",), size=size, col_wrap=wrap, **figure)


def make_map(
    pen: Pen,
    projection: str,
    shown: np.ndarray,
    mean: np.ndarray,
    centre: ArrayLike | None,
    extent: float | None,
) -> Map:
    """Choose the map, its middle and how much of the sphere it shows."""
    middle = None if centre is None else np.asarray(centre, dtype=float)
    if middle is not None:
        middle = middle / np.linalg.norm(middle)
    if projection == "mollweide":
        if middle is None:
            far = mean[0] < -0.5 * np.hypot(mean[0], mean[1])
            middle = np.array([-1.0 if far else 1.0, 0.0, 0.0])
        return Mollweide(pen, float(np.arctan2(middle[1], middle[0])))
    if projection == "3d":
        return (Scene if pen.backend == "plotly" else Globe)(
            pen, mean if middle is None else middle
        )
    middle = mean if middle is None else middle
    if extent is None:
        furthest = np.degrees(2 * np.arcsin(np.linalg.norm(shown - middle, axis=1).max() / 2))
        rims = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0)
        extent = next((rim for rim in rims if rim >= 1.1 * furthest), 180.0)
    return Schmidt(pen, middle, float(np.radians(extent)))


def draw_regions(
    net: Map, rows: np.ndarray, mean: np.ndarray, probs: Sequence[float], axial: bool = False
) -> None:
    """Outline highest-density regions."""
    if not probs:
        return
    density = directional_density(rows, axial=axial)
    for index, region in enumerate(regions_of(density, rows, sorted(probs))):
        net.line(outline(density, region.level, mean), color=COLOURS[2], width=2.5 - index)


def _title(name: str, net: Map, probs: Sequence[float]) -> str:
    regions = " and ".join(f"{prob:.0%}" for prob in sorted(probs))
    return name + (f": {regions} regions" if regions else "") + net.remark


# One circle every 30 degrees.
GRID_LINES = 12


def plot_sphere_points(
    draws: xr.DataTree | np.ndarray,
    var_name: str | None = None,
    *,
    group: str = "posterior",
    label: str | None = None,
    max_points: int = 2000,
    ax: Any | None = None,
    **scatter: Any,
) -> Any:
    """Scatter draws of a unit vector over a wire-frame sphere.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., 3)
        Draws of a unit vector in space.
    var_name : str, optional
        Name of the variable in the tree.
    group : str
        Group of the tree.
    label : str, optional
        Label in the legend.
    max_points : int
        Draws are thinned evenly to this number.
    ax : matplotlib.axes.Axes, optional
        Axes with the projection ``"3d"`` to draw into; a new figure by default.
    **scatter
        Passed to the ``scatter`` method of the axes.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ValueError
        If the draws are not vectors of length 3.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.datasets import make_vmf_mixture
    >>> from pymc_geodesic.directional import plot_sphere_points
    >>> points, _ = make_vmf_mixture(np.eye(3), 50.0, 300, random_seed=1)
    >>> plot_sphere_points(points, label="mixture").name
    '3d'
    """
    points = directions(draws, var_name, 3, group)
    if len(points) > max_points:
        points = points[np.linspace(0, len(points) - 1, max_points).round().astype(int)]
    if ax is None:
        figure = pyplot().figure(figsize=(5, 5), layout="constrained")
        ax = figure.add_subplot(projection="3d")
        _wire_frame(ax)
    ax.scatter(*points.T, label=label, **({"s": 4} | scatter))
    if label is not None:
        ax.legend()
    return ax


def _wire_frame(ax: Any) -> None:
    """Draw the sphere itself and give all axes one scale."""
    longitude = np.linspace(0, 2 * np.pi, 2 * GRID_LINES + 1)
    latitude = np.linspace(0, np.pi, GRID_LINES + 1)
    ax.plot_wireframe(
        np.outer(np.cos(longitude), np.sin(latitude)),
        np.outer(np.sin(longitude), np.sin(latitude)),
        np.outer(np.ones_like(longitude), np.cos(latitude)),
        color="lightgrey",
        linewidth=0.5,
    )
    ax.set_box_aspect((1, 1, 1))
    ax.set(xlabel="x", ylabel="y", zlabel="z")

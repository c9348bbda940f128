"""Plots of directions in space, on maps and on a globe."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_geodesic.diagnostics.panels import (
    COLORS,
    DARK,
    GRAY,
    LIGHT,
    Pen,
    backend_name,
    draw,
    panels,
)
from pymc_geodesic.directional.coordinates import from_lonlat
from pymc_geodesic.directional.density import kernel_density, thin
from pymc_geodesic.directional.direction_variables import rename_last, select_variables
from pymc_geodesic.directional.mean_direction import directional_mean
from pymc_geodesic.directional.projections import (
    break_at_jumps,
    density_contour,
    equal_area,
    from_equal_area,
    graticule,
    mollweide,
    rotation_to_viewer,
)
from pymc_geodesic.directional.regions import highest_density_regions, resolve_probabilities

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

_FULL_TURN = np.linspace(0.0, 2 * np.pi, 181)


class Map(ABC):
    """Map of unit vectors; subclasses implement a projection.

    Parameters
    ----------
    pen : Pen
        Drawing functions of one panel.
    """

    title_suffix = ""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen

    @abstractmethod
    def draw_graticule(self) -> None:
        """Draw the rim, meridians and parallels."""

    @abstractmethod
    def points(self, rows: np.ndarray, **style: Any) -> None:
        """Draw unit vectors, shape (n, 3)."""

    @abstractmethod
    def line(self, rows: np.ndarray, **style: Any) -> None:
        """Draw a line through unit vectors, shape (n, 3), with gaps at NaN."""

    def is_visible(self, rows: np.ndarray) -> np.ndarray:
        """Return which unit vectors, shape (n, 3), are on the map."""
        return np.ones(len(rows), dtype=bool)

    def title(self, string: str) -> None:
        """Set the title of the panel."""
        self.pen.title(string)


class LambertMap(Map):
    """Lambert azimuthal equal-area map out to an angle from its center.

    With `compass` the rim has the labels of a lower-hemisphere map: north at the top, east right.
    """

    def __init__(self, pen: Pen, center: np.ndarray, extent: float, compass: bool = False) -> None:
        super().__init__(pen)
        self.center, self.extent, self.compass = center, extent, compass
        self.radius = 2.0 * np.sin(extent / 2.0)
        self.title_suffix = f", rim at {np.degrees(extent):g}°"

    def draw_graticule(self) -> None:
        """Draw the rim and the graticule."""
        step = next(
            s for s in (0.02, 0.1, 0.5, 2, 10, 30) if s * 6 >= np.degrees(self.extent) / 1.1
        )
        self.line(self._net(step), color=LIGHT, width=0.6)
        x, y = self.radius * np.cos(_FULL_TURN), self.radius * np.sin(_FULL_TURN)
        self.pen.line(x, y, color=GRAY, width=1.2)
        edge = (1.16 if self.compass else 1.04) * self.radius
        self.pen.equal_axes((-edge, edge), (-edge, edge))
        if self.compass:
            for name, x, y in (("N", 0, 1), ("E", 1, 0), ("S", 0, -1), ("W", -1, 0)):
                self.pen.text(1.08 * self.radius * x, 1.08 * self.radius * y, name)

    def is_visible(self, rows: np.ndarray) -> np.ndarray:
        """Return which unit vectors are within the rim."""
        return np.linalg.norm(equal_area(rows, self.center), axis=1) <= self.radius

    def points(self, rows: np.ndarray, **style: Any) -> None:
        """Draw the points within the rim."""
        plane = equal_area(rows[self.is_visible(rows)], self.center)
        self.pen.points(plane[:, 0], plane[:, 1], **style)

    def line(self, rows: np.ndarray, **style: Any) -> None:
        """Draw the part of a line within the rim."""
        plane = equal_area(rows, self.center)
        plane[~(np.linalg.norm(plane, axis=1) <= 1.001 * self.radius)] = np.nan
        plane = break_at_jumps(plane, self.radius)
        self.pen.line(plane[:, 0], plane[:, 1], **style)

    def _net(self, step: float) -> np.ndarray:
        """Return meridians and parallels, or circles and rays if the extent is small."""
        if step >= 30:
            return graticule(step)
        lines = []
        for ring in np.arange(step, np.degrees(self.extent) + step / 2, step):
            radius = 2.0 * np.sin(np.radians(ring) / 2.0)
            lines.append(radius * np.stack([np.cos(_FULL_TURN), np.sin(_FULL_TURN)], axis=1))
        lines.extend(
            np.outer(np.linspace(0.0, self.radius, 9), [np.cos(ray), np.sin(ray)])
            for ray in np.arange(0.0, 2 * np.pi, np.pi / 6)
        )
        gap = np.full((1, 3), np.nan)
        return np.concatenate(
            [part for each in lines for part in (from_equal_area(each, self.center), gap)]
        )


class MollweideMap(Map):
    """Mollweide map of the whole sphere."""

    def __init__(self, pen: Pen, central_longitude: float) -> None:
        super().__init__(pen)
        self.longitude = central_longitude
        if central_longitude:
            self.title_suffix = f", {np.degrees(central_longitude):g}° in the center"

    def draw_graticule(self) -> None:
        """Draw the ellipse and the graticule."""
        self.line(graticule(), color=LIGHT, width=0.6)
        a, b = 2 * np.sqrt(2.0), np.sqrt(2.0)
        self.pen.line(a * np.cos(_FULL_TURN), b * np.sin(_FULL_TURN), color=GRAY, width=1.2)
        self.pen.equal_axes((-1.03 * a, 1.03 * a), (-1.06 * b, 1.06 * b))

    def points(self, rows: np.ndarray, **style: Any) -> None:
        """Draw points."""
        plane = mollweide(rows, self.longitude)
        self.pen.points(plane[:, 0], plane[:, 1], **style)

    def line(self, rows: np.ndarray, **style: Any) -> None:
        """Draw a line, interrupted at the edges of the map."""
        plane = break_at_jumps(mollweide(rows, self.longitude), 1.5)
        self.pen.line(plane[:, 0], plane[:, 1], **style)


class OrthographicMap(Map):
    """Orthographic view of the sphere, with the far side lighter."""

    def __init__(self, pen: Pen, center: np.ndarray) -> None:
        super().__init__(pen)
        # Oblique, so that a direction and its antipode do not coincide.
        self.rotation = rotation_to_viewer(_oblique_view(center))

    def draw_graticule(self) -> None:
        """Draw the rim and the graticule."""
        self.line(graticule(), color=GRAY, width=0.5)
        self.pen.line(np.cos(_FULL_TURN), np.sin(_FULL_TURN), color=GRAY, width=1.2)
        self.pen.equal_axes((-1.04, 1.04), (-1.04, 1.04))

    def points(self, rows: np.ndarray, *, alpha: float = 1.0, **style: Any) -> None:
        """Draw points, lighter on the far side."""
        rotated = rows @ self.rotation.T
        near = rotated[:, 2] >= 0
        for side, opacity in ((~near, 0.25), (near, 1.0)):
            if side.any():
                self.pen.points(rotated[side, 0], rotated[side, 1], alpha=opacity * alpha, **style)

    def line(self, rows: np.ndarray, **style: Any) -> None:
        """Draw a line, lighter on the far side."""
        rotated = rows @ self.rotation.T
        for side, opacity in ((rotated[:, 2] < 0.0, 0.25), (rotated[:, 2] >= -0.02, 1.0)):
            part = np.where(side[:, None], rotated, np.nan)
            if np.isfinite(part).any():
                self.pen.line(part[:, 0], part[:, 1], alpha=opacity, **style)


class PlotlyGlobe(Map):
    """Interactive globe in plotly."""

    def __init__(self, pen: Pen, center: np.ndarray) -> None:
        super().__init__(pen)
        self.eye = 1.25 * _oblique_view(center)

    def draw_graticule(self) -> None:
        """Draw a translucent sphere and its graticule."""
        import plotly.graph_objects as go

        lon, lat = np.meshgrid(np.linspace(-180, 180, 49), np.linspace(-90, 90, 25))
        ball = np.moveaxis(0.99 * from_lonlat(lon, lat), -1, 0)
        surface = go.Surface(x=ball[0], y=ball[1], z=ball[2], opacity=0.35, showscale=False,
                             colorscale=[[0, "white"], [1, "white"]], hoverinfo="skip")  # fmt: skip
        self.pen.target.add_trace(surface)
        self.line(graticule(), color=LIGHT, width=1.0)
        hidden = {"visible": False}
        figure, pen = self.pen.target.figure, self.pen.target
        figure.update_scenes(
            xaxis=hidden, yaxis=hidden, zaxis=hidden, aspectmode="data",
            camera_eye=dict(zip("xyz", self.eye.tolist(), strict=True)), row=pen.row, col=pen.col,
        )  # fmt: skip

    def points(self, rows: np.ndarray, **style: Any) -> None:
        """Draw points."""
        size, opacity = 0.7 * style.get("size", 3.0), style.get("alpha", 1.0)
        marker = {"color": style.get("color", DARK), "size": size, "opacity": opacity}
        self._trace(rows, mode="markers", marker=marker)

    def line(self, rows: np.ndarray, **style: Any) -> None:
        """Draw a line."""
        line = {"color": style.get("color", DARK), "width": 2 * style.get("width", 1.5)}
        self._trace(rows, mode="lines", line=line)

    def _trace(self, rows: np.ndarray, **options: Any) -> None:
        import plotly.graph_objects as go

        x, y, z = rows.T
        self.pen.target.add_trace(go.Scatter3d(x=x, y=y, z=z, showlegend=False, **options))

    def title(self, string: str) -> None:
        """Set the annotation that serves as the title of a plotly panel."""
        pen, figure = self.pen.target, self.pen.target.figure
        columns = len(figure._grid_ref[0])
        figure.layout.annotations[(pen.row - 1) * columns + pen.col - 1].text = string


def _oblique_view(center: np.ndarray) -> np.ndarray:
    """Return a direction at 35° from another."""
    right, up, toward = rotation_to_viewer(center)
    angle = np.radians(35.0)
    return np.cos(angle) * toward + np.sin(angle) * (0.8 * right + 0.6 * up)


PROJECTIONS = ("equal_area", "mollweide", "3d")

LOWER_HEMISPHERE = {
    "east_north_up": np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
    "north_east_down": np.diag([-1.0, 1.0, 1.0]),
}
"""Rotations of row vectors to the components south, east and down: the map around (0, 0, 1) then is
the lower hemisphere from within, with north at the top and east on the right."""


def plot_sphere(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    axial: bool = False,
    projection: Literal["equal_area", "mollweide", "3d"] = "equal_area",
    center: ArrayLike | None = None,
    extent: float | None = None,
    lower_hemisphere: Literal["east_north_up", "north_east_down"] | None = None,
    max_points: int = 1000,
    ci_probs: float | Sequence[float] | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    r"""Directions in space with contours of their highest-density regions.

    The Lambert azimuthal map (Schmidt net) and the Mollweide map of the whole sphere are
    equal-area projections. The third is an orthographic view of the globe, with the far side
    lighter; it is interactive in plotly.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions with three components; by default all, see `direction_variables`.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws; see `direction_variables`.
    axial : bool
        Whether x and −x are equivalent; both are shown.
    projection : {"equal_area", "mollweide", "3d"}
        Map projection.
    center : array_like, shape (3,), optional
        Direction at the center of the map, seen from outside with z upward; by default the mean
        direction. On the Mollweide map it sets the central longitude, by default 0°, or 180° if
        the mean direction is within 60° of it.
    extent : float, optional
        Angle between center and rim of the equal-area map in degrees; by default all draws are
        on the map. The title states the percentage beyond the rim.
    lower_hemisphere : {"east_north_up", "north_east_down"}, optional
        Components of the directions, for the equal-area map of structural geology: the lower
        hemisphere seen from above, with north at the top and east on the right.
        `from_declination_inclination` returns vectors of the second kind.
    max_points : int
        Draws are thinned evenly to this number.
    ci_probs : float or sequence of float, optional
        Probabilities of the highest-density regions; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default, none with ``()``.
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
        If there is no such variable, `projection` or `lower_hemisphere` is unknown, `center` is not
        a vector of three components, or `lower_hemisphere` is combined with another projection,
        center or extent.

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
    if center is not None and np.shape(center) != (3,):
        raise ValueError(
            f"`center` must be a vector of 3 components, got the shape {np.shape(center)}; "
            "`from_lonlat` converts longitude and latitude."
        )
    rotation = np.eye(3)
    if lower_hemisphere is not None:
        rotation = _rotation_of_lower_hemisphere(lower_hemisphere, projection, center, extent)
        center, extent = (0.0, 0.0, 1.0), 90.0
    probs = resolve_probabilities(ci_probs)
    variables = select_variables(
        idata, var_names, group, coords, sample_dims, kinds=("direction",), length=3
    )
    collection = sphere_panels(variables, projection, backend, **pc_kwargs)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 3) @ rotation
        mean = directional_mean(rows, axial).mean
        shown = np.concatenate([rows, -rows]) if axial else rows
        sphere_map = make_map(
            pen, projection, shown, mean, center, extent, compass=lower_hemisphere is not None
        )
        sphere_map.draw_graticule()
        sphere_map.points(thin(shown, max_points), color=COLORS[0], alpha=0.35)
        draw_regions(sphere_map, rows, mean, probs, axial)
        sphere_map.points(np.stack([mean, -mean]) if axial else mean[None], color=DARK, size=7.0)
        sphere_map.title(
            _title(name, sphere_map, probs) + _proportion_beyond(sphere_map, shown, len(rows))
        )

    draw(collection, "sphere", panel)
    return collection


def _rotation_of_lower_hemisphere(
    components: str, projection: str, center: ArrayLike | None, extent: float | None
) -> np.ndarray:
    """Return the rotation of row vectors for the lower hemisphere; see `plot_sphere`."""
    if components not in LOWER_HEMISPHERE:
        raise ValueError(
            f"`lower_hemisphere` must be one of {tuple(LOWER_HEMISPHERE)}, the components of the "
            f"directions; got {components!r}."
        )
    if projection != "equal_area" or center is not None or extent is not None:
        raise ValueError(
            "`lower_hemisphere` fixes the map: equal-area, centered on the direction down, out to "
            "90°. Omit `projection`, `center` and `extent`."
        )
    return LOWER_HEMISPHERE[components]


def _proportion_beyond(sphere_map: Map, shown: np.ndarray, n_draws: int) -> str:
    """Return the part of the title that states the percentage of draws beyond the rim."""
    proportion = 1.0 - min(np.count_nonzero(sphere_map.is_visible(shown)) / n_draws, 1.0)
    return f", {max(proportion, 0.005):.0%} beyond it" if proportion > 0 else ""


def sphere_panels(
    variables: dict[str, xr.DataArray],
    projection: str,
    backend: str | None,
    figure_kwargs: Mapping[str, Any] | None = None,
    col_wrap: int | None = None,
) -> PlotCollection:
    """Create a panel for each direction in space; see `panels`."""
    data = xr.Dataset({name: rename_last(each) for name, each in variables.items()})
    size = (560, 320) if projection == "mollweide" else (420, 440)
    wrap = (2 if projection == "mollweide" else 3) if col_wrap is None else col_wrap
    figure = dict(figure_kwargs or {})
    if projection == "3d" and backend_name(backend) == "plotly":
        apart = [dim for dim in data.dims if dim not in ("chain", "draw", "component_")]
        number = sum(
            int(np.prod([each.sizes[dim] for dim in apart if dim in each.dims]))
            for each in data.data_vars.values()
        )
        columns = min(number, wrap)
        figure.setdefault("specs", [[{"type": "scene"}] * columns] * -(-number // columns))
    return panels(
        data, backend, core=("component_",), size=size, col_wrap=wrap, figure_kwargs=figure
    )


def make_map(
    pen: Pen,
    projection: str,
    shown: np.ndarray,
    mean: np.ndarray,
    center: ArrayLike | None = None,
    extent: float | None = None,
    *,
    compass: bool = False,
) -> Map:
    """Create the map with its center and extent."""
    map_center = None if center is None else np.asarray(center, dtype=float)
    if map_center is not None:
        map_center = map_center / np.linalg.norm(map_center)
    if projection == "mollweide":
        if map_center is None:
            far = mean[0] < -0.5 * np.hypot(mean[0], mean[1])
            map_center = np.array([-1.0 if far else 1.0, 0.0, 0.0])
        return MollweideMap(pen, float(np.arctan2(map_center[1], map_center[0])))
    if projection == "3d":
        return (PlotlyGlobe if pen.backend == "plotly" else OrthographicMap)(
            pen, mean if map_center is None else map_center
        )
    map_center = mean if map_center is None else map_center
    if extent is None:
        furthest = np.degrees(2 * np.arcsin(np.linalg.norm(shown - map_center, axis=1).max() / 2))
        rims = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0)
        extent = next((rim for rim in rims if rim >= 1.1 * furthest), 180.0)
    return LambertMap(pen, map_center, float(np.radians(extent)), compass)


def draw_regions(
    sphere_map: Map, rows: np.ndarray, mean: np.ndarray, probs: Sequence[float], axial: bool = False
) -> None:
    """Draw contours of highest-density regions."""
    if not probs:
        return
    density = kernel_density(rows, axial=axial)
    for index, region in enumerate(highest_density_regions(density, rows, sorted(probs))):
        sphere_map.line(
            density_contour(density, region.level, mean), color=COLORS[2], width=2.5 - index
        )


def _title(name: str, sphere_map: Map, probs: Sequence[float]) -> str:
    regions = " and ".join(f"{prob:.0%}" for prob in sorted(probs))
    return name + (f": {regions} regions" if regions else "") + sphere_map.title_suffix

"""Points and lines of the sphere, drawn through a projection."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from pymc_geodesic.diagnostics.plots.panels import DARK, GREY, LIGHT, Pen
from pymc_geodesic.directional.coordinates import from_lonlat
from pymc_geodesic.directional.projections import (
    equal_area,
    facing,
    from_equal_area,
    graticule,
    mollweide,
    without_jumps,
)

_TURN = np.linspace(0.0, 2 * np.pi, 181)


class Map(ABC):
    """Draws unit vectors; what a projection does with them is for its subclass to say.

    Parameters
    ----------
    pen : Pen
        Draws on the plane.
    """

    remark = ""

    def __init__(self, pen: Pen) -> None:
        self.pen = pen

    @abstractmethod
    def frame(self) -> None:
        """Draw the rim, meridians and parallels."""

    @abstractmethod
    def points(self, rows: np.ndarray, **look: Any) -> None:
        """Draw unit vectors, shape (n, 3)."""

    @abstractmethod
    def line(self, rows: np.ndarray, **look: Any) -> None:
        """Draw a line through unit vectors, shape (n, 3), with gaps where there is no number."""

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Say for which unit vectors, shape (n, 3), there is a place."""
        return np.ones(len(rows), dtype=bool)

    def name_quarters(self) -> None:  # noqa: B027
        """Write north, east, south and west at the rim of a map seen from above, if this is one."""

    def title(self, string: str) -> None:
        """Write above."""
        self.pen.title(string)


class Schmidt(Map):
    """Lambert's azimuthal equal-area map out to an angle from its middle."""

    def __init__(self, pen: Pen, centre: np.ndarray, extent: float) -> None:
        super().__init__(pen)
        self.centre, self.extent = centre, extent
        self.rim = 2.0 * np.sin(extent / 2.0)
        self.remark = f", rim at {np.degrees(extent):g}°"

    def frame(self) -> None:
        """Draw the rim and the net."""
        step = next(
            s for s in (0.02, 0.1, 0.5, 2, 10, 30) if s * 6 >= np.degrees(self.extent) / 1.1
        )
        self.line(self._net(step), color=LIGHT, width=0.6)
        self.pen.line(self.rim * np.cos(_TURN), self.rim * np.sin(_TURN), color=GREY, width=1.2)
        edge = 1.04 * self.rim
        self.pen.picture((-edge, edge), (-edge, edge))

    def holds(self, rows: np.ndarray) -> np.ndarray:
        """Say which unit vectors are within the rim."""
        return np.linalg.norm(equal_area(rows, self.centre), axis=1) <= self.rim

    def points(self, rows: np.ndarray, **look: Any) -> None:
        """Draw the points within the rim."""
        plane = equal_area(rows[self.holds(rows)], self.centre)
        self.pen.points(plane[:, 0], plane[:, 1], **look)

    def name_quarters(self) -> None:
        """Write north at the top and east on the right."""
        for name, x, y in (("N", 0, 1), ("E", 1, 0), ("S", 0, -1), ("W", -1, 0)):
            self.pen.text(1.08 * self.rim * x, 1.08 * self.rim * y, name)
        edge = 1.16 * self.rim
        self.pen.picture((-edge, edge), (-edge, edge))

    def line(self, rows: np.ndarray, **look: Any) -> None:
        """Draw a line as far as it is within the rim."""
        plane = equal_area(rows, self.centre)
        plane[~(np.linalg.norm(plane, axis=1) <= 1.001 * self.rim)] = np.nan
        plane = without_jumps(plane, self.rim)
        self.pen.line(plane[:, 0], plane[:, 1], **look)

    def _net(self, step: float) -> np.ndarray:
        """Return meridians and parallels, or circles and rays of a map that shows little."""
        if step >= 30:
            return graticule(step)
        lines = []
        for ring in np.arange(step, np.degrees(self.extent) + step / 2, step):
            radius = 2.0 * np.sin(np.radians(ring) / 2.0)
            lines.append(radius * np.stack([np.cos(_TURN), np.sin(_TURN)], axis=1))
        lines.extend(
            np.outer(np.linspace(0.0, self.rim, 9), [np.cos(ray), np.sin(ray)])
            for ray in np.arange(0.0, 2 * np.pi, np.pi / 6)
        )
        gap = np.full((1, 3), np.nan)
        return np.concatenate(
            [part for each in lines for part in (from_equal_area(each, self.centre), gap)]
        )


class Mollweide(Map):
    """Mollweide's map of the whole sphere."""

    def __init__(self, pen: Pen, central_longitude: float) -> None:
        super().__init__(pen)
        self.longitude = central_longitude
        if central_longitude:
            self.remark = f", {np.degrees(central_longitude):g}° in the middle"

    def frame(self) -> None:
        """Draw the ellipse and the net."""
        self.line(graticule(), color=LIGHT, width=0.6)
        a, b = 2 * np.sqrt(2.0), np.sqrt(2.0)
        self.pen.line(a * np.cos(_TURN), b * np.sin(_TURN), color=GREY, width=1.2)
        self.pen.picture((-1.03 * a, 1.03 * a), (-1.06 * b, 1.06 * b))

    def points(self, rows: np.ndarray, **look: Any) -> None:
        """Draw points."""
        plane = mollweide(rows, self.longitude)
        self.pen.points(plane[:, 0], plane[:, 1], **look)

    def line(self, rows: np.ndarray, **look: Any) -> None:
        """Draw a line, broken where it leaves the map on one side."""
        plane = without_jumps(mollweide(rows, self.longitude), 1.5)
        self.pen.line(plane[:, 0], plane[:, 1], **look)


class Globe(Map):
    """The sphere from outside, the far side paler."""

    def __init__(self, pen: Pen, centre: np.ndarray) -> None:
        super().__init__(pen)
        # A little to the side: what lies on one line of sight is told apart.
        self.turn = facing(_beside(centre))

    def frame(self) -> None:
        """Draw the rim and the net."""
        self.line(graticule(), color=GREY, width=0.5)
        self.pen.line(np.cos(_TURN), np.sin(_TURN), color=GREY, width=1.2)
        self.pen.picture((-1.04, 1.04), (-1.04, 1.04))

    def points(self, rows: np.ndarray, *, alpha: float = 1.0, **look: Any) -> None:
        """Draw points, those on the far side paler."""
        turned = rows @ self.turn.T
        near = turned[:, 2] >= 0
        for side, share in ((~near, 0.25), (near, 1.0)):
            if side.any():
                self.pen.points(turned[side, 0], turned[side, 1], alpha=share * alpha, **look)

    def line(self, rows: np.ndarray, **look: Any) -> None:
        """Draw a line, on the far side paler."""
        turned = rows @ self.turn.T
        for side, share in ((turned[:, 2] < 0.0, 0.25), (turned[:, 2] >= -0.02, 1.0)):
            part = np.where(side[:, None], turned, np.nan)
            if np.isfinite(part).any():
                self.pen.line(part[:, 0], part[:, 1], alpha=share, **look)


class Scene(Map):
    """A globe of plotly, which can be turned."""

    def __init__(self, pen: Pen, centre: np.ndarray) -> None:
        super().__init__(pen)
        self.eye = 1.25 * _beside(centre)

    def frame(self) -> None:
        """Draw a sphere that can be seen through, and its net."""
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

    def points(self, rows: np.ndarray, **look: Any) -> None:
        """Draw points."""
        size, opacity = 0.7 * look.get("size", 3.0), look.get("alpha", 1.0)
        marker = {"color": look.get("color", DARK), "size": size, "opacity": opacity}
        self._trace(rows, mode="markers", marker=marker)

    def line(self, rows: np.ndarray, **look: Any) -> None:
        """Draw a line."""
        line = {"color": look.get("color", DARK), "width": 2 * look.get("width", 1.5)}
        self._trace(rows, mode="lines", line=line)

    def _trace(self, rows: np.ndarray, **options: Any) -> None:
        import plotly.graph_objects as go

        x, y, z = rows.T
        self.pen.target.add_trace(go.Scatter3d(x=x, y=y, z=z, showlegend=False, **options))

    def title(self, string: str) -> None:
        """Write into the annotation that every panel of plotly has."""
        pen, figure = self.pen.target, self.pen.target.figure
        columns = len(figure._grid_ref[0])
        figure.layout.annotations[(pen.row - 1) * columns + pen.col - 1].text = string


def _beside(centre: np.ndarray) -> np.ndarray:
    """Return a direction 35° beside another."""
    right, up, towards = facing(centre)
    angle = np.radians(35.0)
    beside = np.cos(angle) * towards + np.sin(angle) * (0.8 * right + 0.6 * up)
    return beside / np.linalg.norm(beside)

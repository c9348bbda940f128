"""What plots of the circle share: angles as points of the plane, and a dial to draw on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.panels import GREY, LIGHT, Pen
from pymc_geodesic.directional.kinds import chosen


def planes(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None,
    angles: str | Sequence[str],
    group: str,
    compass: bool = False,
) -> tuple[xr.Dataset, tuple[str, ...]]:
    """Return angles and directions in the plane as vectors along ``component_``.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional.circles import planes
    >>> idata = az.from_dict({"posterior": {"angle": np.zeros((2, 10))}})
    >>> planes(idata, None, "angle", "posterior")[0]["angle"].dims
    ('chain', 'draw', 'component_')
    """
    variables = chosen(
        idata, var_names, ("direction", "angle"), angles=angles, group=group, length=2
    )
    if compass:
        for each in variables.values():
            require_north_first(each)
    return xr.Dataset({name: as_plane(each) for name, each in variables.items()}), ("component_",)


def as_plane(variable: xr.DataArray) -> xr.DataArray:
    """Return an angle or a direction in the plane as a vector along ``component_``."""
    if variable.attrs["manifold"] == "angle":
        values = np.stack([np.cos(variable.values), np.sin(variable.values)], axis=-1)
        coords = {name: each for name, each in variable.coords.items() if name in variable.dims}
        return xr.DataArray(values, dims=(*variable.dims, "component_"), coords=coords)
    last = variable.dims[-1]
    return variable.rename({last: "component_"}).drop_vars("component_", errors="ignore")


def require_north_first(variable: xr.DataArray) -> None:
    """Raise ``ValueError`` if labels say that the components of a direction are (east, north).

    Examples
    --------
    >>> import xarray as xr
    >>> from pymc_geodesic.directional.circles import require_north_first
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
            f"compass=True takes directions as (north, east), but {last!r} of {variable.name!r} "
            f"names its components {tuple(labels)}, so that the plot would be mirrored. Swap them: "
            f"idata.isel({last}=[1, 0])"
        )


class Dial:
    """Draws in polar coordinates, counterclockwise from the right or as on a compass.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.circles import Dial
    >>> [round(float(each), 9) for each in Dial(None, 1.0, compass=True).at(np.pi / 2, 1.0)]
    [1.0, 0.0]
    """

    def __init__(self, pen: Pen | None, rim: float, compass: bool = False) -> None:
        self.pen, self.rim, self.compass = pen, rim, compass

    def at(self, angle: Any, radius: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the place of an angle and a radius."""
        turn = np.pi / 2 - np.asarray(angle) if self.compass else np.asarray(angle)
        return radius * np.cos(turn), radius * np.sin(turn)

    def line(self, angle: np.ndarray, radius: np.ndarray, **look: Any) -> None:
        """Draw a line."""
        assert self.pen is not None
        self.pen.line(*self.at(angle, radius), **look)

    def area(self, angle: np.ndarray, radius: np.ndarray, **look: Any) -> None:
        """Fill an area."""
        assert self.pen is not None
        x, y = self.at(angle, radius)
        self.pen.area(x.ravel(), y.ravel(), **look)

    def rule(self, circles: Sequence[float] = (0.5, 1.0)) -> None:
        """Draw circles, directions and their names."""
        assert self.pen is not None
        turn = np.linspace(0.0, 2 * np.pi, 181)
        for share in circles:
            self.line(turn, np.full(turn.shape, share * self.rim), color=GREY, width=0.7)
        for degrees in range(0, 360, 45):
            angle = np.radians(degrees)
            self.line(np.full(2, angle), np.array([0.0, self.rim]), color=LIGHT, width=0.5)
            x, y = self.at(angle, 1.13 * self.rim)
            self.pen.text(float(x), float(y), self._name(degrees))
        edge = 1.25 * self.rim
        self.pen.picture((-edge, edge), (-edge, edge))

    def _name(self, degrees: int) -> str:
        if self.compass:
            return {0: "N", 90: "E", 180: "S", 270: "W"}.get(degrees, f"{degrees}°")
        return f"{degrees}°"

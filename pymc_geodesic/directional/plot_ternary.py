"""Three shares in a triangle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.panels import COLOURS, DARK, GREY, LIGHT, Pen, draw, panels
from pymc_geodesic.directional.density import directional_density, thinned
from pymc_geodesic.directional.kinds import chosen
from pymc_geodesic.directional.mean_direction import centre_of, unit_rows
from pymc_geodesic.directional.outlines import outline
from pymc_geodesic.directional.regions import probabilities, regions_of

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


def plot_ternary(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    ci_probs: float | Sequence[float] | None = None,
    max_points: int = 1000,
    group: str = "posterior",
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Three shares of a whole as points of a triangle, with highest-density regions.

    A share is the distance from the side opposite to its corner. Regions have the highest density
    with respect to the area on the sphere of :math:`\sqrt p`, on which the length
    :math:`2 \arccos \sum_k \sqrt{p_k q_k}` is the Fisher–Rao distance; so they reach edges
    and corners.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Variables of three shares that sum to one along the last dimension; by default all, see
        `direction_variables`.
    ci_probs : float or sequence of float, optional
        Probabilities of the regions that are outlined; 0.5 and ``rcParams["stats.ci_prob"]`` by
        default, none with ``()``.
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
        If there is no such variable.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import plot_ternary
    >>> share = np.random.default_rng(1).dirichlet([10.0, 50.0, 40.0], size=(2, 100))
    >>> plot_ternary(az.from_dict({"posterior": {"share": share}})).backend
    'matplotlib'
    """
    variables = chosen(idata, var_names, ("simplex",), group=group, length=3)
    probs = probabilities(ci_probs)
    names = {name: corner_names(each) for name, each in variables.items()}
    data = xr.Dataset(
        {
            name: each.rename({each.dims[-1]: "label_"}).drop_vars("label_", errors="ignore")
            for name, each in variables.items()
        }
    )
    collection = panels(data, backend, core=("label_",), **figure)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        shares = part.transpose(..., "label_").values.reshape(-1, 3)
        _triangle(pen, names[str(part.name)])
        plane = thinned(shares, max_points) @ CORNERS
        pen.points(plane[:, 0], plane[:, 1], color=COLOURS[0], alpha=0.35)
        for index, line in enumerate(region_outlines(shares, sorted(probs))):
            plane = line @ CORNERS
            pen.line(plane[:, 0], plane[:, 1], color=COLOURS[2], width=2.5 - index)
        mean = shares.mean(axis=0) @ CORNERS
        pen.points(mean[:1], mean[1:], color=DARK, size=7.0)
        regions = " and ".join(f"{prob:.0%}" for prob in sorted(probs))
        pen.title(name + (f": {regions} regions" if regions else ""))

    draw(collection, "ternary", panel)
    return collection


def region_outlines(shares: np.ndarray, probs: Sequence[float]) -> list[np.ndarray]:
    """Return the outlines of highest-density regions of three shares, in pieces with gaps.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_ternary import region_outlines
    >>> shares = np.random.default_rng(1).dirichlet([9.0, 9.0, 9.0], size=200)
    >>> line = region_outlines(shares, [0.9])[0]
    >>> bool(np.allclose(np.nansum(line, axis=1)[::3], 1.0))
    True
    """
    if not probs:
        return []
    roots = unit_rows(np.sqrt(np.maximum(shares, 0.0)))
    density = directional_density(roots)
    middle = centre_of(roots, False).mean
    lines = []
    for region in regions_of(density, roots, probs):
        pieces = outline(density, region.level, middle).reshape(-1, 3, 3)
        within = (pieces[:, :2] >= 0).all(axis=(1, 2))
        lines.append((pieces[within] ** 2).reshape(-1, 3))
    return lines


def corner_names(variable: xr.DataArray) -> list[str]:
    """Return the labels of the three shares, or their numbers."""
    label = variable.dims[-1]
    if label in variable.coords:
        return [str(each) for each in variable[label].values]
    return ["0", "1", "2"]


def _triangle(pen: Pen, names: Sequence[str]) -> None:
    for share in (0.2, 0.4, 0.6, 0.8):
        for corner in range(3):
            ends = np.zeros((2, 3))
            ends[:, corner] = share
            ends[0, corner - 1] = ends[1, corner - 2] = 1.0 - share
            plane = ends @ CORNERS
            pen.line(plane[:, 0], plane[:, 1], color=LIGHT, width=0.6)
    rim = CORNERS[[0, 1, 2, 0]]
    pen.line(rim[:, 0], rim[:, 1], color=GREY, width=1.2)
    for name, corner, down in zip(names, CORNERS, (-0.06, -0.06, 0.06), strict=True):
        pen.text(float(corner[0]), float(corner[1] + down), name)
    pen.picture((-0.12, 1.12), (-0.16, 1.0))

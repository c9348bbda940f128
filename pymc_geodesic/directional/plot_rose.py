"""Rose diagrams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_geodesic.arguments import check_integers
from pymc_geodesic.diagnostics.plots.panels import COLOURS, DARK, Pen, draw, panels
from pymc_geodesic.directional.circles import Dial, planes
from pymc_geodesic.directional.mean_direction import centre_of
from pymc_geodesic.directional.regions import directional_hdi, probability

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


def rose_radii(angle: np.ndarray, bins: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the edges of the sectors and their radii; the sectors have the area one together.

    A sector of the angle :math:`2\pi / b` that holds the share p of the angles has the radius
    :math:`\sqrt{b p / \pi}`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.plot_rose import rose_radii
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
    bins: int = 24,
    angles: str | Sequence[str] = (),
    axial: bool = False,
    compass: bool = False,
    ci_prob: float | None = None,
    group: str = "posterior",
    backend: str | None = None,
    **figure: Any,
) -> PlotCollection:
    r"""Rose diagram of angles and of directions in the plane.

    The area of a sector, not its radius, shows how many draws it holds. The line is the mean
    direction, as long as the resultant length of the circle that is drawn; the arc around it is the
    shortest that holds the probability `ci_prob`.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_names : str or sequence of str, optional
        Directions in the plane, or angles; by default all, see `direction_variables`.
    bins : int
        Sectors around the circle.
    angles : str or sequence of str
        Variables that are angles in radians.
    axial : bool
        Whether x and −x are the same: both are shown.
    compass : bool
        Angles clockwise from north, at the top, instead of counterclockwise from the right. The
        components of a direction in the plane are then (north, east): swap those of (east, north),
        which are refused where labels of their dimension tell them.
    ci_prob : float, optional
        Probability of the arc; ``rcParams["stats.ci_prob"]`` by default.
    group : str
        Group of the tree.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **figure
        Passed to the back end's function that makes the figure, as ``figsize=``.

    Returns
    -------
    arviz_plots.PlotCollection
        ``.savefig`` writes it, ``.viz`` has the panels.

    Raises
    ------
    ImportError
        If the back end is not installed.
    ValueError
        If there is no such variable, labels say (east, north) on a compass, or `bins` is no
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
    data, core = planes(idata, var_names, angles, group, compass)
    prob = probability(ci_prob)
    collection = panels(data, backend, core=core, **figure)

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        rows = part.transpose(..., "component_").values.reshape(-1, 2)
        angle = np.arctan2(rows[:, 1], rows[:, 0])
        edges, radius = rose_radii(np.r_[angle, angle + np.pi] if axial else angle, bins)
        dial = Dial(pen, 1.12 * radius.max(), compass)
        turn = np.linspace(edges[:-1], edges[1:], 12, axis=1)
        zero, gap = np.zeros((bins, 1)), np.full((bins, 1), np.nan)
        dial.area(
            np.hstack([zero, turn, zero, gap]),
            np.hstack([zero, np.repeat(radius[:, None], 12, axis=1), zero, gap]),
            color=COLOURS[0],
        )
        low, high = directional_hdi(angle, ci_prob=prob, axial=axial)
        arc = low + np.linspace(0.0, (high - low) % (np.pi if axial else 2 * np.pi), 90)
        centre = centre_of(rows, axial)
        mean = np.arctan2(centre.mean[1], centre.mean[0])
        for half in (0.0, np.pi) if axial else (0.0,):
            dial.line(arc + half, np.full(arc.shape, 0.97 * dial.rim), color=COLOURS[2], width=4)
            dial.line(np.full(2, mean + half), np.array([0.0, centre.resultant_length * dial.rim]),
                      color=DARK, width=2.5)  # fmt: skip
        dial.rule()
        pen.title(f"{name}: mean and shortest {prob:.0%} arc")

    draw(collection, "rose", panel)
    return collection

"""Plot of sample stats during warm-up and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.panels import COLORS, DARK, Pen, draw, panels

if TYPE_CHECKING:
    from arviz_plots import PlotCollection

PHASES = {"explore": "#f6d9a8", "tune": "#d6e4f5"}
"""Colors of the phases of warm-up."""

SHOWN = ("step_size", "temperature", "friction", "thermostat", "noise_ratio", "acceptance_rate")


def phase_starts(phase: np.ndarray, draws: np.ndarray) -> list[tuple[str, float]]:
    """Phases in their order, and the draws at which they start, as the median over chains.

    Parameters
    ----------
    phase : ndarray, shape (chain, draw)
        Name of the phase of each draw.
    draws : ndarray, shape (draw,)
        Numbers of the draws.

    Returns
    -------
    list of (str, float)

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics.warmup import phase_starts
    >>> phase_starts(np.array([["explore", "tune", "tune", "sample"]]), np.arange(-3, 1))
    [('explore', -3.0), ('tune', -2.0), ('sample', 0.0)]
    """
    found: dict[str, list[float]] = {}
    for names in phase:
        for name in dict.fromkeys(names.tolist()):
            found.setdefault(str(name), []).append(float(draws[np.argmax(names == name)]))
    return sorted(((name, float(np.median(at))) for name, at in found.items()), key=lambda p: p[1])


def plot_warmup(
    idata: xr.DataTree,
    stats: str | Sequence[str] | None = None,
    *,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot sample stats during warm-up and sampling, with the phases of warm-up as background.

    Warm-up draws have negative numbers. A positive stat that spans more than two decades is plotted
    on a logarithmic scale.

    Parameters
    ----------
    idata : xarray.DataTree
        From ``pm.sample(discard_tuned_samples=False)``, with ``warmup_sample_stats``.
    stats : str or sequence of str, optional
        Names of sample stats; by default those of ``step_size``, ``temperature``, ``friction``,
        ``thermostat``, ``noise_ratio`` and ``acceptance_rate`` that the sampler recorded.
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
        If the backend is not installed.
    ValueError
        If there are no warm-up draws, or a stat was not recorded.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import plot_warmup
    >>> rng = np.random.default_rng(1)
    >>> stats = {"step_size": rng.gamma(5.0, size=(2, 50))}
    >>> idata = az.from_dict({
    ...     "posterior": {"x": rng.normal(size=(2, 50))},
    ...     "sample_stats": stats, "warmup_sample_stats": stats,
    ... }, save_warmup=True)
    >>> plot_warmup(idata).backend
    'matplotlib'
    """
    tree = convert_to_datatree(idata)
    groups = ("warmup_sample_stats", "sample_stats")
    for group in groups:
        if group not in tree.children:
            raise ValueError(
                f"There is no group {group!r}: keep the warm-up with "
                "pm.sample(discard_tuned_samples=False)."
            )
    warm, run = (tree[group].to_dataset() for group in groups)
    known = [name for name in run.data_vars if name in warm.data_vars]
    if stats is None:
        names = [name for name in SHOWN if name in known]
    else:
        names = [stats] if isinstance(stats, str) else list(stats)
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise ValueError(f"The sample stats contain no {missing or SHOWN}; they contain {known}.")
    warm = warm.assign_coords(draw=np.arange(-warm.sizes["draw"], 0))
    run = run.assign_coords(draw=np.arange(run.sizes["draw"]))
    data = xr.concat([warm[names], run[names]], "draw")
    phases = _phases(warm)
    others = tuple(str(dim) for dim in data.dims if dim not in ("chain", "draw"))
    collection = panels(
        data, backend, core=others, size=(600, 300), **({"col_wrap": 2} | pc_kwargs)
    )

    def panel(pen: Pen, part: xr.DataArray, name: str) -> None:
        steps = part["draw"].values
        lines = part.transpose(..., "draw").values.reshape(-1, len(steps)).astype(float)
        some = lines[np.isfinite(lines)]
        logarithm = bool(some.size and some.min() > 0 and some.max() > 100 * some.min())
        lines = np.log10(lines) if logarithm else lines
        shown = lines[np.isfinite(lines)]
        low, high = (shown.min(), shown.max()) if shown.size else (0.0, 1.0)
        edge = 0.05 * (high - low or 1.0)
        low, high = low - edge, high + edge
        ends = [start for _, start in phases[1:]] + [float(steps[-1])]
        for (phase, start), end in zip(phases, ends, strict=True):
            if phase in PHASES:
                pen.area([start, end, end, start], [low, low, high, high], color=PHASES[phase],
                         alpha=0.7)  # fmt: skip
        for index, values in enumerate(lines):
            pen.line(steps, values, color=COLORS[index % len(COLORS)], width=0.9)
        pen.line([0.0, 0.0], [low, high], color=DARK, width=1.0)
        pen.labels("draw, from the end of the warm-up", f"log10 {name}" if logarithm else name)
        pen.set_limits((float(steps[0]), float(steps[-1])), (float(low), float(high)))
        pen.title(name)
        pen.legend({phase: PHASES[phase] for phase, _ in phases if phase in PHASES})

    draw(collection, "warmup", panel)
    return collection


def _phases(warm: xr.Dataset) -> list[tuple[str, float]]:
    """Phases that were recorded; without them all of warm-up is one phase."""
    if "phase" in warm.data_vars and warm["phase"].dims == ("chain", "draw"):
        found = phase_starts(warm["phase"].values, warm["draw"].values)
    else:
        found = [("tune", float(warm["draw"].values[0]))]
    return [*found, ("sample", 0.0)]

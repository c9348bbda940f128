"""Log-perplexity against wall time."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pymc_geodesic.diagnostics.plots.canvas import new_axes


def plot_perplexity(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    baselines: Mapping[str, float] | None = None,
    log_time: bool = True,
    ax: Any | None = None,
) -> Any:
    """Plot the held-out log-perplexity of several samplers against wall time.

    Parameters
    ----------
    curves : mapping of str to (array_like, array_like)
        Seconds and log-perplexities by the name of the sampler.
    baselines : mapping of str to float, optional
        Log-perplexities to draw as horizontal lines.
    log_time : bool
        Show time on a logarithmic axis, as the figures of the SGGMC paper do.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.

    Examples
    --------
    >>> from pymc_geodesic.diagnostics import plot_perplexity
    >>> ax = plot_perplexity({"SGGMC": ([1, 10, 60], [4900, 4100, 3850])},
    ...                      baselines={"corpus mean": 5093})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['SGGMC', 'corpus mean']
    """
    ax = new_axes(ax, figsize=(7, 4))
    for name, (seconds, values) in curves.items():
        ax.plot(seconds, values, marker=".", label=name)
    for index, (name, value) in enumerate((baselines or {}).items()):
        style = ("--", ":", "-.")[index % 3]
        ax.axhline(value, color="grey", linestyle=style, label=name)
    if log_time:
        ax.set_xscale("log")
    ax.set(xlabel="wall time (seconds)", ylabel="held-out log-perplexity (nats per document)")
    ax.legend()
    return ax

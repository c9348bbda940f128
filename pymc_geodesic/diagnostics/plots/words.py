"""Topics as bars of words."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from pymc_geodesic.diagnostics.plots.canvas import pyplot
from pymc_geodesic.diagnostics.words import top_words


def plot_top_words(
    idata: xr.DataTree,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 10,
    var_name: str = "beta",
    topics: Sequence[int] | None = None,
    columns: int = 5,
) -> np.ndarray:
    """Draw a panel of horizontal bars for each topic, longest on top.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``posterior[var_name]`` of dimensions (chain, draw, topic, word).
    vocabulary : sequence of str, length V, optional
        The words; by default the coordinate of the word dimension.
    n : int
        Number of words per topic.
    var_name : str
        Name of the topics.
    topics : sequence of int, optional
        Which topics to show, by position; all by default.
    columns : int
        Panels side by side.

    Returns
    -------
    numpy.ndarray of matplotlib.axes.Axes, one per topic shown

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        As `top_words`.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import plot_top_words
    >>> beta = np.broadcast_to([[0.8, 0.0, 0.6], [0.0, 1.0, 0.1]], (2, 5, 2, 3))
    >>> idata = az.from_dict({"posterior": {"beta": beta}})
    >>> panels = plot_top_words(idata, ["sun", "sea", "moon"], n=2)
    >>> [label.get_text() for label in panels[0].get_yticklabels()]
    ['sun', 'moon']
    """
    table = top_words(idata, vocabulary, n=n, var_name=var_name)
    topic = table["word"].dims[0]
    shown = range(table.sizes[topic]) if topics is None else topics
    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    figure, grid = pyplot().subplots(
        rows,
        columns,
        figsize=(2.4 * columns, (0.6 + 0.18 * n) * rows),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    panels = grid.ravel()
    for ax, index in zip(panels, shown, strict=False):
        part = table.isel({topic: index})
        ax.barh(np.arange(n), part["weight"].values)
        ax.set_yticks(np.arange(n), part["word"].values, fontsize="small")
        ax.invert_yaxis()
        ax.set_title(f"{topic} {part[topic].item()}", fontsize="medium")
    for ax in panels[len(shown) :]:
        ax.remove()
    figure.supxlabel("posterior mean weight")
    return panels[: len(shown)]

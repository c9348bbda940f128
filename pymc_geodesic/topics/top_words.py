"""Words with the largest weights in each topic, as a table and as bars."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.panels import COLORS, Pen, draw, panels
from pymc_geodesic.topics.alignment import align_topics, get_topics, get_topics_name

if TYPE_CHECKING:
    from arviz_plots import PlotCollection


@final
class TopWordsTable(pd.DataFrame):
    """Data frame that prints all columns, in blocks as wide as the terminal."""

    def __repr__(self) -> str:
        return self.to_string(line_width=shutil.get_terminal_size().columns)


def top_words(
    idata: xr.DataTree,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 10,
    var_name: str | None = None,
) -> pd.DataFrame:
    """List the words with the largest weights in each topic.

    The weights are posterior means over all draws of all chains, after `align_topics` has given
    the topics one order.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``posterior[var_name]`` of dimensions (chain, draw, topic, word).
    vocabulary : sequence of str, length V, optional
        The words; by default the coordinate of the word dimension.
    n : int
        Number of words per topic.
    var_name : str, optional
        Name of the topics; by default ``beta`` or ``topics``.

    Returns
    -------
    pandas.DataFrame
        One row for each topic, one column for each rank from 1 to `n`. All columns are printed, in
        blocks as wide as the terminal.

    Raises
    ------
    ValueError
        If `vocabulary` does not have one word per column of the topics, or `n` is not between 1
        and V.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.topics import top_words
    >>> beta = np.broadcast_to([[0.8, 0.0, 0.6], [0.0, 1.0, 0.1]], (2, 5, 2, 3))
    >>> idata = az.from_dict({"posterior": {"beta": beta}}, dims={"beta": ["topic", "word"]})
    >>> top_words(idata, ["sun", "sea", "moon"], n=2)
    rank     1     2
    topic
    0      sun  moon
    1      sea  moon
    """
    return TopWordsTable(_words_and_weights(idata, vocabulary, n, var_name)["word"].to_pandas())


def _words_and_weights(
    idata: xr.DataTree, vocabulary: Sequence[str] | None, n: int, var_name: str | None
) -> xr.Dataset:
    """Return ``word`` and ``weight`` with dimensions (topic, rank)."""
    idata = convert_to_datatree(idata)
    var_name = get_topics_name(idata, var_name)
    beta = get_topics(idata, var_name)
    topic, word = beta.dims[2:]
    if vocabulary is not None and np.ndim(vocabulary) != 1:
        raise ValueError("`vocabulary` must be a sequence of words. Set the number of words by n=.")
    words = np.asarray(beta[word].values if vocabulary is None else vocabulary)
    if len(words) != beta.sizes[word]:
        raise ValueError(
            f"`vocabulary` has {len(words)} words, but {var_name!r} has {beta.sizes[word]} columns."
        )
    if not 1 <= n <= len(words):
        raise ValueError(f"`n` must be between 1 and the {len(words)} words, got {n}.")
    mean = get_topics(align_topics(idata, var_name=var_name), var_name).mean(("chain", "draw"))
    best = np.argsort(-mean.values, axis=1)[:, :n]
    return xr.Dataset(
        {
            "word": ((topic, "rank"), words[best]),
            "weight": ((topic, "rank"), np.take_along_axis(mean.values, best, axis=1)),
        },
        coords={topic: beta[topic], "rank": np.arange(1, n + 1)},
    )


LABEL_WIDTH, LETTER_WIDTH = 200, 8
"""Width in pixels of a panel without its words, and of one letter of a word."""


def plot_top_words(
    idata: xr.DataTree,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 10,
    var_name: str | None = None,
    coords: Mapping[str, Any] | None = None,
    backend: str | None = None,
    **pc_kwargs: Any,
) -> PlotCollection:
    """Plot the weights of the top words of each topic as horizontal bars, one panel per topic.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``posterior[var_name]`` of dimensions (chain, draw, topic, word).
    vocabulary : sequence of str, length V, optional
        The words; by default the coordinate of the word dimension.
    n : int
        Number of words per topic.
    var_name : str, optional
        Name of the topics; by default ``beta`` or ``topics``.
    coords : mapping, optional
        Topics to plot, such as ``{"topic": [0, 3]}``; all by default.
    backend : {"matplotlib", "plotly", "bokeh"}, optional
        ``rcParams["plot.backend"]`` by default.
    **pc_kwargs
        Arguments ``figure_kwargs`` and ``col_wrap``, 5 by default, of
        ``arviz_plots.PlotCollection.wrap``.

    Returns
    -------
    arviz_plots.PlotCollection
        ``.savefig`` writes it, ``.viz["plot"]`` has the panels.

    Raises
    ------
    ImportError
        If the backend is not installed.
    ValueError
        As `top_words`.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.topics import plot_top_words
    >>> beta = np.broadcast_to([[0.8, 0.0, 0.6], [0.0, 1.0, 0.1]], (2, 5, 2, 3))
    >>> idata = az.from_dict({"posterior": {"beta": beta}})
    >>> panels = plot_top_words(idata, ["sun", "sea", "moon"], n=2).viz["plot"]["beta"].values
    >>> [label.get_text() for label in panels[0].get_yticklabels()]
    ['moon', 'sun']
    """
    idata = convert_to_datatree(idata)
    var_name = get_topics_name(idata, var_name)
    table = _words_and_weights(idata, vocabulary, n, var_name)
    topic = str(table["word"].dims[0])
    if coords is not None:
        table = table.sel({dim: np.atleast_1d(labels) for dim, labels in coords.items()})
    longest = float(table["weight"].max())
    shortest = min(float(table["weight"].min()), 0.0)
    longest_word = max(len(str(word)) for word in table["word"].values.ravel())
    collection = panels(
        xr.Dataset({var_name: table["weight"]}),
        backend,
        core=("rank",),
        size=(LABEL_WIDTH + LETTER_WIDTH * longest_word, 90 + 18 * n),
        **({"col_wrap": 5} | pc_kwargs),
    )

    def panel(pen: Pen, part: xr.DataArray, _: str) -> None:
        at = part[topic].item()
        words = table["word"].sel({topic: at}).values[::-1]
        position, weight = np.arange(n), part.values[::-1]
        corners = np.stack([0 * weight, weight, weight, 0 * weight, np.full(n, np.nan)], axis=1)
        height = position[:, None] + np.array([-0.4, -0.4, 0.4, 0.4, np.nan])
        pen.area(corners.ravel(), height.ravel(), color=COLORS[0], alpha=1.0)
        pen.module.yticks(position, [str(word) for word in words], pen.target)
        pen.set_limits((1.05 * shortest, 1.05 * longest), (-0.6, n - 0.4))
        pen.module.xlabel("mean weight", pen.target)
        pen.title(f"{topic} {at}")

    draw(collection, "words", panel)
    return collection

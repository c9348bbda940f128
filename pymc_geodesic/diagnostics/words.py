"""Read a topic by its words."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.alignment import align_topics, name_of_topics, topics_of


def top_words(
    idata: xr.DataTree,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 10,
    var_name: str | None = None,
    fmt: Literal["wide", "xarray"] = "wide",
) -> pd.DataFrame | xr.Dataset:
    """List the words with the largest weight in each topic.

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
        Name of the topics; ``beta`` or ``topics`` by default, whichever is there.
    fmt : {"wide", "xarray"}
        A table of the words, or a data set that has their weights too.

    Returns
    -------
    pandas.DataFrame or xarray.Dataset
        The words, a row for each topic and a column for each rank from 1 to `n`; or ``word`` and
        ``weight`` with dimensions (topic, rank).

    Raises
    ------
    ValueError
        If `vocabulary` does not have one word per column of the topics, `n` is not between 1 and
        V, or `fmt` is none of its choices.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import top_words
    >>> beta = np.broadcast_to([[0.8, 0.0, 0.6], [0.0, 1.0, 0.1]], (2, 5, 2, 3))
    >>> idata = az.from_dict({"posterior": {"beta": beta}}, dims={"beta": ["topic", "word"]})
    >>> top_words(idata, ["sun", "sea", "moon"], n=2)
    rank     1     2
    topic
    0      sun  moon
    1      sea  moon
    """
    if fmt not in ("wide", "xarray"):
        raise ValueError(f"`fmt` must be 'wide' or 'xarray', got {fmt!r}.")
    idata = convert_to_datatree(idata)
    var_name = name_of_topics(idata, var_name)
    beta = topics_of(idata, var_name)
    topic, word = beta.dims[2:]
    words = np.asarray(beta[word].values if vocabulary is None else vocabulary)
    if len(words) != beta.sizes[word]:
        raise ValueError(
            f"`vocabulary` has {len(words)} words, but {var_name!r} has {beta.sizes[word]} columns."
        )
    if not 1 <= n <= len(words):
        raise ValueError(f"`n` must be between 1 and the {len(words)} words, got {n}.")
    mean = topics_of(align_topics(idata, var_name=var_name), var_name).mean(("chain", "draw"))
    best = np.argsort(-mean.values, axis=1)[:, :n]
    table = xr.Dataset(
        {
            "word": ((topic, "rank"), words[best]),
            "weight": ((topic, "rank"), np.take_along_axis(mean.values, best, axis=1)),
        },
        coords={topic: beta[topic], "rank": np.arange(1, n + 1)},
    )
    return table if fmt == "xarray" else table["word"].to_pandas()

"""Read a topic by its words."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.alignment import align_topics, name_of_topics, topics_of


def top_words(
    idata: xr.DataTree,
    vocabulary: Sequence[str] | None = None,
    *,
    n: int = 10,
    var_name: str | None = None,
) -> xr.Dataset:
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

    Returns
    -------
    xarray.Dataset
        ``word`` and ``weight`` with dimensions (topic, rank); ``.to_dataframe()`` makes a table.

    Raises
    ------
    ValueError
        If `vocabulary` does not have one word per column of the topics, or `n` is not between 1
        and V.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.diagnostics import top_words
    >>> beta = np.broadcast_to([[0.8, 0.0, 0.6], [0.0, 1.0, 0.1]], (2, 5, 2, 3))
    >>> table = top_words(az.from_dict({"posterior": {"beta": beta}}), ["sun", "sea", "moon"], n=2)
    >>> table["word"].values.tolist()
    [['sun', 'moon'], ['sea', 'moon']]
    """
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
    return xr.Dataset(
        {
            "word": ((topic, "rank"), words[best]),
            "weight": ((topic, "rank"), np.take_along_axis(mean.values, best, axis=1)),
        },
        coords={topic: beta[topic], "rank": np.arange(1, n + 1)},
    )

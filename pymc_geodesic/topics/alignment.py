"""Alignment of topics between draws and chains (label switching)."""

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree
from scipy.optimize import linear_sum_assignment

from pymc_geodesic.diagnostics.posterior_draws import with_chains
from pymc_geodesic.kernels.stick_breaking import stick_breaking_weights, stick_proportions

MAX_PASSES = 10
"""Maximum number of updates of the mean direction of the aligned draws."""


def align_topics(
    idata: xr.DataTree, *, var_name: str | None = None, reference: np.ndarray | None = None
) -> xr.DataTree:
    r"""Permute the topics of every draw so that the same index means the same topic.

    The likelihood of a topic model is invariant under permutations of the topics (label
    switching), so chains, and draws of one chain, may hold them in different orders, and R-hat
    and effective sample size of single topics mean nothing. Each draw :math:`\beta^{(m)}` takes
    the permutation

    .. math:: \pi_m = \arg\max_\pi \sum_k \cos(r_k, \beta^{(m)}_{\pi(k)}),

    found by the Hungarian algorithm. By default the reference :math:`r` is the last draw of the
    first chain at first, and then the mean direction of the aligned draws, until no permutation
    changes.

    The components of `pymc_geodesic.mixtures.vmf_mixture` are aligned with ``var_name="mu"``; its
    ``sticks``, from which predictive draws are computed, are recomputed from the permuted weights.

    Alignment does not make different topics equal: chains in different modes keep a large R-hat.

    Parameters
    ----------
    idata : xarray.DataTree
        With ``posterior[var_name]`` of dimensions (chain, draw, topic, word); the last two may
        have other names.
    var_name : str, optional
        Name of the topics; by default ``beta``, as in the spherical admixture model, or
        ``topics``, as in models of counts.
    reference : array_like, shape (K, V), optional
        Topics in the order that all draws are to have.

    Returns
    -------
    xarray.DataTree
        A copy in which every posterior variable that has the topic dimension is permuted.

    Raises
    ------
    ValueError
        If `var_name` is missing, does not have four dimensions, or `reference` has another shape.

    Examples
    --------
    Two chains that hold the same two topics in opposite order:

    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.topics import align_topics
    >>> one = np.tile(np.eye(2, 3), (4, 1, 1))
    >>> idata = az.from_dict({"posterior": {"beta": np.stack([one, one[:, ::-1]])}})
    >>> aligned = align_topics(idata)
    >>> bool((aligned.posterior["beta"][0] == aligned.posterior["beta"][1]).all())
    True
    """
    idata = convert_to_datatree(idata)
    var_name = get_topics_name(idata, var_name)
    beta = get_topics(idata, var_name)
    topic = beta.dims[2]
    values = beta.values.reshape(-1, *beta.shape[2:])
    length = np.linalg.norm(values, axis=-1, keepdims=True)
    if reference is None:
        permutation = _align_to_mean(values, length, start=beta.values[0, -1])
    elif np.shape(reference) != beta.shape[2:]:
        raise ValueError(
            f"`reference` has shape {np.shape(reference)}, but {var_name!r} has topics of shape "
            f"{beta.shape[2:]}."
        )
    else:
        permutation = _match_topics(np.asarray(reference), values, length)
    permutation = permutation.reshape(beta.shape[:3])

    posterior = with_chains(idata["posterior"].to_dataset())
    order = xr.DataArray(permutation, dims=beta.dims[:3])
    for name, variable in posterior.data_vars.items():
        if topic in variable.dims:
            axis = variable.get_axis_num(topic)
            shaped = order.expand_dims(
                {dim: 1 for dim in variable.dims if dim not in order.dims}
            ).transpose(*variable.dims)
            posterior[name] = variable.copy(
                data=np.take_along_axis(variable.values, shaped.values, axis=axis)
            )
    if "sticks" in posterior and posterior["sticks"].shape == (*beta.shape[:2], beta.shape[2] - 1):
        sticks = posterior["sticks"]
        weights = np.take_along_axis(stick_breaking_weights(sticks.values), permutation, axis=-1)
        posterior["sticks"] = sticks.copy(data=stick_proportions(weights))
    aligned = idata.copy()
    aligned["posterior"] = xr.DataTree(posterior)
    return aligned


def get_topics_name(idata: xr.DataTree, var_name: str | None) -> str:
    """Return the given name of the topics, or by default ``topics`` or ``beta``.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.topics.alignment import get_topics_name
    >>> get_topics_name(az.from_dict({"posterior": {"topics": np.ones((1, 4, 2, 3))}}), None)
    'topics'
    """
    if var_name is not None:
        return var_name
    names = idata["posterior"].data_vars if "posterior" in idata.children else ()
    return "topics" if "topics" in names and "beta" not in names else "beta"


def get_topics(idata: xr.DataTree, var_name: str) -> xr.DataArray:
    """Return ``posterior[var_name]`` with dimensions (chain, draw, topic, word).

    Parameters
    ----------
    idata : xarray.DataTree
        Draws.
    var_name : str
        Name of the topics.

    Returns
    -------
    xarray.DataArray

    Raises
    ------
    ValueError
        If the variable is missing or has other dimensions.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.topics.alignment import get_topics
    >>> get_topics(az.from_dict({"posterior": {"beta": np.ones((1, 4, 2, 3))}}), "beta").shape
    (1, 4, 2, 3)
    """
    if "posterior" not in idata.children or var_name not in idata["posterior"].data_vars:
        raise ValueError(
            f"The posterior holds no variable {var_name!r}. Set `var_name` to the name of the "
            "topics, and include them in `pm.sample(var_names=...)`."
        )
    beta = with_chains(idata["posterior"].to_dataset())[var_name]
    if beta.ndim != 4 or beta.dims[:2] != ("chain", "draw"):
        raise ValueError(
            f"{var_name!r} must have the dimensions (chain, draw, topic, word), got {beta.dims}."
        )
    return beta


def _align_to_mean(values: np.ndarray, length: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Alternate between permutations and the mean direction of the aligned draws."""
    permutation = _match_topics(start, values, length)
    for _ in range(MAX_PASSES):
        aligned = np.take_along_axis(values / length, permutation[:, :, None], axis=1)
        updated = _match_topics(aligned.mean(axis=0), values, length)
        if np.array_equal(updated, permutation):
            break
        permutation = updated
    return permutation


def _match_topics(reference: np.ndarray, values: np.ndarray, length: np.ndarray) -> np.ndarray:
    """Match the topics of each draw to a reference; shapes (K, V), (M, K, V) to (M, K)."""
    direction = reference / np.linalg.norm(reference, axis=-1, keepdims=True)
    cosine = np.einsum("kv,mjv->mkj", direction, values, optimize=True) / length[:, None, :, 0]
    return np.stack([linear_sum_assignment(each, maximize=True)[1] for each in cosine])

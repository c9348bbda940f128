"""Arguments that PyMC would pass over in silence."""

from typing import Any

import numpy as np

from pymc_geodesic.distributions.unit_rows import known_data

OF_EVERY_DISTRIBUTION = {
    "dims",  # refused by PyMC, with the reason
    "dtype",
    "initval",  # refused by PyMC, with the reason
    "name",
    "return_next_rng",
    "rng",
    "shape",
    "size",
}


def require_known_arguments(cls: type, kwargs: dict[str, Any]) -> None:
    """Refuse what is no parameter of a distribution, which PyMC and PyTensor would ignore.

    Parameters
    ----------
    cls : type
        The distribution.
    kwargs : dict
        What its ``dist`` was given beside the parameters.

    Raises
    ------
    TypeError
        With the names of the arguments that are unknown.
    """
    unknown = sorted(set(kwargs) - OF_EVERY_DISTRIBUTION)
    if unknown:
        raise TypeError(
            f"{cls.__name__} has no argument {', '.join(map(repr, unknown))}; "
            "its documentation lists its parameters"
        )


def last_length(shape: Any) -> int | None:
    """Return the last entry of a shape, as far as numbers, data or dims of a model tell it.

    Examples
    --------
    >>> from pymc_geodesic.distributions.arguments import last_length
    >>> last_length((5, 3)), last_length(4), last_length(None)
    (3, 4, None)
    """
    if isinstance(shape, tuple | list):
        if not shape:
            return None
        shape = shape[-1]
    if shape is None or shape is Ellipsis:
        return None
    length = known_data(shape)
    if length is None or length.size == 0 or not np.issubdtype(length.dtype, np.integer):
        return None
    return int(length.reshape(-1)[-1])

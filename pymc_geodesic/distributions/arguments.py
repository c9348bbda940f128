"""Arguments that PyMC would pass over in silence."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pymc
from pymc import modelcontext
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_geodesic.distributions.unit_rows import known_data

PACKAGE = str(Path(__file__).parents[1])

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


def warn_of_free_loss(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Warn where a hinge loss has a cost or a margin that is sampled.

    ψ has no normaliser, and is largest where there is no loss at all: the posterior of a cost goes
    to zero, whatever the labels.

    Parameters
    ----------
    name : str
        Name of the random variable, for the message.
    args, kwargs
        What it was given behind the scores: cost and margin.
    """
    given = dict(zip(("cost", "margin"), args, strict=False)) | dict(kwargs)
    for argument in ("cost", "margin"):
        value = given.get(argument)
        above = set(ancestors([value])) if isinstance(value, Variable) else set()
        free = [rv.name for rv in modelcontext(None).free_RVs if rv in above]
        if free:
            warnings.warn(
                f"the {argument} of {name!r} depends on {', '.join(map(repr, free))}: ψ is no "
                f"likelihood and says nothing of its own {argument}, so that their posterior will "
                "be wrong. Give a number, and choose it by cross-validation.",
                UserWarning,
                skip_file_prefixes=(PACKAGE, os.path.dirname(pymc.__file__)),
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

"""Which variables of a run are directions, angles, frames or shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.draws import SAMPLE_DIMS, with_chains
from pymc_geodesic.directional.coordinates import warn_of_degrees

Kind = Literal["direction", "angle", "frame", "simplex"]

KINDS = ("direction", "angle", "frame", "simplex")

RULES = {
    "direction": "Directions are told by norm one along the last dimension.",
    "angle": "Name angles in `angles=`.",
    "frame": "Frames are told by orthonormal columns.",
    "simplex": "Shares are told by a sum of one along the last dimension.",
}


def direction_variables(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    angles: str | Sequence[str] = (),
    group: str = "posterior",
) -> dict[str, Kind]:
    r"""Tell which variables are directions, angles, orthonormal frames or shares of a whole.

    The rule, first match first:

    1. names in `angles` are angles in radians: nothing in the numbers tells an angle;
    2. ``attrs["manifold"]`` of a variable, one of ``"direction"``, ``"angle"``, ``"frame"`` and
       ``"simplex"``;
    3. shares are not negative and sum to one along the last dimension, in every draw, and are not
       all corners such as (0, 0, 1), which have norm one too;
    4. frames have orthonormal columns, :math:`X^\top X = I`, in the last two dimensions;
    5. directions have norm one along the last dimension, which has a length of at least 2.

    All to 10⁻⁶, or 10⁻³ in single precision. A variable with a value that is not finite is none
    of them.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Which variables to look at; all by default. A name after ``~`` is left out, as in ArviZ.
    angles : str or sequence of str
        Variables that are angles in radians.
    group : str
        Group of the tree.

    Returns
    -------
    dict of str to {"direction", "angle", "frame", "simplex"}
        Variables that are none of them are left out.

    Raises
    ------
    ValueError
        If the group or a variable is missing, or an attribute names an unknown manifold.

    Warns
    -----
    UserWarning
        If angles go beyond two turns, as if they were degrees.

    Examples
    --------
    >>> import arviz as az
    >>> import numpy as np
    >>> from pymc_geodesic.directional import direction_variables
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(2, 50, 3))
    >>> mu = x / np.linalg.norm(x, axis=-1, keepdims=True)
    >>> idata = az.from_dict({"posterior": {"x": x, "mu": mu, "share": mu**2}})
    >>> direction_variables(idata, angles="x")
    {'x': 'angle', 'mu': 'direction', 'share': 'simplex'}
    """
    draws = group_of(idata, group)
    names = _selected(draws, var_names)
    for name in [*names, *_names(angles)]:
        if name not in draws.data_vars:
            raise ValueError(f"The group {group!r} holds no variable {name!r}.")
    found: dict[str, Kind] = {}
    for name in names:
        kind = "angle" if name in _names(angles) else kind_of(draws[name])
        if kind == "angle":
            warn_of_degrees(name, draws[name].values)
        if kind is not None:
            found[name] = kind
    return found


def group_of(idata: Any, group: str) -> xr.Dataset:
    """Return one group of a tree as a data set; see `direction_variables`."""
    tree = convert_to_datatree(idata)
    if group in tree.children:
        return with_chains(tree[group].to_dataset())
    if tree.name == group:  # idata.posterior itself
        return with_chains(tree.to_dataset())
    held = ", ".join(tree.children) or (f"the group {tree.name!r}" if tree.name else "nothing")
    raise ValueError(f"There is no group {group!r}; the draws hold {held}.")


def kind_of(variable: xr.DataArray) -> Kind | None:
    """Tell what one variable is, by its attribute or its numbers; see `direction_variables`."""
    told = variable.attrs.get("manifold")
    if told is not None:
        if told not in KINDS:
            raise ValueError(
                f"attrs['manifold'] of {variable.name!r} is {told!r}; it must be one of {KINDS}."
            )
        return told
    core = variable.ndim - sum(dim in variable.dims for dim in SAMPLE_DIMS)
    if core < 1 or variable.shape[-1] < 1 or variable.dtype.kind != "f":
        return None
    tolerance = 1e-3 if variable.dtype.itemsize < 8 else 1e-6
    values = variable.values
    if values.size == 0 or not np.isfinite(values).all():
        return None
    not_negative = values.shape[-1] > 1 and values.min() >= -tolerance
    is_unit = np.abs((values**2).sum(axis=-1) - 1.0).max() < 2 * tolerance
    if not_negative and not is_unit and np.abs(values.sum(axis=-1) - 1.0).max() < tolerance:
        return "simplex"
    if core >= 2 and values.shape[-2] >= values.shape[-1] and is_frame(values, tolerance):
        return "frame"
    if values.shape[-1] > 1 and is_unit:
        return "direction"
    return None


def is_frame(values: np.ndarray, tolerance: float) -> bool:
    """Whether the last two axes hold matrices with orthonormal columns."""
    if np.abs((values**2).sum(axis=-2) - 1.0).max() > 2 * tolerance:
        return False
    gram = np.swapaxes(values, -1, -2) @ values
    return bool(np.abs(gram - np.eye(values.shape[-1])).max() < 2 * tolerance)


def chosen(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None,
    kinds: Sequence[Kind],
    *,
    angles: str | Sequence[str] = (),
    group: str = "posterior",
    length: int | Sequence[int] | None = None,
) -> dict[str, xr.DataArray]:
    """Return the variables of these kinds, with a clear error where there is none.

    Parameters
    ----------
    idata, var_names, angles, group
        See `direction_variables`.
    kinds : sequence of str
        What the caller can use.
    length : int or sequence of int, optional
        Lengths of the last dimension that the caller can use; angles count as of length 2.

    Returns
    -------
    dict of str to xarray.DataArray
        With ``attrs["manifold"]``.

    Raises
    ------
    ValueError
        If a variable that was asked for is something else, or none was found.
    """
    lengths = (length,) if isinstance(length, int) else length
    draws = group_of(idata, group)
    names = _selected(draws, var_names)
    named = var_names is not None and names == _names(var_names)
    found = direction_variables(idata, names, angles=angles, group=group)
    wanted = " or ".join(kinds) + ("" if lengths is None else f" of length {_either(lengths)}")
    result = {}
    for name in names:
        kind = found.get(name)
        size = 2 if kind == "angle" else draws[name].shape[-1]
        if kind in kinds and (lengths is None or size in lengths):
            result[name] = draws[name].assign_attrs(manifold=kind)
        elif named:
            is_one = "nothing of the kind" if kind is None else f"a {kind} of length {size}"
            remedy = "say what it is in attrs['manifold'] of the variable."
            if "angle" in kinds:
                remedy = f"Name angles in `angles=`, or {remedy}"
            raise ValueError(
                f"{name!r} should be a {wanted}; by its numbers it is {is_one}"
                f"{_not_finite(draws[name])}. {remedy[0].upper()}{remedy[1:]}"
            )
    if not result:
        raise ValueError(
            f"No variable of the group {group!r} is a {wanted}. "
            f"{' '.join(RULES[kind] for kind in kinds)}"
        )
    return result


def _selected(draws: xr.Dataset, var_names: str | Sequence[str] | None) -> list[str]:
    """Return names of variables; those that begin with "~" are left out, as ArviZ does it."""
    every = [str(name) for name in draws.data_vars]
    names = every if var_names is None else _names(var_names)
    if not any(name.startswith("~") and name not in every for name in names):
        return names
    excluded = [name.removeprefix("~") for name in names]
    for name in excluded:
        if name not in every:
            raise ValueError(f"The draws hold no variable {name!r} to leave out.")
    return [name for name in every if name not in excluded]


def _not_finite(variable: xr.DataArray) -> str:
    """Say how many draws have a value that is not finite, if there are any."""
    if variable.dtype.kind != "f":
        return ""
    core = [dim for dim in variable.dims if dim not in SAMPLE_DIMS]
    finite = variable.copy(data=np.isfinite(variable.values)).all(core)
    count = finite.size - int(finite.sum())
    return f", as {count} of its draws are not finite" if count else ""


def _either(lengths: Sequence[int]) -> str:
    return " or ".join(map(str, lengths))


def _names(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def directions(
    draws: xr.DataTree | np.ndarray, var_name: str | None, dimension: int, group: str = "posterior"
) -> np.ndarray:
    """Return draws of a unit vector as rows.

    Parameters
    ----------
    draws : xarray.DataTree or array_like, shape (..., d)
        Draws with the variable `var_name`, or bare points.
    var_name : str or None
        Name of the variable; required for a tree.
    dimension : int
        The d that the plot can show.
    group : str
        Group of the tree to look in.

    Returns
    -------
    numpy.ndarray, shape (n, d)

    Raises
    ------
    ValueError
        If the variable is missing or does not hold vectors of this length.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.directional.kinds import directions
    >>> directions(np.ones((4, 5, 2)), None, 2).shape
    (20, 2)
    """
    if isinstance(draws, np.ndarray | list | tuple):
        points = np.asarray(draws, dtype=np.float64)
    else:
        tree = convert_to_datatree(draws)
        if group not in tree.children or var_name not in tree[group].data_vars:
            raise ValueError(f"The group {group!r} holds no variable {var_name!r}.")
        points = tree[group].to_dataset()[var_name].values
    if points.shape[-1:] != (dimension,):
        raise ValueError(
            f"This plot shows vectors of length {dimension}; the last axis of the draws has the "
            f"shape {points.shape[-1:]}."
        )
    return points.reshape(-1, dimension)

"""Classification of variables as directions, angles, orthonormal frames or simplices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_base import convert_to_datatree

from pymc_geodesic.diagnostics.posterior_draws import SAMPLE_DIMS, with_chains
from pymc_geodesic.directional.coordinates import warn_if_degrees

Kind = Literal["direction", "angle", "frame", "simplex"]

KINDS = ("direction", "angle", "frame", "simplex")

DATA_GROUPS = ("observed_data", "constant_data")
"""Groups without draws, whose observations are summarized and plotted instead."""

RULES = {
    "direction": "Directions have norm one along the last dimension.",
    "angle": "Name angles in `angles=`.",
    "frame": "Frames have orthonormal columns.",
    "simplex": "Simplices have a sum of one along the last dimension.",
}


def direction_variables(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None = None,
    *,
    group: str = "posterior",
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
    angles: str | Sequence[str] = (),
) -> dict[str, Kind]:
    r"""Classify variables as directions, angles, orthonormal frames or simplices.

    The first rule that matches applies:

    1. names in `angles` are angles in radians, which values alone do not identify;
    2. ``attrs["manifold"]`` of a variable, one of ``"direction"``, ``"angle"``, ``"frame"`` and
       ``"simplex"``;
    3. simplices are nonnegative and sum to one along the last dimension in every draw, and are not
       all vertices such as (0, 0, 1), which also have norm one;
    4. frames have orthonormal columns, :math:`X^\top X = I`, in the last two dimensions;
    5. directions have norm one along the last dimension, which has a length of at least 2.

    The tolerance is 10⁻⁶, in single precision 10⁻³. A variable with a value that is not finite is
    not classified.

    Parameters
    ----------
    idata : xarray.DataTree
        Draws with the dimensions ``chain`` and ``draw``.
    var_names : str or sequence of str, optional
        Variables; all by default. The prefix ``~`` excludes a variable, as in ArviZ.
    group : str
        Group of the tree.
    coords : mapping, optional
        Labels to select along dimensions, as in ArviZ.
    sample_dims : str or sequence of str, optional
        Dimensions of the draws, ``chain`` and ``draw`` by default; in the groups
        ``observed_data`` and ``constant_data`` the first dimension, of the observations. One
        dimension counts as the draws of one chain.
    angles : str or sequence of str
        Variables that are angles in radians.

    Returns
    -------
    dict of str to {"direction", "angle", "frame", "simplex"}
        Without the variables that match no rule.

    Raises
    ------
    ValueError
        If the group or a variable is missing, or an attribute names an unknown manifold.

    Warns
    -----
    UserWarning
        If angles exceed 4π in absolute value, as angles in degrees do.

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
    draws = get_dataset(idata, group, coords, sample_dims)
    return _classify(draws, _selected_names(draws, var_names), angles, group)


def _classify(
    draws: xr.Dataset, names: Sequence[str], angles: str | Sequence[str], group: str
) -> dict[str, Kind]:
    """Classify the named variables of a data set; see `direction_variables`."""
    for name in [*names, *_as_list(angles)]:
        if name not in draws.data_vars:
            raise ValueError(f"The group {group!r} holds no variable {name!r}.")
    found: dict[str, Kind] = {}
    for name in names:
        kind = "angle" if name in _as_list(angles) else classify_variable(draws[name])
        if kind == "angle":
            warn_if_degrees(name, draws[name].values)
        if kind is not None:
            found[name] = kind
    return found


def get_dataset(
    idata: Any,
    group: str,
    coords: Mapping[Any, Any] | None = None,
    sample_dims: str | Sequence[str] | None = None,
) -> xr.Dataset:
    """Return one group of a tree with the dimensions chain and draw; see `direction_variables`.

    No sample dimensions, ``()``, leave the dimensions of data as they are.
    """
    if isinstance(idata, np.ndarray | list | tuple) and np.ndim(idata) < 3:
        raise ValueError(
            f"An array of shape {np.shape(idata)} has no dimensions (chain, draw, coordinate). "
            'Pass data as az.from_dict({"observed_data": {"x": x}}) with group="observed_data".'
        )
    tree = convert_to_datatree(idata)
    if group in tree.children:
        draws = tree[group].to_dataset()
    elif tree.name == group:  # idata.posterior itself
        draws = tree.to_dataset()
    else:
        groups = ", ".join(tree.children) or tree.name or "none"
        raise ValueError(f"There is no group {group!r}. Groups of the tree: {groups}.")
    if sample_dims is None and group in DATA_GROUPS:
        sample_dims = _observation_dim(draws)
    if sample_dims:
        draws = _rename_sample_dims(draws, _as_list(sample_dims))
    draws = with_chains(draws)
    return draws if coords is None else draws.sel(dict(coords))


def _observation_dim(data: xr.Dataset) -> list[str]:
    """Return the dimension of the observations: the first of all variables, if it is the same."""
    first = {str(each.dims[0]) for each in data.data_vars.values() if each.ndim}
    return list(first) if len(first) == 1 else []


def _rename_sample_dims(draws: xr.Dataset, dims: list[str]) -> xr.Dataset:
    """Rename one dimension to draw, or two to chain and draw."""
    if len(dims) not in (1, 2) or not set(dims) <= set(draws.dims):
        raise ValueError(
            f"`sample_dims` must name one or two dimensions of {', '.join(map(str, draws.dims))}, "
            f"got {dims}."
        )
    if tuple(dims) == SAMPLE_DIMS:
        return draws
    labels = [name for name in (*dims, *SAMPLE_DIMS) if name in draws.coords]
    draws = draws.drop_vars(labels).rename(dict(zip(dims, SAMPLE_DIMS[-len(dims) :], strict=True)))
    return draws.expand_dims("chain") if len(dims) == 1 else draws


def classify_variable(variable: xr.DataArray) -> Kind | None:
    """Classify one variable by its attribute or its values; see `direction_variables`."""
    attribute = variable.attrs.get("manifold")
    if attribute is not None:
        if attribute not in KINDS:
            raise ValueError(
                f"attrs['manifold'] of {variable.name!r} is {attribute!r}; it must be one of "
                f"{KINDS}."
            )
        return attribute
    core = variable.ndim - sum(dim in variable.dims for dim in SAMPLE_DIMS)
    if core < 1 or variable.shape[-1] < 1 or variable.dtype.kind != "f":
        return None
    tolerance = 1e-3 if variable.dtype.itemsize < 8 else 1e-6
    values = variable.values
    if values.size == 0 or not np.isfinite(values).all():
        return None
    nonnegative = values.shape[-1] > 1 and values.min() >= -tolerance
    is_unit = np.abs((values**2).sum(axis=-1) - 1.0).max() < 2 * tolerance
    if nonnegative and not is_unit and np.abs(values.sum(axis=-1) - 1.0).max() < tolerance:
        return "simplex"
    if core >= 2 and values.shape[-2] >= values.shape[-1] and is_frame(values, tolerance):
        return "frame"
    if values.shape[-1] > 1 and is_unit:
        return "direction"
    return None


def is_frame(values: np.ndarray, tolerance: float) -> bool:
    """Return whether the last two axes hold matrices with orthonormal columns."""
    if np.abs((values**2).sum(axis=-2) - 1.0).max() > 2 * tolerance:
        return False
    gram = np.swapaxes(values, -1, -2) @ values
    return bool(np.abs(gram - np.eye(values.shape[-1])).max() < 2 * tolerance)


def select_variables(
    idata: xr.DataTree,
    var_names: str | Sequence[str] | None,
    group: str,
    coords: Mapping[Any, Any] | None,
    sample_dims: str | Sequence[str] | None,
    angles: str | Sequence[str] = (),
    *,
    kinds: Sequence[Kind],
    length: int | Sequence[int] | None = None,
) -> dict[str, xr.DataArray]:
    """Return the variables of some kinds, at least one.

    Parameters
    ----------
    idata, var_names, group, coords, sample_dims, angles
        See `direction_variables`.
    kinds : sequence of str
        Kinds that the caller supports.
    length : int or sequence of int, optional
        Lengths of the last dimension that the caller supports; angles count as of length 2.

    Returns
    -------
    dict of str to xarray.DataArray
        With ``attrs["manifold"]``.

    Raises
    ------
    ValueError
        If a variable in `var_names` is of another kind, or there is none.
    """
    lengths = (length,) if isinstance(length, int) else length
    draws = get_dataset(idata, group, coords, sample_dims)
    names = _selected_names(draws, var_names)
    explicit = var_names is not None and names == _as_list(var_names)
    found = _classify(draws, names, angles, group)
    wanted = " or ".join(kinds)
    if lengths is not None:
        wanted += f" of length {' or '.join(map(str, lengths))}"
    result = {}
    for name in names:
        kind = found.get(name)
        size = 2 if kind == "angle" else draws[name].shape[-1]
        if kind in kinds and (lengths is None or size in lengths):
            result[name] = draws[name].assign_attrs(manifold=kind)
        elif explicit:
            found_kind = "none of these" if kind is None else f"a {kind} of length {size}"
            remedy = "set attrs['manifold'] of the variable."
            if "angle" in kinds:
                remedy = f"name angles in `angles=`, or {remedy}"
            raise ValueError(
                f"{name!r} should be a {wanted}; by its values it is {found_kind}"
                f"{_count_not_finite(draws[name])}. {remedy[0].upper()}{remedy[1:]}"
            )
    if not result:
        raise ValueError(
            f"No variable of the group {group!r} is a {wanted}. "
            f"{' '.join(RULES[kind] for kind in kinds)}"
        )
    return result


def rename_last(variable: xr.DataArray, dim: str = "component_") -> xr.DataArray:
    """Rename the last dimension, that of the coordinates, and drop its labels."""
    return variable.rename({variable.dims[-1]: dim}).drop_vars(dim, errors="ignore")


def _selected_names(draws: xr.Dataset, var_names: str | Sequence[str] | None) -> list[str]:
    """Return names of variables without those that the prefix "~" excludes, as in ArviZ."""
    every = [str(name) for name in draws.data_vars]
    names = every if var_names is None else _as_list(var_names)
    if not any(name.startswith("~") and name not in every for name in names):
        return names
    excluded = [name.removeprefix("~") for name in names]
    for name in excluded:
        if name not in every:
            raise ValueError(f"There is no variable {name!r} to exclude.")
    return [name for name in every if name not in excluded]


def _count_not_finite(variable: xr.DataArray) -> str:
    """Return the part of a message that counts draws with a value that is not finite."""
    if variable.dtype.kind != "f":
        return ""
    core = [dim for dim in variable.dims if dim not in SAMPLE_DIMS]
    finite = variable.copy(data=np.isfinite(variable.values)).all(core)
    count = finite.size - int(finite.sum())
    return f", since {count} of its draws are not finite" if count else ""


def _as_list(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)

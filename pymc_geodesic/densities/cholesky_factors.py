r"""Coordinates of Cholesky factors of covariance matrices: log standard deviations, correlations.

PyMC's value of a `pymc.LKJCholeskyCov` variable has the entries L_kj below the diagonal and the
logarithms of L_kk. Both are poor coordinates for a sampler: if the standard deviation of row k may
be close to zero, the entries of the row form a funnel, and if a correlation is high, L_kk may be
close to zero while the data determine the other entries. The logarithm s of the standard deviation
of a row and Fisher's transformation w_j of its partial correlations have neither funnel:

.. math::

    L_{kj} = e^{s} \tanh(w_j) \prod_{i < j} \operatorname{sech}(w_i), \qquad
    L_{kk} = e^{s} \prod_{i < k} \operatorname{sech}(w_i) .

Coordinates have the order of the entries, s in place of L_kk. The Jacobian of a row with m entries
below the diagonal has the determinant e^{(m + 1) s} Π_i sech(w_i)^{m − i + 1}, i = 1, …, m.

Lewandowski, Kurowicka, Joe (2009), Generating random correlation matrices based on vines and
extended onion method, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.transforms import CholeskyCovPacked, Transform
from pymc.model import Model
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.densities.variables import ManifoldVariable
from pymc_geodesic.minibatches.model_rows import model_with


class LogSdsAndCorrelations(Transform):
    """Transform of packed Cholesky factors, rows one after the other.

    Parameters
    ----------
    n : int
        Number of rows of a factor.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.densities.cholesky_factors import LogSdsAndCorrelations
    >>> factor = LogSdsAndCorrelations(2).backward(np.array([0.0, np.arctanh(0.6), np.log(5.0)]))
    >>> factor.eval().round(6).tolist()
    [1.0, 3.0, 4.0]
    """

    name = "log-sds-and-correlations"
    ndim_supp = 1

    def __init__(self, n: int) -> None:
        self.n = n

    def backward(self, value: TensorVariable, *inputs: TensorVariable) -> TensorVariable:
        """Packed factor of coordinates."""
        return _factor(pt.as_tensor(value), self.n, pt, pt.softplus)

    def forward(self, value: TensorVariable, *inputs: TensorVariable) -> TensorVariable:
        """Coordinates of a packed factor."""
        return _coordinates(pt.as_tensor(value), self.n, pt)

    def log_jac_det(self, value: TensorVariable, *inputs: TensorVariable) -> TensorVariable:
        """Logarithm of the Jacobian determinant of `backward`."""
        total = pt.zeros_like(value[..., 0])
        for m, (below, last) in enumerate(_rows(self.n)):
            log_sech = _log_sech(value[..., below], pt.softplus)
            total += (m + 1.0) * value[..., last] + (np.arange(m, 0.0, -1.0) * log_sech).sum(-1)
        return total


def _rows(n: int) -> list[tuple[slice, int]]:
    """Return where the entries of each row below the diagonal are, and that on the diagonal."""
    ends = [k * (k + 3) // 2 for k in range(n)]
    return [(slice(end - k, end), end) for k, end in enumerate(ends)]


def _log_sech(w: Any, softplus: Callable[[Any], Any]) -> Any:
    return math.log(2.0) + w - softplus(2.0 * w)


def _factor(value: Any, n: int, xp: Any, softplus: Callable[[Any], Any]) -> Any:
    """Packed factor of coordinates, by functions of NumPy or PyTensor."""
    parts = []
    for below, last in _rows(n):
        w, log_sd = value[..., below], value[..., last, None]
        log_products = xp.cumsum(_log_sech(w, softplus), axis=-1)
        sizes = xp.exp(log_sd + xp.concatenate([xp.zeros_like(log_sd), log_products], axis=-1))
        parts += [xp.tanh(w) * sizes[..., :-1], sizes[..., -1:]]
    return xp.concatenate(parts, axis=-1)


def _coordinates(factor: Any, n: int, xp: Any) -> Any:
    """Coordinates of a packed factor, by functions of NumPy or PyTensor."""
    parts = []
    for below, last in _rows(n):
        row = factor[..., below.start : last + 1]
        # of the entries from each one to the diagonal
        norms = xp.sqrt(xp.cumsum(row[..., ::-1] ** 2, axis=-1)[..., ::-1])
        parts += [xp.arcsinh(row[..., :-1] / norms[..., 1:]), xp.log(norms[..., :1])]
    return xp.concatenate(parts, axis=-1)


def with_correlations(
    model: Model, variables: Sequence[ManifoldVariable]
) -> tuple[Model, list[ManifoldVariable]]:
    """Create a model in which values of Cholesky factors are standard deviations and correlations.

    Parameters
    ----------
    model : pymc.Model
    variables : sequence of ManifoldVariable

    Returns
    -------
    model : pymc.Model
        The same model if no variable is such a factor.
    variables : list of ManifoldVariable
        With these coordinates; points are those of the given model.
    """
    numbers = _numbers_of_rows(model, variables)
    if not numbers:
        return model, list(variables)
    rvs = {name: model[name] for name in numbers}
    copy = model_with(
        model,
        {model.rvs_to_values[rv]: None for rv in rvs.values()},
        model.data_vars,
        {rv: LogSdsAndCorrelations(numbers[name]) for name, rv in rvs.items()},
    )
    changed = []
    for variable in variables:
        variable = variable.in_model(copy)
        if variable.name in numbers:
            to_coordinates, to_values = _between_values(numbers[variable.name])
            variable = replace(variable, backward=to_coordinates, forward=to_values)
        changed.append(variable)
    return copy, changed


def _numbers_of_rows(model: Model, variables: Sequence[ManifoldVariable]) -> dict[str, int]:
    """Return the number of rows of each factor of more than one row, by name."""
    numbers = {}
    for variable in variables:
        transform = model.rvs_to_transforms[variable.rv]
        if isinstance(transform, CholeskyCovPacked) and not variable.on_manifold:
            numbers[variable.name] = math.isqrt(2 * variable.value_shape[-1])
    return {name: n for name, n in numbers.items() if n > 1}


def _between_values(
    n: int,
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray], np.ndarray]]:
    """Functions from PyMC's values of a factor to coordinates, and from coordinates to values."""
    last = [end for _, end in _rows(n)]

    def to_coordinates(values: np.ndarray) -> np.ndarray:
        factor = np.array(values, dtype=float)
        factor[..., last] = np.exp(factor[..., last])
        return _coordinates(factor, n, np)

    def to_values(coordinates: np.ndarray) -> np.ndarray:
        packed = coordinates.reshape(-1, n * (n + 1) // 2)
        values = _factor(packed, n, np, lambda x: np.logaddexp(0.0, x))
        values[..., last] = np.log(values[..., last])
        return values.reshape(coordinates.shape)

    return to_coordinates, to_values

r"""Sufficient statistics of normal observations whose mean is linear.

With the mean :math:`o + A u` of N rows, where the design matrix A and the offsets o are data, and u
is a function of the variables, the log-density is

.. math:: -\tfrac{N}{2} \log 2 \pi \sigma^2
    - \tfrac{1}{2 \sigma^2} \big( S - 2 b^\top \delta + \delta^\top Q \delta \big) , \quad
    \delta = u - u_0 , \quad Q = A^\top A , \quad b = A^\top r , \quad S = r^\top r ,

with the residuals :math:`r = y - o - A u_0` at a fixed point :math:`u_0`, close to a least-squares
solution, so that the three terms do not cancel. Q has one entry for each pair of groups that occur
together in a row; its product with a vector replaces the pass over all rows.

The dense columns D of A, such as those of covariates, are replaced by :math:`D R^{-1}` and their
coefficients by :math:`R u`, where R is the triangular factor of a QR decomposition, since the
condition number of :math:`D^\top D` is the square of that of D, which may be large, as for the
powers of a covariate.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.variable import TensorVariable
from scipy import sparse

from pymc_geodesic.densities.compilation import ArrayInput, FixedArray, ResizedArray
from pymc_geodesic.densities.design_matrix import (
    DesignMatrix,
    StatisticsSize,
    solve_least_squares,
)
from pymc_geodesic.densities.graphs import rebuild_graphs, unoptimized_function
from pymc_geodesic.densities.linear_predictors import LinearPart, LinearPredictor, NotLinearError
from pymc_geodesic.densities.log_density import Density, NormalTerm
from pymc_geodesic.ops.quadratic_form import SparseQuadraticForm

_MIN_ROWS = 2_000
"""Minimum number of rows. A gradient of fewer takes about as long as its call. Heuristic."""


def with_sufficient_statistics(
    density: Density, whole_array: Callable[[Any], np.ndarray]
) -> tuple[Density, list[NormalStatistics]]:
    """Replace normal observations by their sufficient statistics where these take less time.

    Parameters
    ----------
    density : Density
    whole_array : callable
        Function that returns the values of one of `Density.arrays`.

    Returns
    -------
    density : Density
        The same log-density; its graphs have the statistics as further inputs.
    statistics : list of NormalStatistics
    """
    found, terms = [], list(density.other_terms)
    for term in density.normal_terms:
        try:
            statistics = NormalStatistics(density, term, whole_array)
        except NotLinearError:
            continue
        terms[term.position] = statistics.log_density
        found.append(statistics)
    return replace(density, other_terms=terms, normal_terms=[]), found


def count_entries(density: Density, n_rows: int) -> int | None:
    """Return an upper bound on the entries of Q for all rows, from the density of a minibatch.

    Parameters
    ----------
    density : Density
        Log-density of the rows of a minibatch.
    n_rows : int
        Number of all rows.

    Returns
    -------
    int or None
        None if statistics cannot replace all rows, or do not save time.
    """
    n_terms, n_entries = len(density.row_terms), 0
    of_rows = [term for term in density.normal_terms if term.position < n_terms]
    if n_rows < _MIN_ROWS or len(of_rows) < n_terms:
        return None
    rows = {row.block: row.data for row in density.rows}

    def are_equal(index: TensorVariable, other: TensorVariable) -> bool:
        both = rows.keys() >= {index, other}  # a model has a constant for each use of an array
        return index is other or (both and np.array_equal(rows[index], rows[other]))

    for term in of_rows:
        try:
            parts = _linear_predictor(density, term).parts
        except NotLinearError:
            return None
        groups = [(part.size, part.index) for part in parts if part.index is not None]
        n_dense = sum(part.size for part in parts if part.index is None)
        size = StatisticsSize.of(n_rows, groups, n_dense, are_equal)
        if not size.saves_time:
            return None
        n_entries += size.n_entries
    return n_entries


def _linear_predictor(density: Density, term: NormalTerm) -> LinearPredictor:
    """Decompose the mean; the standard deviation has to be the same for all rows."""
    shape = term.value.type.shape
    if len(shape) != 1 or shape[0] in (None, 1) or set(term.sd.type.shape) - {1}:
        raise NotLinearError
    return LinearPredictor.of(term.mean, shape[0], [*density.coordinates, *density.others.values()])


class NormalStatistics:
    """Sufficient statistics of a normal term.

    Parameters
    ----------
    density : Density
    term : NormalTerm
    whole_array : callable
        See `with_sufficient_statistics`.

    Attributes
    ----------
    name : str
        Name of the observed variable.
    log_density : TensorVariable
        Log-density of all rows, a number.
    n_rows : int
    inputs : list of ArrayInput
        The statistics: entries, columns and starts of the rows of Q, then b, u₀, S and R.

    Raises
    ------
    NotLinearError
        If the mean is not linear, the standard deviation is not the same for all rows, or the
        product with Q takes longer than the rows.
    """

    def __init__(
        self, density: Density, term: NormalTerm, whole_array: Callable[[Any], np.ndarray]
    ) -> None:
        self.name = term.name
        predictor = _linear_predictor(density, term)
        self.n_rows = int(term.value.type.shape[0])
        self._checksum: int | None = None
        if self.n_rows < _MIN_ROWS:
            raise NotLinearError
        self._parts = sorted(predictor.parts, key=lambda part: (part.index is None, -part.size))
        self._whole_array, self._arrays = whole_array, density.arrays
        self._coordinates, self._sd = density.coordinates, term.sd
        self._data = unoptimized_function(
            list(density.arrays),
            [
                reduce(operator.sub, predictor.offsets, term.value.astype("float64")),
                *(graph for part in self._parts for graph in _data_of(part)),
            ],
        )
        design, _ = self._design(self._read())
        if not design.size.saves_time:
            raise NotLinearError
        size, n_dense = sum(part.size for part in self._parts), design.n_dense
        self.inputs = [
            _input(ResizedArray, "entries", "float64", (None,)),
            _input(ResizedArray, "columns", "int32", (None,)),
            _input(FixedArray, "starts", "int64", (size + 1,)),
            _input(FixedArray, "b", "float64", (size,)),
            _input(FixedArray, "center", "float64", (size,)),
            _input(FixedArray, "square", "float64", ()),
            _input(FixedArray, "factor", "float64", (n_dense, n_dense)),
        ]
        self.log_density = self._log_density(term.sd)

    def _log_density(self, sd: TensorVariable) -> TensorVariable:
        entries, columns, starts, b, center, square, factor = (
            each.variable for each in self.inputs
        )
        delta = pt.concatenate([part.vector for part in self._parts]) - center
        n_dense = factor.type.shape[0]
        if n_dense:
            m = delta.type.shape[0] - n_dense
            delta = pt.concatenate([delta[:m], pt.dot(factor, delta[m:])])
        form, _ = SparseQuadraticForm()(entries, columns, starts, delta)
        sd = pt.atleast_1d(sd)[0].astype("float64")
        at_mean = pm.logp(pm.Normal.dist(0.0, sd), 0.0)  # with the check of the parameter
        return self.n_rows * at_mean - (square - 2.0 * pt.dot(b, delta) + form) / (2.0 * sd**2)

    # --- values of variables ---------------------------------------------------------------------

    def graphs(self, values: Sequence[TensorVariable]) -> list[TensorVariable]:
        """σ and the vectors that u consists of, as functions of variables and data.

        Parameters
        ----------
        values : list of TensorVariable
            Variables that replace the coordinates.
        """
        replacements: dict[Any, Any] = dict(zip(self._coordinates, values, strict=True))
        for copy, data in self._arrays.items():
            replacements[copy] = pt.specify_shape(pt.as_tensor(data), copy.type.shape)
        return rebuild_graphs([self._sd, *(part.vector for part in self._parts)], replacements)

    def squared_residuals(
        self, u: np.ndarray, jacobian: sparse.csr_array
    ) -> tuple[float, sparse.csr_array]:
        """Squared norm of the residuals at u, and a matrix H for a Jacobian J of u.

        Jᵀ Q J is the sum of H and its transpose.
        """
        gram, b, center, square, factor = self._values
        half = gram.copy()
        half.data[half.indptr[:-1]] *= 0.5  # Q is the sum of this and its transpose
        m = len(u) - len(factor)
        delta = u - center
        delta[m:] = factor @ delta[m:]
        jacobian = sparse.vstack([jacobian[:m], sparse.csr_array(factor) @ jacobian[m:]], "csr")
        value = float(square - 2.0 * b @ delta + 2.0 * delta @ (half @ delta))
        return value, jacobian.T @ (half @ jacobian)

    # --- data ------------------------------------------------------------------------------------

    def _read(self) -> list[np.ndarray]:
        return [np.asarray(self._whole_array(each), order="C") for each in self._arrays.values()]

    def refresh(self) -> list[np.ndarray] | None:
        """Compute the values of `inputs` if data have changed; None if they have not."""
        arrays = self._read()
        checksum = 0
        for each in arrays:
            checksum = zlib.crc32(each.reshape(-1).view(np.uint8), checksum)
        if checksum == self._checksum:
            return None
        design, observed = self._design(arrays)
        gram = design.gram()
        with np.errstate(all="ignore"):  # observations that are not finite are reported elsewhere
            center, residuals = solve_least_squares(design, gram, observed)
            b, square = design.transposed_times(residuals), np.asarray(residuals @ residuals)
        self._checksum, self._values = checksum, (gram, b, center, square, design.factor)
        starts = gram.indptr.astype(np.int64)
        factor = np.ascontiguousarray(design.factor)
        return [
            gram.data,
            gram.indices.astype(np.int32, copy=False),
            starts,
            b,
            center,
            square,
            factor,
        ]

    def _design(self, arrays: Sequence[np.ndarray]) -> tuple[DesignMatrix, np.ndarray]:
        """Design matrix, and observations minus offsets."""
        observed, *data = self._data(*arrays)
        values = iter(data)
        groups: list[tuple[int, np.ndarray, np.ndarray]] = []
        dense = []
        for part in self._parts:
            weights = next(values).astype(float)
            if part.index is not None:
                index = next(values).astype(np.int64) % part.size  # negative ones from the end
                groups.append((part.size, index, weights))
            else:
                dense.append((None if part.matrix is None else next(values), weights))
        return DesignMatrix(self.n_rows, groups, dense), observed.astype(float)


def _input(
    kind: type[ArrayInput], name: str, dtype: str, shape: tuple[int | None, ...]
) -> ArrayInput:
    variable = pt.tensor(name, dtype=dtype, shape=shape)
    return kind(variable, variable.type.shape)


def _data_of(part: LinearPart) -> list[TensorVariable]:
    """Weights of a part, and its index or matrix."""
    weights = reduce(operator.mul, part.weights, pt.ones(1))
    return [weights, *(each for each in (part.index, part.matrix) if each is not None)]

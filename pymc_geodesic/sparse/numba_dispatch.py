"""Loops of the sparse products, for PyTensor's Numba backend; imported for its effect."""

import sys
from hashlib import sha256
from inspect import getsource
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from pymc_geodesic.sparse.products import SparseDot, SparseTransposeDot

CODE_VERSION = int.from_bytes(sha256(getsource(sys.modules[__name__]).encode()).digest()[:8])
"""Part of the keys of PyTensor's on-disk cache, which cannot see that code here has changed."""


@register_funcify_default_op_cache_key(SparseDot)
def sparse_dot(op: SparseDot, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    """Return the loop over the rows and its version in the cache."""
    dtype = node.outputs[0].type.numpy_dtype
    width = op.width

    if node.inputs[3].type.ndim == 1:

        @numba_njit
        def product(values, columns, rows, weights):  # type: ignore[no-untyped-def]
            if weights.shape[0] != width:
                raise ValueError("the weights do not have the length of a row")
            n = rows.shape[0]
            result = np.empty(n, dtype)
            for i in range(n):
                total = dtype.type(0)
                for k in range(rows[i, 0], rows[i, 1]):
                    total += values[k] * weights[np.uintp(columns[k])]
                result[i] = total
            return result

    else:

        @numba_njit
        def product(values, columns, rows, weights):  # type: ignore[no-untyped-def]
            if weights.shape[0] != width:
                raise ValueError("the weights do not have the length of a row")
            n, m = rows.shape[0], weights.shape[1]
            result = np.zeros((n, m), dtype)
            for i in range(n):
                row = result[i]
                for k in range(rows[i, 0], rows[i, 1]):
                    value = values[k]
                    weight = weights[np.uintp(columns[k])]
                    for j in range(m):
                        row[j] += value * weight[j]
            return result

    return product, CODE_VERSION + node.inputs[3].type.ndim


@register_funcify_default_op_cache_key(SparseTransposeDot)
def sparse_transpose_dot(op: SparseTransposeDot, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    """Return the loop over the rows and its version in the cache."""
    dtype = node.outputs[0].type.numpy_dtype
    width, squared = op.width, op.squared

    if node.inputs[3].type.ndim == 1:

        @numba_njit
        def product(values, columns, rows, residuals):  # type: ignore[no-untyped-def]
            n = rows.shape[0]
            if residuals.shape[0] != n:
                raise ValueError("there must be one residual for each row")
            result = np.zeros(width, dtype)
            for i in range(n):
                residual = residuals[i]
                if residual != 0.0:
                    for k in range(rows[i, 0], rows[i, 1]):
                        value = values[k] * values[k] if squared else values[k]
                        result[np.uintp(columns[k])] += value * residual
            return result

    else:

        @numba_njit
        def product(values, columns, rows, residuals):  # type: ignore[no-untyped-def]
            n, m = residuals.shape
            if rows.shape[0] != n:
                raise ValueError("there must be one residual for each row")
            result = np.zeros((width, m), dtype)
            for i in range(n):
                residual = residuals[i]
                for k in range(rows[i, 0], rows[i, 1]):
                    value = values[k] * values[k] if squared else values[k]
                    row = result[np.uintp(columns[k])]
                    for j in range(m):
                        row[j] += value * residual[j]
            return result

    return product, CODE_VERSION + node.inputs[3].type.ndim

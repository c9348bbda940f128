"""Matrix product by SciPy's BLAS for any memory layout, in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import carray, njit, types
from numba.extending import get_cython_function_address, intrinsic

from pymc_geodesic.runtime.jit import compiled
from pymc_geodesic.runtime.lazy_compilation import VECTOR, lazy

_GEMM, _GEMV = "pymc_geodesic.dgemm", "pymc_geodesic.dgemv"
_ITEM = 8


def _external(name: str, letters: int) -> Any:
    """Create an intrinsic that calls a BLAS routine by its symbol, without an address in the code.

    Characters, integers and floats are passed by value, arrays as pointers.
    """

    @intrinsic
    def call(typing_context, packed):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, values):  # type: ignore[no-untyped-def]
            pointers = []
            for i, kind in enumerate(signature.args[0]):
                value = builder.extract_value(values[0], i)
                if kind == VECTOR:
                    pointers.append(value)
                    continue
                if isinstance(kind, types.Integer):
                    width = 8 if i < letters else 32
                    value = builder.trunc(value, ir.IntType(width))
                with builder.goto_entry_block():
                    slot = builder.alloca(value.type)
                builder.store(value, slot)
                pointers.append(slot)
            function_type = ir.FunctionType(ir.VoidType(), [p.type for p in pointers])
            module = builder.module
            function = module.globals.get(name) or ir.Function(module, function_type, name)
            builder.call(function, pointers)
            return context.get_dummy_value()

        kinds = [k if k == VECTOR or k == types.float64 else types.int64 for k in packed]
        return types.void(types.BaseTuple.from_types(kinds)), generate

    return call


binding.add_symbol(_GEMM, get_cython_function_address("scipy.linalg.cython_blas", "dgemm"))
binding.add_symbol(_GEMV, get_cython_function_address("scipy.linalg.cython_blas", "dgemv"))
_gemm = _external(_GEMM, 2)
_gemv = _external(_GEMV, 1)
_PLAIN, _TRANSPOSED = ord("N"), ord("T")


@intrinsic
def _pointer(typing_context, array):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return VECTOR(array), generate


@intrinsic
def _offset(typing_context, pointer, items):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.gep(arguments[0], [arguments[1]])

    return VECTOR(VECTOR, types.int64), generate


@compiled
def _contiguous(matrix: Any, rows: int, columns: int, down: int, across: int) -> np.ndarray:
    """Copy a matrix into C order."""
    copy = np.empty((rows, columns))
    for i in range(rows):
        for j in range(columns):
            copy[i, j] = carray(_offset(matrix, i * down + j * across), (1,))[0]
    return copy


@compiled
def _can_be_read(rows: int, columns: int, down: int, across: int) -> bool:
    """Whether BLAS can read a matrix in place: its rows or its columns are contiguous."""
    by_rows = (across == 1 or columns == 1) and (down >= max(columns, 1) or rows == 1)
    by_columns = (down == 1 or rows == 1) and (across >= max(rows, 1) or columns == 1)
    return by_rows or by_columns


@compiled
def _layout(rows: int, columns: int, down: int, across: int) -> tuple[bool, int]:
    """Whether rows are contiguous, and the stride between the rows, or the columns."""
    if (across == 1 or columns == 1) and (down >= columns or rows == 1):
        return True, max(down if rows > 1 else columns, columns, 1)
    return False, max(across if columns > 1 else rows, rows, 1)


@lazy(types.float64(VECTOR, VECTOR, VECTOR, *(types.int64,) * 7))
def _multiply(
    left: Any, right: Any, result: Any, rows: int, inner: int, columns: int,
    left_down: int, left_across: int, right_down: int, right_across: int,
) -> float:  # fmt: skip
    if inner == 0:
        out = carray(result, (rows * columns,))
        for i in range(rows * columns):
            out[i] = 0.0
        return 0.0
    if rows == 0 or columns == 0:
        return 0.0
    # Matrices that BLAS cannot read are copied; the copies must live until it returns.
    left_copy, right_copy = np.empty((0, 0)), np.empty((0, 0))
    if not _can_be_read(rows, inner, left_down, left_across):
        left_copy = _contiguous(left, rows, inner, left_down, left_across)
        left, left_down, left_across = _pointer(left_copy), inner, 1
    if not _can_be_read(inner, columns, right_down, right_across):
        right_copy = _contiguous(right, inner, columns, right_down, right_across)
        right, right_down, right_across = _pointer(right_copy), columns, 1
    left_by_rows, left_step = _layout(rows, inner, left_down, left_across)
    right_by_rows, right_step = _layout(inner, columns, right_down, right_across)
    # BLAS is column-major, where a matrix in C order is its transpose: Cᵀ = Bᵀ Aᵀ.
    if columns == 1:
        # y = A b: `_layout` decides whether BLAS reads Aᵀ or A.
        step = right_down if inner > 1 else 1
        if left_by_rows:
            _gemv((_TRANSPOSED, inner, rows, 1.0, left, left_step, right, step, 0.0, result, 1))
        else:
            _gemv((_PLAIN, rows, inner, 1.0, left, left_step, right, step, 0.0, result, 1))
    elif rows == 1:
        step = left_across if inner > 1 else 1
        if right_by_rows:
            _gemv((_PLAIN, columns, inner, 1.0, right, right_step, left, step, 0.0, result, 1))
        else:
            _gemv((_TRANSPOSED, inner, columns, 1.0, right, right_step, left, step, 0.0, result, 1))
    else:
        _gemm((
            _PLAIN if right_by_rows else _TRANSPOSED, _PLAIN if left_by_rows else _TRANSPOSED,
            columns, rows, inner, 1.0, right, right_step, left, left_step, 0.0, result, columns,
        ))  # fmt: skip
    return float(left_copy.size + right_copy.size) * 0.0


_multiply_by_address = _multiply.call


def prepare() -> None:
    """Compile the product before its first call."""
    _multiply.compile()


@njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)
def multiply(left: np.ndarray, right: np.ndarray, result: np.ndarray) -> None:
    """Write the product of two matrices of float64 into a third, in compiled code.

    Parameters
    ----------
    left, right : array of float64, shape (rows, inner) and (inner, columns)
        Matrices with any strides; they are copied if BLAS cannot read them.
    result : C-contiguous array of float64, shape (rows, columns)
    """
    _multiply_by_address(
        (
            _pointer(left),
            _pointer(right),
            _pointer(result),
            left.shape[0],
            left.shape[1],
            right.shape[1],
            left.strides[0] // _ITEM,
            left.strides[1] // _ITEM,
            right.strides[0] // _ITEM,
            right.strides[1] // _ITEM,
        )
    )

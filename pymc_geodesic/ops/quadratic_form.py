r"""Quadratic form of a sparse symmetric matrix, with its gradient from the same product."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type, grad_not_implemented
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from scipy import sparse

from pymc_geodesic.ops.numba_backend import LoopOp
from pymc_geodesic.runtime.sparse_rows import add_row, dot_row


class SparseQuadraticForm(LoopOp, Op):
    r"""Quadratic form :math:`x^\top Q x`, and the product :math:`Q x`.

    Q is symmetric and given by its diagonal and upper triangle in compressed rows: row i has the
    entries from position ``starts[i]`` up to ``starts[i + 1]``, of which the first is the diagonal.
    The gradient of the quadratic form is :math:`2 Q x`; since it uses the second output, value and
    gradient together take one product.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.quadratic_form import SparseQuadraticForm
    >>> values, columns = np.array([2.0, 1.0, 3.0]), np.array([0, 1, 1], dtype="int32")
    >>> starts = np.array([0, 2, 3])  # [[2, 1], [1, 3]]
    >>> form, product = SparseQuadraticForm()(values, columns, starts, np.array([1.0, 10.0]))
    >>> form.eval(mode="FAST_COMPILE").item(), product.eval(mode="FAST_COMPILE")
    (322.0, array([12., 31.]))
    """

    __props__ = ()

    def make_node(self, values: Any, columns: Any, starts: Any, x: Any) -> Apply:
        """Build the node."""
        values, columns, starts, x = map(pt.as_tensor, (values, columns, starts, x))
        return Apply(self, [values, columns, starts, x], [pt.dscalar(), pt.dvector()])

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Return the shapes of the quadratic form and of the product."""
        return [(), shapes[3]]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the outputs are not connected to columns and starts."""
        return [[True, True], [False, False], [False, False], [True, True]]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], gradients: Sequence[Variable]
    ) -> list[Variable]:
        """Multiply the gradients by 2 Q x and by Q."""
        form_gradient, product_gradient = gradients
        parts: list[Any] = []
        if not isinstance(form_gradient.type, DisconnectedType):
            parts.append(2.0 * form_gradient * outputs[1])
        if not isinstance(product_gradient.type, DisconnectedType):
            parts.append(self(*inputs[:3], product_gradient)[1])
        return [
            grad_not_implemented(self, 0, inputs[0], "The matrix consists of data"),
            disconnected_type(),
            disconnected_type(),
            pt.add(*parts) if len(parts) > 1 else parts[0],
        ]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Multiply in SciPy."""
        values, columns, starts, x = inputs
        upper = sparse.csr_array((values, columns, starts), shape=(len(x), len(x)))
        product = upper @ x + upper.T @ x - upper.diagonal() * x
        outputs[0][0], outputs[1][0] = np.asarray(x @ product), product

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop over the rows of the triangle."""

        @njit
        def quadratic_form(values, columns, starts, x):  # type: ignore[no-untyped-def]
            n = x.shape[0]
            if starts.shape[0] != n + 1:
                raise ValueError("the vector does not have the length of the matrix")
            product = np.zeros(n)
            for i in range(n):
                first, last = starts[i] + 1, starts[i + 1]
                product[i] += values[starts[i]] * x[i] + dot_row(values, columns, first, last, x)
                add_row(values, columns, first, last, x[i], product)
            form = 0.0
            for i in range(n):
                form += x[i] * product[i]
            return np.asarray(form), product

        return quadratic_form

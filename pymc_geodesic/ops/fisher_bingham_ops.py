r"""Ops for the normalizing constant of Fisher–Bingham distributions.

Each Op returns the logarithm of the integral of :math:`e^{x^\top A x + b^\top x}` over the sphere
together with its first derivatives, which are moments, so that a log-density and its gradient need
one contour integral. The derivatives of the moments are covariances, computed by a second Op.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.fisher_bingham_integral import (
    matrix_covariances,
    matrix_moments,
    spectral_covariances,
    spectral_moments,
)
from pymc_geodesic.ops.fisher_bingham_jax import jax_integrals
from pymc_geodesic.ops.jax_backend import WithJax
from pymc_geodesic.ops.numba_backend import LoopOp

Arrays = tuple[Any, ...]


class ContourOp(LoopOp, WithJax, Op):
    """Base class of Ops that call a compiled function of float64 arrays, or one for JAX."""

    __props__ = ()
    arrays: ClassVar[Callable[..., Arrays]]
    like: ClassVar[tuple[int | None, ...]]
    """For each output the input whose shape it has; None for a scalar."""

    def make_node(self, *inputs: Any) -> Apply:
        """Build the node."""
        tensors = [pt.as_tensor(each).astype("float64") for each in inputs]
        outputs = [
            pt.dscalar() if i is None else pt.tensor(dtype="float64", shape=tensors[i].type.shape)
            for i in self.like
        ]
        return Apply(self, tensors, outputs)

    def infer_shape(self, node: Apply, shapes: list) -> list:
        """Shapes of the outputs."""
        return [() if i is None else shapes[i] for i in self.like]

    def perform(self, node: Apply, inputs: Any, outputs: Any) -> None:
        """Call the function."""
        found = type(self).arrays(*(np.ascontiguousarray(each) for each in inputs))
        for output, value in zip(outputs, found, strict=True):
            output[0] = np.asarray(value)

    def jax_function(self, node: Apply) -> Callable[..., Arrays]:
        """Return the function of the same name for JAX."""
        return getattr(jax_integrals(), type(self).arrays.__name__)


def _ascontiguous(njit: Any) -> Callable[..., Any]:
    """Return a function that makes arrays contiguous, so that one version is compiled."""

    @njit
    def contiguous(array):  # type: ignore[no-untyped-def]
        return np.ascontiguousarray(array)

    return contiguous


class SpectralIntegral(ContourOp):
    """Logarithm of the integral, and its derivatives in slopes and values.

    The inputs are eigenvalues, their multiplicities, and the length of b along each, as in
    `pymc_geodesic.ops.fisher_bingham_integral.contour`.
    """

    gufunc_signature = "(k),(k),(k)->(),(k),(k)"
    arrays = staticmethod(spectral_moments)
    like = (None, 2, 0)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of the function."""
        contiguous = _ascontiguous(njit)

        @njit
        def integral(values, counts, slopes):  # type: ignore[no-untyped-def]
            number, first, second = spectral_moments(
                contiguous(values), contiguous(counts), contiguous(slopes)
            )
            return np.asarray(number), first, second

        return integral

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the outputs are not connected to the counts."""
        return [[True] * 3, [False] * 3, [True] * 3]

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return gradients from the first derivatives, which are outputs, and covariances."""
        values, counts, slopes = inputs
        number, first, second = (_connected(each) for each in cotangents)
        gradients = [number * outputs[2], number * outputs[1]] if number is not None else [0.0, 0.0]
        if first is not None or second is not None:
            linear = pt.zeros_like(slopes) if first is None else first
            quadratic = pt.zeros_like(values) if second is None else second
            moved = SpectralCovariances()(values, counts, slopes, linear, quadratic)
            gradients = [gradients[0] + moved[1], gradients[1] + moved[0]]
        return [gradients[0], DisconnectedType()(), gradients[1]]


class SpectralCovariances(ContourOp):
    """Covariances of a statistic; see `spectral_covariances`."""

    gufunc_signature = "(k),(k),(k),(k),(k)->(k),(k)"
    arrays = staticmethod(spectral_covariances)
    like = (2, 0)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of the function."""
        contiguous = _ascontiguous(njit)

        @njit
        def covariances(values, counts, slopes, linear, quadratic):  # type: ignore[no-untyped-def]
            return spectral_covariances(
                contiguous(values),
                contiguous(counts),
                contiguous(slopes),
                contiguous(linear),
                contiguous(quadratic),
            )

        return covariances


class MatrixIntegral(ContourOp):
    """Logarithm of the integral for A and b, and its derivatives in b and A."""

    gufunc_signature = "(d,d),(d)->(),(d),(d,d)"
    arrays = staticmethod(matrix_moments)
    like = (None, 1, 0)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of the function."""
        contiguous = _ascontiguous(njit)

        @njit
        def integral(matrix, vector):  # type: ignore[no-untyped-def]
            number, mean, second = matrix_moments(contiguous(matrix), contiguous(vector))
            return np.asarray(number), mean, second

        return integral

    def pullback(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        cotangents: Sequence[Variable],
    ) -> list[Variable]:
        """Return gradients from the first derivatives, which are outputs, and covariances."""
        matrix, vector = inputs
        number, mean, second = (_connected(each) for each in cotangents)
        gradients = [number * outputs[2], number * outputs[1]] if number is not None else [0.0, 0.0]
        if mean is not None or second is not None:
            linear = pt.zeros_like(vector) if mean is None else mean
            quadratic = pt.zeros_like(matrix) if second is None else second
            moved = MatrixCovariances()(matrix, vector, linear, quadratic)
            gradients = [gradients[0] + moved[1], gradients[1] + moved[0]]
        return gradients


class MatrixCovariances(ContourOp):
    """Covariances of a statistic; see `matrix_covariances`."""

    gufunc_signature = "(d,d),(d),(d),(d,d)->(d),(d,d)"
    arrays = staticmethod(matrix_covariances)
    like = (1, 0)

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the call of the function."""
        contiguous = _ascontiguous(njit)

        @njit
        def covariances(matrix, vector, linear, quadratic):  # type: ignore[no-untyped-def]
            return matrix_covariances(
                contiguous(matrix), contiguous(vector), contiguous(linear), contiguous(quadratic)
            )

        return covariances


def _connected(cotangent: Variable) -> Variable | None:
    return None if isinstance(cotangent.type, DisconnectedType) else cotangent


def spectral_integral(values: Any, counts: Any, slopes: Any) -> list[TensorVariable]:
    r"""Symbolic :math:`\log \int e^{\sum_i a_i |x_i|^2 + g_i \cdot x_i} dx` and its derivatives.

    :math:`x_i` is the part of x in the i-th of k orthogonal subspaces, of dimension
    :math:`m_i`, and :math:`|g_i|` the length of a vector in it. Twice differentiable in values and
    slopes; error below 1e-13, relative for results above one.

    Parameters
    ----------
    values : tensor_like, shape (..., k)
        :math:`a_i`.
    counts : tensor_like, shape (..., k)
        :math:`m_i`, their sum d at least 2.
    slopes : tensor_like, shape (..., k)
        :math:`|g_i|`.

    Returns
    -------
    log_integral : TensorVariable, shape (...)
    first, second : TensorVariable, shape (..., k)
        Mean of x along each :math:`g_i`, and mean squared length of each part.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.fisher_bingham_ops import spectral_integral
    >>> area = spectral_integral([0.0], [3.0], [0.0])[0].exp()
    >>> float(area.eval(mode="FAST_COMPILE") / (4 * np.pi))
    1.000...
    """
    return Blockwise(SpectralIntegral())(*_floats(values, counts, slopes))


def matrix_integral(matrix: Any, vector: Any) -> list[TensorVariable]:
    r"""Symbolic :math:`\log \int e^{x^\top A x + b^\top x} dx` and its derivatives.

    Twice differentiable in both; error below 1e-13, relative for results above one.

    Parameters
    ----------
    matrix : tensor_like, shape (..., d, d)
        A, symmetric.
    vector : tensor_like, shape (..., d)
        b.

    Returns
    -------
    log_integral : TensorVariable, shape (...)
    mean : TensorVariable, shape (..., d)
        E x, the derivative in b.
    second : TensorVariable, shape (..., d, d)
        E x xᵀ, the derivative in A.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.ops.fisher_bingham_ops import matrix_integral
    >>> area = matrix_integral(np.zeros((3, 3)), np.zeros(3))[0].exp()
    >>> float(area.eval(mode="FAST_COMPILE") / (4 * np.pi))
    1.000...
    """
    return Blockwise(MatrixIntegral())(*_floats(matrix, vector))


def _floats(*inputs: Any) -> list[TensorVariable]:
    return [pt.as_tensor(each).astype("float64") for each in inputs]

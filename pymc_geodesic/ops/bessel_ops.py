r"""The von Mises–Fisher constant and its derivatives for PyTensor variables.

Each function is one scalar Op whose inner graph is the arithmetic of `pymc_geodesic.ops.bessel`.
The C and JAX backends run this graph. For Numba, which would compile its 470 nodes one by one, the
same arithmetic is a loop.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.scalar.basic import Composite
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.variable import TensorVariable

from pymc_geodesic.ops.bessel import NUMPY_FUNCTIONS, BesselFunctions, bessel_functions
from pymc_geodesic.ops.numba_backend import LoopOp


@cache
def compiled_functions(njit: Any) -> BesselFunctions:
    """Return the Bessel functions as Numba functions of two scalars."""
    return bessel_functions(np.sqrt, np.log, njit(fastmath=False))


class NamedScalarOp(Composite):
    """Base class of fused scalar Ops identified by a name instead of their inner graph.

    Parameters
    ----------
    function : str
        Name of a member of `BesselFunctions`.
    """

    __props__ = ("function",)

    def __str__(self) -> str:
        return self.function

    def __reduce__(self) -> tuple[type, tuple[str]]:
        """Pickle by name: the inner graph is too deep for the recursion limit of pickle."""
        return type(self), (self.function,)

    @property
    def inner_graphs(self) -> dict[str, Any]:
        """Return nothing, so that a printed model does not list hundreds of additions."""
        return {}


class BesselScalarOp(LoopOp, NamedScalarOp):
    """The arithmetic of a member of `BesselFunctions`.

    Parameters
    ----------
    function : str
        Name of the member.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        d, kappa = ps.float64("d"), ps.float64("kappa")
        symbolic: BesselFunctions = bessel_functions(ps.sqrt, ps.log)
        super().__init__([d, kappa], [getattr(symbolic, function)(d, kappa)], name=function)

    def perform(self, node: Apply | None, inputs: Sequence[Any], outputs: list[list[Any]]) -> None:
        """Evaluate without the inner graph, as constant folding does."""
        outputs[0][0] = np.float64(getattr(NUMPY_FUNCTIONS, self.function)(*inputs))

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the loop form of the function."""
        return getattr(compiled_functions(njit), self.function)


class DirectionalScalarOp(NamedScalarOp):
    """A Bessel function with a derivative in kappa.

    PyTensor rebuilds a fused Op that has constants among its inputs. The Bessel function is
    therefore an inner Op, which is kept.

    Parameters
    ----------
    function : str
        Name of the member of `BesselFunctions`.
    """

    def __init__(self, function: str) -> None:
        self.function = function
        d, kappa = ps.float64("d"), ps.float64("kappa")
        super().__init__([d, kappa], [BesselScalarOp(function)(d, kappa)], name=function)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Return that the derivative exists in kappa, not in the dimension."""
        return [[False], [True]]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], gradients: Sequence[Variable]
    ) -> list[Variable]:
        """Multiply the gradient of the output by the derivative in kappa."""
        d, kappa = inputs
        return [DisconnectedType()(), gradients[0] * _DERIVATIVES[self.function](d, kappa)]


@cache
def _scalar_op(function: str) -> DirectionalScalarOp:
    return DirectionalScalarOp(function)


def _slope_of_slope(d: Variable, kappa: Variable) -> Variable:
    r"""Return A'' = -2 A A' + (d - 1) A (A_d - A_{d+2}) / kappa."""
    length = _scalar_op("mean_resultant_length")
    here, above = length(d, kappa), length(d + 2.0, kappa)
    slope = _scalar_op("mean_resultant_length_slope")(d, kappa)
    positive = ps.gt(kappa, 0.0)
    per_kappa = ps.switch(positive, here / ps.switch(positive, kappa, 1.0), 0.0)
    return (d - 1.0) * per_kappa * (here - above) - 2.0 * here * slope


_DERIVATIVES: dict[str, Callable[[Variable, Variable], Variable]] = {
    "log_normalizer": lambda d, kappa: -_scalar_op("mean_resultant_length")(d, kappa),
    "mean_resultant_length": lambda d, kappa: _scalar_op("mean_resultant_length_slope")(d, kappa),
    "mean_resultant_length_slope": _slope_of_slope,
}


def _apply(function: str, d: Any, kappa: Any) -> TensorVariable:
    dimension = pt.constant(float(d)) if isinstance(d, int) else pt.as_tensor(d)
    return Elemwise(_scalar_op(function))(
        dimension.astype("float64"), pt.as_tensor(kappa).astype("float64")
    )


def log_vmf_normalizer(d: Any, kappa: Any) -> TensorVariable:
    r"""Symbolic :math:`\log c_d(\kappa)`, differentiable in kappa any number of times.

    Equation, accuracy and reference: `pymc_geodesic.ops.bessel.log_vmf_normalizer`.
    Values are not checked.

    Parameters
    ----------
    d : int or tensor_like, shape (...)
        Dimension of the space, at least 2.
    kappa : tensor_like, shape (...)
        Concentration, at least 0.

    Returns
    -------
    TensorVariable of float64, shape (...)

    Examples
    --------
    >>> import pytensor.tensor as pt
    >>> from pymc_geodesic.ops.bessel_ops import log_vmf_normalizer
    >>> kappa = pt.dscalar("kappa")
    >>> constant = log_vmf_normalizer(3, kappa)
    >>> float(pt.grad(constant, kappa).eval({kappa: 2.0}, mode="FAST_COMPILE"))
    -0.537314...
    """
    return _apply("log_normalizer", d, kappa)


def mean_resultant_length(d: Any, kappa: Any) -> TensorVariable:
    r"""Symbolic :math:`A_d(\kappa)`, differentiable in kappa any number of times.

    Equation, accuracy and reference: `pymc_geodesic.ops.bessel.mean_resultant_length`.
    Values are not checked.

    Parameters
    ----------
    d : int or tensor_like, shape (...)
        Dimension of the space, at least 2.
    kappa : tensor_like, shape (...)
        Concentration, at least 0.

    Returns
    -------
    TensorVariable of float64, shape (...)

    Examples
    --------
    >>> from pymc_geodesic.ops.bessel_ops import mean_resultant_length
    >>> float(mean_resultant_length(3, 2.0).eval(mode="FAST_COMPILE"))
    0.537314...
    """
    return _apply("mean_resultant_length", d, kappa)

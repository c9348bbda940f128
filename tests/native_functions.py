"""Gradient functions of Numba functions."""

from collections.abc import Callable

from numba import carray, cfunc

from pymc_geodesic.runtime.gradient_functions import SIGNATURE, GradientFunction


def native_function(
    function: Callable[..., float], size: int, output_size: int | None = None, n_context: int = 0
) -> GradientFunction:
    """Create a gradient function from a Numba function.

    Its signature is ``(position, minibatch, context, output) -> float``.

    Parameters
    ----------
    function : numba dispatcher
        Function that writes the gradient, shape ``(output_size,)``, to ``output``.
    size : int
        Length of ``position``.
    output_size : int, optional
        Length of ``output``; that of ``position`` by default.
    n_context : int
        Length of the context.
    """
    output_size = size if output_size is None else output_size

    @cfunc(SIGNATURE)
    def logp_grad(position, minibatch, context, output):  # type: ignore[no-untyped-def]
        return function(
            carray(position, (size,)),
            minibatch,
            carray(context, (n_context,)),
            carray(output, (output_size,)),
        )

    return GradientFunction(logp_grad.address, (logp_grad, function))

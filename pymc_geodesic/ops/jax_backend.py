"""Registration of Ops and random variables with PyTensor's JAX backend.

An Op defines its JAX function in a method, `WithJax.jax_function`. Random variables are drawn by
their NumPy function in a callback: their rejection loops take a random number of proposals.

PyTensor's JAX dispatch imports JAX, which takes a second and makes later forks of the process warn.
The classes are therefore registered by a rewrite that only JAX mode applies, before it translates
a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import GraphRewriter


class WithJax:
    """Base class of Ops with a function for JAX, to be listed before the other base classes."""

    def jax_function(self, node: Apply) -> Callable[..., Any]:
        """Return the function of the inputs, which JAX can trace and differentiate."""
        raise NotImplementedError(f"{type(self).__name__} does not define jax_function")


class NumpyDraws:
    """Base class of random variables that JAX draws by their NumPy function."""


class RegisterWithJax(GraphRewriter):
    """Rewrite of JAX mode that registers the classes and leaves the graph unchanged."""

    def apply(self, fgraph: FunctionGraph) -> None:
        """Register the classes."""
        register_with_jax()


optdb.register("pymc_geodesic_jax_dispatch", RegisterWithJax(), "jax", position=0.0)


@cache
def register_with_jax() -> None:
    """Register the base classes with PyTensor's JAX backend, once in a process."""
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.link.jax.dispatch.random import jax_sample_fn

    @jax_funcify.register(WithJax)
    def function_of_op(op: Any, node: Apply, **kwargs: Any) -> Callable[..., Any]:
        return op.jax_function(node)

    @jax_sample_fn.register(NumpyDraws)
    def draws_of(op: Any, node: Apply) -> Callable[..., Any]:
        return numpy_draws(op, node)


def numpy_draws(op: Any, node: Apply) -> Callable[..., Any]:
    """Return a JAX function that draws by the NumPy function of a random variable.

    Parameters
    ----------
    op : RandomVariable
    node : Apply
        A node of the Op.

    Returns
    -------
    callable
        Function of the key, the size or None, the dtype and the parameters. The key is the seed of
        the NumPy generator.
    """
    import jax
    import jax.numpy as jnp

    def draws(key: Any, size: Any, dtype: Any, *parameters: Any) -> Any:
        arrays = [jnp.asarray(each) for each in parameters]
        if size is None:
            pairs = zip(arrays, op.ndims_params, strict=True)
            size = np.broadcast_shapes(*(each.shape[: each.ndim - n] for each, n in pairs))
        size = tuple(int(length) for length in size)
        result = jax.ShapeDtypeStruct((*size, *event_shape(op, node, arrays)), dtype)

        def in_numpy(words: Any, *values: Any) -> np.ndarray:
            rng = np.random.default_rng(np.asarray(words))
            found = op.rng_fn(rng, *(np.asarray(each) for each in values), size)
            return np.asarray(found, dtype=dtype)

        return jax.pure_callback(in_numpy, result, key, *arrays, vmap_method="sequential")

    return draws


def event_shape(op: Any, node: Apply, parameters: list[Any]) -> tuple[int, ...]:
    """Return the shape of one draw, from the type of the output or the shapes of the parameters.

    Raises
    ------
    NotImplementedError
        If a length is neither static nor one of a parameter.
    """
    lengths: dict[str, int] = {}
    for names, each in zip(op.inputs_sig, parameters, strict=True):
        lengths |= dict(zip(names, each.shape[each.ndim - len(names) :], strict=True))
    static = node.outputs[1].type.shape[op.batch_ndim(node) :]
    event: tuple[Any, ...] = tuple(
        lengths.get(name) if length is None else length
        for name, length in zip(op.output_sig, static, strict=True)
    )
    if None in event:
        raise NotImplementedError(f"draws of {op.name} with JAX need a static shape of one draw")
    return event

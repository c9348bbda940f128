"""Registration of Ops and random variables with PyTensor's Numba backend.

Each class defines the function that Numba compiles for it in a method, `WithLoop.numba_loop`.

- One registration: PyTensor's Numba dispatch takes half a second to import. It is imported, and all
  classes are registered, when the first Op is created or a random variable enters a graph.
- One rule for the cache: PyTensor keeps machine code on disk without checking whether the sources
  here have changed, so every key contains the stamp of the file of the loop and of all files it may
  inline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.tensor.random.op import RandomVariable

from pymc_geodesic.ops.jax_backend import NumpyDraws
from pymc_geodesic.runtime.jit import source_stamp


class WithLoop:
    """Base class of Ops and random variables with a function for Numba."""

    def numba_loop(self, node: Apply, njit: Any) -> Callable[..., Any]:
        """Return the function that Numba compiles for a node.

        Parameters
        ----------
        node : Apply
            The loop may depend on the types of its inputs and outputs only, without their static
            shapes: they are part of the key of the cache.
        njit : callable
            PyTensor's form of `numba.njit`, a decorator with or without options.

        Returns
        -------
        callable
            Function of the values of the inputs; for a random variable, of the generator and the
            parameters of a single draw.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define numba_loop")


class LoopOp(WithLoop):
    """Base class of Ops with a loop, to be listed before the other base classes.

    Examples
    --------
    >>> import numpy as np
    >>> import pytensor
    >>> import pytensor.tensor as pt
    >>> from pytensor.graph import Apply, Op
    >>> from pymc_geodesic.ops.numba_backend import LoopOp
    >>> class Total(LoopOp, Op):
    ...     __props__ = ()
    ...
    ...     def make_node(self, x):
    ...         return Apply(self, [x], [pt.dscalar()])
    ...
    ...     def perform(self, node, inputs, outputs):
    ...         outputs[0][0] = np.asarray(np.sum(inputs[0]))
    ...
    ...     def numba_loop(self, node, njit):
    ...         @njit
    ...         def total(x):
    ...             result = 0.0
    ...             for value in x:
    ...                 result += value
    ...             return np.asarray(result)
    ...
    ...         return total
    >>> x = pt.dvector("x")
    >>> pytensor.function([x], Total()(x), mode="NUMBA")(np.ones(3))
    array(3.)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Register before the first Op is created, by pickle too."""
        register_with_numba()
        return super().__new__(cls)


class LoopRandomVariable(WithLoop, NumpyDraws, RandomVariable):
    """A `RandomVariable` whose single draws are a loop.

    Its Op is created when its module is imported, too early to import Numba's dispatch: the classes
    are registered when a graph is built, or unpickled in a new process.
    """

    machine_code_is_kept: ClassVar[bool] = True
    """Whether the machine code may be cached; not if it calls Python."""

    def make_node(self, *inputs: Any) -> Apply:
        """Build the node of a draw."""
        register_with_numba()
        return super().make_node(*inputs)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a pickled Op."""
        register_with_numba()
        self.__dict__.update(state)


@cache
def register_with_numba() -> None:
    """Register the base classes with PyTensor's Numba backend, once in a process."""
    from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_and_cache_key
    from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

    @register_funcify_and_cache_key(LoopOp)
    def loop_of_op(op: Any, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], str | None]:
        return op.numba_loop(node, numba_njit), cache_key(op, node)

    @numba_core_rv_funcify.register(LoopRandomVariable)
    def loop_of_draw(op: LoopRandomVariable, node: Apply) -> tuple[Callable[..., Any], int | None]:
        key = cache_key(op, node) if op.machine_code_is_kept else None
        return op.numba_loop(node, numba_njit), None if key is None else int(key[:16], 16)


def cache_key(op: Any, node: Apply) -> str | None:
    """Return the key of the machine code of a node in PyTensor's cache.

    Parameters
    ----------
    op : LoopOp or LoopRandomVariable
    node : Apply
        A node of the Op.

    Returns
    -------
    str or None
        Changes with the class and the properties of the Op, with the types of the inputs and
        outputs, and with the sources of the loop and of what it may inline. None, which disables
        the cache, for a loop without a source file, as in an interactive session.
    """
    file = Path(type(op).numba_loop.__code__.co_filename)
    if not file.is_file():
        return None
    properties = [(name, getattr(op, name)) for name in getattr(op, "__props__", ())]
    types = [
        (getattr(variable.type, "dtype", None), getattr(variable.type, "ndim", None))
        for variable in (*node.inputs, *node.outputs)
    ]
    return sha256(f"{type(op)} {properties} {types} {source_stamp(file)}".encode()).hexdigest()


def draw_batch(
    fill: Callable[..., Any],
    rng: np.random.Generator,
    parameters: tuple[np.ndarray, ...],
    leading: tuple[tuple[int, ...], ...],
    size: tuple[int, ...],
    event: tuple[int, ...],
) -> np.ndarray:
    """Draw by a compiled function for each set of parameters, in one call for equal parameters.

    Parameters
    ----------
    fill : callable
        Function of the generator, the parameters and an array of shape (n, *event), which it fills.
    rng : numpy.random.Generator
    parameters : tuple of ndarray
    leading : tuple of tuple of int
        Batch shape of each parameter.
    size : tuple of int
        Shape of the batch of draws.
    event : tuple of int
        Shape of one draw.

    Returns
    -------
    ndarray, shape (*size, *event)
    """
    n = math.prod(size)
    draws = np.empty((n, *event))
    if n == 0:
        return draws.reshape(*size, *event)
    pairs = list(zip(parameters, leading, strict=True))
    if all(math.prod(shape) == 1 for shape in leading):
        own = (each.reshape(each.shape[len(shape) :]) for each, shape in pairs)
        fill(rng, *map(_contiguous, own), draws)
        return draws.reshape(*size, *event)
    sets = []
    for each, shape in pairs:
        core = each.shape[len(shape) :]
        sets.append(np.broadcast_to(each, (*size, *core)).reshape(n, *core))
    for i in range(n):
        fill(rng, *(_contiguous(each[i]) for each in sets), draws[i : i + 1])
    return draws.reshape(*size, *event)


def _contiguous(parameter: np.ndarray) -> np.ndarray | float:
    """Return a parameter as a float, or as an array in C order."""
    return float(parameter) if parameter.ndim == 0 else np.ascontiguousarray(parameter)

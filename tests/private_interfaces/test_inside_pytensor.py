"""Private interfaces of PyTensor that the package uses.

A failing test names the interface that a new version has changed; its docstring states what
depends on it.
"""

import numba
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node, vectorize_graph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.basic import JITLinker
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS, compile_numba_function_src
from pytensor.link.numba.dispatch.basic import (
    numba_funcify_and_cache_key,
    numba_njit,
    register_funcify_and_cache_key,
    register_funcify_default_op_cache_key,
)
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify
from pytensor.link.numba.linker import NumbaLinker
from pytensor.tensor import _as_tensor_variable
from pytensor.tensor.random.op import RandomVariable
from pytensor.xtensor.basic import TensorFromXTensor
from pytensor.xtensor.type import xtensor_shared

from pymc_geodesic.densities.compilation import compile_ahead
from tests.processes import in_its_own_process


class Twice(Op):
    """Two times a vector; the implementation for Numba adds 1, so that its use can be detected."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = 2.0 * inputs[0]


class Thrice(Twice):
    """The same for the other registry."""


@register_funcify_default_op_cache_key(Twice)
def twice(op, node, **kwargs):
    @numba_njit
    def double(x):
        return 2.0 * x + 1.0

    return double, 1


@register_funcify_and_cache_key(Thrice)
def thrice(op, node, **kwargs):
    @numba_njit
    def double(x):
        return 2.0 * x + 1.0

    return double, "private_interfaces.Thrice"


@pytest.mark.parametrize("op", [Twice(), Thrice()], ids=["default key", "own key"])
def test_numba_implementation_of_an_op(op):
    """Registries of sparse products, Bessel functions and gradients of products."""
    x = pt.dvector("x")
    compiled = pytensor.function([x], op(x), mode="NUMBA")
    np.testing.assert_array_equal(compiled(np.ones(2)), [3.0, 3.0])


def test_compiled_function_of_a_graph():
    """Gradients are native code: `compile_gradient` inlines the function of a rewritten graph.

    The key of the graph is part of that of the wrapper.
    """
    x = pt.dvector("x")
    mode = pytensor.compile.mode.get_mode("NUMBA")
    assert isinstance(mode.linker, NumbaLinker)
    function = pytensor.function([x], pt.sum(x) * 2.0, mode=mode, trust_input=True)
    jitted, key = numba_funcify_and_cache_key(function.maker.fgraph)
    inlined = numba_njit(jitted.py_func, inline="always")
    assert numba.njit(lambda x: inlined(x)[0] + 1.0)(np.ones(3)) == 7.0
    assert isinstance(key, str)


def test_backends_without_own_ops():
    """`runs_own_ops`: Ops have functions for Numba and NumPy, and none for JAX."""
    linkers = [pytensor.compile.mode.get_mode(name).linker for name in ("NUMBA", "JAX", "CVM")]
    assert [isinstance(linker, JITLinker) for linker in linkers] == [True, True, False]
    assert [isinstance(linker, NumbaLinker) for linker in linkers] == [True, False, False]


def test_compiled_function_for_types():
    """`compile_ahead` compiles ``vm.jit_fn`` before the first call, for one tuple of all inputs.

    With another signature each chain would compile it again.
    """
    x, y, k = pt.dvector("x"), pt.dscalar("y"), pt.lmatrix("k")
    function = pytensor.function([x, y, k], [x * y, k.sum()], mode="NUMBA", trust_input=True)
    compile_ahead(function)
    (ahead,) = function.vm.jit_fn.signatures
    function(np.ones(3), np.array(2.0), np.ones((2, 2), dtype=np.int64))
    assert function.vm.jit_fn.signatures == [ahead]


def test_function_from_source():
    """`compile_gradient` compiles a generated function with a C signature."""
    source = "def f(x):\n    return x + shift\n"
    key = f"canary of a source in {__name__}"  # cached functions import their module
    function = compile_numba_function_src(
        source, "f", {"__name__": __name__, "shift": 2.0}, cache_key=key
    )
    assert function(1.0) == 3.0
    assert CACHED_SRC_FUNCTIONS[function] == key
    assert numba.cfunc("float64(float64)", cache=True)(function).address > 0


class FixedRV(RandomVariable):
    name, signature, dtype = "fixed", "()->()", "float64"


@numba_core_rv_funcify.register(FixedRV)
def fixed_rv(op, node):
    @numba_njit
    def draw(rng, value):
        return value + 1.0

    return draw, 1


def test_draws_of_a_random_variable():
    """Random draws of the distributions are registered in it, for one draw."""
    rng = pytensor.shared(np.random.default_rng(1))
    value = np.array([1.0, 2.0])
    _, draws = FixedRV()(value, size=(3, 2), rng=rng, return_next_rng=True)
    np.testing.assert_array_equal(pytensor.function([], draws, mode="NUMBA")(), [[2.0, 3.0]] * 3)


@_vectorize_node.register(Twice)
def vectorize_twice(op, node, x):
    return [op(x) + 5.0]


def test_vectorisation_of_an_op():
    """Vectorized topics and Gram matrices are registered in this singledispatch."""
    x = pt.dvector("x")
    batch = vectorize_graph(Twice()(x), {x: pt.as_tensor(np.ones((2, 3)))})
    np.testing.assert_array_equal(batch.eval(mode="FAST_COMPILE"), np.full((2, 3), 7.0))


class Whole:
    """A type that has no tensor."""


@_as_tensor_variable.register(Whole)
def no_tensor(whole, *args, **kwargs):
    raise TypeError("a whole has no tensor")


def test_what_becomes_a_tensor():
    """`SparseData` raises an error that names the product to use instead.

    Without the registry the error would be that PyTensor cannot convert an object.
    """
    with pytest.raises(TypeError, match="a whole has no tensor"):
        pt.exp(Whole())


def functions_of_jax():
    """Register a class in JAX mode's rewrites, compile, and return the values."""
    import jax.numpy as jnp
    from pytensor.compile.mode import optdb
    from pytensor.graph.rewriting.basic import GraphRewriter
    from pytensor.link.jax.dispatch.basic import jax_funcify
    from pytensor.link.jax.dispatch.random import jax_sample_fn

    class ThreeTimes(Op):
        __props__ = ()

        def make_node(self, x):
            return Apply(self, [x], [x.type()])

        def perform(self, node, inputs, outputs):
            raise NotImplementedError

    class Five(RandomVariable):
        name = "five"
        signature = "()->()"
        dtype = "float64"

    class Register(GraphRewriter):
        def apply(self, fgraph):
            jax_funcify.register(ThreeTimes, lambda op, node, **kwargs: lambda x: 3.0 * x)
            jax_sample_fn.register(
                Five,
                lambda op, node: lambda key, size, dtype, loc: jnp.full(size, 5.0 + loc, dtype),
            )

    optdb.register("registration_of_a_test", Register(), "jax", position=0.0)
    x = pt.dvector("x")
    outputs = [ThreeTimes()(x), Five()(1.0, size=(2,))]
    return [np.asarray(each) for each in pytensor.function([x], outputs, mode="JAX")(np.ones(2))]


@pytest.mark.slow
def test_rewrites_of_jax_mode_run_before_the_dispatch():
    """`ops.jax_backend` registers its classes in one, so that JAX is imported by its mode only."""
    pytest.importorskip("jax")
    tripled, drawn = in_its_own_process(functions_of_jax)
    np.testing.assert_array_equal(tripled, 3.0)
    np.testing.assert_array_equal(drawn, 6.0)


def test_lowering_of_named_axes():
    """Models of `pymc.dims` are sampled as those of plain arrays, by this rewrite."""
    x = xtensor_shared(np.arange(6.0).reshape(2, 3), dims=("row", "column"), name="x")
    graph = FunctionGraph(outputs=[x.sum("row").values], clone=True, copy_inputs=False)
    optdb.query(RewriteDatabaseQuery(include=["lower_xtensor"])).rewrite(graph)
    leaves = [node.inputs[0] for node in graph.toposort() if isinstance(node.op, TensorFromXTensor)]
    assert leaves == [x]
    np.testing.assert_array_equal(graph.outputs[0].eval(), [3.0, 5.0, 7.0])

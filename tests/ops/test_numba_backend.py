"""Registration of Numba loops, and their cache keys."""

import pickle
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_funcify, numba_funcify_and_cache_key
from pytensor.link.numba.dispatch.random import numba_core_rv_funcify

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.ops import numba_backend
from pymc_geodesic.ops.admixture_likelihood import AdmixtureLogLikelihood, AdmixtureTopicsGradient
from pymc_geodesic.ops.bessel_ops import BesselScalarOp
from pymc_geodesic.ops.numba_backend import (
    LoopOp,
    LoopRandomVariable,
    WithLoop,
    cache_key,
    register_with_numba,
)
from pymc_geodesic.ops.sparse_dot import SparseDot, SparseTransposeDot
from pymc_geodesic.runtime import jit

PACKAGE = Path(jit.__file__).parents[1]
FILES = [
    f"ops/{name}.py"
    for name in (
        "admixture_likelihood",
        "bessel_ops",
        "dense_products",
        "exponentials",
        "fisher_bingham_ops",
        "quadratic_form",
        "sparse_dot",
    )
] + [
    f"distributions/{name}.py"
    for name in (
        "angular_gaussian",
        "bingham",
        "circular",
        "fisher_bingham",
        "frames",
        "hinge",
        "matrix_bingham",
        "matrix_von_mises_fisher",
        "projected_normal",
        "rotationally_symmetric",
        "sine_bivariate_von_mises",
        "spherical_admixture_likelihood",
        "unit_sphere",
    )
]
"""Files with loops."""


def subclasses(base):
    for each in base.__subclasses__():
        yield each
        yield from subclasses(each)


def with_loops():
    for file in FILES:
        import_module("pymc_geodesic." + file.removesuffix(".py").replace("/", "."))
    return [
        each
        for each in subclasses(WithLoop)
        if each.__module__.startswith("pymc_geodesic.") and "numba_loop" in vars(each)
    ]


def test_list_of_files_with_loops():
    found = {Path(each.numba_loop.__code__.co_filename) for each in with_loops()}
    assert found == {PACKAGE / file for file in FILES}


@pytest.mark.parametrize("each", with_loops(), ids=lambda each: each.__name__)
def test_loop_takes_precedence_over_other_bases(each):
    """Random variables and `Composite` may have another implementation."""
    register_with_numba()
    if issubclass(each, LoopRandomVariable):
        assert numba_core_rv_funcify.dispatch(each) is numba_core_rv_funcify.dispatch(
            LoopRandomVariable
        )
        assert numba_core_rv_funcify.dispatch(each) is not numba_core_rv_funcify.dispatch(object)
    else:
        for function in (numba_funcify, numba_funcify_and_cache_key):
            assert function.dispatch(each) is function.dispatch(LoopOp)
            assert function.dispatch(each) is not function.dispatch(object)


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.slow
def test_dispatch_is_imported_with_the_first_op():
    """It takes half a second, which importing the package must not."""
    modules = [
        "pymc_geodesic.topics",
        "pymc_geodesic.mixtures",
        "pymc_geodesic.svm",
        *("pymc_geodesic." + file.removesuffix(".py").replace("/", ".") for file in FILES),
    ]
    code = f"""
import sys
from importlib import import_module

for module in {modules!r}:
    import_module(module)
print("pytensor.link.numba.dispatch" in sys.modules)
from pymc_geodesic.ops.sparse_dot import SparseDot
SparseDot(3)
print("pytensor.link.numba.dispatch" in sys.modules)
"""
    assert run(code) == ["False", "True"]


@pytest.mark.parametrize(
    "op",
    [
        AdmixtureLogLikelihood(),
        SparseDot(3),
        VonMisesFisher.rv_op,
        BesselScalarOp("log_normalizer"),
    ],
    ids=["without properties", "with properties", "random variable", "by name"],
)
def test_unpickled_op_has_its_loop(op):
    code = f"""
import pickle
op = pickle.loads({pickle.dumps(op)!r})
from pymc_geodesic.ops.numba_backend import register_with_numba
print(register_with_numba.cache_info().currsize)
"""
    assert run(code) == ["1"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A modifiable copy of the package."""
    copy = tmp_path / "pymc_geodesic"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(jit, "_PACKAGE", copy)
    return copy


DRAWS = ["distributions/von_mises_fisher_draws.py"]


@pytest.mark.parametrize(
    ("file", "inlined"),
    [(file, [file, "ops/numba_backend.py"]) for file in FILES]
    + [
        ("ops/bessel_ops.py", ["ops/bessel.py"]),
        ("distributions/rotationally_symmetric.py", DRAWS),
        ("distributions/unit_sphere.py", DRAWS),
        ("distributions/spherical_admixture_likelihood.py", DRAWS),
    ],
)
def test_stamp_follows_what_a_loop_inlines(package, file, inlined):
    stamps = {jit.source_stamp(package / file)}
    for changed in inlined:
        with (package / changed).open("a") as source:
            source.write("\nchanged = 1\n")
        stamps.add(jit.source_stamp(package / file))
    assert len(stamps) == 1 + len(inlined)


def test_stamp_does_not_follow_what_only_builds_graphs(package):
    """Otherwise every change of a source file would recompile all loops."""
    before = [jit.source_stamp(package / file) for file in FILES]
    for changed in (
        "ops/inner_products.py",
        "distributions/validation.py",
        "transforms/gram_schmidt.py",
    ):
        with (package / changed).open("a") as source:
            source.write("\nchanged = 1\n")
    assert [jit.source_stamp(package / file) for file in FILES] == before


def node(op, ndim=1, dtype="float64", width=5):
    values, columns = np.ones(2, dtype), np.zeros(2, "int32")
    other = pt.tensor(dtype=dtype, shape=(width,) + (None,) * (ndim - 1))
    return op(values, columns, np.array([[0, 2]] * width), other).owner


def test_cache_key_contains_all_properties_of_a_loop(monkeypatch):
    dot, squared = SparseDot(5), SparseTransposeDot(5, squared=True)
    nodes = [
        node(dot),
        node(dot, ndim=2),
        node(dot, dtype="float32"),
        node(SparseTransposeDot(5)),
        node(squared),
        node(SparseTransposeDot(6), width=5),
    ]
    keys = [cache_key(each.op, each) for each in nodes]
    assert len(set(keys)) == len(nodes)
    assert cache_key(SparseDot(5), node(SparseDot(5))) == keys[0]

    files = []
    monkeypatch.setattr(numba_backend, "source_stamp", lambda file: files.append(file) or "other")
    assert cache_key(dot, nodes[0]) not in keys
    assert files == [PACKAGE / "ops" / "sparse_dot.py"]


def test_ops_of_one_file_have_distinct_keys():
    counts = (np.ones(2), np.zeros(2, "int32"), np.array([[0, 2]]))
    theta, by_word = np.ones((1, 1)), np.ones((1, 1))
    one = AdmixtureLogLikelihood()(*counts, theta, by_word).owner
    other = AdmixtureTopicsGradient()(*counts, theta, by_word, np.ones(1)).owner
    assert cache_key(one.op, one) != cache_key(other.op, other)


def test_loop_of_an_interactive_session_is_not_cached():
    """Changes of its source could not be detected."""
    source = "class Session(SparseDot):\n    def numba_loop(self, node, njit):\n        pass"
    names = {"SparseDot": SparseDot, "__name__": "__main__"}
    exec(compile(source, "<session>", "exec"), names)
    op = names["Session"](5)
    assert cache_key(op, node(op)) is None


def test_op_without_a_loop_raises():
    class Silent(LoopOp, Op):
        __props__ = ()

        def perform(self, node, inputs, outputs):
            raise NotImplementedError

    with pytest.raises(NotImplementedError, match="Silent does not define numba_loop"):
        Silent().numba_loop(None, None)

"""Graphs that tests interpret and that are alike are rewritten once in a module.

PyTensor looks at every node of a graph some ten times before it evaluates one, which takes longer
than most of what tests evaluate, and a module makes steps of the same few models again and again.
What comes out depends on the graph and on the mode alone.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import pytensor
import pytest
from pytensor.compile import FunctionMaker, Mode
from pytensor.compile.io import SymbolicInput, SymbolicOutput
from pytensor.graph.basic import Constant, Variable, clone_get_equiv
from pytensor.graph.destroyhandler import DestroyHandler
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.link.vm import VMLinker

Inputs = list[SymbolicInput]
Outputs = list[SymbolicOutput]
Graph = tuple[list[Variable], list[Variable]]

TAGS = ("include", "require", "exclude")


def rewrite_once(patch: pytest.MonkeyPatch) -> None:
    """Let functions remember how their graphs were rewritten, until the patch is undone."""
    known: dict[Hashable, Graph] = {}
    prepare = FunctionMaker.prepare_fgraph

    def prepare_once(
        inputs: Inputs,
        outputs: Outputs,
        more: Outputs,
        graph: FunctionGraph,
        mode: Mode,
        *rest: Any,
    ) -> None:
        key = key_of(graph, [*inputs, *outputs, *more], mode)
        if key in known:
            replace_by(graph, *known[key])
            return
        prepare(inputs, outputs, more, graph, mode, *rest)
        if key is not None:
            inputs_alike: list[Variable] = [variable.type() for variable in graph.inputs]
            known[key] = inputs_alike, copied(graph.inputs, graph.outputs, inputs_alike)

    patch.setattr(FunctionMaker, "prepare_fgraph", staticmethod(prepare_once))


def key_of(graph: FunctionGraph, ends: list[Any], mode: Mode) -> Hashable:
    """Name a graph, what may be done to its inputs and outputs, and how it is rewritten.

    None of what machine code is made of, and where a part can only be told by itself.
    """
    query = mode.provided_optimizer
    is_interpreted = isinstance(mode.linker, VMLinker) and mode.linker.c_thunks is False
    if not is_interpreted or not is_plain(query):
        return None
    key = (
        tuple(spelled_out(graph)),
        tuple(map(freedoms_of, ends)),
        tuple(frozenset(getattr(query, name)) for name in TAGS),
        query.position_cutoff,
        (pytensor.config.floatX, pytensor.config.cxx),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


def freedoms_of(end: Any) -> Hashable:
    """Say what a function may do with an input, or an output."""
    is_updated = getattr(end, "update", None) is not None
    return type(end), end.borrow, getattr(end, "mutable", None), is_updated


def is_plain(query: Any) -> bool:
    """Whether nothing but tags says which rewrites are meant."""
    return isinstance(query, RewriteDatabaseQuery) and not (query.subquery or query.extra_rewrites)


def spelled_out(graph: FunctionGraph) -> Iterator[Hashable]:
    """Go over a graph from its inputs to its outputs; variables are numbers."""
    numbers: dict[Variable, int] = {}

    def named(variable: Variable) -> Hashable:
        is_value = isinstance(variable, Constant) and variable not in numbers
        return variable.merge_signature() if is_value else numbers[variable]

    for variable in graph.inputs:
        numbers[variable] = len(numbers)
        yield variable.type
    for node in graph.toposort():
        yield node.op, tuple(map(named, node.inputs))
        for variable in node.outputs:
            numbers[variable] = len(numbers)
            yield variable.type
    yield tuple(map(named, graph.outputs))


def replace_by(graph: FunctionGraph, inputs: list[Variable], outputs: list[Variable]) -> None:
    """Put a copy of a known graph into the place of one that it was made of."""
    graph.attach_feature(DestroyHandler())  # which orders what reads before what overwrites
    for i, output in enumerate(copied(inputs, outputs, graph.inputs)):
        graph.change_node_input(*graph.get_output_client(i), output, reason="known")


def copied(
    inputs: list[Variable], outputs: list[Variable], new_inputs: list[Variable]
) -> list[Variable]:
    """Return outputs of a graph that begins elsewhere."""
    known: dict[Any, Any] = dict(zip(inputs, new_inputs, strict=True))
    memo = clone_get_equiv(inputs, outputs, copy_inputs=False, memo=known)
    return [memo[output] for output in outputs]

"""Nothing asks of which class an estimate, a source or a manifold is: it asks what they can do."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pymc_geodesic.counts.topic_counts import TopicCountEstimator
from pymc_geodesic.gradients.estimate import Estimate
from pymc_geodesic.gradients.local_gradient import LocalGradientEstimator
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.minibatches.orders import MINIBATCH_ORDERS
from pymc_geodesic.minibatches.source import RowSource
from pymc_geodesic.steps import SGGMC

ROOT = Path(__file__).parents[1] / "pymc_geodesic"
MODULES = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
WITHOUT_KINDS_OF_MANIFOLDS = (
    "steps",
    "samplers",
    "adaptation",
    "monitoring",
    "gradients",
    "densities",
    "kernels",
    "minibatches",
)


def names_of(kind: type) -> set[str]:
    """Names of a class and of all that derive from it."""
    return {kind.__name__}.union(*(names_of(each) for each in kind.__subclasses__()))


def questions(source: str) -> Iterator[tuple[int, set[str]]]:
    """Yield the line of each question of what class something is, and the classes it names."""
    for node in ast.walk(ast.parse(source)):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                asked = node.args[1:]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(ast.unparse(side).startswith("type(") for side in sides):
                asked = sides
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        named = {part for each in asked for part in ast.walk(each)}
        names = {part.id for part in named if isinstance(part, ast.Name)}
        names |= {part.attr for part in named if isinstance(part, ast.Attribute)}
        if names:
            yield node.lineno, names


def asks_of(source: str, names: set[str]) -> list[int]:
    return [line for line, asked in questions(source) if asked & names]


def test_the_classes_are_known():
    assert {LocalGradientEstimator.__name__, TopicCountEstimator.__name__} < names_of(Estimate)
    assert {each.__name__ for each in MINIBATCH_ORDERS.values()} < names_of(RowSource)
    assert {"Euclidean", "HalfLine", "Stiefel"} < names_of(Manifold)
    assert SGGMC.__name__ not in names_of(Estimate)


@pytest.mark.parametrize("module", MODULES)
def test_nobody_asks_of_which_class_an_estimate_or_a_source_is(module):
    names = names_of(Estimate) | names_of(RowSource)
    assert asks_of(MODULES[module].read_text(), names) == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.startswith(WITHOUT_KINDS_OF_MANIFOLDS)])
def test_nobody_asks_of_which_class_a_manifold_is(module):
    assert asks_of(MODULES[module].read_text(), names_of(Manifold) - {"Manifold"}) == []


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(self.estimator, GradientEstimator)",
        "assert isinstance(a, (int, minibatch_gradient.GradientEstimator))",
        "if isinstance(a, int | GradientEstimator): pass",
        "issubclass(kind, GradientEstimator)",
        "x = type(a) is GradientEstimator",
        "x = GradientEstimator == type(a)",
        "match a:\n    case GradientEstimator(): pass",
    ],
)
def test_a_question_is_found(source):
    assert len(asks_of(source, {"GradientEstimator"})) == 1
    assert asks_of(source, {"Other"}) == []


@pytest.mark.parametrize(
    "source", ["a: GradientEstimator", "GradientEstimator(model)", "a = b is GradientEstimator"]
)
def test_naming_a_class_is_no_question(source):
    assert asks_of(source, {"GradientEstimator"}) == []

"""Each argument of a step method has an effect in each combination, or raises an error."""

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from pymc_geodesic.steps import gmc

pytestmark = pytest.mark.usefixtures("interpreted")

GRADIENT_STEPS = [pg.GMC, pg.SubgradientHMC, pg.SGGMC, pg.gSGNHT, pg.SGLD, pg.SSGNHT]
COUNT_STEPS = [pg.SCIR, pg.SGRLD]
EXACT_STEPS = {pg.GMC, pg.SubgradientHMC}
OF_PYMC = {"vars", "model", "rng", "compile_kwargs", "blocked"}
"""Arguments that `test_constructors` and `test_adaptor` test for all steps."""

N = 1200
RNG = np.random.default_rng(1)
X = RNG.normal(size=(N, 2))
Y = X @ [1.0, -0.5] + RNG.normal(size=N)
LABELS = RNG.integers(3, size=N)
COUNTS = RNG.poisson(1.0, size=(30, 4)) + 1


@cache
def regression() -> pm.Model:
    with pm.Model() as model:
        slope = pm.Normal("slope", shape=2)
        offset = pm.Normal("offset")
        pm.Normal("y_obs", pm.Data("x", X) @ slope + offset, 1.0, observed=pm.Data("y", Y))
    return model


@cache
def drawn() -> pm.Model:
    with pm.Model() as model:
        x, y = pm.Minibatch(X, Y, batch_size=10)
        pm.Normal("y_obs", x @ pm.Normal("slope", shape=2), 1.0, observed=y, total_size=N)
    return model


@cache
def sphere() -> pm.Model:
    points = X / np.linalg.norm(X, axis=1, keepdims=True)
    with pm.Model() as model:
        direction = pg.UniformSphere("slope", shape=2)
        pg.VonMisesFisher("y_obs", direction, 2.0, observed=pm.Data("x", points))
    return model


@cache
def levels() -> pm.Model:
    with pm.Model() as model:
        mean = pm.Normal("slope")
        each = pm.Normal("each", mean, shape=60)
        pm.Normal("y_obs", each, 1.0, observed=pm.Data("y", Y[:60]))
    return model


@cache
def categories() -> pm.Model:
    with pm.Model() as model:
        pm.Categorical("z_obs", pm.Dirichlet("slope", np.ones(3)), observed=pm.Data("z", LABELS))
    return model


@cache
def documents() -> pm.Model:
    return pg.topics.lda(sparse.csr_array(COUNTS), 2, alpha=0.5, beta=0.5)


BLOCKS = [(X[i : i + 300], Y[i : i + 300]) for i in range(0, N, 300)]
DOCUMENTS = [sparse.csr_array(COUNTS)]
STREAM = {"minibatch": ["x", "y"], "batches": BLOCKS, "total_size": N}
ROWS = {"batch_size": 10}
type Route = tuple[Callable[[], pm.Model], dict[str, Any]]
"""Model and arguments."""

ROUTES: dict[str, Route] = {
    "all rows": (regression, {}),
    "minibatches": (regression, ROWS),
    "pm.Minibatch": (drawn, {}),
    "user-specified": (regression, {**ROWS, "step_size": 0.01, "friction": 20.0}),
    "user-specified diffusion": (regression, {**ROWS, "step_size": 0.01, "diffusion": 20.0}),
    "user-specified step size": (regression, {**ROWS, "step_size": 0.01}),
    "user-specified with all rows": (regression, {"step_size": 0.01}),
    "coordinates of the model": (regression, {**ROWS, "metric": None}),
    "coordinates of the model with all rows": (regression, {"metric": None}),
    "part of the variables": (regression, {**ROWS, "vars": ["slope"]}),
    "stream": (regression, {**STREAM, "batch_size": 10}),
    "stream of minibatches": (regression, STREAM),
    "sphere": (sphere, {}),
    "sphere with minibatches": (sphere, ROWS),
    "local by rows": (levels, {}),
    "local": (levels, {"local": ["each"]}),
    "local with minibatches": (levels, {"local": ["each"], **ROWS}),
}
COUNT_ROUTES: dict[str, Route] = {
    "all rows": (categories, {}),
    "minibatches": (categories, ROWS),
    "user-specified": (categories, {**ROWS, "step_size": 0.1}),
    "local": (documents, {"local": ["theta"], "minibatch": ["counts"]}),
    "local stream": (
        documents,
        {"local": ["theta"], "minibatch": ["counts"], "batches": DOCUMENTS, "total_size": 30},
    ),
}

OTHER_VALUES: dict[str, list[Any]] = {
    "step_size": [0.02],
    "learning_rate": [0.5],
    "friction": [30.0],
    "momentum_decay": [0.3],
    "diffusion": [30.0],
    "thermostat_inertia": [0.5],
    "preconditioner": ["adagrad"],
    "n_steps": [3],
    "target_accept": [0.6],
    "gradient_noise": [5.0, "fisher"],
    "metric": ["diag", np.array([2.0, 3.0, 4.0])],
    "control_variates": [1, 2, True],
    "tune_temperature": [7.0],
    "batch_size": [20],
    "minibatch": ["y_obs"],
    "batches": [BLOCKS[:2]],
    "total_size": [2 * N],
    "minibatch_order": ["random"],
    "draws_per_block": [2],
    "local_draws": [2],
    "local_tune": [3],
    "local_steps": [4],
    "splitting": ["paper"],
}
"""Values that differ from the defaults and from those of the routes."""
OF_VARIABLES: dict[Callable[[], pm.Model], dict[str, list[Any]]] = {
    levels: {"local": [["each"]], "manifolds": [{"each": pg.manifolds.Euclidean}]},
    sphere: {"manifolds": [{"slope": pg.manifolds.Euclidean}]},
}
"""Values that name variables of a model."""


def is_redundant(name: str, build: Callable[[], pm.Model], given: dict[str, Any]) -> bool:
    """Whether the value of an argument is the one that the step uses by default."""
    is_local = "local" in given
    redundant = {
        "minibatch": is_local or not given.keys().isdisjoint({"batch_size", "batches"}),
        "local": is_local,
        "manifolds": build is levels and not is_local,
        # a step of some variables has no control variates and draws random rows by default
        "minibatch_order": "vars" in given and "batch_size" in given,
    }
    return redundant.get(name, False)


def cells(steps: list[type], routes: dict[str, Route], default: set[tuple]) -> Iterator[Any]:
    """Combinations of steps, routes, arguments and values; slow except the default ones."""
    for step_class in steps:
        arguments = set(inspect.signature(step_class).parameters)
        for route, (build, given) in routes.items():
            if not set(given) <= arguments or (build is drawn and step_class in EXACT_STEPS):
                continue
            values = OTHER_VALUES | OF_VARIABLES.get(build, {})
            chosen = (step_class, route) in default
            for name in sorted(arguments & set(values)):
                for value in [] if is_redundant(name, build, given) else values[name]:
                    cell = (step_class, (build, given), name, value)
                    label = f"{step_class.__name__}-{route}-{name}-{str(value)[:8]}"
                    yield pytest.param(*cell, id=label, marks=[] if chosen else pytest.mark.slow)


type Settings = dict[str, str]
"""Numbers, strings and contents of arrays, by their paths."""


def settings_of(each: Any, path: str, seen: set[int]) -> Settings:
    """Settings in an object of the package and in its parts, other than addresses in memory."""
    if isinstance(each, np.ndarray) and each.dtype != object:
        return {path: repr(each.tolist())}
    if isinstance(each, bool | int | float | str | type | None | np.generic):
        return {path: repr(each)}
    if id(each) in seen or hasattr(each, "address"):
        return {}
    seen.add(id(each))
    if isinstance(each, dict):
        parts = {str(key): value for key, value in each.items()}
    elif isinstance(each, list | tuple):
        parts = {str(i): value for i, value in enumerate(each)}
    elif type(each).__module__.startswith("pymc_geodesic"):
        parts = vars(each) if hasattr(each, "__dict__") else {}
    else:
        parts = {}
    found = {path: type(each).__name__}
    for name, value in parts.items():
        found |= settings_of(value, f"{path}.{name}", seen)
    return found


def configuration(step_class: type, build: Callable[[], pm.Model], given: dict) -> Settings:
    """Report of the adaptation, and settings of the sampler, the gradient and the monitors."""
    step = step_class(model=build(), **given)
    parts = [step.sampler, step.estimator, list(step.monitors), step.local, step.variables]
    return {"report": repr(step.adaptation)} | settings_of(parts, "", set())


REFERENCES: dict[str, tuple[Settings, set[str]]] = {}


def reference(step_class: type, build: Callable[[], pm.Model], given: dict):
    """Configuration without another argument, and the paths that differ from build to build."""
    key = f"{step_class.__name__} {build.__name__} {sorted(given)}"
    if key not in REFERENCES:
        one, other = (configuration(step_class, build, given) for _ in range(2))
        REFERENCES[key] = one, {path for path in one if one[path] != other.get(path)}
    return REFERENCES[key]


GRADIENT_DEFAULT = {
    (pg.GMC, "user-specified with all rows"),
    (pg.GMC, "local"),
    (pg.SubgradientHMC, "user-specified with all rows"),
    (pg.SGGMC, "all rows"),
    (pg.SGGMC, "user-specified"),
    (pg.SGGMC, "stream of minibatches"),
    (pg.SGGMC, "local with minibatches"),
    (pg.gSGNHT, "sphere"),
    (pg.SGLD, "user-specified step size"),
    (pg.SSGNHT, "user-specified diffusion"),
}
COUNT_DEFAULT = {(pg.SCIR, "all rows"), (pg.SGRLD, "local stream")}


def outcome(step_class: type, build: Callable[[], pm.Model], given: dict) -> tuple[Settings, str]:
    """Configuration, or the message of an error."""
    try:
        return configuration(step_class, build, given), ""
    except ValueError as error:
        return {}, str(error)


@pytest.mark.filterwarnings("ignore:total_size=")
@pytest.mark.parametrize(
    ("step_class", "route", "name", "value"),
    [
        *cells(GRADIENT_STEPS, ROUTES, GRADIENT_DEFAULT),
        *cells(COUNT_STEPS, COUNT_ROUTES, COUNT_DEFAULT),
    ],
)
def test_arguments_have_an_effect_or_raise(step_class, route, name, value):
    build, given = route
    expected, volatile = reference(step_class, build, given)
    found, message = outcome(step_class, build, {**given, name: value})
    if message:
        assert f"{name}=" in message or f"{name} " in message
    else:
        paths = (set(expected) | set(found)) - volatile
        assert any(found.get(path) != expected.get(path) for path in paths)


def test_mutant_that_ignores_an_argument_is_found(monkeypatch):
    monkeypatch.setattr(gmc, "check_adaptation_arguments", lambda specified, metric: None)
    build, given = ROUTES["user-specified with all rows"]
    with pytest.raises(AssertionError):
        test_arguments_have_an_effect_or_raise(pg.GMC, (build, given), "metric", "diag")


def test_target_acceptance_rate_of_the_warning():
    """With a user-specified step size it has no other effect."""
    found = []
    for target in (0.5, 0.9):
        step = pg.GMC(step_size=0.01, target_accept=target, model=regression())
        acceptance, _ = step.monitors
        acceptance.initialize(400)
        for _ in range(400):
            acceptance.observe(np.zeros(3), {"acceptance_rate": 0.35})
        found.append(acceptance.diagnosis(["slope[0]", "slope[1]", "offset"]))
    assert found[0] is None
    assert found[1].expected == 0.9


NUMBERS = [
    "step_size", "learning_rate", "friction", "momentum_decay", "diffusion", "thermostat_inertia",
    "n_steps", "target_accept", "gradient_noise", "tune_temperature", "batch_size", "total_size",
    "draws_per_block", "local_draws", "local_tune", "local_steps",
]  # fmt: skip


@pytest.mark.parametrize("value", ["1", np.nan, np.inf, True, np.array(True), 1j])
@pytest.mark.parametrize("step_class", [*GRADIENT_STEPS, *COUNT_STEPS], ids=lambda s: s.__name__)
def test_values_that_are_not_finite_numbers_raise(step_class, value):
    build = categories if step_class in COUNT_STEPS else regression
    for name in set(NUMBERS) & set(inspect.signature(step_class).parameters):
        with pytest.raises(ValueError, match=rf"^{name}(=| must)"):
            step_class(model=build(), **{name: value})


MESSAGES = [
    (pg.GMC, {"metric": np.eye(3), "step_size": 0.1}, r"metric= .* omit step_size=$"),
    (pg.SGGMC, {"metric": "diag", "friction": 1.0}, "metric= has no effect with friction=. Omit"),
    (pg.GMC, {"minibatch": "y_obs"}, "minibatch= of GMC needs local=: its .* for minibatches"),
    (pg.GMC, {"local_draws": 2}, "^local_draws= has no effect without local=. Omit it$"),
    (pg.SGGMC, {"total_size": 9}, "^total_size= needs minibatches. Set batch_size=, or omit tot"),
    (pg.SGGMC, {"minibatch_order": "random"}, "minibatch_order= needs minibatches. Set batch_"),
    (
        pg.SGGMC,
        {"tune_temperature": np.inf},
        "^tune_temperature must be a finite number of at least 1, got inf$",
    ),
    (
        pg.SSGNHT,
        {"tune_temperature": 2.0, "step_size": 0.1, "diffusion": 1.0},
        "tune_temperature= has no effect with step_size= and diffusion=",
    ),
    (pg.SGGMC, {"learning_rate": 0.1}, "learning_rate= needs minibatches, which define N"),
    (pg.SGLD, {"control_variates": 1}, "control_variates=1 has no effect without minibatches"),
    (
        pg.SGLD,
        {"control_variates": 2, "preconditioner": "adagrad"},
        "control_variates=2 has no effect with preconditioner=",
    ),
]


@pytest.mark.parametrize(("step_class", "arguments", "message"), MESSAGES)
def test_messages_name_the_remedy(step_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        step_class(model=regression(), **arguments)


@pytest.mark.parametrize("name", ["batch_size", "total_size", "minibatch_order", "batches"])
def test_gmc_has_no_arguments_of_minibatches(name):
    with pytest.raises(TypeError, match=rf"unexpected keyword argument '{name}'"):
        pg.GMC(model=regression(), **{name: None})

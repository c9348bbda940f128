"""Constructors of the step methods: names, defaults, documentation and types of the arguments."""

import inspect
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_geodesic as pg
from tests.steps.runs import INTERPRETED, start

STEPS = [
    pg.GMC, pg.SCIR, pg.SGGMC, pg.SGLD, pg.SGRLD, pg.SSGNHT, pg.SubgradientHMC, pg.gSGNHT
]  # fmt: skip
every_step = pytest.mark.parametrize("step_class", STEPS, ids=lambda step: step.__name__)

SHARED = {"model": None, "rng": None, "compile_kwargs": None, "blocked": True}
MINIBATCHES = {
    "batch_size": None,
    "minibatch": None,
    "batches": None,
    "total_size": None,
    "minibatch_order": "shuffled",
    "draws_per_block": None,
}
SHOWN = {
    pg.gSGNHT: {
        "vars": None,
        "step_size": None,
        "learning_rate": None,
        "friction": None,
        "momentum_decay": None,
        "thermostat_inertia": None,
        "n_steps": None,
        "gradient_noise": None,
        "metric": "auto",
        "control_variates": "auto",
        "tune_temperature": None,
        **MINIBATCHES,
        "local": None,
        "local_draws": 20,
        "local_tune": 40,
        "local_steps": 10,
        "splitting": "exact",
        "manifolds": None,
        **SHARED,
    },
    pg.SubgradientHMC: {
        "vars": None,
        "step_size": None,
        "n_steps": None,
        "target_accept": 0.8,
        "metric": "auto",
        **SHARED,
    },
}
SHOWN[pg.SGGMC] = {n: d for n, d in SHOWN[pg.gSGNHT].items() if n != "thermostat_inertia"}


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        pm.Normal("a", 3.0, 0.5)
        pm.Normal("b", [-2.0, 5.0], 0.1)
    return model


@pytest.mark.parametrize("step_class", SHOWN, ids=lambda step: step.__name__)
def test_names_order_and_defaults_are_those_of_the_reference(step_class):
    parameters = inspect.signature(step_class).parameters
    shown = {name: parameter.default for name, parameter in parameters.items()}
    assert list(shown.items()) == list(SHOWN[step_class].items())


def described(step_class: type) -> dict[str, tuple[str, str]]:
    """Type and text of each entry of the section ``Parameters``, by the name of the parameter."""
    text = inspect.cleandoc(vars(step_class)["__doc__"])
    (section,) = re.findall(r"\nParameters\n-{10}\n(.*?)\n\n[A-Z]\w+\n---", text, re.DOTALL)
    entries = {}
    for entry in re.split(r"\n(?=\S)", section):
        head, _, body = entry.partition("\n")
        name, _, of_type = head.partition(" : ")
        entries[name] = (of_type, " ".join(body.split()))
    return entries


def arguments_of(step_class: type) -> dict[str, inspect.Parameter]:
    """Parameters of the constructor that the source of the class itself defines."""
    return dict(list(inspect.signature(vars(step_class)["__init__"]).parameters.items())[1:])


@every_step
def test_each_constructor_names_and_documents_its_arguments_in_order(step_class):
    arguments = arguments_of(step_class)
    assert list(described(step_class)) == list(arguments)
    assert all(of_type and text for of_type, text in described(step_class).values())
    kinds = {name: argument.kind for name, argument in arguments.items()}
    assert kinds.pop("vars") is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert set(kinds.values()) == {inspect.Parameter.KEYWORD_ONLY}
    assert list(inspect.signature(step_class).parameters.values()) == list(arguments.values())


HMC = {"GMC", "SubgradientHMC"}
POSITIVE = {"SCIR", "SGRLD"}
DISTINCT = {
    "vars": [{"SCIR"}, {"SGRLD"}],
    "step_size": [{"SSGNHT"}, HMC, {"SGLD"}, {"SCIR"}, {"SGRLD"}],
    "n_steps": [HMC, POSITIVE],
    "metric": [{"GMC"}, {"SSGNHT", "SubgradientHMC"}],
    "friction": [{"gSGNHT"}],
    "thermostat_inertia": [{"SSGNHT"}],
    "control_variates": [{"SCIR"}],
    "tune_temperature": [{"SSGNHT"}],
    "minibatch": [{"GMC"}],
    "minibatch_order": [POSITIVE],
    "local": [{"GMC"}, POSITIVE],
    "local_draws": [{"GMC"}, POSITIVE],
    "local_tune": [POSITIVE],
    "splitting": [{"gSGNHT"}],
}
"""Groups of steps whose text for a parameter differs from that of all other steps."""


@pytest.mark.parametrize("name", sorted({name for step in STEPS for name in arguments_of(step)}))
def test_shared_parameters_have_the_same_text(name):
    texts: dict[tuple[str, str], set[str]] = {}
    for step in STEPS:
        if name in arguments_of(step):
            texts.setdefault(described(step)[name], set()).add(step.__name__)
    every = set().union(*texts.values())
    distinct = DISTINCT.get(name, [])
    others = every.difference(*distinct)
    assert sorted(map(sorted, texts.values())) == sorted(map(sorted, [*distinct, others]))


@every_step
def test_unknown_arguments_raise(model, step_class):
    with model, pytest.raises(TypeError, match=rf"{step_class.__name__}\..* 'stepsize'"):
        step_class(stepsize=0.1)


def test_ssgld_is_another_name_of_sgld():
    assert pg.SSGLD is pg.SGLD
    assert pg.SSGLD.__name__ == "SGLD"


def test_only_vars_is_positional(model):
    with model, pytest.raises(TypeError, match=r"takes from 1 to 2 positional arguments but 3"):
        pg.SGGMC(["a"], 0.1)


def test_one_step_for_each_variable(model):
    """PyMC creates each of them by a call of the constructor."""
    with model:
        both = pg.SGGMC(step_size=0.1, friction=2.0, blocked=False, compile_kwargs=INTERPRETED)
    assert isinstance(both, CompoundStep)
    assert [[value.name for value in step.vars] for step in both.methods] == [["a"], ["b"]]
    for step in both.methods:
        _, (stats,) = step.step(start(model, step, tune=0, draws=1))
        assert (stats["step_size"], stats["friction"]) == (0.1, 2.0)


def test_a_step_that_was_pickled_keeps_its_arguments(model):
    with model:
        step = pg.SSGNHT(["b"], step_size=0.1, diffusion=2.0, compile_kwargs=INTERPRETED)
    again = cloudpickle.loads(cloudpickle.dumps(step))
    assert [value.name for value in again.vars] == ["b"]
    expected, found = (each.step(start(model, each, tune=0, draws=1)) for each in (step, again))
    np.testing.assert_equal(found[1], expected[1])
    assert (found[1][0]["step_size"], found[1][0]["diffusion"]) == (0.1, 2.0)


@pytest.mark.parametrize(
    ("step_class", "given"),
    [
        (pg.gSGNHT, {"step_size": 0.25, "friction": 0.5, "thermostat_inertia": 0.5}),
        (pg.SGGMC, {"step_size": 0.25, "momentum_decay": 0.5}),
        (pg.SSGNHT, {"step_size": 0.125, "diffusion": 0.5, "thermostat_inertia": 0.5}),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_numbers_of_any_type_are_floats_to_kernels(model, step_class, given):
    """A `Fraction` times an array is an array of objects, whose pointers kernels would read."""

    def draws_of(numbers: dict[str, Any]) -> list[float]:
        with model:
            step = step_class(**numbers)
        step.setup_chain(np.random.default_rng(1), 0, 3)
        point, draws = model.initial_point(), []
        for _ in range(3):
            point, _ = step.step(point)
            draws.append(point["b"].tolist())
        return draws

    assert draws_of({name: Fraction(value) for name, value in given.items()}) == draws_of(given)


@pytest.mark.slow
def test_a_type_checker_sees_names_and_types(tmp_path):
    api = pytest.importorskip("mypy.api")
    source = tmp_path / "use.py"
    source.write_text(
        "from pymc_geodesic.steps.sggmc import SGGMC\n"
        "SGGMC(['a'], step_size=0.1, minibatch='x', batch_size=5)\n"
        "SGGMC(n_steps='many')\n"
        "SGGMC(stepsize=0.1)\n"
    )
    root = Path(__file__).parents[2]
    report, _, _ = api.run([f"--config-file={root / 'pyproject.toml'}", str(source)])
    found = re.findall(r"use\.py:(\d+): error: .*\[([a-z-]+)\]", report)
    assert found == [("3", "arg-type"), ("4", "call-arg")], report

"""Arguments of steps: named, with defaults, described once, and refused where they are unknown."""

import inspect
import re
from dataclasses import FrozenInstanceError, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import CompoundStep

import pymc_geodesic as pg
from pymc_geodesic.steps.base.langevin_options import LangevinOptions
from pymc_geodesic.steps.base.signature import LAST, Options, after, by_rule, explain, part, takes
from tests.steps.runs import INTERPRETED

STEPS = [
    pg.GMC, pg.SCIR, pg.SGGMC, pg.SGLD, pg.SGRLD, pg.SSGLD, pg.SSGNHT, pg.SubgradientHMC, pg.gSGNHT
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
    assert parameters["vars"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert parameters["step_size"].kind is inspect.Parameter.KEYWORD_ONLY


def described(docstring: str) -> list[str]:
    """Names in the section ``Parameters``, in their order."""
    section = re.search(r"\nParameters\n-{10}\n(.*?)\n\n[A-Z]\w+\n---", docstring, re.DOTALL)
    heads = [line for line in section[1].splitlines() if not line.startswith(" ")]
    return [name for head in heads for name in head.split(" : ")[0].split(", ")]


@every_step
def test_every_argument_is_described_once(step_class):
    names = list(inspect.signature(step_class).parameters)
    assert sorted(described(step_class.__doc__)) == sorted(names)
    assert described(step_class.__doc__)[0] == "vars"
    assert described(step_class.__doc__)[-1] == "blocked"


def test_the_group_nearest_to_the_step_describes_an_argument():
    assert "By default 11 if" in " ".join(pg.SGGMC.__doc__.split())
    assert "By default 151 if" in " ".join(pg.SSGNHT.__doc__.split())
    assert "By default 11 if" not in " ".join(pg.SSGNHT.__doc__.split())


@every_step
def test_an_unknown_argument_is_named_with_the_nearest_one(model, step_class):
    with model, pytest.raises(TypeError, match=rf"{step_class.__name__}\(\) has no argument.*"):
        step_class(nothing_like_it=1)
    with model, pytest.raises(TypeError, match=r"no argument stepsize=; did you mean step_size=\?"):
        step_class(stepsize=0.1)


def test_arguments_have_names(model):
    with model, pytest.raises(TypeError, match=r"SGGMC\(\) takes vars without a name, but 2"):
        pg.SGGMC(["a"], 0.1)


def test_one_step_for_each_variable(model):
    """PyMC makes each of them by a call of the constructor of its own."""
    with model:
        both = pg.SGGMC(step_size=0.1, friction=2.0, blocked=False, compile_kwargs=INTERPRETED)
    assert isinstance(both, CompoundStep)
    assert [[value.name for value in step.vars] for step in both.methods] == [["a"], ["b"]]
    assert [(step.step_size, step.friction) for step in both.methods] == [(0.1, 2.0)] * 2


def test_a_step_that_was_pickled_keeps_its_arguments(model):
    with model:
        step = pg.SSGNHT(["b"], step_size=0.1, diffusion=2.0, compile_kwargs=INTERPRETED)
    again = cloudpickle.loads(cloudpickle.dumps(step))
    assert (again.step_size, again.friction, again.thermostat_inertia) == (0.1, 2.0, 1.0)
    assert [value.name for value in again.vars] == ["b"]


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
    """Multiplied by an array, a fraction makes one of pointers."""

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


@dataclass(frozen=True, kw_only=True)
class Length(Options):
    """How long.

    Parameters
    ----------
    length, width : float
        In metres.
    """

    length: float = 1.0
    width: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Shape(Length):
    """How long and deep.

    Parameters
    ----------
    width : int
        In feet.
    depth : float
        In metres.
    """

    depth: float = 3.0


def test_text_of_a_step_without_other_sections():
    assert explain("Does it.", Shape) == (
        "Does it.\n\nParameters\n----------\nlength : float\n    In metres.\n"
        "width : int\n    In feet.\ndepth : float\n    In metres."
    )


def test_a_step_may_describe_its_arguments_itself():
    own = "Does it.\n\nParameters\n----------\nlength\n    Here."
    assert explain(own, Shape) == own


def test_places_of_arguments():
    @dataclass(frozen=True, kw_only=True)
    class Placed(Shape):
        model: int = field(default=0, metadata=LAST)
        height: float = field(default=4.0, metadata=after("length"))
        weight: float = field(default=5.0, metadata=after("absent"))

    class Step:
        @takes(Placed)
        def __init__(self):
            self.height = self.options.height

    shown = list(inspect.signature(Step).parameters)
    assert shown == ["length", "height", "width", "depth", "weight", "model"]
    assert Step(height=7.0).options == Placed(height=7.0)
    assert Step(height=7.0).height == 7.0


def test_a_rule_stands_with_its_argument():
    def refuse_odd(name, value):
        if value % 2:
            raise ValueError(f"{name} is odd")

    @dataclass(frozen=True, kw_only=True)
    class Ruled(Shape):
        count: int = field(default=2, metadata=by_rule(refuse_odd) | after("length"))

    assert Ruled(count=4).count == 4
    with pytest.raises(ValueError, match="count is odd"):
        Ruled(count=3)
    assert list(inspect.signature(Ruled).parameters)[-1] == "count"


def test_a_step_with_one_more_argument_is_built_of_both(model):
    @dataclass(frozen=True, kw_only=True)
    class Named(LangevinOptions):
        title: str = "none"

    class Titled(pg.SGGMC):
        @takes(Named)
        def __init__(self):
            self._build()

        def _build(self):
            super()._build()
            self.title = self.options.title.upper()

    with model:
        step = Titled(["b"], step_size=0.1, title="mine", compile_kwargs=INTERPRETED)
    assert (step.title, step.step_size) == ("MINE", 0.1)
    assert "title" in inspect.signature(Titled).parameters
    assert "title" not in inspect.signature(pg.SGGMC).parameters


def test_part_takes_what_has_the_same_name():
    assert part(Length, Shape(length=7.0, depth=8.0)) == Length(length=7.0)
    assert part(Shape, Length(width=7.0), depth=9.0) == Shape(width=7.0, depth=9.0)


def test_options_do_not_change():
    with pytest.raises(FrozenInstanceError):
        LangevinOptions().friction = 1.0


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


def effects(batch_size: int, sampler: type = pg.SGGMC, **kwargs):
    """Step for 10,005 effects of 12,000 rows, of which 9,995 in ten minibatches are the limit."""
    with pm.Model() as model:
        group = pm.Data("group", np.arange(12_000) % 10_005)
        effect = pm.Normal("effect", shape=10_005)
        pm.Normal("y", effect[group], 1.0, observed=pm.Data("observed", np.zeros(12_000)))
    rows = {"minibatch": ["group", "observed"], "batch_size": batch_size}
    return sampler(model=model, compile_kwargs={"mode": "FAST_COMPILE"}, **rows, **kwargs)


@pytest.mark.parametrize("sampler", [pg.SGGMC, pg.SGLD])
def test_adaptation_that_is_off_is_reported_with_the_remedy(sampler, caplog):
    step = effects(1_000, sampler)
    (record,) = [each for each in caplog.records if each.levelname == "WARNING"]
    for text in (record.getMessage(), step.adaptation):
        assert "without a metric and without control variates" in text
        assert "10000 rows (10 minibatches of batch_size=1000) times 10005 coordinates" in text
        assert "Use batch_size <= 999" in text
    assert step._larger_minibatches == "batch_size <= 999, with which the step adapts"
    caplog.clear()
    step = effects(999, sampler)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    assert step.adaptation.startswith("adapts metric='auto', control_variates='auto', step size")


def test_fixed_settings_are_no_obstacle(caplog):
    step = effects(1_000, step_size=0.01)
    assert not [each for each in caplog.records if each.levelname == "WARNING"]
    assert "step_size or other settings that they depend on are fixed" in step.adaptation


def test_warnings_recommend_the_batch_size_that_adapts():
    step = effects(1_000)
    step.draw = step._n_tune = 0
    warning = step._size.complaint(
        step._size.start() + 1.0, 2_000, minibatches=step._larger_minibatches
    )
    assert "batch_size <= 999" in warning
    assert "larger minibatches" not in warning
    step.temperature_sum, step.temperature_count = 50_000.0, 1_000
    hot = step._temperature_warning(1e-4, np.ones(1)).message
    assert "batch_size <= 999" in hot
    assert "larger minibatches" not in hot

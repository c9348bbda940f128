"""Private interfaces of PyMC that the package uses.

A failing test names the interface that a new version has changed; its docstring states what
depends on it.
"""

import inspect
import sys
from dataclasses import field, fields

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.backends import _ZarrChainBase, _ZarrTraceBase
from pymc.backends.arviz import (
    coords_and_dims_for_inferencedata,
    find_constants,
    find_observations,
)
from pymc.backends.zarr import ZarrChain, ZarrTrace
from pymc.blocking import PointType, StatsType
from pymc.data import MinibatchOp
from pymc.dims.distributions import transforms
from pymc.distributions.transforms import _default_transform
from pymc.exceptions import SamplingError
from pymc.initial_point import make_initial_point_fn
from pymc.sampling.mcmc import assign_step_methods, sample
from pymc.sampling.parallel import ProcessAdapter
from pymc.stats.convergence import (
    SamplerWarning,
    WarningType,
    log_warnings,
    run_convergence_checks,
)
from pymc.step_methods.compound import BlockedStep, CompoundStep, StepMethodState
from pymc.step_methods.state import DataClassState, WithSamplingState, dataclass_state
from pymc.util import (
    RandomGenerator,
    get_random_generator,
    get_value_vars_from_user_vars,
    is_transformed_name,
)
from pymc.variational.minibatch_rv import MinibatchRandomVariable, get_scaling
from pytensor.compile.mode import get_mode
from pytensor.link.vm import VMLinker
from xarray import Dataset, DataTree


class Still(BlockedStep):
    """A step that does not move and records its calls."""

    name = "still"
    default_blocked = True
    stats_dtypes_shapes = {"tune": (bool, []), "length": (np.float64, [])}  # noqa: RUF012
    _state_class = StepMethodState

    def __init__(self, vars):
        self.vars = get_value_vars_from_user_vars(vars, pm.modelcontext(None))
        self.rng = np.random.default_rng(1)
        self.tune = True
        self.chains = []

    def setup_chain(self, rng, tune, draws):
        super().setup_chain(rng, tune, draws)
        self.chains.append((isinstance(self.rng, np.random.Generator), tune, draws))

    def step(self, point):
        return dict(point), [{"tune": self.tune, "length": 0.5}]


def test_blocked_step():
    """Base class of the step methods: `setup_chain`, `step` and the types of sample stats."""
    with pm.Model():
        x = pm.Normal("x")
        step = Still([x])
        idata = pm.sample(
            draws=3,
            tune=2,
            chains=2,
            cores=1,
            step=step,
            compute_convergence_checks=False,
            progressbar=False,
            random_seed=1,
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    assert step.chains == [(True, 2, 3)] * 2
    assert not step.tune
    np.testing.assert_array_equal(idata.sample_stats["length"], np.full((2, 3), 0.5))
    assert np.ptp(idata.posterior["x"].values, axis=1).max() == 0.0


def test_warnings_of_chains_over_shards(caplog):
    """`distributed.sample` checks convergence as `pymc.sample` does, and logs its warnings."""
    draws = np.stack([np.zeros(200), np.ones(200)]) + np.random.default_rng(1).normal(size=(2, 200))
    with pm.Model() as model:
        pm.Normal("x")
    tree = DataTree.from_dict(
        {
            "posterior": Dataset({"x": (("chain", "draw"), 9 * draws)}),
            "sample_stats": Dataset({"diverging": (("chain", "draw"), np.zeros((2, 200), bool))}),
        }
    )
    found = run_convergence_checks(tree, model)
    assert WarningType.CONVERGENCE in [each.kind for each in found]
    log_warnings([SamplerWarning(WarningType.BAD_PARAMS, "shards differ", "warn")])
    assert "shards differ" in caplog.text


def test_blocked_step_is_built_by_new():
    """`GeodesicStep.__init_subclass__` shows the signature that this ``__new__`` would hide."""
    assert list(inspect.signature(BlockedStep.__new__).parameters) == ["cls", "args", "kwargs"]


class Observed(Still):
    """Record the options of `pymc.sample` if `assign_step_methods` reads the variables."""

    @property
    def vars(self):
        frame, codes = sys._getframe(1), [assign_step_methods.__code__, sample.__code__]
        if [frame.f_code, frame.f_back.f_code] == codes:
            self.options.append(frame.f_back.f_locals["compile_kwargs"])
        return self._vars

    @vars.setter
    def vars(self, values):
        self._vars, self.options = values, []


@pytest.mark.parametrize(
    "options", [{"backend": "c"}, {"compile_kwargs": {"mode": "CVM"}}], ids=["backend", "mode"]
)
def test_backend_of_sample(options):
    """A step warns of a backend that `pymc.sample` cannot pass to it.

    It finds the options in the frame of `pymc.sample` while `assign_step_methods` reads its
    variables; otherwise no warning is issued.
    """
    settings = {"chains": 1, "cores": 1, "progressbar": False, "quiet": True}
    with pm.Model():
        step = Observed([pm.Normal("x")])
        pm.sample(2, tune=1, step=step, compute_convergence_checks=False, **settings, **options)
    assert step.options
    assert all(each is step.options[0] for each in step.options)
    linker = get_mode(step.options[0]["mode"]).linker
    assert isinstance(linker, VMLinker)
    assert linker.c_thunks


def test_progress_bar():
    """The columns of the progress bar come from these two class methods of a step."""
    columns, stats = pm.NUTS._progressbar_config(2)
    assert columns
    assert all(len(values) == 2 for values in stats.values())
    assert all(callable(update) for update in pm.NUTS._make_progressbar_update_functions())


@dataclass_state
class Kept(DataClassState):
    shape: list = field(metadata={"frozen": True})
    position: np.ndarray
    adaptation: dict
    rng: object


class Keeps(WithSamplingState):
    _state_class = Kept

    def __init__(self, shape):
        self.shape, self.position = shape, np.zeros(2)
        self.adaptation = {"sums": np.zeros(2)}
        self.rng = np.random.default_rng(1)


def test_sampling_state():
    """Chains in other processes and resumed chains need states that copy arrays and generators."""
    there, here = Keeps([2]), Keeps([2])
    there.position[:] = 3.0
    there.adaptation["sums"] += 1.0
    there.rng.random(5)
    state = there.sampling_state
    there.position[:] = 4.0
    there.adaptation["sums"] += 1.0
    WithSamplingState.sampling_state.fset(here, state)
    np.testing.assert_array_equal(here.position, [3.0, 3.0])
    np.testing.assert_array_equal(here.adaptation["sums"], [1.0, 1.0])
    assert here.rng.random() == there.rng.random()
    assert WithSamplingState.sampling_state.fget(there).shape == [2]
    with pytest.raises(ValueError, match="frozen"):
        Keeps([3]).sampling_state = state


def test_step_method_state():
    """The states of the step methods extend this one, which holds the generator."""
    assert issubclass(StepMethodState, DataClassState)
    assert {each.name for each in fields(StepMethodState)} == {"var_names", "rng"}


class Written(_ZarrChainBase):
    """Record the calls that `pm.sample` makes of the trace of a chain."""

    def __init__(self):
        self.calls = []

    def link_stepper(self, step_method):
        self.calls.append(("link", step_method))

    def record(self, draw, stats, *, in_warmup):
        self.calls.append(("record", set(draw), len(stats)))

    def record_sampling_state(self, step=None):
        self.calls.append(("end",))

    def close(self):
        self.calls.append(("close",))


class Writes(_ZarrTraceBase):
    """Record the call with which `pm.sample` begins a run."""

    def init_trace(self, chains, draws, tune, step, model, vars, test_point):
        self.given = (chains, draws, tune, step, model, vars)
        self.straces = [Written() for _ in range(chains)]

    def split_warmup_groups(self):
        pass

    tuning_steps = 1
    posterior = type("Posterior", (), {"draw": range(2)})
    _sampling_state = type("Counts", (), {"draw_idx": np.array([3])})

    def to_inferencedata(self, save_warmup):
        return DataTree.from_dict({"posterior": Dataset({"x": 7.0})})


def test_traces_receive_the_step():
    """`CheckpointTrace` receives the step and its draws by the interface of PyMC's Zarr traces."""
    assert issubclass(ZarrChain, _ZarrChainBase)
    assert issubclass(ZarrTrace, _ZarrTraceBase)
    trace = Writes()
    with pm.Model() as model:
        step = Still([pm.Normal("x")])
        settings = {"chains": 1, "cores": 1, "progressbar": False, "quiet": True}
        settings["compile_kwargs"] = {"mode": "FAST_COMPILE"}
        tree = pm.sample(
            2, tune=1, step=step, trace=trace, compute_convergence_checks=False, **settings
        )
    assert trace.given == (1, 2, 1, step, model, None)
    assert trace.straces[0].calls == [
        ("link", step),
        *(3 * [("record", {"x"}, 1)]),
        ("end",),
        ("close",),
    ]
    assert tree.posterior["x"] == 7.0


def test_description_of_a_run():
    """`runs.identity` and the draws on disk use the model, its data, steps and dimensions."""
    with pm.Model(coords={"d": ["a", "b"]}) as model:
        data = pm.Data("data", [1.0, 2.0], dims="d")
        x = pm.Normal("x", data, dims="d")
        pm.LogNormal("s")
        pm.Normal("y", x, observed=[3.0, 4.0])
        steps = CompoundStep([pm.Metropolis([x])])
    assert coords_and_dims_for_inferencedata(model)[1]["x"] == ["d"]
    np.testing.assert_array_equal(find_constants(model)["data"], [1.0, 2.0])
    np.testing.assert_array_equal(find_observations(model)["y"], [3.0, 4.0])
    assert is_transformed_name("s_log__")
    assert not is_transformed_name("s")
    assert [method.vars for method in steps.methods] == [[model.rvs_to_values[x]]]


def test_names_of_processes():
    """Only the process of the first chain warns of heterogeneous blocks, by its name."""
    assert 'f"worker_chain_{chain}"' in inspect.getsource(ProcessAdapter.__init__)


def test_sampler_warning():
    """Warnings about the draws of a chain are of this type."""
    warning = SamplerWarning(WarningType.BAD_PARAMS, "text", "warn")
    assert (warning.kind, warning.message, warning.level) == (
        WarningType.BAD_PARAMS,
        "text",
        "warn",
    )


def test_names_for_annotations_and_errors():
    """`SamplingError` ends a chain; the others annotate arguments that `pm.sample` passes."""
    assert issubclass(SamplingError, RuntimeError)
    assert all(each is not None for each in (PointType, StatsType, RandomGenerator))


def test_random_generator_from_what_users_pass():
    """Steps seed their stream with it; a generator is copied, except with ``copy=False``."""
    rng = np.random.default_rng(1)
    assert get_random_generator(rng, copy=False) is rng
    assert get_random_generator(rng) is not rng
    assert get_random_generator(2).random() == np.random.default_rng(2).random()


def test_values_of_variables():
    """``vars=`` of a step contains random variables; the step uses value variables."""
    with pm.Model() as model:
        x = pm.Normal("x")
    assert get_value_vars_from_user_vars([x], model) == [model.rvs_to_values[x]]


def test_points_with_jitter():
    """Sums that may be constant are compared at several points, which differ by jitter."""
    with pm.Model() as model:
        x, _ = pm.Normal("x"), pm.Normal("y")
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        nearby = make_initial_point_fn(model=model, jitter_rvs={x})
    first, again, second = nearby(1), nearby(1), nearby(2)
    assert first["x"] == again["x"] != second["x"]
    assert first["y"] == second["y"] == 0.0


def test_default_transform():
    """Unit vectors and frames register their transforms in this singledispatch on Ops."""
    with pm.Model():
        x = pm.Dirichlet("x", np.ones(3))
    assert _default_transform(x.owner.op, x).name == "simplex"
    assert callable(_default_transform.register)


def test_minibatch():
    """The data of `pm.Minibatch` are found by the common order of its outputs and inputs."""
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6.0)
    rows = pm.Minibatch(X, y, batch_size=3)
    (node,) = {each.owner for each in rows}
    assert isinstance(node.op, MinibatchOp)
    data = [each.data for each in node.inputs[:-1]]
    np.testing.assert_array_equal(data[0], X)
    np.testing.assert_array_equal(data[1], y)
    assert list(node.outputs[:-1]) == list(rows)


def test_total_size():
    """A variable with ``total_size=`` has its own Op, whose log-density is scaled.

    Conditional distributions of local variables are computed without that scaling.
    """
    with pm.Model() as model:
        pm.Normal("y", observed=np.zeros(3), total_size=30)
    (y,) = model.observed_RVs
    assert isinstance(y.owner.op, MinibatchRandomVariable)
    assert y.owner.inputs[0].owner.op.ndim_supp == 0
    scaling = get_scaling(y.owner.inputs[1:], model.rvs_to_values[y].shape)
    assert scaling.eval(mode="FAST_COMPILE") == 10.0


def test_transforms_of_named_axes():
    """Each has a counterpart for plain arrays in `densities.named_axes`, circular ones by name."""
    names = {name for name, kind in vars(transforms).items() if isinstance(kind, type)}
    known = names - {"Transform", "DimTransform", "XTensorConstant", "CircularTransform"}
    assert known == {
        "LogTransform", "LogOddsTransform", "IntervalTransform",
        "SimplexTransform", "ZeroSumTransform",
    }  # fmt: skip

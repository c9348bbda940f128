"""Errors for invalid input, which name the variable or argument and the remedy."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError

from pymc_geodesic import (
    GMC,
    SCIR,
    SGGMC,
    SGLD,
    SGRLD,
    SSGNHT,
    Hinge,
    MulticlassHinge,
    SubgradientHMC,
    UniformSphere,
    VonMisesFisher,
    gSGNHT,
)
from pymc_geodesic.manifolds import Sphere
from tests.grids import cross
from tests.steps.runs import INTERPRETED, sample

ROWS = np.random.default_rng(1).normal(size=(20, 3))


@pytest.fixture(scope="module")
def regression():
    with pm.Model(coords={"row": range(20)}) as model:
        x, y = pm.Data("x", ROWS, dims=("row", None)), pm.Data("y", ROWS[:, 0])
        slope = pm.Normal("slope", shape=3)
        offset = pm.Normal("offset", shape=20)
        pm.Deterministic("twice", 2.0 * slope)
        pm.Normal("y_obs", x @ slope + offset, pm.HalfNormal("scale"), observed=y)
    return model


BLOCKS = {"minibatch": ["x", "y"], "batch_size": 5}
MISTAKES = [
    ({"vars": ["slop"]}, "Unknown variable 'slop'.*Did you mean 'slope'"),
    ({"vars": ["twice"]}, "'twice' is not a random variable but a Deterministic. The free"),
    ({"vars": ["x"]}, "'x' is not a random variable but a data container. The free"),
    ({"vars": ["slope", "slope"]}, "vars names 'slope' twice"),
    ({"vars": 3}, "vars must be variables or their names, got 3"),
    ({"step_size": True}, "step_size must be one positive number, got True"),
    ({"n_steps": True}, "n_steps must be a positive integer, got True"),
    (BLOCKS | {"batch_size": True}, "batch_size must be a positive integer, got True"),
    (BLOCKS | {"minibatch": ["x", "x"]}, "minibatch= names 'x' twice"),
    (BLOCKS | {"minibatch": [ROWS]}, r"must be names.*Put the rows into a container"),
    (BLOCKS | {"minibatch": []}, "such as .*, got no name. Omit minibatch="),
    (BLOCKS | {"minibatch": ["row"]}, r"'row', which is not a pm.Data container.*\['x', 'y'\]"),
    (BLOCKS, r"If \['offset'\] have a value for each row, name them in local="),
    (BLOCKS | {"batches": 5, "total_size": 20}, "batches=5 is not an iterable of blocks"),
    (BLOCKS | {"local": ["offset"], "local_steps": None}, "local_steps must be an integer.*None"),
    ({"manifolds": {"slope": "Sphere"}}, "'slope' to 'Sphere', which is not a manifold class"),
    ({"manifolds": ["Sphere"]}, r"manifolds=\['Sphere'\] is not a mapping"),
    ({"manifolds": {"slop": Sphere}}, r"names \['slop'\], which are not sampled by this step"),
    ({"compile_kwargs": "CVM"}, "compile_kwargs='CVM' is not a dictionary"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_common_mistakes(regression, arguments, message):
    with pytest.raises(ValueError, match=message):
        SGGMC(**({"model": regression, "compile_kwargs": INTERPRETED} | arguments))


def test_values_for_each_row_are_found_by_their_dims_too():
    """Dims leave the static shape undetermined."""
    with pm.Model(coords={"row": range(20)}) as model:
        y = pm.Data("y", ROWS[:, 0], dims="row")
        offset = pm.Normal("offset", dims="row")
        pm.Normal("y_obs", offset, observed=y, dims="row")
    with pytest.raises(ValueError, match=r"If \['offset'\] have a value for each row, name"):
        SGGMC(minibatch="y", batch_size=5, model=model, compile_kwargs=INTERPRETED)


def test_one_score_for_each_label_of_several_classes():
    labels = np.arange(20) % 3
    with pm.Model():
        slope = pm.Normal("slope", shape=3)
        with pytest.raises(ValueError, match=r"scores of 'label' have the shape \(20,\).*column"):
            MulticlassHinge("label", ROWS @ slope, observed=labels)
        shared = pm.Normal("shared", shape=20)
        MulticlassHinge("share_a_row", shared[None, :], observed=labels)


@pytest.mark.parametrize("step_class", [GMC, SGGMC, SSGNHT], ids=lambda step: step.__name__)
def test_labels_that_are_exchanged_for_others(step_class):
    """The labels were −1 and 1 when the model was built, and are 0 and 1 when a chain begins."""
    signs = np.tile([1.0, -1.0], 10)
    minibatch = {} if step_class is GMC else BLOCKS
    with pm.Model() as model:
        score = pm.Data("x", ROWS) @ pm.Normal("slope", shape=3)
        Hinge("label", score, observed=pm.Data("y", signs))
        step = step_class(step_size=0.1, compile_kwargs=INTERPRETED, **minibatch)
        pm.set_data({"y": (signs + 1.0) / 2.0})
    with pytest.raises(SamplingError, match=r"of 'label' violate “labels are -1 or \+1"):
        sample(model, [step], draws=3, tune=3)


def test_missing_values_of_set_data():
    """PyMC's `set_data` masks missing values, and `Data` raises an error."""
    rows = ROWS.copy()
    rows[3, 1] = np.nan
    with pm.Model() as model:
        mu = pm.Data("x", ROWS) @ pm.Normal("slope", shape=3)
        pm.Normal("y", mu, observed=np.ones(20))
        step = GMC(compile_kwargs=INTERPRETED)
        pm.set_data({"x": rows})
        message = "data container 'x' has missing values.*drop these rows or impute them"
        with pytest.raises(ValueError, match=message):
            GMC(compile_kwargs=INTERPRETED)
    with pytest.raises(ValueError, match=message):
        sample(model, [step], draws=3, tune=3)


def test_short_warm_up(caplog):
    with pm.Model() as model:
        pm.Normal("x")
    step = GMC(model=model, compile_kwargs=INTERPRETED)
    with caplog.at_level("WARNING", logger="pymc"):
        sample(model, [step], draws=3, tune=99)
    assert "tune=99 is too short for the warm-up of GMC. Use at least 100" in caplog.text


def test_minibatch_argument_without_a_name(regression):
    with pytest.raises(ValueError, match=r"must be names of pm\.Data containers.*got a list"):
        SGGMC(model=regression, minibatch=[[1.0, 2.0]], batch_size=5)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    with pm.Model() as model:
        mu = UniformSphere("mu", shape=3)
        pm.Poisson("k", 3.0)
        VonMisesFisher("x_obs", mu, 2.0, observed=pm.Data("x", x))
    return model


def make(model, step_class, **kwargs):
    with model:
        return step_class(**({"vars": ["mu"], "compile_kwargs": INTERPRETED} | kwargs))


COMMON = [
    ({"vars": ["nu"]}, r"Unknown variable 'nu'. The free variables are \['mu', 'k'\]"),
    ({"vars": ["k"]}, "'k' is discrete.*Leave it to another step method"),
    ({"vars": ["x_obs"]}, "'x_obs' is observed"),
    ({"step_size": -1.0}, "step_size must be positive, got -1.0"),
    ({"step_size": 0.0}, "step_size must be positive, got 0.0"),
    ({"n_steps": 0}, "n_steps must be a positive integer, got 0"),
    ({"n_steps": 2.5}, "n_steps must be a positive integer, got 2.5"),
    ({"step_size": np.inf}, "step_size must be positive, got inf"),
    ({"step_size": "auto"}, "step_size must be one positive number, got 'auto'"),
]

LANGEVIN = [
    ({"step_size": 1.0, "learning_rate": 1.0}, "step_size= and learning_rate=.*Pass one of them"),
    ({"friction": 1.0, "momentum_decay": 1.0}, "friction= and momentum_decay=.*Pass one of them"),
    ({"friction": -1.0}, "friction must be positive, got -1.0"),
    ({"momentum_decay": np.nan}, "momentum_decay must be positive, got nan"),
    ({"step_size": np.array([0.1, 0.2])}, "step_size must be one positive number, got array"),
    ({"step_size": np.inf}, "step_size must be positive, got inf"),
    (
        {"friction": lambda draw: 1.0},
        "friction must be a number. Only step_size= can be a schedule",
    ),
    ({"n_steps": "10"}, "n_steps must be a positive integer, got '10'"),
    ({"minibatch": ["x"], "batch_size": 2.5}, "batch_size must be a positive integer, got 2.5"),
    ({"minibatch": ["x"], "batch_size": 0}, "batch_size must be a positive integer, got 0"),
    ({"learning_rate": -2.0}, "learning_rate must be positive, got -2.0"),
    ({"splitting": "euler"}, r"splitting='euler' is unknown\. Choose from \['exact', 'paper'\]"),
    ({"gradient_noise": "known"}, "gradient_noise='known' is unknown.*\"fisher\""),
    ({"gradient_noise": -1.0}, "gradient_noise= is a variance and must not be negative"),
    ({"gradient_noise": np.ones(2)}, "gradient_noise= has 2 elements. Pass one number, or 3"),
    ({"gradient_noise": "fisher"}, "needs minibatches of two or more rows"),
    ({"minibatch": ["x"]}, "minibatch= needs batch_size="),
    ({"batch_size": 21}, "batch_size=21 exceeds the 20 rows of 'x'"),
    ({"minibatch": ["x"], "batch_size": 21}, "batch_size=21 exceeds the 20 rows of 'x'"),
    ({"minibatch": ["z"], "batch_size": 5}, r"'z', which is not a pm.Data container.*\['x'\]"),
    ({"minibatch": ["z"], "batch_size": 5}, r'Add z = pm.Data\("z", z\) at the beginning'),
    (
        {"minibatch": ["x"], "batch_size": 5, "minibatch_order": "sorted"},
        "minibatch_order='sorted' is unknown",
    ),
    ({"minibatch": ["x"], "batches": [np.ones((2, 3))]}, "Pass total_size="),
    ({"batches": [np.ones((2, 3))]}, "batches= needs minibatch="),
]


def name(value):
    """Return the test id of a step class, or None for other values."""
    return getattr(value, "__name__", None)


COMMON_STEPS = [GMC, SGGMC, gSGNHT, SubgradientHMC, SGLD, SSGNHT]


@pytest.mark.parametrize(
    ("step_class", "arguments", "message"), cross(COMMON_STEPS, COMMON), ids=name
)
def test_every_step(model, step_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, step_class, **arguments)


@pytest.mark.parametrize("step_class", [GMC, SGGMC, gSGNHT], ids=lambda step: step.__name__)
def test_no_global_variable(model, step_class):
    with pytest.raises(ValueError, match=r"local= names every variable\. Leave at least one"):
        make(model, step_class, local=["mu"])


@pytest.mark.parametrize(("arguments", "message"), LANGEVIN)
def test_stochastic_steps(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, SGGMC, **arguments)


@pytest.mark.parametrize("step_class", [GMC, SGGMC, SSGNHT], ids=lambda step: step.__name__)
def test_no_continuous_variable(step_class):
    with pm.Model():
        pm.Poisson("k", 3.0)
        with pytest.raises(ValueError, match=r"continuous variables, and none.*\['k'\] is cont"):
            step_class(compile_kwargs=INTERPRETED)


def test_variable_of_another_model(regression):
    with pm.Model():
        slope = pm.Normal("slope", shape=3)
    with pytest.raises(
        ValueError, match=r"'slope' is not the variable with that name in this model"
    ):
        SGGMC([slope], model=regression, compile_kwargs=INTERPRETED)


def test_observed_values_outside_of_containers():
    with pm.Model():
        slope = pm.Normal("slope", shape=3)
        pm.Normal("y", pm.Data("x", ROWS) @ slope, 1.0, observed=ROWS[:, 0])
        with pytest.raises(
            ValueError, match=r"containers for observed values; the model has no other"
        ):
            SGGMC(batch_size=5, minibatch="x", compile_kwargs=INTERPRETED)


@pytest.mark.slow
def test_schedule_that_becomes_nonpositive(model):
    step = make(model, SGGMC, step_size=lambda draw: 0.01 * (2 - draw), friction=1.0)
    with pytest.raises(
        ValueError, match=r"step_size= returned 0.0 at draw 2, which is not positive"
    ):
        sample(model, [step], draws=5, tune=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step_class", "value"),
    cross([SGLD, SCIR, SGRLD], [0.0, -0.1, np.nan, np.inf, None, np.array([0.1])]),
    ids=name,
)
def test_schedules_of_the_other_steps(step_class, value):
    with pm.Model():
        pm.Gamma("rate", 2.0, 1.0)
        step = step_class(step_size=lambda draw: value, compile_kwargs=INTERPRETED)
        with pytest.raises(
            ValueError, match=r"step_size= returned .* at draw 0, which is not positive"
        ):
            pm.sample(
                draws=2, tune=2, chains=1, step=step, progressbar=False, quiet=True,
                compile_kwargs=INTERPRETED,
            )  # fmt: skip


@pytest.mark.parametrize("step_class", [SCIR, SGRLD], ids=lambda step: step.__name__)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step_size": np.inf}, "step_size must be positive, got inf"),
        ({"step_size": "auto"}, "step_size must be one positive number, got 'auto'"),
        ({"n_steps": "3"}, "n_steps must be an integer of at least 1, got '3'"),
    ],
)
def test_steps_of_positive_variables(step_class, arguments, message):
    with pm.Model():
        pm.Gamma("rate", 2.0, 1.0)
        with pytest.raises(ValueError, match=message):
            step_class(**arguments, compile_kwargs=INTERPRETED)


def test_schedule_for_gmc(model):
    with pytest.raises(ValueError, match="step_size= of GMC must be a number and not"):
        make(model, GMC, step_size=lambda draw: 0.1)


def test_thermostat(model):
    with pytest.raises(ValueError, match="thermostat_inertia must be positive, got 0"):
        make(model, gSGNHT, thermostat_inertia=0)


@pytest.mark.parametrize("target", [0.0, 1.0, 80, "0.8"])
def test_target_of_gmc(model, target):
    with pytest.raises(ValueError, match="target_accept must lie between 0 and 1"):
        make(model, GMC, target_accept=target)


def test_minibatches_for_gmc(model):
    with pytest.raises(ValueError, match="use SGGMC or gSGNHT for minibatches"):
        make(model, GMC, minibatch=["x"])


@pytest.mark.parametrize("step_class", [GMC, SubgradientHMC])
def test_a_minibatch_model_for_corrected_steps(step_class):
    with pm.Model():
        rows = pm.Minibatch(np.arange(20.0), batch_size=5)
        pm.Normal("y_obs", pm.Normal("a"), observed=rows, total_size=20)
        with pytest.raises(ValueError, match=r"has a pm.Minibatch, but .* of all data"):
            step_class(compile_kwargs=INTERPRETED)


def test_initial_value_off_the_manifold(model):
    step = make(model, SGGMC)
    with pytest.raises(ValueError, match=r"value of 'mu'.*not on Sphere.*Give 'mu' another"):
        sample(model, [step], initvals={"mu": [2.0, 0.0, 0.0]}, draws=5, tune=5)


def test_rows_of_different_lengths():
    """One of two containers is named, or the observed values are in none."""
    rows = np.arange(50.0)
    with pm.Model():
        a = pm.Normal("a")
        pm.Normal("y_obs", a * pm.Data("x", rows), observed=pm.Data("y", rows))
        with pytest.raises(ValueError, match=r"minibatch=\['y'\] does not match.*also has \['x'\]"):
            SGGMC(minibatch="y", batch_size=10, compile_kwargs=INTERPRETED)
    with pm.Model():
        a = pm.Normal("a")
        pm.Normal("y_obs", a * pm.Data("x", rows), observed=rows)
        with pytest.raises(ValueError, match="use containers for observed values"):
            SGGMC(minibatch="x", batch_size=10, compile_kwargs=INTERPRETED)


def test_container_without_rows():
    with pm.Model():
        pm.Normal("y_obs", pm.Normal("a"), observed=pm.Data("y", 1.0))
        with pytest.raises(ValueError, match="minibatch= names 'y', a scalar, which has no rows"):
            SGGMC(minibatch="y", batch_size=1, compile_kwargs=INTERPRETED)


def test_variables_that_cannot_be_sampled():
    with pm.Model() as model:
        pm.Uniform("u", -1.0, 1.0, default_transform=None)
        pm.Normal("nothing", shape=0)
    for step_class in (SGGMC, GMC, SSGNHT):
        with pytest.raises(ValueError, match=r"'u' has bounds but no transform.*Keep the default"):
            make(model, step_class, vars=["u"])
    with pytest.raises(ValueError, match=r"'nothing' has shape \(0,\) and no elements"):
        make(model, SGGMC, vars=["nothing"])


def test_directions_in_single_precision():
    with pytensor.config.change_flags(floatX="float32"), pm.Model():
        UniformSphere("mu", shape=3)
        with pytest.raises(ValueError, match="'mu' has dtype float32, but Sphere needs float64"):
            SGGMC(compile_kwargs=INTERPRETED)


@pytest.mark.parametrize(("step_class", "tune"), cross([GMC, SubgradientHMC], [0, 5]), ids=name)
def test_start_without_a_density(step_class, tune):
    """The log-density is NaN at the start and its gradient is finite."""
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Potential("p", pm.math.log(a - 1.0))
        step = step_class(step_size=0.1, compile_kwargs=INTERPRETED)
    with pytest.raises(SamplingError, match=r"not finite.*'a'.*p: nan}. 'p' has.*model\.debug"):
        sample(model, [step], draws=5, tune=tune)


def mean_of_another_length():
    VonMisesFisher("y", [1.0, 1.0, 0.0], 2.0)


def negative_concentration():
    VonMisesFisher("y", [1.0, 0.0, 0.0], -2.0)


def negative_scale_at_the_start():
    pm.Normal("y", 0.0, pm.Normal("s", -1.0), observed=[1.0, 2.0])


def data_outside_the_support():
    pm.Pareto("y", pm.math.exp(pm.Normal("s")), m=1.0, observed=[0.5, 3.0])


STARTS = [
    (
        mean_of_another_length,
        r"{y: -inf}.*of 'y' violate “mu of VonMisesFisher is a unit vector, kappa >= 0”",
    ),
    (
        negative_concentration,
        r"{y: -inf}.*of 'y' violate “mu of VonMisesFisher is a unit vector, kappa >= 0”",
    ),
    (
        negative_scale_at_the_start,
        r"{s: -0.92, y: -inf}.*of 'y' violate “sigma > 0”: correct them, or .* of 's'\.",
    ),
    (data_outside_the_support, r"y: -inf}. 'y' has data outside its support.*\(initval=\) of 's'"),
]


@pytest.mark.parametrize(
    ("step_class", "build", "message"),
    cross(COMMON_STEPS, STARTS),
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_invalid_start_names_the_term(step_class, build, message):
    with pm.Model() as model:
        build()
        step = step_class(step_size=0.1, compile_kwargs=INTERPRETED)
    with pytest.raises(SamplingError, match=message) as caught:
        sample(model, [step], draws=3, tune=3)
    assert step_class.__name__ in str(caught.value)
    assert "smaller step_size" not in str(caught.value)


@pytest.mark.parametrize("step_class", [SCIR, SGRLD], ids=lambda step: step.__name__)
def test_invalid_start_names_the_term_of_another_variable(step_class):
    with pm.Model() as model:
        pm.Gamma("s", 2.0, 1.0)
        pm.Potential("y", pm.math.log(pm.Normal("a") - 1.0))
        step = step_class(["s"], compile_kwargs=INTERPRETED)
    other = GMC(["a"], model=model, compile_kwargs=INTERPRETED)
    with pytest.raises(SamplingError, match=rf"{step_class.__name__} for 's'.*y: nan}}. 'y' has"):
        sample(model, [step, other], draws=3, tune=3)


EDGES = {
    "uniform": lambda s: pm.Uniform("y", 0.0, s, observed=[0.1, 0.5]),
    "bound of a Pareto distribution": lambda s: pm.Pareto("y", 2.0, m=s, observed=[1.0, 2.0]),
    "truncation": lambda s: pm.TruncatedNormal("y", 0.0, 1.0, lower=s, observed=[1.0, 2.0]),
    "data of another step": lambda s: pm.DiscreteUniform("y", 0, pm.math.floor(9 * s)),
    "potential": lambda s: pm.Potential("y", pm.math.switch(s < 1.0, 0.0, -np.inf)),
    "distribution with bounds as potential": lambda s: pm.Potential(
        "y", pm.logp(pm.Uniform.dist(0.0, 1.0), s)
    ),
}
NO_EDGES = {
    "values move with their bounds": lambda s: pm.Uniform("y", 0.0, s),
    "positive anyway": lambda s: pm.Potential("y", pm.logp(pm.Gamma.dist(2.0, 1.0), s)),
    "fixed bounds": lambda s: pm.TruncatedNormal("y", s, s, lower=0.0, observed=[1.0, 2.0]),
    "counts": lambda s: pm.NegativeBinomial("y", s, s, observed=[1, 2]),
    "classes": lambda s: pm.Categorical("y", logit_p=[s, 0.0, 1.0], observed=[0, 2]),
    "switch with two branches": lambda s: pm.Potential("y", pm.math.switch(s < 1.0, s, 1.0)),
}


def gamma_and(term):
    with pm.Model() as model:
        term(pm.Gamma("s", 2.0, 1.0))
    return model


@pytest.mark.parametrize(("step_class", "edge"), cross([SGGMC, SGLD, SGRLD], EDGES), ids=name)
def test_an_edge_of_the_density(step_class, edge):
    message = "the support of 'y' depends on 's'.*Sample 's' with GMC or NUTS"
    with pytest.raises(ValueError, match=message):
        step_class(["s"], model=gamma_and(EDGES[edge]), compile_kwargs=INTERPRETED)


@pytest.mark.slow
@pytest.mark.parametrize("term", NO_EDGES.values(), ids=NO_EDGES.keys())
def test_no_edge_of_the_density(term):
    SGGMC(["s"], model=gamma_and(term), compile_kwargs=INTERPRETED)


def test_an_edge_of_the_density_with_metropolis_correction():
    GMC(["s"], model=gamma_and(EDGES["uniform"]), compile_kwargs=INTERPRETED)


def test_velocities_that_overflow():
    """The position is still finite when the velocity is not."""
    with pm.Model() as model:
        pm.Normal("a", 0.0, 1e-3)
        step = gSGNHT(step_size=10.0, friction=0.1, compile_kwargs=INTERPRETED)
    with pytest.raises(SamplingError, match=r"gSGNHT diverged .*: ('a'|velocity) is not finite"):
        sample(model, [step], draws=500, tune=0)


@pytest.mark.parametrize("step_class", [SGGMC, SGLD])
def test_rows_without_a_gradient_at_half_of_the_posterior(step_class):
    """The sample of the rows, with which the warm-up begins, contains none of these ten rows."""
    n = 20_000
    limit = np.full(n, 50.0)
    limit[:10] = 0.0

    def logp(value, mean, limit):
        return -0.5 * (value - mean) ** 2 + 1e-3 * pt.sqrt(limit - mean)

    with pm.Model() as model:
        limit, observed = pm.Data("limit", limit), pm.Data("observed", np.resize([-1.0, 1.0], n))
        mean = pm.Normal("mean", initval=-1.0)
        pm.CustomDist("y", mean, limit, logp=logp, observed=observed)
        step = step_class(minibatch=["limit", "observed"], batch_size=100)
    with pytest.raises(SamplingError, match="gradient of a minibatch in 'mean' is not finite"):
        sample(model, [step], draws=10, tune=300)


def test_no_model():
    with pytest.raises(TypeError, match="No model on context stack"):
        SGGMC()


def test_a_model_without_a_context(model):
    assert make(model, SGGMC).vars == SGGMC(["mu"], model=model, compile_kwargs=INTERPRETED).vars


def test_steps_of_another_model():
    def build(name):
        with pm.Model() as model:
            pm.Normal(name)
        return model

    first = build("a")
    step = GMC(model=first, compile_kwargs=INTERPRETED)
    named = r"GMC was created in a model with the free variables \['a'\] but is used in a model"
    with build("b"), pytest.raises(ValueError, match=rf"{named} with .* \['b'\]\. Create"):
        pm.sample(step=step)
    with build("a"), pytest.raises(ValueError, match=rf"{named}.* was built again after the step"):
        pm.sample(step=step)
    with first:
        assert [value.name for value in step.vars] == ["a"]

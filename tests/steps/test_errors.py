"""Bad input gets an error that names the variable or argument, and the remedy."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import (
    GMC,
    SGGMC,
    SGLD,
    SSGNHT,
    SubgradientHMC,
    UniformSphere,
    VonMisesFisher,
    gSGNHT,
)
from tests.steps.runs import INTERPRETED, sample


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
    ({"vars": ["nu"]}, r"Unknown variable 'nu'; the free variables are \['mu', 'k'\]"),
    ({"vars": ["k"]}, "'k' is discrete.*leave it to another step method"),
    ({"vars": ["x_obs"]}, "'x_obs' is observed"),
    ({"step_size": -1.0}, "step_size must be positive, got -1.0"),
    ({"step_size": 0.0}, "step_size must be positive, got 0.0"),
    ({"n_steps": 0}, "n_steps must be a positive integer, got 0"),
    ({"n_steps": 2.5}, "n_steps must be a positive integer, got 2.5"),
]

LANGEVIN = [
    ({"step_size": 1.0, "learning_rate": 1.0}, "step_size= and learning_rate=.*give one of them"),
    ({"friction": 1.0, "momentum_decay": 1.0}, "friction= and momentum_decay=.*give one of them"),
    ({"friction": -1.0}, "friction must be positive, got -1.0"),
    ({"momentum_decay": np.nan}, "momentum_decay must be positive, got nan"),
    ({"learning_rate": -2.0}, "learning_rate must be positive, got -2.0"),
    ({"splitting": "euler"}, r"splitting='euler' is unknown; choose from \['exact', 'paper'\]"),
    ({"gradient_noise": "known"}, "gradient_noise='known' is unknown.*\"fisher\""),
    ({"gradient_noise": -1.0}, "gradient_noise= is a variance and must not be negative"),
    ({"gradient_noise": np.ones(2)}, "gradient_noise= has 2 elements; give one or 3"),
    ({"gradient_noise": "fisher"}, "needs minibatches of two rows or more; leave it out"),
    ({"minibatch": ["x"]}, "minibatch= needs batch_size="),
    ({"batch_size": 5}, "batch_size= needs minibatch="),
    ({"minibatch": ["x"], "batch_size": 21}, "batch_size=21 does not fit the 20 rows of 'x'"),
    ({"minibatch": ["z"], "batch_size": 5}, r"'z', which is no pm.Data container.*\['x'\]"),
    (
        {"minibatch": ["x"], "batch_size": 5, "minibatch_order": "sorted"},
        "minibatch_order='sorted' is unknown",
    ),
    ({"minibatch": ["x"], "batches": [np.ones((2, 3))]}, "pass total_size="),
    ({"batches": [np.ones((2, 3))]}, "batches= needs minibatch="),
]


COMMON_STEPS = [GMC, SGGMC, gSGNHT, SubgradientHMC, SGLD, SSGNHT]


@pytest.mark.parametrize("step_class", COMMON_STEPS, ids=lambda step: step.__name__)
@pytest.mark.parametrize(("arguments", "message"), COMMON)
def test_every_step(model, step_class, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, step_class, **arguments)


@pytest.mark.parametrize("step_class", [GMC, SGGMC, gSGNHT], ids=lambda step: step.__name__)
def test_no_global_variable(model, step_class):
    with pytest.raises(ValueError, match="local= names every variable; leave at least one global"):
        make(model, step_class, local=["mu"])


@pytest.mark.parametrize(("arguments", "message"), LANGEVIN)
def test_stochastic_steps(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(model, SGGMC, **arguments)


def test_thermostat(model):
    with pytest.raises(ValueError, match="thermostat_inertia must be positive, got 0"):
        make(model, gSGNHT, thermostat_inertia=0)


@pytest.mark.parametrize("target", [0.0, 1.0, 80])
def test_target_of_gmc(model, target):
    with pytest.raises(ValueError, match="target_accept must lie between 0 and 1"):
        make(model, GMC, target_accept=target)


def test_minibatches_for_gmc(model):
    with pytest.raises(ValueError, match="use SGGMC or gSGNHT for minibatches"):
        make(model, GMC, minibatch=["x"], batch_size=5)


def test_initial_value_off_the_manifold(model):
    step = make(model, SGGMC)
    with pytest.raises(ValueError, match=r"points of mu are not on Sphere.*Euclidean norm"):
        sample(model, [step], initvals={"mu": [2.0, 0.0, 0.0]}, draws=5, tune=5)


def test_no_model():
    with pytest.raises(TypeError, match="No model on context stack"):
        SGGMC()


def test_a_model_without_a_context(model):
    assert make(model, SGGMC).vars == SGGMC(["mu"], model=model, compile_kwargs=INTERPRETED).vars

"""Groups of arguments that several steps share, with their defaults, descriptions and checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.arguments import (
    check_containers,
    check_count,
    check_positive,
    checked_control_variates,
    checked_metric_or_covariance,
)
from pymc_geodesic.manifolds import Manifold
from pymc_geodesic.schedules import Schedule
from pymc_geodesic.steps.base.pymc_parts import Model, RandomGenerator, TensorVariable
from pymc_geodesic.steps.base.signature import LAST, Options, after, by_rule

__all__ = [
    "AdaptationOptions",
    "HeatOptions",
    "LocalDraws",
    "LocalOptions",
    "ManifoldOptions",
    "MetricOptions",
    "MinibatchOptions",
    "RowOptions",
    "StepOptions",
    "StepSizeOptions",
    "StreamOptions",
    "check_number",
]

DEFAULT_STEPS = 10


def check_number(name: str, value: Any) -> None:
    """Refuse what is neither None nor a positive number, schedules too."""
    check_positive(name, value)
    if callable(value):
        raise ValueError(f"{name} must be a number; only step_size= takes a schedule")


@dataclass(frozen=True)
class StepOptions(Options):
    """What every step takes.

    Parameters
    ----------
    vars : list of variables, optional
        All continuous free variables by default.
    model : pymc.Model, optional
    rng : RandomGenerator, optional
    compile_kwargs : dict, optional
        Passed to `pymc.compile`; ``{"mode": "CVM"}`` selects the C backend. ``backend=`` of
        `pymc.sample` does not apply to a step that is passed to it.
    blocked : bool
        Whether one step moves all variables together; False makes a step for each of them.
    """

    vars: Sequence[TensorVariable | str] | None = None
    _: KW_ONLY
    model: Model | None = field(default=None, metadata=LAST)
    rng: RandomGenerator = field(default=None, metadata=LAST)
    compile_kwargs: Mapping[str, Any] | None = field(default=None, metadata=LAST)
    blocked: bool = field(default=True, metadata=LAST)

    def __post_init__(self) -> None:
        """Check what the compiler gets."""
        super().__post_init__()
        if not isinstance(self.compile_kwargs, Mapping | None):
            raise ValueError(
                'compile_kwargs= is a dictionary, such as {"mode": "CVM"}; '
                f"got {self.compile_kwargs!r}"
            )


@dataclass(frozen=True, kw_only=True)
class ManifoldOptions(Options):
    """Where variables live.

    Parameters
    ----------
    manifolds : mapping, optional
        Manifold class by variable name, instead of the one its transform implies.
    """

    manifolds: Mapping[str, type[Manifold]] | None = None


@dataclass(frozen=True, kw_only=True)
class StepSizeOptions(Options):
    """How far a step goes.

    Parameters
    ----------
    step_size : float or callable, optional
        ε, a time, or a schedule: a function of the draw. Tuned by default.
    """

    step_size: float | Schedule | None = field(default=None, metadata=by_rule(check_positive))


@dataclass(frozen=True, kw_only=True)
class MetricOptions(Options):
    """Coordinates that tuning looks for, and the length of a draw in them.

    Parameters
    ----------
    n_steps : int, optional
        L, inner steps of a draw: by default as many as make a draw nearly independent of the last,
        4 to 100, and 10 in the coordinates of the model. The stat ``n_grad`` counts the gradients
        of the stationarity monitor too, and averages up to about 106.
    metric : {"auto", "dense", "diag", None} or array
        Coordinates in which Euclidean variables move: those that whiten draws and gradients of the
        tuning phase with all correlations, or with scales alone; ``"auto"`` is dense to 500
        coordinates, and beyond has scales and up to ten directions. An array is the covariance of
        the posterior in PyMC's unconstrained coordinates, shape (d, d), or the d variances; it is
        used as given, variables one after the other in the order of the step's ``vars``. A variable
        on a sphere or a Stiefel manifold has one length, which is tuned. None leaves the
        coordinates of the model, and so does whatever is set of the dynamics.
    """

    n_steps: int | None = field(default=None, metadata=by_rule(check_count))
    metric: Literal["auto", "dense", "diag"] | ArrayLike | None = "auto"

    def __post_init__(self) -> None:
        """Check the metric."""
        super().__post_init__()
        checked_metric_or_covariance(self.metric)

    @property
    def wanted_steps(self) -> int | None:
        """Inner steps of a draw where they were given."""
        return None if self.n_steps is None else int(self.n_steps)

    @property
    def told_steps(self) -> int:
        """Inner steps of a draw where nothing is adapted."""
        return self.wanted_steps or DEFAULT_STEPS


@dataclass(frozen=True, kw_only=True)
class AdaptationOptions(MetricOptions):
    """What tuning adapts where nothing is set of the dynamics.

    Parameters
    ----------
    control_variates : {"auto", 1, 2, False}
        Whether minibatches estimate the difference to an anchor, where the gradient of all rows is
        known, which lowers the noise to what the posterior is wide: of that difference, or with 2
        of what its first order leaves, the Hessian of all rows being known too. ``"auto"`` takes 1,
        goes over to 2 where that makes an independent draw cheaper, and drops both where they do
        not pay.
    """

    control_variates: Literal["auto", 1, 2] | bool = "auto"

    def __post_init__(self) -> None:
        """Check the order of the control variates."""
        super().__post_init__()
        checked_control_variates(self.control_variates)


@dataclass(frozen=True, kw_only=True)
class HeatOptions(Options):
    """How hot tuning is.

    Parameters
    ----------
    tune_temperature : float, optional
        Kinetic temperature at which tuning begins, to cool from there: hot crosses the posterior
        quickly, and leaves the mode a chain starts in. 1 heats no more than sampling does. By
        default 11 if the gradients at the start say that the posterior is far away, and
        1.5 if they do not; 101 with ``local=``.
    """

    tune_temperature: float | None = None

    def __post_init__(self) -> None:
        """Check the number."""
        super().__post_init__()
        if self.tune_temperature is not None and not 1.0 <= self.tune_temperature < math.inf:
            raise ValueError(
                "tune_temperature is the kinetic temperature that tuning begins at and must be at "
                f"least 1, got {self.tune_temperature}"
            )


@dataclass(frozen=True, kw_only=True)
class RowOptions(Options):
    """Rows in memory.

    Parameters
    ----------
    batch_size : int, optional
        Rows of a minibatch, with ``minibatch=``.
    minibatch : list of str, optional
        Names of the ``pm.Data`` containers whose rows are subsampled together. A model with
        ``pm.Minibatch`` and ``total_size`` needs neither.
    total_size : int, optional
        N, if it is not the number of rows in memory.
    minibatch_order : {"shuffled", "independent", "random"}
        Consecutive blocks of rows that were shuffled once, all of them once per epoch; such
        blocks at independent random places; or random rows with replacement. Where the noise is
        known, because all is left to tuning or with ``gradient_noise``, ``"shuffled"`` means
        ``"independent"``: the noise of a whole epoch adds up to zero, and to subtract what slow
        positions never felt would leave them too cold. With ``gradient_noise`` it means
        ``"random"``, which reads memory more slowly, where the data have fewer than 1,000
        blocks: over K blocks the noise differs by some sqrt(2/K) from what is known.
    """

    batch_size: int | None = field(default=None, metadata=by_rule(check_count))
    minibatch: Sequence[str] | str | None = None
    total_size: int | None = field(default=None, metadata=by_rule(check_count))
    minibatch_order: Literal["shuffled", "independent", "random"] = "shuffled"

    def __post_init__(self) -> None:
        """Check the names."""
        super().__post_init__()
        check_containers(self.minibatch)

    @property
    def batches(self) -> Iterable[Any] | None:
        """None: only `StreamOptions` take blocks of rows."""

    @property
    def draws_per_block(self) -> int | None:
        """None: only `MinibatchOptions` take it."""

    @property
    def streamed(self) -> tuple[str, ...]:
        """Names of the data whose rows come from ``batches=``."""
        if self.batches is None or self.minibatch is None:
            return ()
        return (self.minibatch,) if isinstance(self.minibatch, str) else tuple(self.minibatch)


@dataclass(frozen=True, kw_only=True)
class StreamOptions(RowOptions):
    """Rows in memory, or of an iterable.

    Parameters
    ----------
    batches : iterable, optional
        Yields blocks of rows for the containers of ``minibatch=``, for data larger than memory:
        arrays, or matrices of `scipy.sparse` where the container is a `SparseData`. With
        ``batch_size=`` minibatches are taken from a block while the next one loads. Without it
        rows are taken as they come, as many as ``batches.batch_size`` says or the first block has.
    """

    batches: Iterable[Any] | None = field(default=None, metadata=after("minibatch"))

    def __post_init__(self) -> None:
        """Check that there are blocks."""
        super().__post_init__()
        if self.batches is not None and not isinstance(self.batches, Iterable):
            raise ValueError(
                f"batches= must yield blocks of rows, one after the other, got {self.batches!r}; "
                "batch_size= is the number of rows"
            )


@dataclass(frozen=True, kw_only=True)
class MinibatchOptions(StreamOptions):
    """All that is said of minibatches.

    Parameters
    ----------
    draws_per_block : int, optional
        Draws for which a block of ``batches=`` is subsampled: of the first block, and of others
        in proportion to their rows. As many as make one pass over it by default.
    """

    draws_per_block: int | None = None


@dataclass(frozen=True, kw_only=True)
class LocalDraws(Options):
    """Variables that belong to rows.

    Parameters
    ----------
    local : list of variables, optional
        Variables with one point for each row of the minibatch, such as topic proportions of
        documents. Each draw takes one minibatch, runs ``local_tune + local_draws`` GMC
        transitions on its local variables and averages the gradient of the others over the last
        ``local_draws`` (Fisher's identity).
    """

    local: Sequence[TensorVariable | str] | TensorVariable | str | None = None
    local_draws: int = 20
    local_tune: int = 40

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._check_integers(local_draws=1, local_tune=0)

    def _check_integers(self, **least: int) -> None:
        for name, smallest in least.items():
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < smallest:
                raise ValueError(f"{name} must be an integer of at least {smallest}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class LocalOptions(LocalDraws):
    """Variables that belong to rows and are drawn by leapfrog steps.

    Parameters
    ----------
    local_draws, local_tune, local_steps : int
        Transitions that are averaged over, transitions before them, leapfrog steps of each.
        No more than N / n draws are averaged over, n the batch size: the draws stand still during
        the inner steps, which slows the other variables down as friction does, and only their
        scatter keeps the temperature.
    """

    local_steps: int = 10

    def __post_init__(self) -> None:
        """Check the numbers."""
        super().__post_init__()
        self._check_integers(local_steps=1)

"""Arguments of Langevin dynamics with a momentum."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from numpy.typing import ArrayLike

from pymc_geodesic.integrators import EXACT, PAPER
from pymc_geodesic.steps.base.options import (
    AdaptationOptions,
    HeatOptions,
    LocalOptions,
    ManifoldOptions,
    MinibatchOptions,
    StepOptions,
    StepSizeOptions,
    check_number,
)
from pymc_geodesic.steps.base.signature import Options, after, by_rule

__all__ = ["SPLITTINGS", "LangevinOptions", "ThermostatOptions"]

SPLITTINGS = {"exact": EXACT, "paper": PAPER}


@dataclass(frozen=True, kw_only=True)
class ThermostatOptions(Options):
    """A friction that adapts.

    Parameters
    ----------
    thermostat_inertia : float, optional
        Q, a time squared.
    """

    thermostat_inertia: float | None = field(
        default=None, metadata=after("momentum_decay") | by_rule(check_number)
    )


@dataclass(frozen=True, kw_only=True)
class FrictionOptions(StepSizeOptions):
    """Step size and friction, each in one of two ways.

    Parameters
    ----------
    learning_rate : float, optional
        γ, instead of ``step_size``: ε = sqrt(γ / N).
    friction : float, optional
        C, per unit of time. Tuned for each variable by default.
    momentum_decay : float, optional
        ρ, instead of ``friction``: C = ρ / ε.
    """

    learning_rate: float | None = field(default=None, metadata=by_rule(check_number))
    friction: float | None = field(default=None, metadata=by_rule(check_number))
    momentum_decay: float | None = field(default=None, metadata=by_rule(check_number))

    def __post_init__(self) -> None:
        """Check that each is given in one way."""
        super().__post_init__()
        if self.step_size is not None and self.learning_rate is not None:
            raise ValueError("step_size= and learning_rate= say the same thing; give one of them")
        if self.friction is not None and self.momentum_decay is not None:
            raise ValueError("friction= and momentum_decay= say the same thing; give one of them")


@dataclass(frozen=True, kw_only=True)
class LangevinOptions(
    StepOptions,
    FrictionOptions,
    AdaptationOptions,
    HeatOptions,
    MinibatchOptions,
    LocalOptions,
    ManifoldOptions,
):
    """Arguments of Langevin dynamics with a momentum, on every manifold.

    Parameters
    ----------
    gradient_noise : None, float, array or "fisher"
        V, the variance of the gradient estimate, which is taken off the injected noise: zero by
        default; one number; one per coordinate; or the empirical Fisher information of the
        minibatch. Where ε²V exceeds the noise there is, the rest is clipped and counted in the
        sample stat ``noise_clips``.
    splitting : {"exact", "paper"}
        ``"paper"`` uses the authors' kick, whose kinetic temperature is ρ / sinh(ρ).
    """

    gradient_noise: ArrayLike | Literal["fisher"] | None = field(
        default=None, metadata=after("n_steps")
    )
    splitting: Literal["exact", "paper"] = field(default="exact", metadata=after("local_steps"))

    def __post_init__(self) -> None:
        """Check what is chosen by a name."""
        super().__post_init__()
        if isinstance(self.gradient_noise, str) and self.gradient_noise != "fisher":
            raise ValueError(
                f"gradient_noise={self.gradient_noise!r} is unknown; give None, a variance, "
                'an array of variances or "fisher"'
            )
        if self.splitting not in SPLITTINGS:
            raise ValueError(
                f"splitting={self.splitting!r} is unknown; choose from {list(SPLITTINGS)}"
            )

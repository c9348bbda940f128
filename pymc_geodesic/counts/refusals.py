"""Why a variable cannot be sampled by exact transitions, in words."""

from __future__ import annotations

from collections.abc import Sequence

from pymc_geodesic.failure_modes import see

__all__ = ["moving_level", "moving_support", "negative_estimate", "wrong_form"]


def moving_support(sampler: str, term: str, names: Sequence[str]) -> str:
    """Message about a term whose support depends on what a sampler moves.

    Parameters
    ----------
    sampler, term : str
        Step method, and variable or potential.
    names : list of str
        Variables that the support depends on.
    """
    moved = ", ".join(repr(name) for name in names)
    return see(
        f"the support of {term!r} depends on {moved}: its log-density ends at an edge, which no "
        f"gradient shows, and {sampler} has no Metropolis correction that would reject what lies "
        f"beyond. Sample {moved} with GMC or NUTS, and give {sampler} the other variables by name",
        "edge",
    )


def moving_level(sampler: str, term: str, names: Sequence[str]) -> str:
    """Message about a term that jumps where what a sampler moves passes some place.

    Takes the arguments of `moving_support`.
    """
    moved = ", ".join(repr(name) for name in names)
    return see(
        f"the log-density of {term!r} jumps where {moved} moves, as a comparison, a rounded number "
        f"or a step has it: no gradient shows a jump, and {sampler} has no Metropolis correction "
        f"that would. Sample {moved} with pm.Slice, GMC or NUTS, give {sampler} the other "
        "variables by name, or write a smooth change, such as pm.math.sigmoid((time - tau) / "
        "width) for time > tau",
        "jump",
    )


def wrong_form(sampler: str, name: str, *, log_normal: bool) -> str:
    """Message about a likelihood that is not conjugate to the prior.

    Parameters
    ----------
    sampler, name : str
        Step method and variable.
    log_normal : bool
        Whether the prior is log-normal, or else a gamma law.
    """
    form = (
        "exp(A log θ − B (log θ)²/2), as that of log-normal data"
        if log_normal
        else "θⁿ exp(−cθ), as that of Poisson rates, precisions and exponential rates"
    )
    return see(
        f"{sampler} cannot sample {name!r}: its likelihood is not of the form {form} is, so that "
        "its conditional law is of another kind than its prior. Sample it with SGGMC, GMC or NUTS, "
        f"and give {sampler} the other variables by name",
        "not-conjugate",
    )


def negative_estimate(
    sampler: str, name: str, place: int, count: float, exposure: float, *, log_normal: bool
) -> str:
    """Message about a count, exposure or precision that is negative.

    Parameters
    ----------
    sampler, name : str
        Step method and variable.
    place : int
        Component of the variable.
    count, exposure : float
        The estimates, one of which is negative.
    log_normal : bool
        Whether they are the pull and the precision of a logarithm.
    """
    if log_normal:
        return see(
            f"{sampler} cannot sample {name!r}: at its component {place} the likelihood of its "
            f"logarithm has the negative precision {exposure:.3g}. Sample it with SGGMC, GMC or "
            f"NUTS, and give {sampler} the other variables by name",
            "not-conjugate",
        )
    what = f"count is {count:.3g}" if not count >= 0.0 else f"exposure is {exposure:.3g}"
    return see(
        f"{sampler} cannot sample {name!r}: at its component {place} the estimated {what}, and a "
        "gamma law has no negative parameter. The counts are ω ∂ log p / ∂ω of the likelihood, so "
        "it must grow with every component, as that of Categorical, Multinomial and Poisson data "
        "and of mixtures of them does (write it with the probabilities themselves, not with "
        f"1 − {name}). Sample {name!r} with SGRLD, SGGMC, GMC or NUTS, and give {sampler} the "
        "other variables by name",
        "not-conjugate",
    )

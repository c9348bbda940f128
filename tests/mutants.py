"""Deliberately broken kernels, which the tests of the kernels must reject.

A mutant is the code of the real kernel with one ingredient or one line replaced, so that it stays
what the kernel is but for one fault.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pymc_geodesic import integrators
from pymc_geodesic.kernels import gmc, gsgnht, sggmc, sgld, ssgnht
from pymc_geodesic.kernels.averaged_langevin import averaged_langevin
from pymc_geodesic.kernels.geodesic_langevin import friction_coefficients, geodesic_langevin
from pymc_geodesic.manifolds import blocks as all_blocks
from pymc_geodesic.manifolds import sphere
from pymc_geodesic.manifolds.rows import view_rows
from pymc_geodesic.runtime.jit import FAST_MATH
from pymc_geodesic.runtime.streams import fill_normal
from tests.machine_code import kept

langevin_coefficients = integrators.langevin_coefficients


@dataclass(frozen=True)
class Mutant:
    """A kernel with a fault.

    Attributes
    ----------
    name : str
        What is wrong.
    kernel : numba dispatcher
        The kernel it is made of.
    replaced : mapping
        Name of an ingredient in the module of the kernel to what stands in for it.
    edit : tuple of str
        Text that occurs once in the kernel, and what it becomes.
    """

    name: str
    kernel: Any
    replaced: Mapping[str, Callable] = field(default_factory=dict)
    edit: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{self.kernel.__name__}: {self.name}"

    def compile(self) -> Callable[..., Any]:
        """Compile the broken kernel.

        Raises
        ------
        ValueError
            If the kernel has no such ingredient or line any more.
        """
        replaced, edits, mutant = self._mutate(self.kernel)
        if replaced != set(self.replaced) or edits != bool(self.edit[0]):
            raise ValueError(f"the mutant {self} fits its kernel no longer")
        return mutant

    def _mutate(self, original: Any) -> tuple[set[str], int, Callable[..., Any]]:
        """Say what was replaced, how often the text was there, and return the compiled mutant."""
        function = original.py_func
        scope, names = dict(function.__globals__), function.__code__.co_names
        found = set(self.replaced) & set(names)
        source = inspect.getsource(function)
        edits = source.count(self.edit[0]) if self.edit[0] else 0
        for name in names:
            if getattr(scope.get(name), "is_part", False) and name not in found:
                inner, more, scope[name] = self._mutate(scope[name])
                found |= inner
                edits += more
        scope.update(self.replaced)
        text = source[source.index("def ") :].replace(*self.edit)
        exec(compile("from __future__ import annotations\n" + text, str(self), "exec"), scope)
        compiled = kept(scope[function.__name__], error_model="numpy", fastmath=FAST_MATH)
        return found, edits, compiled


@kept
def weaker_noise(friction, diffusion, step_size, splitting):
    """Standard deviation of the noise 10 % too small."""
    decay, push, variance = langevin_coefficients(friction, diffusion, step_size, splitting)
    return decay, push, 0.81 * variance


@kept
def friction_once(friction, diffusion, step_size, splitting):
    """Half a friction step instead of two halves."""
    _, push, variance = langevin_coefficients(friction, diffusion, step_size, splitting)
    return math.exp(-0.5 * friction * step_size), push, variance


@kept
def no_friction(friction, diffusion, step_size, splitting):
    """Noise without friction."""
    _, push, variance = langevin_coefficients(friction, diffusion, step_size, splitting)
    return 1.0, push, variance


@kept
def descent(friction, diffusion, step_size, splitting):
    """Gradient with the wrong sign."""
    decay, push, variance = langevin_coefficients(friction, diffusion, step_size, splitting)
    return decay, -push, variance


@kept
def weaker_gradient(friction, diffusion, step_size, splitting):
    """Gradient 10 % too small."""
    decay, push, variance = langevin_coefficients(friction, diffusion, step_size, splitting)
    return decay, 0.9 * push, variance


@kept
def euler(friction, diffusion, step_size, splitting):
    """Friction of first order."""
    return 1.0 - friction * step_size, step_size, 2.0 * diffusion * step_size


@kept
def no_projection(blocks, x, v):
    """Leave the vector as it is."""


@kept
def opposite_kick(blocks, x, v, gradient, time):
    """Gradient with the wrong sign."""
    for i in range(x.size):
        v[i] -= time * gradient[i]
    all_blocks.project(blocks, x, v)


@kept
def slow_velocity(blocks, x, v, stream):
    """Standard deviation 10 % too small."""
    integrators.refresh_velocity(blocks, x, v, stream)
    for i in range(v.size):
        v[i] *= 0.9


@kept
def unprojected_velocity(blocks, x, v, stream):
    """No projection."""
    fill_normal(stream, v)


@kept
def sphere_geodesic(blocks, x, v, time):
    """Great circles on S²: compiles faster than the dispatch over all manifolds."""
    sphere.geodesic(view_rows(x, 0, x.size // 3, 3), view_rows(v, 0, v.size // 3, 3), time)


@kept
def scaled_sphere_geodesic(blocks, scales, x, v, time):
    sphere_geodesic(blocks, x, v, scales[0] * time)


@kept
def tangent_geodesic(blocks, x, v, time):
    """A geodesic that insists on a velocity tangent to the sphere x lives on."""
    inner = 0.0
    for i in range(x.size):
        inner += x[i] * v[i]
    if abs(inner) > 1e-12:
        raise ArithmeticError("the velocity is not tangent")
    sphere_geodesic(blocks, x, v, time)


@kept
def scaled_tangent_geodesic(blocks, scales, x, v, time):
    tangent_geodesic(blocks, x, v, scales[0] * time)


@kept
def always_small(stream):
    """A uniform number that accepts everything."""
    return 1e-300


@kept
def no_kinetic_energy(blocks, v, chains, sign, energy):
    """Forget the kinetic energy."""


@kept
def low_thermometer(v, dim):
    """A thermometer that reads 20 % too little."""
    return 0.8 * integrators.kinetic_temperature(v, dim)


LANGEVIN_FAULTS = {
    "noise 10 % too small": {"langevin_coefficients": weaker_noise},
    "half of the friction": {"langevin_coefficients": friction_once},
    "no friction": {"langevin_coefficients": no_friction},
    "sign of the gradient": {"langevin_coefficients": descent},
    "gradient 10 % too small": {"langevin_coefficients": weaker_gradient},
}

ON_SPHERE = {"geodesic": sphere_geodesic}
ON_S2 = {"scaled_geodesic": scaled_sphere_geodesic}

BIASED = [
    *(Mutant(name, sggmc, replaced) for name, replaced in LANGEVIN_FAULTS.items()),
    Mutant("noise 10 % too small", gsgnht, {"langevin_coefficients": weaker_noise}),
    Mutant("sign of the gradient", gsgnht, {"langevin_coefficients": descent}),
    Mutant("wrong thermometer", gsgnht, {"kinetic_temperature": low_thermometer}),
    Mutant("accepts everything", gmc, {"uniform": always_small, **ON_S2}),
    Mutant("velocities 10 % too small", gmc, {"refresh_velocity": slow_velocity, **ON_S2}),
    Mutant("no kinetic energy", gmc, {"add_kinetic_energy": no_kinetic_energy, **ON_S2}),
    Mutant(
        "no first half of a kick",
        gmc,
        ON_S2,
        edit=("kick(blocks, x, v, gradient, 0.5 * epsilon)", "pass"),
    ),
    Mutant(
        "old energy",
        gmc,
        ON_S2,
        edit=("current[size + chain] = output[size + chain]", "pass"),
    ),
]
"""Mutants that leave the target."""

UNPROJECTED = [
    Mutant(
        "noise off the tangent space",
        sggmc,
        {"project": no_projection, "geodesic": tangent_geodesic},
    ),
    Mutant(
        "noise off the tangent space",
        gsgnht,
        {"project": no_projection, "geodesic": tangent_geodesic},
    ),
    Mutant(
        "velocity off the tangent space",
        gmc,
        {"refresh_velocity": unprojected_velocity, "scaled_geodesic": scaled_tangent_geodesic},
        edit=("kick(blocks, x, v, gradient, 0.5 * epsilon)", "pass"),
    ),
]
"""Mutants whose positions pass, because geodesics take out what is not tangent."""

REFUSED = [Mutant("sign of the gradient", gmc, {"kick": opposite_kick, **ON_S2})]
"""Mutants that Metropolis corrects: nothing but their acceptance gives them away."""

LAST = " if step < n_steps - 1 else 0.5 * step_size"

ASYMMETRIC = [
    *(
        Mutant(name, kernel, ON_SPHERE, edit)
        for kernel, first in (
            (sggmc, "drift(space, state"),
            (gsgnht, "drift_with_thermostat(space, state, thermostat"),
        )
        for name, edit in (
            ("no first half of a geodesic", (f"{first}, 0.5 * step_size)", "pass")),
            ("whole last geodesic", (LAST, "")),
        )
    ),
    Mutant("explicit friction", sggmc, {"langevin_coefficients": euler, **ON_SPHERE}),
    Mutant(
        "late thermostat",
        gsgnht,
        ON_SPHERE,
        (
            "drift_with_thermostat(space, state, thermostat, 0.5 * step_size)",
            "geodesic(space.blocks, state.x, state.v, 0.5 * step_size)",
        ),
    ),
]
"""Mutants that are not of second order."""

BIASED_AVERAGED_LANGEVIN = [
    Mutant(name, averaged_langevin, edit=edit)
    for name, edit in {
        "the noise of one step only": (
            "half * spread[j] * (last_noise[j] + noise[j])",
            "2.0 * half * spread[j] * noise[j]",
        ),
        "noise that is not carried over": ("last_noise[j] = noise[j]", "last_noise[j] = 0.0"),
        "drift of h²": ("0.5 * step_size * step_size, ", "step_size * step_size, "),
        "half the noise": ("0.5 * step_size\n", "0.4 * step_size\n"),
        "known noise left in": ("spread[j] * (last", "(last"),
        "known noise taken off twice": (
            "spread[j] * (last",
            "math.sqrt(2.0 * spread[j] ** 2 - 1.0) * (last",
        ),
    }.items()
]

BIASED_LANGEVIN = [
    Mutant("noise 10 % too small", sgld, edit=("+ step_size * noise", "+ 0.9 * step_size * noise")),
    Mutant("whole square of the step", sgld, edit=("0.5 * step_size *", "step_size *")),
    Mutant("gradient 10 % too small", sgld, edit=("0.5 * step_size *", "0.45 * step_size *")),
    Mutant("sign of the gradient", sgld, edit=("0.5 * step_size *", "-0.5 * step_size *")),
]
"""Mutants that leave a Euclidean target."""

BIASED_ADAGRAD = [
    Mutant("noise not scaled", sgld, edit=("step_size * math.sqrt(metric)", "step_size")),
    Mutant(
        "noise scaled twice", sgld, edit=("step_size * math.sqrt(metric)", "step_size * metric")
    ),
    Mutant("drift not scaled", sgld, edit=("drift * metric * gradient", "drift * gradient")),
]
"""Mutants that leave a Euclidean target where coordinates have steps of their own."""

BIASED_EULER = [
    Mutant("noise 10 % too small", ssgnht, edit=("2.0 * diffusion", "1.62 * diffusion")),
    Mutant(
        "sign of the gradient",
        ssgnht,
        edit=("gradient[part], decay, step_size", "gradient[part], decay, -step_size"),
    ),
    Mutant(
        "gradient 10 % too small",
        ssgnht,
        edit=("gradient[part], decay, step_size", "gradient[part], decay, 0.9 * step_size"),
    ),
    Mutant("no friction", ssgnht, edit=("1.0 - xi[block] * step_size", "1.0")),
    Mutant("wrong thermometer", ssgnht, edit=("(before - therm", "(0.8 * before - therm")),
]
"""Mutants that leave a Euclidean target."""

FREE_THERMOSTAT = Mutant("no bound", ssgnht, edit=("min(xi[block], 1.0 / step_size)", "xi[block]"))
"""A mutant that diverges where noise heats more than friction takes."""

OTHER_RECURSIONS = [
    Mutant("old velocity", ssgnht, edit=("x[i] += step_size * v[i]", "x[i] += 0.0")),
    Mutant("thermostat after the kick", ssgnht, edit=("(before - therm", "(after - therm")),
]


@kept
def noise_taken_off_twice(step_size, friction, known_noise, decay, spread):
    """Known noise counts double."""
    return friction_coefficients(step_size, friction, 2.0 * known_noise, decay, spread)


@kept
def noise_left_in(step_size, friction, known_noise, decay, spread):
    """Known noise is forgotten."""
    return friction_coefficients(step_size, friction, 0.0 * known_noise, decay, spread)


@kept
def noise_of_all_directions(step_size, friction, known_noise, decay, spread):
    """The mean of the known noise, in each direction."""
    mean = known_noise.mean() * (known_noise / known_noise)
    return friction_coefficients(step_size, friction, mean, decay, spread)


@kept
def friction_of_half_a_step(step_size, friction, known_noise, decay, spread):
    """Half of the friction, and the noise of all of it."""
    clips = friction_coefficients(step_size, friction, known_noise, decay, spread)
    for j in range(decay.size):
        decay[j] = math.sqrt(decay[j])
    return clips


@kept
def friction_twice(step_size, friction, known_noise, decay, spread):
    """Friction in both halves of a kick, and the noise of one."""
    clips = friction_coefficients(step_size, friction, known_noise, decay, spread)
    for j in range(decay.size):
        decay[j] *= decay[j]
    return clips


@kept
def unscaled_geodesic(blocks, scales, x, v, time):
    """All blocks move for the same time."""
    all_blocks.geodesic(blocks, x, v, time)


@kept
def tangent_scaled_geodesic(blocks, scales, x, v, time):
    """A geodesic that insists on a velocity tangent to the sphere behind one number."""
    inner = 0.0
    for i in range(1, x.size):
        inner += x[i] * v[i]
    if abs(inner) > 1e-12:
        raise ArithmeticError("the velocity is not tangent")
    all_blocks.scaled_geodesic(blocks, scales, x, v, time)


_GRADIENT = "evaluate(field.address, state.x, arguments[step], field.context, gradient)"

BIASED_BY_DIRECTION = [
    *(
        Mutant(name, geodesic_langevin, {"friction_coefficients": coefficients})
        for name, coefficients in (
            ("known noise taken off twice", noise_taken_off_twice),
            ("known noise not taken off", noise_left_in),
            ("known noise of the mean direction", noise_of_all_directions),
            ("half of the friction", friction_of_half_a_step),
            ("friction twice", friction_twice),
        )
    ),
    Mutant("scales ignored", geodesic_langevin, {"scaled_geodesic": unscaled_geodesic}),
    Mutant(
        "sign of the gradient",
        geodesic_langevin,
        edit=(_GRADIENT, _GRADIENT + "\n        gradient *= -1.0"),
    ),
    Mutant(
        "gradient 10 % too small",
        geodesic_langevin,
        edit=(_GRADIENT, _GRADIENT + "\n        gradient *= 0.9"),
    ),
    Mutant(
        "sign of the thermostat",
        geodesic_langevin,
        edit=("extra[0] + step_size", "extra[0] - step_size"),
    ),
    Mutant(
        "thermometer that noise heats",
        geodesic_langevin,
        edit=("square += v[j] * kicked", "square += kicked * kicked"),
    ),
]
"""Mutants that leave the target, or the law of its thermostat."""

UNPROJECTED_BY_DIRECTION = Mutant(
    "noise off the tangent space",
    geodesic_langevin,
    {"project": no_projection, "scaled_geodesic": tangent_scaled_geodesic},
)
"""A mutant whose positions pass, because geodesics take out what is not tangent."""

"""Deliberately broken kernels (mutants), which the tests of the kernels must reject.

A mutant is the code of the real kernel with one function or one line replaced.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit

from pymc_geodesic import integrators
from pymc_geodesic.kernels import gmc, gsgnht, sggmc, sgld, ssgnht
from pymc_geodesic.manifolds import product_flows, sphere
from pymc_geodesic.runtime.jit import FAST_MATH
from pymc_geodesic.runtime.streams import fill_normal

friction_coefficients = integrators.friction_coefficients


@dataclass(frozen=True)
class Mutant:
    """A kernel with a deliberate error.

    Attributes
    ----------
    name : str
        Description of the error.
    kernel : numba dispatcher
        The correct kernel.
    replaced : mapping
        Replacement of a function of the module of the kernel, by name.
    edit : tuple of str
        Text that occurs once in the kernel, and its replacement.
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
            If the kernel no longer has the replaced function or line.
        """
        replaced, edits, mutant = self._mutate(self.kernel)
        if replaced != set(self.replaced) or edits != bool(self.edit[0]):
            raise ValueError(f"the mutant {self} fits its kernel no longer")
        return mutant

    def _mutate(self, original: Any) -> tuple[set[str], int, Callable[..., Any]]:
        """Return the replaced text, the number of its occurrences, and the compiled mutant."""
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
        compiled = njit(scope[function.__name__], error_model="numpy", fastmath=FAST_MATH)
        return found, edits, compiled


@njit
def weaker_noise(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Standard deviation of the noise 10 % too small."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    noise_sd *= 0.9
    return 0


@njit
def half_of_the_friction(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Half of the friction, and the noise of all of it."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    decay[:] = np.sqrt(decay)
    return 0


@njit
def friction_twice(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Apply friction in both halves of a kick, and the noise of one."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    decay *= decay
    return 0


@njit
def no_friction(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Apply noise without friction."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    decay[:] = 1.0
    return 0


@njit
def explicit_friction(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Friction of first order."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    decay[:] = 1.0 - friction * step_size
    return 0


@njit
def noise_subtracted_twice(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Subtract known noise twice."""
    twice = 2.0 * known_noise
    return friction_coefficients(step_size, friction, twice, splitting, decay, noise_sd)


@njit
def noise_left_in(step_size, friction, known_noise, splitting, decay, noise_sd):
    """Ignore known noise."""
    none = 0.0 * known_noise
    return friction_coefficients(step_size, friction, none, splitting, decay, noise_sd)


@njit
def noise_of_all_coordinates(step_size, friction, known_noise, splitting, decay, noise_sd):
    """The mean of the known noise, in each coordinate."""
    mean = np.full(known_noise.size, known_noise.mean())
    return friction_coefficients(step_size, friction, mean, splitting, decay, noise_sd)


@njit
def friction_of_all_coordinates(step_size, friction, known_noise, splitting, decay, noise_sd):
    """The friction of the first coordinate in all of them, with the noise of their own."""
    friction_coefficients(step_size, friction, known_noise, splitting, decay, noise_sd)
    decay[:] = decay[0]
    return 0


@njit
def no_projection(blocks, x, v):
    """Leave the vector as it is."""


@njit
def opposite_kick(blocks, x, v, gradient, time):
    """Gradient with the wrong sign."""
    for i in range(x.size):
        v[i] -= time * gradient[i]
    product_flows.project(blocks, x, v)


@njit
def slow_velocity(blocks, x, v, stream):
    """Standard deviation 10 % too small."""
    integrators.refresh_velocity(blocks, x, v, stream)
    for i in range(v.size):
        v[i] *= 0.9


@njit
def unprojected_velocity(blocks, x, v, stream):
    """No projection."""
    fill_normal(stream, v)


@njit
def sphere_geodesic(blocks, x, v, time):
    """Great circles on S²: compiles faster than the dispatch over all manifolds."""
    sphere.geodesic(x.reshape((x.size // 3, 3)), v.reshape((v.size // 3, 3)), time)


@njit
def scaled_sphere_geodesic(blocks, scales, x, v, time):
    sphere_geodesic(blocks, x, v, scales[0] * time)


@njit
def scaled_tangent_geodesic(blocks, scales, x, v, time):
    """A geodesic that requires a velocity tangent to the sphere through x."""
    inner = 0.0
    for i in range(x.size):
        inner += x[i] * v[i]
    if abs(inner) > 1e-12:
        raise ArithmeticError("the velocity is not tangent")
    sphere_geodesic(blocks, x, v, scales[0] * time)


@njit
def unscaled_geodesic(blocks, scales, x, v, time):
    """Move all blocks for the same time."""
    product_flows.geodesic(blocks, x, v, time)


@njit
def always_small(stream):
    """Return a uniform number that accepts every proposal."""
    return 1e-300


@njit
def no_kinetic_energy(blocks, v, chains, sign, energy):
    """Omit the kinetic energy."""


@njit
def low_temperature_reading(v, dim):
    """Report a temperature that is 20 % too low."""
    return 0.8 * integrators.kinetic_temperature(v, dim)


FIRST_KICK = "kick_by_gradient(space, state, gradient, weights[0] * tau, is_harmonic)"
FORCE = "v[j], gradient[j]"
ON_S2 = {"scaled_geodesic": scaled_sphere_geodesic}

UNBALANCED = [
    Mutant(name, integrators.kick_with_friction, edit=("math.sqrt(drag)", root))
    for name, root in (
        ("thermostat before the noise", "1.0"),
        ("thermostat after the noise", "drag"),
    )
]
"""Kicks whose thermostat is not symmetric."""

BIASED = [
    *(
        Mutant(name, sggmc, {"friction_coefficients": coefficients})
        for name, coefficients in (
            ("noise 10 % too small", weaker_noise),
            ("half of the friction", half_of_the_friction),
            ("friction twice", friction_twice),
            ("no friction", no_friction),
        )
    ),
    Mutant("sign of the gradient", sggmc, edit=(FORCE, "v[j], -gradient[j]")),
    Mutant("gradient 10 % too small", sggmc, edit=(FORCE, "v[j], 0.9 * gradient[j]")),
    Mutant("noise 10 % too small", gsgnht, {"friction_coefficients": weaker_noise}),
    Mutant("sign of the gradient", gsgnht, edit=(FORCE, "v[j], -gradient[j]")),
    Mutant("wrong thermometer", gsgnht, {"kinetic_temperature": low_temperature_reading}),
    Mutant("accepts everything", gmc, {"uniform": always_small, **ON_S2}),
    Mutant("velocities 10 % too small", gmc, {"refresh_velocity": slow_velocity, **ON_S2}),
    Mutant("no kinetic energy", gmc, {"add_kinetic_energy": no_kinetic_energy, **ON_S2}),
    Mutant(
        "no first half of a kick",
        gmc,
        ON_S2,
        edit=(FIRST_KICK, "pass"),
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
        {"project": no_projection, "scaled_geodesic": scaled_tangent_geodesic},
    ),
    Mutant(
        "noise off the tangent space",
        gsgnht,
        {"project": no_projection, "scaled_geodesic": scaled_tangent_geodesic},
    ),
    Mutant(
        "velocity off the tangent space",
        gmc,
        {"refresh_velocity": unprojected_velocity, "scaled_geodesic": scaled_tangent_geodesic},
        edit=(FIRST_KICK, "pass"),
    ),
]
"""Mutants whose positions pass, because geodesics project velocities."""

REJECTED = [Mutant("sign of the gradient", gmc, {"kick": opposite_kick, **ON_S2})]
"""Mutants that the Metropolis test corrects; only their acceptance rates are wrong."""

LAST = " if step < n_steps - 1 else 0.5 * step_size"

ASYMMETRIC = [
    *(
        Mutant(name, kernel, ON_S2, edit)
        for kernel in (sggmc, gsgnht)
        for name, edit in (
            (
                "no first half of a geodesic",
                ("drift(space, state, 0.5 * step_size, is_harmonic)", "pass"),
            ),
            ("whole last geodesic", (LAST, "")),
        )
    ),
    Mutant("explicit friction", sggmc, {"friction_coefficients": explicit_friction, **ON_S2}),
    Mutant(
        "gradient after friction",
        sggmc,
        ON_S2,
        ("decay[j] * (old + half * force)", "decay[j] * old + half * force"),
    ),
    Mutant(
        "thermostat after a kick only",
        gsgnht,
        ON_S2,
        (
            "update_thermostat(space, state, thermostat, targets, 0.5 * step_size)\n"
            "        for block",
            "for block",
        ),
    ),
]
"""Mutants that are not of second order."""

LANGEVIN_STEP = "step_size * sd[j] * noise[j]"

BIASED_LANGEVIN = [
    Mutant(name, sgld, edit=(old, new))
    for name, old, new in (
        ("noise 10 % too small", LANGEVIN_STEP, f"0.9 * {LANGEVIN_STEP}"),
        ("whole square of the step", "drift * gradient[j]", "2.0 * drift * gradient[j]"),
        ("gradient 10 % too small", "drift * gradient[j]", "0.9 * drift * gradient[j]"),
        ("sign of the gradient", "drift * gradient[j]", "-drift * gradient[j]"),
    )
]
"""Mutants that leave a Euclidean target."""

BIASED_ADAGRAD = [
    Mutant("noise not scaled", sgld, edit=("math.sqrt(metric) * noise", "noise")),
    Mutant("noise scaled twice", sgld, edit=("math.sqrt(metric) * noise", "metric * noise")),
    Mutant("drift not scaled", sgld, edit=("drift * metric * gradient", "drift * gradient")),
]
"""Mutants that leave a Euclidean target whose coordinates have different step sizes."""

BIASED_AVERAGED_NOISE = [
    Mutant(name, sgld, edit=edit)
    for name, edit in {
        "the noise of one step only": ("0.5 * (last[j] + noise[j])", "noise[j]"),
        "noise that is not carried over": ("last[j] = noise[j]", "last[j] = 0.0"),
        "drift of h²": ("drift * gradient[j]", "2.0 * drift * gradient[j]"),
        "noise 20 % too small": (LANGEVIN_STEP, f"0.8 * {LANGEVIN_STEP}"),
        "known noise left in": (LANGEVIN_STEP, "step_size * noise[j]"),
        "known noise subtracted twice": (
            LANGEVIN_STEP,
            "step_size * math.sqrt(2.0 * sd[j] ** 2 - 1.0) * noise[j]",
        ),
    }.items()
]
"""Mutants that leave a normal distribution where noise is averaged and partly known."""

BIASED_EULER = [
    Mutant("noise 10 % too small", ssgnht, edit=("2.0 * diffusion", "1.62 * diffusion")),
    Mutant(
        "sign of the gradient",
        ssgnht,
        edit=("step_size * gradient[j]", "-step_size * gradient[j]"),
    ),
    Mutant(
        "gradient 10 % too small",
        ssgnht,
        edit=("step_size * gradient[j]", "0.9 * step_size * gradient[j]"),
    ),
    Mutant("no friction", ssgnht, edit=("1.0 - friction * step_size", "1.0")),
    Mutant("wrong thermometer", ssgnht, edit=("before - therm", "0.8 * before - therm")),
]
"""Mutants that leave a Euclidean target."""

FREE_THERMOSTAT = Mutant("no bound", ssgnht, edit=("min(xi[block], 1.0 / step_size)", "xi[block]"))
"""A mutant that diverges where noise adds more energy than friction removes."""

OTHER_RECURSIONS = [
    Mutant("old velocity", ssgnht, edit=("x[i] += step_size * v[i]", "x[i] += 0.0")),
    Mutant(
        "thermostat after the kick",
        ssgnht,
        edit=("= before - therm", "= kinetic_temperature(v[own], dim) - therm"),
    ),
]


KNOWN_NOISE_FAULTS = (
    ("known noise subtracted twice", noise_subtracted_twice),
    ("known noise left in", noise_left_in),
    ("known noise of the mean coordinate", noise_of_all_coordinates),
    ("friction of the first coordinate", friction_of_all_coordinates),
)

BIASED_BY_COORDINATE = [
    *(
        Mutant(name, kernel, {"friction_coefficients": coefficients})
        for kernel in (sggmc, gsgnht)
        for name, coefficients in KNOWN_NOISE_FAULTS
    ),
    Mutant("scales ignored", sggmc, {"scaled_geodesic": unscaled_geodesic}),
    Mutant("scales ignored", gsgnht, {"scaled_geodesic": unscaled_geodesic}),
    Mutant("gradient 10 % too small", gsgnht, edit=(FORCE, "v[j], 0.9 * gradient[j]")),
    Mutant("sign of the thermostat", gsgnht, edit=("[block] += time *", "[block] -= time *")),
    Mutant(
        "thermometer with the noise of the gradient",
        sggmc,
        edit=("square += old * old", "square += (old + half * force) ** 2"),
    ),
]
"""Mutants that leave the target, or the distribution of their thermostats or temperatures."""

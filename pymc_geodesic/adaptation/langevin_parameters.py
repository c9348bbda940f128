r"""Step size, friction and number of steps of Langevin dynamics for known gradient noise.

In whitened coordinates, in which the posterior has covariance I, a step h of the dynamics

.. math:: dx = v\,dt, \qquad dv = (\nabla \log \pi + \text{noise})\,dt - C v\,dt + \ldots

contains gradient noise of variance h² b_j along coordinate j, where b_j is the variance of the
gradient estimate. With the friction C_j = C + h b_j / 2 the second term of the friction dissipates
exactly this noise, and the injected noise balances only the first term.

Without a momentum, a step h moves the coordinates by a = h²/2 times the gradient estimate, of
variance b_j, and by injected noise, averaged over two steps (`pymc_geodesic.kernels.sgld`). The
stationary variance of the positions is

.. math:: c_j^2 + \frac{a b_j}{2 - a}

if the injected noise is multiplied by c_j. It is 1 for all h if c_j² = 1 − a b_j / (2 − a).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pymc_geodesic.integrators import NOT_HARMONIC
from pymc_geodesic.manifolds import Product


@dataclass(frozen=True)
class LangevinParameterSettings:
    """Constants of the choice of parameters; step sizes in posterior standard deviations.

    Values without a stated source are heuristic; no measurement supports them.

    Attributes
    ----------
    max_step_size : float
        Upper bound on h with a momentum. With it, the standard deviations of sixteen posteriors are
        0.95 to 1.04 times those of their references (`benchmarks.adaptation`).
    max_split_step_size : float
        The same with a split Hamiltonian. On N(0, I) and without gradient noise two steps of 1 make
        1.0 effective draws for means and 0.92 for squares, four leapfrog steps of 0.5 the same; by
        calculation.
    friction : float
        C without gradient noise. In a single experiment with four inner steps of 0.5 per draw, a
        logistic regression had 0.78 effective draws per draw for means and 0.82 for squares.
    max_steps : int
        Upper bound on the number of inner steps per draw.
    step_tolerance : float
        Fraction of an inner step that is neglected when the number of steps is rounded up.
    max_noise : float
        Upper bound on h² b with a momentum. Above 1 gradient noise adds more energy than any
        friction removes; on ijcnn1 the temperature then stayed at 4.6 (``docs/experiments.md``).
    max_temperature_sd : float
        Upper bound on the standard deviation over the posterior of the temperature bias due to
        heterogeneous noise. In single experiments with it and second-order control variates, the
        mean of `tau` of a non-centered hierarchy was within 0.10 standard deviations of that of
        NUTS in twelve runs; without it, three of eight chains ended far from the posterior.
        ``tests/steps/test_noise_over_posterior.py`` has such a model.
    reference_step_size : float
        Constant in the leapfrog step size (reference/m)^¼ that is accepted with probability 0.8 on
        N(0, I) in m dimensions; measured, with the exponent by calculation.
    near_normal : float
        Ratio of the step size of the exploration to that on a normal distribution above which h is
        not bounded. Measured ratios are 0.7 to 0.95 for regressions, and 0.6 to 0.65 for a funnel
        in ten dimensions.
    shape_exponent : int
        Exponent of that ratio with which h decreases below `near_normal`. With it the errors of the
        means of the non-centered eight schools are at most 0.05 standard deviations
        (`benchmarks.adaptation`); with h = 0.5 they were 0.2 in a single experiment.
    min_step_size_for_shape : float
        Lower bound on the resulting bound on h.
    max_mean_error, max_variance_error : float
        Upper bounds on the error of the mean along a coordinate, in standard deviations, and on the
        relative error of its variance, due to leapfrog steps. Without them the mean of log sigma of
        three regressions with 25 rows and 15 coefficients was 0.11 to 0.19 standard deviations too
        large, and the standard deviations of a t distribution with 6 degrees of freedom in 20
        dimensions were 11 % too large.
    min_step_size_for_moments : float
        Lower bound on the bound on h by these errors, for draws that have not converged.
    shared_scale_fraction : float
        Upper bound on h as a fraction of the step size of the exploration if many coordinates
        depend on a few scales. The error of a step is small in each coordinate and accumulates in
        the scale as √m h². In a single experiment with 1,000 groups and h = 0.5 the errors of log
        scales were 0.9 (centered) and 1.5 standard deviations (non-centered);
        `benchmarks.hierarchies` measures them with this fraction.
    max_overdamped_step_size : float
        Upper bound on h without a momentum: stable, h² λ < 4, up to a curvature λ of sixteen times
        the average; by calculation.
    max_overdamped_noise : float
        Upper bound on h² b without a momentum: about 13 % of the variance of the positions then
        comes from gradient noise, so that an error of 10 % of b changes this variance by 1.3 %; by
        calculation.
    """

    max_step_size: float = 0.5
    max_split_step_size: float = 1.0
    friction: float = 1.0
    max_steps: int = 100
    step_tolerance: float = 0.1
    max_noise: float = 1.0
    max_temperature_sd: float = 0.1
    reference_step_size: float = 4.1
    near_normal: float = 0.7
    shape_exponent: int = 6
    min_step_size_for_shape: float = 0.1
    max_mean_error: float = 0.05
    max_variance_error: float = 0.05
    min_step_size_for_moments: float = 0.03
    shared_scale_fraction: float = 0.5
    max_overdamped_step_size: float = 0.5
    max_overdamped_noise: float = 0.5


SETTINGS = LangevinParameterSettings()


@dataclass(frozen=True, eq=False)
class LangevinParameters:
    """Parameters of Langevin dynamics for one draw.

    Attributes
    ----------
    step_size : float
        h; ε in Liu et al. (2016).
    friction : ndarray, shape (size,)
        C_j, per unit of time.
    noise : ndarray, shape (size,)
        b_j (V in the paper), variance of the gradient estimate that is subtracted from the injected
        noise.
    n_steps : int
        Number of inner steps.
    temperatures : ndarray, shape (n_blocks,), optional
        Target temperature of the thermostat of each block; 1 by default.
    thermostat_bounds : (float, float), optional
        Bounds on ξ/C after each draw.
    block_friction : ndarray, shape (n_blocks,), optional
        C of each block, if all coordinates of a block have the same.
    is_harmonic : ndarray of bool, shape (size,) or (0,)
        Harmonic coordinates of a split Hamiltonian (`pymc_geodesic.integrators.drift`).
    """

    step_size: float
    friction: np.ndarray
    noise: np.ndarray
    n_steps: int
    temperatures: np.ndarray | None = None
    thermostat_bounds: tuple[ArrayLike, ArrayLike] | None = None
    block_friction: np.ndarray | None = None
    is_harmonic: np.ndarray = field(default_factory=lambda: NOT_HARMONIC)

    def temperatures_of(self, product: Product) -> np.ndarray:
        """Target temperature of each block."""
        return np.ones(len(product.dims)) if self.temperatures is None else self.temperatures

    @cached_property
    def mean_friction(self) -> float:
        """Mean of C over blocks, or over coordinates if these differ."""
        each = self.friction if self.block_friction is None else self.block_friction
        return float(np.mean(each))

    @property
    def decorrelation_steps(self) -> float:
        """Number of inner steps between independent draws, not bounded as `n_steps` is."""
        return decorrelation_steps(self.step_size, self.friction, self.noise)

    def temperature_error(self, noise_error: np.ndarray) -> np.ndarray:
        """Compute the error of the temperature along each coordinate due to that of the noise.

        Subtracting too much noise, by a variance b, reduces the temperature by h b / (2 C), without
        a momentum by h² b / 4.

        Parameters
        ----------
        noise_error : ndarray, shape (size,)
            Standard error of b_j.

        Examples
        --------
        >>> import numpy as np
        >>> from pymc_geodesic.adaptation.langevin_parameters import underdamped_parameters
        >>> parameters = underdamped_parameters(np.array([4.0, 1.0]))
        >>> parameters.temperature_error(np.array([0.4, 0.4])).round(2).tolist()
        [0.05, 0.08]
        """
        h, friction = self.step_size, self.friction
        per_noise = 0.5 * h / friction if friction.any() else 0.25 * h * h
        return np.asarray(per_noise * np.minimum(noise_error, self.noise))


class ParameterRule(Protocol):
    """Parameters, and bounds on the step size, for gradient noise of known variance."""

    def parameters(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinParameters:
        """Compute the parameters that are not specified.

        Parameters
        ----------
        noise : ndarray, shape (size,)
            b_j, in whitened coordinates.
        step_size, n_steps : optional
            Specified values, which are used unchanged.
        """

    def max_step_size_for_shape(
        self, exploration_step_size: float | None, dim: int, *, has_shared_scales: bool
    ) -> float:
        """Upper bound on h due to the shape of the posterior.

        Parameters
        ----------
        exploration_step_size : float or None
            Step size of Metropolis-corrected trajectories with an acceptance probability of 0.8, if
            it is informative about that of leapfrog steps.
        dim : int
            Dimension of the posterior.
        has_shared_scales : bool
            Whether many coordinates depend on a few scale parameters.
        """

    def max_step_size_for_moments(self, of_means: np.ndarray, of_variances: np.ndarray) -> float:
        """Upper bound on h due to the errors of means and variances.

        Parameters
        ----------
        of_means, of_variances : ndarray, shape (d,)
            Errors for each coordinate, divided by h²/8.
        """

    def max_step_size_for_heterogeneity(self, noise: np.ndarray, noise_sd: np.ndarray) -> float:
        """Upper bound on h due to noise heterogeneity over the posterior.

        Parameters
        ----------
        noise, noise_sd : ndarray, shape (size,)
            Mean of b_j over the posterior, and its standard deviation.
        """


class UnderdampedRule:
    """Rule for dynamics with a momentum.

    Parameters
    ----------
    max_noise : float
        Upper bound on h² b in addition to that of `LangevinParameterSettings`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import UnderdampedRule
    >>> rule = UnderdampedRule()
    >>> rule.max_step_size_for_shape(0.6, 10, has_shared_scales=False)
    0.5
    >>> round(rule.max_step_size_for_shape(0.5, 10, has_shared_scales=False), 2)
    0.25
    >>> round(rule.max_step_size_for_shape(0.2, 1000, has_shared_scales=True), 2)
    0.1
    >>> rule.max_step_size_for_shape(None, 10, has_shared_scales=False)
    0.1
    >>> rule.max_step_size_for_heterogeneity(np.array([5.0]), np.array([0.5]))
    inf
    >>> round(rule.max_step_size_for_heterogeneity(np.array([5.0, 4.0]), np.array([0.5, 4.4])), 3)
    0.05
    """

    def __init__(self, max_noise: float = math.inf) -> None:
        self._max_noise = max_noise

    def parameters(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinParameters:
        """Compute the parameters; see `underdamped_parameters`."""
        chosen = underdamped_parameters(noise, step_size=step_size, n_steps=n_steps)
        longest = math.sqrt(self._max_noise / _largest(noise))
        if step_size is not None or chosen.step_size <= longest:
            return chosen
        return underdamped_parameters(noise, step_size=longest, n_steps=n_steps)

    def max_step_size_for_shape(
        self, exploration_step_size: float | None, dim: int, *, has_shared_scales: bool
    ) -> float:
        """Bound h by the step size of trajectories; see `ParameterRule`.

        Leapfrog steps on a normal distribution with covariance I are accepted with probability 0.8
        at about (4.1/m)^¼ in m dimensions. If the exploration needed shorter steps, the curvature
        varies, as in a funnel or near a steep edge, and steps without a Metropolis correction have
        to be even shorter.
        """
        if exploration_step_size is None:
            return SETTINGS.min_step_size_for_shape
        reference = (SETTINGS.reference_step_size / dim) ** 0.25
        exploration_step_size = min(exploration_step_size, reference)  # longer with a split
        ratio = exploration_step_size / reference
        relative = min(ratio / SETTINGS.near_normal, 1.0) ** SETTINGS.shape_exponent
        longest = max(SETTINGS.max_step_size * relative, SETTINGS.min_step_size_for_shape)
        if not has_shared_scales:
            return longest
        return min(longest, SETTINGS.shared_scale_fraction * exploration_step_size)

    def max_step_size_for_moments(self, of_means: np.ndarray, of_variances: np.ndarray) -> float:
        r"""Bound h by the errors of means and variances; see `ParameterRule`.

        In the limit of strong friction the pattern A B O B A samples from the potential
        :math:`U + \tfrac{h^2}{8} \operatorname{tr} \nabla^2 U` up to the order h². The mean of a
        function f then changes by

        .. math:: -\tfrac{h^2}{8} \operatorname{cov}(f, \operatorname{tr} \nabla^2 U)
            = \tfrac{h^2}{8} \big( E[\nabla f \cdot \nabla U]
            - \operatorname{cov}(f, |\nabla U|^2) \big) ,

        integrated by parts: :math:`-\operatorname{cov}(z_j, |\nabla U|^2)` times h²/8 for
        :math:`f = z_j`, and :math:`2 - \operatorname{cov}(z_j^2, |\nabla U|^2)` for
        :math:`f = z_j^2`, with :math:`E z_j = 0`.
        """
        largest = max(
            float(np.abs(of_means).max(initial=0.0)) / SETTINGS.max_mean_error,
            float(np.abs(of_variances).max(initial=0.0)) / SETTINGS.max_variance_error,
        )
        if largest == 0.0:
            return math.inf
        return max(math.sqrt(8.0 / largest), SETTINGS.min_step_size_for_moments)

    def max_step_size_for_heterogeneity(self, noise: np.ndarray, noise_sd: np.ndarray) -> float:
        """Bound h by noise heterogeneity; see `ParameterRule`.

        With the friction C + h b/2 the temperature bias at a point where the variance is b + s is
        h s / (2 C + h b).
        """
        bias = SETTINGS.max_temperature_sd
        heterogeneity = float(np.max(noise_sd - bias * noise, initial=0.0))
        return 2.0 * SETTINGS.friction * bias / heterogeneity if heterogeneity > 0.0 else math.inf


class OverdampedRule:
    """Rule for dynamics without a momentum.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import OverdampedRule
    >>> sd = np.array([0.0, 15.0])
    >>> round(OverdampedRule().max_step_size_for_heterogeneity(np.ones(2), sd), 2)
    0.2
    """

    def parameters(
        self, noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
    ) -> LangevinParameters:
        """Compute the parameters; see `overdamped_parameters`."""
        return overdamped_parameters(noise, step_size=step_size, n_steps=n_steps)

    def max_step_size_for_shape(
        self, exploration_step_size: float | None, dim: int, *, has_shared_scales: bool
    ) -> float:
        """Return infinity: only the noise bounds h."""
        return math.inf

    def max_step_size_for_moments(self, of_means: np.ndarray, of_variances: np.ndarray) -> float:
        """Return infinity: these errors are of a higher order."""
        return math.inf

    def max_step_size_for_heterogeneity(self, noise: np.ndarray, noise_sd: np.ndarray) -> float:
        """Bound h by noise heterogeneity; see `ParameterRule`.

        The relative bias of the variance at a point where the noise variance is larger by s is
        h² s / 4.
        """
        largest = float(noise_sd.max(initial=0.0))
        return 2.0 * math.sqrt(SETTINGS.max_temperature_sd / largest) if largest > 0.0 else math.inf


def decorrelation_steps(step_size: float, friction: np.ndarray, noise: np.ndarray) -> float:
    """Compute the number of inner steps between independent draws.

    Without a momentum, each inner step multiplies the autocorrelation along a normal coordinate by
    1 − h²/2, and all of these steps together by about e⁻².

    Parameters
    ----------
    step_size : float
        h.
    friction, noise : ndarray, shape (size,)
        C_j, zero without a momentum, and b_j.
    """
    if not friction.any():
        return 4.0 / step_size**2
    return float(2.0 * friction.mean() + step_size * noise.mean()) / step_size


def underdamped_parameters(
    noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
) -> LangevinParameters:
    """Compute step size, friction and number of steps with a momentum; see `ParameterRule`.

    Step sizes are those of a split Hamiltonian; otherwise `max_step_size_for_shape` bounds them.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import underdamped_parameters
    >>> exact = underdamped_parameters(np.zeros(3))
    >>> exact.step_size, exact.friction.tolist(), exact.n_steps
    (1.0, [1.0, 1.0, 1.0], 2)
    >>> noisy = underdamped_parameters(np.array([100.0, 0.0]))
    >>> noisy.step_size, noisy.friction.tolist(), noisy.n_steps
    (0.1, [6.0, 1.0], 100)
    """
    if step_size is None:
        longest = SETTINGS.max_split_step_size
        step_size = min(longest, math.sqrt(SETTINGS.max_noise / _largest(noise)))
    friction = SETTINGS.friction + 0.5 * step_size * noise
    if n_steps is None:
        n_steps = _n_steps(step_size, friction, noise)
    return LangevinParameters(step_size, friction, noise, n_steps)


def overdamped_parameters(
    noise: np.ndarray, *, step_size: float | None = None, n_steps: int | None = None
) -> LangevinParameters:
    """Compute step size and number of steps without a momentum; see `ParameterRule`.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.adaptation.langevin_parameters import overdamped_parameters
    >>> exact = overdamped_parameters(np.zeros(3))
    >>> exact.step_size, exact.n_steps
    (0.5, 16)
    >>> noisy = overdamped_parameters(np.array([100.0, 0.0]))
    >>> noisy.step_size, noisy.n_steps
    (0.1, 100)
    """
    if step_size is None:
        step_size = min(
            SETTINGS.max_overdamped_step_size,
            math.sqrt(SETTINGS.max_overdamped_noise / _largest(noise)),
        )
    friction = np.zeros_like(noise)
    if n_steps is None:
        n_steps = _n_steps(step_size, friction, noise)
    return LangevinParameters(step_size, friction, noise, n_steps)


def _largest(noise: np.ndarray) -> float:
    """Largest variance, as a divisor."""
    return max(float(noise.max(initial=0.0)), 1e-12)


def _n_steps(step_size: float, friction: np.ndarray, noise: np.ndarray) -> int:
    """Return the number of inner steps of a draw."""
    between = decorrelation_steps(step_size, friction, noise)
    return min(math.ceil(between - SETTINGS.step_tolerance), SETTINGS.max_steps)

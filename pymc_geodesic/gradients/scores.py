"""Scores, the gradients of a log-density: of a posterior at its draws, and of a distribution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import xarray as xr
from pymc.distributions.distribution import SymbolicRandomVariable
from pymc.distributions.shape_utils import change_dist_size
from pymc.distributions.transforms import _default_transform
from pymc.model import Model, modelcontext
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.op import RandomVariable

from pymc_geodesic.densities.graphs import without_c_compiler
from pymc_geodesic.densities.row_density import RowDensity
from pymc_geodesic.densities.variables import (
    ManifoldVariable,
    manifold_variables,
    natural_manifold,
    product_of,
)
from pymc_geodesic.gradients.control_variate_gradients import ControlVariates
from pymc_geodesic.gradients.minibatch_gradient import MinibatchGradient
from pymc_geodesic.manifolds import Euclidean, Manifold, Sphere, Stiefel
from pymc_geodesic.minibatches.from_arguments import (
    MinibatchArguments,
    drawn_row_source,
    named_row_source,
)
from pymc_geodesic.runtime.gradient_functions import evaluate

Points = list[dict[str, np.ndarray]]


def model_of(model: Model | None) -> Model:
    """Return the model, or that of the context.

    Raises
    ------
    ValueError
        If it is another object, such as draws.
    """
    if model is not None and not isinstance(model, Model):
        raise ValueError(
            f"model is a {type(model).__name__} and not a pm.Model. Pass the arguments in the "
            "order ksd(idata, model) or step_halving(model, step)"
        )
    return modelcontext(model)


class PosteriorScore:
    """Score ∇log π of a posterior at draws, with respect to the volume of the manifolds.

    Unit vectors and frames are points on their manifolds. Every other variable, including those on
    a simplex, is represented by PyMC's unconstrained value, with the Jacobian of its transform.

    Parameters
    ----------
    model : pymc.Model, optional
        Taken from the context by default.
    var_names : sequence of str, optional
        All continuous free variables by default. Other variables are fixed to their drawn values.
    batch_size, minibatch
        Minibatches for gradient estimates with control variates; see `pymc_geodesic.SGGMC`. All
        rows by default.

    Raises
    ------
    ValueError
        For unknown variables or containers, or minibatches with a subset of the variables.
    """

    def __init__(
        self,
        model: Model | None,
        *,
        var_names: Sequence[str] | str | None = None,
        batch_size: int | None = None,
        minibatch: Sequence[str] | str | None = None,
    ) -> None:
        self.model = model_of(model)
        natural = manifold_variables(self.model, var_names)
        flat = {v.name: Euclidean for v in natural if v.on_manifold and v.manifold.has_edge}
        variables = manifold_variables(self.model, var_names, flat)
        self.variables: list[ManifoldVariable] = sorted(
            variables, key=lambda variable: not variable.manifold.is_flat
        )
        self.product = product_of(self.variables)
        rows = MinibatchArguments(batch_size, minibatch, minibatch_order="random")
        source = named_row_source(self.model, rows)
        self.uses_minibatches = source is not None
        density = RowDensity(self.model, self.variables, source or drawn_row_source(self.model))
        self.estimator = MinibatchGradient(density, with_value=not self.uses_minibatches)
        if self.uses_minibatches and self.estimator.depends_on_others:
            raise ValueError(
                "minibatches need the gradient of all rows at one point, which would depend on "
                "the variables that are not in var_names=. Omit var_names= or minibatch="
            )
        self._total = None
        if not self.estimator.is_exact:
            self._total = self.estimator.total_gradient()
            if self._total is None or self.estimator.source.all_rows() is None:
                raise ValueError(
                    "the gradient over all rows is not available for several pm.Minibatch. Pass "
                    "the full-data model"
                )
        self._to_values: Callable | None = None

    def points(self, posterior: xr.Dataset) -> Points:
        """Values of all free variables in PyMC's points, one mapping for each draw.

        Parameters
        ----------
        posterior : xarray.Dataset
            Draws, with ``sample`` as the first dimension.

        Raises
        ------
        ValueError
            If a free variable of the model is missing, or has another shape.
        """
        free = self.model.free_RVs
        missing = [rv.name for rv in free if rv.name not in posterior]
        if missing:
            raise ValueError(
                f"the posterior lacks {missing}, on which the log-density of the model depends. "
                "Keep all free variables in the trace (var_names= of pm.sample)"
            )
        if self._to_values is None:
            self._to_values = _value_function(self.model)
        draws = {rv.name: _as_in_model(self.model, posterior[rv.name]) for rv in free}
        shapes = self.model.eval_rv_shapes()
        for rv in free:
            shape = draws[rv.name].shape[1:]
            expected = tuple(int(length) for length in shapes[rv.name])
            if shape != expected:
                raise ValueError(
                    f"draws of {rv.name!r} have shape {shape}, but the model has {expected}. Pass "
                    "the model from which they were drawn"
                )
        arrays = [np.asarray(draws[rv.name].values, dtype=rv.dtype) for rv in free]
        names = [self.model.rvs_to_values[rv].name for rv in free]
        return [
            dict(zip(names, self._to_values(*draw), strict=True))
            for draw in zip(*arrays, strict=True)
        ]

    def positions(self, points: Points) -> np.ndarray:
        """Coordinates on the product manifold, shape (n, size)."""
        positions = np.empty((len(points), self.product.size))
        for variable in self.variables:
            part = self.product.slices[variable.name]
            for row, point in zip(positions, points, strict=True):
                row[part] = variable.coordinates(point[variable.value_name]).ravel()
        return positions

    def control_variates(self, position: np.ndarray) -> ControlVariates:
        """First-order control variates of the minibatches, with a centering point."""
        variates = ControlVariates(self.estimator.logp_grad, self.product.size)
        variates.set_center(position, self._of_all_rows(position)[:-1])
        return variates

    def __call__(
        self, positions: np.ndarray, points: Iterable[Mapping[str, np.ndarray]], seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """Compute gradients of the log-density, and the log-density up to a constant.

        Parameters
        ----------
        positions : ndarray, shape (n, size)
        points : iterable of mapping
            Values of all variables, which are used for those that are not in ``var_names``.
        seed : int
            Seed of the minibatches.

        Returns
        -------
        gradients : ndarray, shape (n, size)
            Gradients in ambient coordinates, not projected.
        log_density : ndarray, shape (n,)
            NaN with minibatches.

        Raises
        ------
        ValueError
            If a gradient is not finite.
        """
        output = np.full((len(positions), self.product.size + 1), np.nan)
        if self.uses_minibatches:
            center = positions.mean(axis=0)
            sd = positions.std(axis=0) + np.finfo(float).tiny
            nearest = np.argmin(np.sum(((positions - center) / sd) ** 2, axis=1))
            logp_grad = self.control_variates(positions[nearest]).logp_grad
            self.estimator.source.reset(seed)
            for position, row in zip(positions, output, strict=True):
                argument = int(self.estimator.next_minibatches(1)[0])
                evaluate(logp_grad.address, position, argument, logp_grad.context, row)
                logp_grad.raise_error()
        else:
            for position, point, row in zip(positions, points, output, strict=True):
                self.estimator.set_others(point)
                row[:] = self._of_all_rows(position)
        gradients = output[:, :-1]
        for variable in self.variables:
            part = gradients[:, self.product.slices[variable.name]]
            finite = np.isfinite(part).all(axis=1)
            if not finite.all():
                raise ValueError(
                    f"the gradient of the log-density in {variable.name!r} is not finite at "
                    f"{np.count_nonzero(~finite)} of {len(finite)} draws, first at draw "
                    f"{int(np.argmin(finite))} of the draws that are used. Omit those draws, or "
                    "the variable (var_names=)"
                )
        return np.ascontiguousarray(gradients), output[:, -1]

    def _of_all_rows(self, position: np.ndarray) -> np.ndarray:
        """Gradient and log-density of all rows, shape (size + 1,)."""
        if self._total is not None:
            return self._total.sum_over(position, self.estimator.source.all_rows() or ())
        output = np.empty(self.product.size + 1)
        logp_grad = self.estimator.logp_grad
        evaluate(logp_grad.address, position, 0, logp_grad.context, output)
        logp_grad.raise_error()
        return output


def _as_in_model(model: Model, draws: xr.DataArray) -> xr.DataArray:
    """Sort the axes of draws, and the labels along them, in the order of the model.

    Selections and joins by label may change both.
    """
    name = str(draws.name)
    core = [str(dim) for dim in draws.dims if dim != "sample"]
    dims = model.named_vars_to_dims.get(name) or [f"{name}_dim_{i}" for i in range(len(core))]
    if set(core) != {str(dim) for dim in dims} or len(core) != len(dims):
        return draws
    draws = draws.transpose("sample", *dims)
    for dim in dims:
        labels = list(model.coords.get(dim) or range(draws.sizes[dim]))
        held = draws.indexes.get(dim)
        if held is not None and held.is_unique and set(held) == set(labels):
            draws = draws.sel({dim: labels})
    return draws


def _value_function(model: Model) -> Callable:
    """Compile a function from all free variables to PyMC's values."""
    inputs = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    values = []
    for rv in model.free_RVs:
        transform = model.rvs_to_transforms[rv]
        values.append(rv if transform is None else transform.forward(rv, *rv.owner.inputs))
    replaced = graph_replace(values, inputs, strict=False)
    return pytensor.function(
        list(inputs.values()),
        [value.copy() for value in replaced],
        mode="FAST_COMPILE",
        on_unused_input="ignore",
    )


class ManifoldDistribution:
    """Score and draws of a distribution on a sphere or Stiefel manifold with known parameters.

    Parameters
    ----------
    distribution : TensorVariable, shape (d,) or (n, p)
        Result of the ``dist`` method of a distribution.

    Attributes
    ----------
    manifold : Manifold

    Raises
    ------
    TypeError
        If it is not a distribution on one of these manifolds.
    ValueError
        If it is a batch of points, or its parameters are random.
    """

    def __init__(self, distribution: Any) -> None:
        self.manifold = _manifold_of(distribution)
        self._distribution = distribution
        value = pt.tensor("x", dtype="float64", shape=(None, *distribution.type.shape))
        density = pm.logp(distribution, value)
        if any(
            node.owner is not None and isinstance(node.owner.op, RandomVariable)
            for node in ancestors([density])
        ):
            raise ValueError(
                "the parameters of the distribution are random. Pass numbers, such as posterior "
                "means, or compute the discrepancy of the posterior with ksd"
            )
        gradient = pt.grad(density.sum(), value, disconnected_inputs="ignore")
        with without_c_compiler():
            self._gradient = pytensor.function(
                [value], gradient, mode="FAST_COMPILE", on_unused_input="ignore"
            )

    def gradient(self, points: np.ndarray) -> np.ndarray:
        """Return ∇log p in ambient coordinates, not projected, of the shape of the points."""
        return self._gradient(points)

    def draws(self, n: int, repetitions: int, rng: np.random.Generator) -> np.ndarray:
        """Draw samples of n points, shape (repetitions, n, ...)."""
        many = change_dist_size(self._distribution, (repetitions, n))
        with without_c_compiler():
            return np.asarray(pm.draw(many, random_seed=rng, mode="FAST_COMPILE"), dtype=float)


def _manifold_of(distribution: Any) -> Manifold:
    """Return the sphere or Stiefel manifold of one point."""
    owner = getattr(distribution, "owner", None)
    if owner is not None and isinstance(owner.op, RandomVariable | SymbolicRandomVariable):
        kind = natural_manifold(_default_transform(owner.op, distribution))
        shape = tuple(int(length) for length in distribution.shape.eval(mode="FAST_COMPILE"))
        if kind in (Sphere, Stiefel):
            if len(shape) != (1 if kind is Sphere else 2):
                raise ValueError(
                    f"distribution must be a distribution of one point, but it is a batch of shape "
                    f"{shape}"
                )
            return kind(*shape)
    raise TypeError(
        "distribution must be one of unit vectors or frames of pymc_geodesic, such as "
        f"VonMisesFisher.dist(mu, kappa), got {distribution!r}"
    )

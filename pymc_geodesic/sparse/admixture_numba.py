"""Loops of the log-likelihood of mixtures of topics, for PyTensor's Numba backend."""

import sys
from hashlib import sha256
from inspect import getsource
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from pymc_geodesic.sparse.admixture import (
    AdmixtureLogLikelihood,
    AdmixtureThetaGradient,
    AdmixtureTopicsGradient,
)

CODE_VERSION = int.from_bytes(sha256(getsource(sys.modules[__name__]).encode()).digest()[:8])
"""Part of the keys of PyTensor's on-disk cache, which cannot see that code here has changed."""


@register_funcify_default_op_cache_key(AdmixtureLogLikelihood)
def log_likelihood(op: AdmixtureLogLikelihood, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    """Return the loop over the rows and its version in the cache."""
    dtype = node.outputs[0].type.numpy_dtype

    @numba_njit
    def loop(values, columns, rows, theta, by_word):  # type: ignore[no-untyped-def]
        n, n_topics = rows.shape[0], theta.shape[1]
        if theta.shape[0] != n or by_word.shape[1] != n_topics:
            raise ValueError("theta does not fit the documents or the topics")
        result = np.empty(n, dtype)
        for i in range(n):
            total = dtype.type(0)
            for position in range(rows[i, 0], rows[i, 1]):
                weights = by_word[np.uintp(columns[position])]
                mixture = dtype.type(0)
                for k in range(n_topics):
                    mixture += theta[i, k] * weights[k]
                total += values[position] * np.log(mixture)
            result[i] = total
        return result

    return loop, CODE_VERSION


@register_funcify_default_op_cache_key(AdmixtureThetaGradient)
def theta_gradient(op: AdmixtureThetaGradient, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    """Return the loop over the rows and its version in the cache."""
    dtype = node.outputs[0].type.numpy_dtype

    @numba_njit
    def loop(values, columns, rows, theta, by_word, factor):  # type: ignore[no-untyped-def]
        n, n_topics = rows.shape[0], theta.shape[1]
        if theta.shape[0] != n or by_word.shape[1] != n_topics:
            raise ValueError("theta does not fit the documents or the topics")
        result = np.zeros((n, n_topics), dtype)
        for i in range(n):
            gradient = result[i]
            for position in range(rows[i, 0], rows[i, 1]):
                weights = by_word[np.uintp(columns[position])]
                mixture = dtype.type(0)
                for k in range(n_topics):
                    mixture += theta[i, k] * weights[k]
                share = factor[i] * values[position] / mixture
                for k in range(n_topics):
                    gradient[k] += share * weights[k]
        return result

    return loop, CODE_VERSION + 1


@register_funcify_default_op_cache_key(AdmixtureTopicsGradient)
def topics_gradient(op: AdmixtureTopicsGradient, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    """Return the loop over the rows and its version in the cache."""
    dtype = node.outputs[0].type.numpy_dtype

    @numba_njit
    def loop(values, columns, rows, theta, by_word, factor):  # type: ignore[no-untyped-def]
        n, n_topics = rows.shape[0], theta.shape[1]
        if theta.shape[0] != n or by_word.shape[1] != n_topics:
            raise ValueError("theta does not fit the documents or the topics")
        result = np.zeros((by_word.shape[0], n_topics), dtype)
        for i in range(n):
            for position in range(rows[i, 0], rows[i, 1]):
                word = np.uintp(columns[position])
                weights, gradient = by_word[word], result[word]
                mixture = dtype.type(0)
                for k in range(n_topics):
                    mixture += theta[i, k] * weights[k]
                share = factor[i] * values[position] / mixture
                for k in range(n_topics):
                    gradient[k] += share * theta[i, k]
        return result

    return loop, CODE_VERSION + 2

"""Gaussian process regression of the formula's residuals on its terms.

The covariance of two rows is linear + a * exp(-d^2 / (2 l^2)), both per regressor, plus noise s on
the diagonal. a, l and s maximise the leave-one-out likelihood (Rasmussen and Williams, Gaussian
Processes for Machine Learning, section 5.4.2), in closed form from one decomposition per a and l.

Notation
--------
N, J     measured rows; regressors
K        covariance, (N, N)
alpha    (K + s I)^-1 y, (N,)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from pruner_ms.draft.columns import Column
from pruner_ms.hardware.threads import one_blas_thread
from pruner_ms.types import FloatArray

LENGTHS = (0.5, 1.0, 2.0)
BENDS = (0.3, 1.0)
NOISES = tuple(float(s) for s in np.geomspace(0.03, 30, 7))
"""The grid of l, a and s; a = 0 (linear) as well."""

CHUNK = 4096
"""Rows predicted at once: their covariances with all measured rows fit into the cache."""


@dataclass(frozen=True)
class Process:
    """A fitted process.

    Attributes
    ----------
    points, alpha
        Regressors of the measured rows, float32 (N, J), and their weights, float32 (N,).
    line
        Weights of the linear part, float32 (J,).
    length, bend, noise
        l, a and s.
    """

    points: Column
    alpha: Column
    line: Column
    length: float
    bend: float
    noise: float

    @one_blas_thread
    def predict(self, z: FloatArray) -> FloatArray:
        """The expected value at other rows, (M, J) to (M,)."""
        single = np.asarray(z, np.float32)
        predicted = single @ self.line
        if self.bend:
            for start in range(0, len(z), CHUNK):
                part = slice(start, start + CHUNK)
                near = nearness(single[part], self.points, self.length)
                predicted[part] += near @ self.alpha * np.float32(self.bend)
        as_float64: FloatArray = predicted.astype(np.float64)
        return as_float64


def nearness(a: Column, b: Column, length: float) -> Column:
    """exp(-d^2 / (2 l^2)) of every pair of rows, d^2 per regressor: (M, J), (N, J) to (M, N)."""
    scale = a.dtype.type(1.0 / (length**2 * a.shape[1]))
    exponent = a @ b.T
    exponent -= 0.5 * (a**2).sum(axis=1)[:, None]
    exponent -= 0.5 * (b**2).sum(axis=1)
    exponent *= scale
    covariance: Column = np.exp(exponent, out=exponent)
    return covariance


@one_blas_thread
def fit_process(z: FloatArray, y: FloatArray) -> tuple[Process, FloatArray]:
    """Fit a process, and predict each row from all others.

    Parameters
    ----------
    z
        Standardised regressors, (N, J), J > 0.
    y
        Targets, with mean 0, (N,).

    Returns
    -------
    process
        With the likeliest l, a and s.
    left_out
        The prediction for each row by a process of the same l, a and s without it, (N,).
    """
    straight = z @ z.T / z.shape[1]
    tried = [(LENGTHS[-1], 0.0), *product(LENGTHS, BENDS)]
    fits = [_likeliest(straight, z, y, length, bend) for length, bend in tried]
    _, length, bend, noise, alpha, left_out = min(fits, key=lambda one: one[0])
    line = z.T @ alpha / z.shape[1]
    points, weights, slope = (np.asarray(x, np.float32) for x in (z, alpha, line))
    return Process(points, weights, slope, length, bend, noise), left_out


def _likeliest(
    straight: FloatArray, z: FloatArray, y: FloatArray, length: float, bend: float
) -> tuple[float, float, float, float, FloatArray, FloatArray]:
    """For one l and a: the least surprise, l, a, its s, alpha, and leave-one-out predictions."""
    covariance = straight + bend * nearness(z, z, length) if bend else straight
    values, vectors = np.linalg.eigh(covariance)
    along = vectors.T @ y
    fits = []
    for noise in NOISES:
        inverse = 1.0 / (np.maximum(values, 0.0) + noise)
        alpha, precision = vectors @ (inverse * along), vectors**2 @ inverse
        # the amplitude in closed form: errors over their standard deviations have variance 1
        amplitude = max(float(np.mean(alpha**2 / precision)), 1e-12)
        surprise = float(np.mean(np.log(amplitude / precision)))
        fits.append((surprise, length, bend, noise, alpha, y - alpha / precision))
    return min(fits, key=lambda one: one[0])

"""Traces of the samplers of `higgs_from_disk` over wall time: summaries and plots."""

from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from higgs_rows import accuracy

BAND = 0.1
PLOTTED = 150


@dataclass(frozen=True)
class Trace:
    """Draws of a sampler with their times.

    Attributes
    ----------
    seconds : ndarray, shape (draw,)
        Since the start, reading of rows included.
    weights : ndarray, shape (draw, feature)
    temperature : ndarray, shape (draw,)
        Kinetic.
    first : int
        First draw of the last stage.
    """

    seconds: np.ndarray
    weights: np.ndarray
    temperature: np.ndarray
    first: int

    def means(self, part: float) -> np.ndarray:
        """Mean of the draws so far of a stage, after each draw, without the first part of them."""
        total = np.concatenate([np.zeros((1, self.weights.shape[1])), np.cumsum(self.weights, 0)])
        stop = np.arange(1, len(self.seconds) + 1)
        begin = np.where(stop > self.first, self.first, 0)
        start = begin + (part * (stop - begin)).astype(int)
        return (total[stop] - total[start]) / (stop - start)[:, None]

    def shortest(self) -> float:
        """Return the shortest time that a draw took."""
        return float(np.min(np.diff(self.seconds, prepend=0.0)))


def distances(weights: np.ndarray, mode: np.ndarray, curvature: np.ndarray) -> np.ndarray:
    """(w − mode)ᵀ H (w − mode) / d, which is 1 on average for draws of the posterior."""
    error = weights - mode
    return np.einsum("ij,jk,ik->i", error, curvature, error) / mode.size


def flatness(trace: Trace, part: float, end: float, sets: dict[str, Any]) -> dict[str, float]:
    """Range of the accuracy of the running mean over the last half of some time, by test set."""
    begin = max(np.searchsorted(trace.seconds, 0.5 * end, side="right") - 1, 0)
    stop = max(np.searchsorted(trace.seconds, end, side="right"), begin + 1)
    shown = np.unique(np.linspace(begin, stop - 1, 60).astype(int))
    means = trace.means(part)[shown]
    return {name: float(np.ptp(accuracy(means, *rows))) for name, rows in sets.items()}


def temperature_so_far(
    traces: list[Trace], seconds: np.ndarray, *mode_and_curvature: np.ndarray
) -> np.ndarray:
    """Return the configurational temperature of the second half of the draws of the last stage."""
    result = np.full((len(traces), len(seconds)), np.nan)
    for row, trace in zip(result, traces, strict=True):
        total = np.concatenate([[0.0], np.cumsum(distances(trace.weights, *mode_and_curvature))])
        stop = np.searchsorted(trace.seconds, seconds, side="right")
        start = trace.first + (stop - trace.first) // 2
        some = stop > trace.first
        row[some] = ((total[stop] - total[start]) / np.maximum(stop - start, 1))[some]
    return result.mean(axis=0)


def time_to_stay(seconds: np.ndarray, temperature: np.ndarray) -> float:
    """First of the times from which a temperature stays within 10 % of 1; infinite if none."""
    away = np.flatnonzero(~(np.abs(temperature - 1.0) <= 0.1))
    if away.size == 0:
        return float(seconds[0])
    return float(seconds[away[-1] + 1]) if away[-1] + 1 < len(seconds) else float("inf")


def plot_accuracy(
    traces: dict[str, list[Trace]], gibbs: Trace, sets: dict[str, Any], mode: np.ndarray
) -> Any:
    """Plot the accuracy of the mean of the second half of the draws so far, for two test sets."""
    sweep = gibbs.shortest()
    names = [next(iter(sets)), list(sets)[-1]]
    figure, panels = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for ax, name in zip(panels, names, strict=True):
        middle = accuracy(mode, *sets[name])[0]
        for number, (method, each) in enumerate(traces.items()):
            for trace in each:
                shown = np.unique(np.geomspace(1, len(trace.seconds), PLOTTED).astype(int) - 1)
                shown = np.union1d(shown, [max(trace.first - 1, 0), trace.first])
                ax.plot(
                    trace.seconds[shown],
                    accuracy(trace.means(0.5)[shown], *sets[name]),
                    color=f"C{number}",
                    linewidth=0.8,
                    drawstyle="steps-post",
                    label=method if trace is each[0] else None,
                )
        ax.plot(
            gibbs.seconds,
            accuracy(gibbs.means(0.5), *sets[name]),
            "o--",
            color="C2",
            markersize=4,
            label="Gibbs, one sweep per point",
        )
        ax.axvline(sweep, color="0.5", linewidth=1)
        ax.fill_between(
            [0.5 * sweep, sweep],
            middle - 0.5 * BAND,
            middle + 0.5 * BAND,
            color="0.8",
            zorder=0,
            label=f"mode ± {0.5 * BAND:g}, last half of a sweep",
        )
        ax.set(xscale="log", xlabel="wall time, reading included (s)", title=name)
        ax.set_ylim(middle - 1.2, middle + 0.4)
    panels[0].set_ylabel("accuracy of the running mean (%)")
    panels[0].legend(fontsize=8, loc="lower right")
    return figure


def plot_temperature(curves: dict[str, tuple[np.ndarray, np.ndarray]], sweep: float) -> Any:
    """Plot the configurational temperature."""
    figure, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, (seconds, temperature) in curves.items():
        ax.plot(seconds, temperature, "o--" if "Gibbs" in name else "-", markersize=3, label=name)
    ax.axhspan(0.9, 1.1, color="0.85", zorder=0)
    ax.axvline(sweep, color="0.5", linewidth=1)
    ax.set(
        xscale="log",
        yscale="log",
        xlabel="wall time, reading included (s)",
        ylabel="configurational temperature (second half)",
    )
    ax.legend(fontsize=8)
    return figure

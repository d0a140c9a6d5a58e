"""What a run looks like: numbers that figures and reports draw, computed once and stored.

Singular values of the first layer, its neurons in the plane of the top two right singular vectors, their cosine with
the max-margin vector of their class, and, where the run kept its path, the same coordinates over time.
"""

import dataclasses

import numpy as np

from marginflow._core.record import Record
from marginflow.runs import Run

MOST_FRAMES = 60  # of a path in a report: enough for a smooth slider
MOST_POINTS = 60_000  # neurons × frames: about a megabyte in a page


@dataclasses.dataclass(frozen=True, eq=False)
class Portrait(Record):
    singular_values: np.ndarray  # (min(p, d),)
    plane: np.ndarray  # (2, d): right singular vectors
    coordinates: np.ndarray  # (p, 2)
    sign: np.ndarray  # (p,): sign of the output weight
    norms: np.ndarray  # (p,)
    alignment: np.ndarray  # (p,): cos with w+ or w- by sign; nan for a zero neuron or an unknown direction
    directions: np.ndarray  # (2, 2): w+ and w- in the plane; zeros when unknown
    frame_log_time: np.ndarray  # (F,)
    frames: np.ndarray  # (F, p, 2), each scaled so that its longest neuron has length 1


def portrait(W, a, w_plus=None, w_minus=None, path=None, path_log_time=None) -> Portrait:
    """The portrait of first-layer weights W (p, d) and output weights a (p,)."""
    W, a = np.asarray(W, float), np.asarray(a, float)
    _, s, Vt = np.linalg.svd(W, full_matrices=False)
    plane = Vt[:2] if len(Vt) >= 2 else np.concatenate([Vt, np.zeros((2 - len(Vt), W.shape[1]))])
    # A singular vector's sign is arbitrary; the sum of the neurons points to the right and up.
    flip = np.sign((W @ plane.T).sum(axis=0))
    plane = plane * np.where(flip == 0, 1.0, flip)[:, None]
    norms = np.linalg.norm(W, axis=1)
    alignment, directions = np.full(len(W), np.nan), np.zeros((2, 2))
    if w_plus is not None and w_minus is not None:
        own = np.where(a[:, None] > 0, w_plus / np.linalg.norm(w_plus), w_minus / np.linalg.norm(w_minus))
        alignment = np.where(norms > 0, np.sum(W * own, axis=1) / np.where(norms > 0, norms, 1.0), np.nan)
        directions = np.stack([w_plus, w_minus]) @ plane.T
    frames, times = np.zeros((0, len(W), 2)), np.zeros(0)
    if path is not None and len(path):
        count = max(2, min(MOST_FRAMES, MOST_POINTS // len(W)))
        keep = np.unique(np.linspace(0, len(path) - 1, count).astype(int))
        frames = np.asarray(path, float)[keep] @ plane.T
        longest = np.linalg.norm(frames, axis=2).max(axis=1)
        frames = frames / np.where(longest > 0, longest, 1.0)[:, None, None]
        times = np.asarray(path_log_time, float)[keep]
    return Portrait(s, plane, W @ plane.T, np.sign(a), norms, alignment, directions, times, frames)


def of_run(run: Run, w_plus=None, w_minus=None) -> Portrait | None:
    """The portrait of a two-layer run: of its limit if it has one. None for nets without W and a."""
    theta = run.limit.theta if run.limit is not None else run.theta
    if not {"W", "a"} <= set(theta) or np.ndim(theta["a"]) != 1:
        return None
    path = run.extra.get("paths", {})
    return portrait(theta["W"], theta["a"], w_plus, w_minus, path.get("W"), path.get("log_time"))

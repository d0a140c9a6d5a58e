"""The net at t = ∞, from frozen patterns, without integrating.

A group of frozen neurons is a linear predictor β_g made of products of two layers, and the flow is drawn to the net of
largest normalised margin: min Σ ‖β_g‖ over y_i Σ_g β_gᵀ x_i^{(g)} >= 1, since ½(‖W_g‖² + ‖a_g‖²) >= ‖β_g‖ with equality
for rank one and balance. On orthogonally separable data it falls apart into the max-margin problems of the classes
(Theorem 1 of Phuong & Lampert 2021 and the sharper form of its corollary).

How a group's weight spreads over its neurons is a limit of ν_j = a_j/√Σa², whose motion is ν_j' = vᵀδ_j/√α with δ_j
bounded and α growing without end; `spread_error` is what the present speed would still move if it decayed with α.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from marginflow._core.status import Outcome, Status
from marginflow.data.dataset import Dataset
from marginflow.flows.late_phase import Late
from marginflow.flows.piecewise import outof
from marginflow.nets.two_layer import TwoLayer
from marginflow.runs import Limit

ALIGNED = 1e-9  # a group direction may lie on the wrong side of a hyperplane by this cosine, the accuracy of w±
KKT_ACCEPTED = 1e-6


def spreads(late: Late) -> tuple[list[np.ndarray], list[float]]:
    """(ν of every group, how far it may still move)."""
    found, errors = [], []
    for group, point, v in zip(late.system.groups, late.points, late.fields, strict=True):
        if not group.columns:
            found.append(np.sign(group.a0))
            errors.append(0.0)
            continue
        alpha = math.exp(point.log_alpha)
        growth = 2 * float(point.e @ v)
        nu = point.T[-1] @ group.spread
        delta = (v @ point.T[:-1]) @ group.spread
        # ∫ |vᵀδ|/√α ds with α growing at rate `growth`
        errors.append(float(np.abs(delta).max() / math.sqrt(alpha) / (growth / 2)) if growth > 0 else math.inf)
        found.append(nu)
    return found, errors


def absorbed(late: Late, net: TwoLayer, data: Dataset) -> tuple[Limit | None, str]:
    """The limit on orthogonally separable data with every neuron in its absorbing sector or off."""
    from marginflow import margins

    problem = late.system.problem
    groups = late.system.groups
    signs = [1 if group.a0[0] > 0 else -1 for group in groups]
    answers = {s: (margins.positive if s > 0 else margins.negative)(data) for s in set(signs)}
    norms = {}
    for s, answer in answers.items():
        if answer.vector is None or answer.outcome is not Outcome.CONVERGED:
            return None, f"the max-margin vector of class {s:+d} was not found: {answer.outcome}"
        norms[s] = float(np.linalg.norm(answer.vector))
    nu, errors = spreads(late)
    total = sum(norms.values())
    W, a = np.zeros((net.width, data.d)), np.zeros(net.width)
    weight = {s: sum(float(n @ n) * _alpha(late, g) for g, (t, n) in enumerate(zip(signs, nu, strict=True)) if t == s)
              for s in answers}
    for g, (group, s, n) in enumerate(zip(groups, signs, nu, strict=True)):
        # Σ a² of a class is ‖w±‖/(2(‖w+‖ + ‖w-‖)); patterns of one class that differ in held examples share it
        share = math.sqrt(norms[s] / (2 * total) * _alpha(late, g) / weight[s])
        a[group.rows] = n * share
        W[group.rows] = np.abs(n * share)[:, None] * (np.asarray(answers[s].vector) / norms[s])
    theta = {"W": W, "a": a}
    size = math.sqrt(float((W**2).sum() + a @ a))
    theta = {"W": W / size, "a": a / size}
    q = data.y * net(theta, np.asarray(data.X, np.float64))
    both = len(answers) == 2
    certificate: dict[str, Any] = {
        "status": Status.HOLDS if all(a.certified for a in answers.values()) else Status.UNDECIDED,
        "margins": {("positive" if s > 0 else "negative"): [a.lower_bound, a.upper_bound] for s, a in answers.items()},
        "predicted_margin": 1 / (2 * total) / (1 if not problem.gain < 1 else net.width) if both else 0.0,
        "spread_error": max(errors), "groups": {"positive": signs.count(1), "negative": signs.count(-1)}}
    message = ""
    if not both:
        empty = "negative" if 1 in answers else "positive"
        message = f"no neuron serves the {empty} class: the loss does not go to 0"
    return Limit(theta, float(q.min()), "absorbing sectors and max-margin vectors of the classes", certificate), message


def _alpha(late: Late, g: int) -> float:
    return math.exp(late.points[g].log_alpha)


def candidate(late: Late, net: TwoLayer, data: Dataset) -> tuple[Limit | None, str]:
    """The limit if the present patterns never change: a cone program over the groups, then judged as a KKT point.

    Nothing proves here that patterns are final, so the certificate speaks of the candidate alone; `status` is
    undecided unless the KKT residuals of the whole net, patterns included, are small.
    """
    problem, groups = late.system.problem, late.system.groups
    if not groups:
        return None, "every neuron is off on all data"
    if not problem.both:
        return _fixed_output(late, net, data)
    solved = _cone(late)
    if solved is None:
        return None, "the cone program over the frozen groups did not converge"
    betas, value = solved
    W, a = np.zeros((len(late.frame.a), problem.r)), np.zeros(len(late.frame.a))
    nu, errors = spreads(late)
    worst = 0.0
    for group, beta, n in zip(groups, betas, nu, strict=True):
        size = float(np.linalg.norm(beta))
        if size <= 1e-9 * value:
            continue
        direction = beta / size  # Σ a_j w_j = β: w_j = |a_j| (sign a) β/‖β‖
        a[group.rows] = n * math.sqrt(size)
        W[group.rows] = (n * math.sqrt(size))[:, None] * direction
        worst = max(worst, _outside_pattern(problem, group, direction))
    still = None if problem.basis is None else np.zeros((len(a), data.d))
    theta = {"W": outof(problem, W, still), "a": a}
    return _within_patterns(judged(net, theta, data, "cone program over the frozen groups"), worst, max(errors))


def _fixed_output(late: Late, net: TwoLayer, data: Dataset) -> tuple[Limit | None, str]:
    """With a fixed the net is linear in W while patterns stay: w_j = w_j(0) + a_j z_g, and W turns to the least
    ‖W‖² = Σ α_g ‖z_g‖² with y_i f(x_i) >= 1 (Soudry et al. 2018, in the coordinates of W)."""
    problem, groups = late.system.problem, late.system.groups
    root = [math.sqrt(float(g.a0 @ g.a0)) for g in groups]
    # In u_g = √α_g z_g the cost is ½‖u‖²; a group slides within its held hyperplanes.
    rows = np.concatenate([(head if g.project is None else head @ g.project) / size
                           for head, g, size in zip(late.system.heads, groups, root, strict=True)], axis=1)
    u = _least_norm(rows)
    if u is None:
        return None, "the quadratic program over the frozen groups did not converge"
    W, worst = np.zeros((len(late.frame.a), problem.r)), 0.0
    for g, (group, size) in enumerate(zip(groups, root, strict=True)):
        z = u[g * problem.r : (g + 1) * problem.r] / size
        W[group.rows] = np.outer(group.a0, z)
        worst = max(worst, _outside_pattern(problem, group, z))
    theta = {"W": outof(problem, W, None if problem.basis is None else np.zeros((len(W), data.d))), "a": late.frame.a}
    return _within_patterns(judged(net, theta, data, "quadratic program over the frozen groups"), worst, 0.0)


def _outside_pattern(problem, group, direction: np.ndarray) -> float:
    """How far neurons of a group with this direction (times the sign of a) are past their hyperplanes, as a cosine."""
    size = float(np.linalg.norm(direction))
    sign = 1.0 if group.a0[0] > 0 else -1.0
    return float(np.max(-group.sigma * sign * (problem.X @ direction) / problem.norms)) / size if size > 0 else 0.0


def _within_patterns(found: tuple[Limit, str], worst: float, spread: float) -> tuple[Limit, str]:
    limit, message = found
    extra: dict[str, Any] = {"spread_error": spread, "pattern_violation": worst}
    if worst > KKT_ACCEPTED:
        extra["status"] = Status.UNDECIDED
        message = "the limit of the present patterns leaves them: patterns have not frozen yet"
    return dataclasses.replace(limit, certificate={**limit.certificate, **extra}), message


def _least_norm(rows: np.ndarray) -> np.ndarray | None:
    """argmin ½‖u‖² s.t. rows u >= 1: the dual from an interior point, then its support solved with equality."""
    from importlib import import_module

    from scipy import sparse

    clarabel = import_module("clarabel")  # its extension module declares no types

    n = len(rows)
    gram = rows @ rows.T
    scale = float(np.diag(gram).max())
    if not scale > 0:
        return None
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    quadratic, signs = sparse.csc_matrix(np.triu(gram / scale)), sparse.csc_matrix(-np.eye(n))
    answer = clarabel.DefaultSolver(quadratic, -np.ones(n), signs,
                                    np.zeros(n), [clarabel.NonnegativeConeT(n)], settings).solve()
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        return None
    multipliers = np.maximum(np.asarray(answer.x), 0.0) / scale
    on = multipliers > 1e-6 * multipliers.max()
    u = np.linalg.lstsq(rows[on], np.ones(int(on.sum())), rcond=None)[0]
    return u if (rows @ u).min() > 1 - 1e-7 else rows.T @ multipliers


def judged(net: TwoLayer, theta, data: Dataset, method: str) -> tuple[Limit, str]:
    """θ scaled to norm 1 over the trained weights, with its KKT residuals."""
    from marginflow import margins
    from marginflow.nets.net import trained_norm

    size = float(trained_norm(net, theta))
    theta = {name: (w / size if name in net.trained else np.asarray(w)) for name, w in theta.items()}
    margin = float(np.min(data.y * net(theta, np.asarray(data.X, np.float64))))
    certificate: dict[str, Any] = {"status": Status.UNDECIDED}
    message = ""
    if margin <= 0:
        message = "the candidate does not separate the data"
    else:
        found = margins.kkt(net, theta, data)
        residual = max(float(found.stationarity), float(found.complementarity))
        certificate["kkt_stationarity"] = float(found.stationarity)
        certificate["kkt_complementarity"] = float(found.complementarity)
        if residual <= KKT_ACCEPTED:
            certificate["status"] = Status.HOLDS
        else:
            message = f"the candidate is not a KKT point to {KKT_ACCEPTED:g} (residual {residual:.3g})"
    return Limit(theta, margin, method, certificate), message


def _cone(late: Late):
    """min Σ ‖β_g‖ s.t. gain·y_i Σ_g β_gᵀ x_i^{(g)} >= 1, β_g off the held hyperplanes; None if it does not solve."""
    from importlib import import_module

    from scipy import sparse

    clarabel = import_module("clarabel")  # its extension module declares no types

    problem, groups = late.system.problem, late.system.groups
    r, n, G = problem.r, len(problem.y), len(groups)
    size = G * (r + 1)  # per group t, β
    padded = [sparse.hstack([sparse.csc_matrix((n, 1)), sparse.csc_matrix(-head)]) for head in late.system.heads]
    rows = [sparse.hstack(padded)]
    bounds, cones = [-np.ones(n)], [clarabel.NonnegativeConeT(n)]
    for g, group in enumerate(groups):
        cone = sparse.lil_matrix((r + 1, size))
        cone[np.arange(r + 1), g * (r + 1) + np.arange(r + 1)] = -1.0
        rows.append(cone.tocsc())
        bounds.append(np.zeros(r + 1))
        cones.append(clarabel.SecondOrderConeT(r + 1))
        if len(group.held):
            flat = sparse.lil_matrix((len(group.held), size))
            flat[:, g * (r + 1) + 1 : (g + 1) * (r + 1)] = problem.X[group.held]
            rows.append(flat.tocsc())
            bounds.append(np.zeros(len(group.held)))
            cones.append(clarabel.ZeroConeT(len(group.held)))
    cost = np.zeros(size)
    cost[:: r + 1] = 1.0
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_rel = settings.tol_gap_abs = settings.tol_feas = 1e-11
    answer = clarabel.DefaultSolver(sparse.csc_matrix((size, size)), cost, sparse.vstack(rows).tocsc(),
                                    np.concatenate(bounds), cones, settings).solve()
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        return None
    x = np.asarray(answer.x)
    return [x[g * (r + 1) + 1 : (g + 1) * (r + 1)] for g in range(G)], float(cost @ x)

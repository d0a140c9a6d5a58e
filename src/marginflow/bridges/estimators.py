"""Max-margin classifiers as scikit-learn estimators: two classes, a decision function in normal form, a certificate.

`decision_function` is scaled so that the least margin on the training rows is 1 wherever that margin is positive.
For more classes wrap one in `sklearn.multiclass.OneVsRestClassifier`: each of its problems has its own certificate, and
nothing is proved about comparing their decision values.
"""

import warnings
from typing import Literal

import numpy as np

from marginflow._core.errors import InputError, unknown_name
from marginflow._core.status import Outcome, Status
from marginflow.bridges.certificate import Certificate
from marginflow.bridges.two_sided import soft_neuron
from marginflow.data.dataset import Dataset

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise InputError(f"the estimators need scikit-learn ({error}); install marginflow[sklearn]") from None

Fallback = Literal["warn", "refuse"]
RIDGE = 1e-8  # of the mean diagonal of the kernel matrix: the least that Cholesky and the solver resolve with room


class TheoryWarning(UserWarning):
    """An assumption fails, and what was fitted is not what the theorem describes."""


class MaxMarginClassifier(ClassifierMixin, BaseEstimator):
    """What the three classifiers share: two classes, the constant column, the fallback rule."""

    fit_intercept: bool
    fallback: str

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _read(self, X, y) -> tuple[np.ndarray, np.ndarray]:
        """(x̃ in float64, labels ±1), and everything scikit-learn wants to have been checked."""
        if self.fallback not in ("warn", "refuse"):
            raise unknown_name("fallback", str(self.fallback), ("warn", "refuse"))
        X, y = map(np.asarray, validate_data(self, X, y, dtype=np.float64))
        check_classification_targets(y)
        self.classes_, code = np.unique(y, return_inverse=True)
        if type_of_target(y) not in ("binary",) or len(self.classes_) > 2:
            kind = type_of_target(y, input_name="y")
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}. "
                "Wrap the estimator in sklearn.multiclass.OneVsRestClassifier for more classes."
            )
        if len(self.classes_) < 2:
            raise ValueError(
                f"y holds one class only ({self.classes_[0]}); a margin needs examples of two classes"
            )
        return self._augmented(X), np.where(code == 1, 1.0, -1.0)

    def _augmented(self, X: np.ndarray) -> np.ndarray:
        return np.concatenate([X, np.ones((len(X), 1))], axis=1) if self.fit_intercept else X

    def _inputs(self, X) -> np.ndarray:
        check_is_fitted(self)
        return self._augmented(np.asarray(validate_data(self, X, reset=False, dtype=np.float64)))

    def _depart(self, why: str, instead: str) -> None:
        """Say that the promise cannot be kept: refuse, or warn and go on with `instead`."""
        if self.fallback == "refuse":
            raise InputError(f"{type(self).__name__}: {why}; change the data or set fallback='warn'")
        warnings.warn(f"{type(self).__name__}: {why}; {instead}", TheoryWarning, stacklevel=3)

    def predict(self, X):
        """classes_[1] where the decision is positive, classes_[0] elsewhere (a net that is silent says 0)."""
        values = self.decision_function(X)  # type: ignore[attr-defined]
        return self.classes_[(values > 0).astype(int)]


class TwoNeuronClassifier(MaxMarginClassifier):
    """f(x) = ρ(w+ᵀx̃) - ρ(w-ᵀx̃): where gradient flow from small balanced weights ends on orthogonally separable data.

    Two convex problems and no training (Phuong & Lampert 2021, Theorem 1). Data that are not orthogonally separable
    have no such theorem: with fallback="refuse" that is an error; with "warn" each neuron is fitted against both
    classes with penalty C (`marginflow.bridges.two_sided`), which agrees with w± where the theorem applies.

    Attributes: W_ (2, d + 1 with an intercept) and a_ of the balanced net, classes_, margin_ = q_min/‖θ‖²,
    certificate_. A point on which both neurons are off has decision 0 and is given classes_[0].
    """

    def __init__(self, *, C: float = 1.0, fit_intercept: bool = True, fallback: Fallback = "warn"):
        self.C = C
        self.fit_intercept = fit_intercept
        self.fallback = fallback

    def fit(self, X, y):
        if not self.C > 0:
            raise InputError(f"C = {self.C}; a penalty is positive")
        X, y = self._read(X, y)
        reason = not_orthogonally_separable(X, y)
        limit = None if reason else _limit(X, y)
        if limit is not None:
            vectors, bounds, certificate = limit
        else:
            reason = reason or "the max-margin vector of a class could not be computed"
            self._depart(reason, f"each neuron is fitted against both classes with penalty C = {self.C:g}")
            soft = [soft_neuron(X[y == s], X[y == -s], float(self.C)) for s in (1.0, -1.0)]
            vectors, bounds = [n.w for n in soft], None
            outcome = next((n.outcome for n in soft if n.outcome is not Outcome.CONVERGED), Outcome.CONVERGED)
            certificate = ("two-sided squared hinge", Status.VACUOUS, outcome, reason)
        lengths = np.array([np.linalg.norm(w) for w in vectors])
        root = np.sqrt(lengths)
        self.W_ = np.stack(vectors) / np.where(root > 0, root, 1.0)[:, None]
        self.a_ = root * np.array([1.0, -1.0])
        q = y * self._net(X)
        self.margin_ = float(q.min() / (2 * lengths.sum()))
        lower, upper = (self.margin_, None) if bounds is None else bounds
        problem, status, outcome, message = certificate
        self.certificate_ = Certificate(problem, status, lower, upper, outcome, message)
        return self

    def _net(self, X: np.ndarray) -> np.ndarray:
        return np.maximum(X @ self.W_.T, 0.0) @ self.a_

    def decision_function(self, X):
        """ρ(w+ᵀx̃) - ρ(w-ᵀx̃); at least 1 in absolute value on the training rows where the theorem applies."""
        return self._net(self._inputs(X))


def _limit(X: np.ndarray, y: np.ndarray):
    """(w+ and w-, bounds of the normalised margin, what is proved), or None where a solver found no vector."""
    from marginflow import margins

    data = Dataset(X, y, "training data")
    sides = margins.positive(data), margins.negative(data)
    vectors = [m.vector for m in sides if m.vector is not None]
    if len(vectors) < 2:
        return None
    bounds = _harmonic([m.lower_bound for m in sides]), _harmonic([m.upper_bound for m in sides])
    outcome = next((m.outcome for m in sides if m.outcome is not Outcome.CONVERGED), Outcome.CONVERGED)
    status = Status.HOLDS if all(m.certified for m in sides) else Status.UNDECIDED
    message = "; ".join(m.message for m in sides if m.message)
    return vectors, bounds, ("phuong2021.theorem1", status, outcome, message)


def _harmonic(gammas) -> float:
    """1/(2(‖w+‖ + ‖w-‖)) from γ± = 1/‖w±‖: increasing in both, so bounds go to bounds."""
    return float(0.5 / sum(1.0 / g for g in gammas)) if min(gammas) > 0 else 0.0


def not_orthogonally_separable(X: np.ndarray, y: np.ndarray) -> str | None:
    """Why Theorem 1 is silent on these rows, or None."""
    zero = np.flatnonzero(~X.any(axis=1))
    if len(zero):
        return f"row {zero[0]} is zero, so no neuron is active on it"
    from marginflow.conditions.orthogonal_separability import orthogonal_separability

    found = orthogonal_separability(Dataset(X, y, "training data"))
    if found.status is Status.HOLDS:
        return None
    i, j = found.witness["rows"]
    return (
        f"the rows are not orthogonally separable ({found.witness['kind']}-class rows {i} and {j} have cosine "
        f"{found.witness['cosine']:.3g})"
    )


class _Interpolating(MaxMarginClassifier):
    """F1 and F2 separate any rows that do not contradict each other."""

    def _consistent(self, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        """The rows without those that contradict others (one ray, two labels), and what was said about it.

        Units are homogeneous, so two rows on one ray have outputs of one sign, and a zero row has output 0.
        """
        size = np.abs(X).max(axis=1)
        kept = size > 0
        rays = X / np.where(kept, size, 1.0)[:, None]
        rays = rays / np.where(kept, np.linalg.norm(rays, axis=1), 1.0)[:, None]
        _, group = np.unique(np.round(rays, 12) + 0.0, axis=0, return_inverse=True)
        group = group.ravel()
        votes = np.bincount(group, weights=np.where(kept, y, 0.0))
        mixed = np.bincount(group, weights=(y > 0) & kept) * np.bincount(group, weights=(y < 0) & kept) > 0
        bad = ~kept | (mixed[group] & (np.sign(votes[group]) != y))
        if not bad.any():
            return X, y, ""
        first = int(np.argmax(bad))
        why = f"{int(bad.sum())} rows contradict others or are zero (first: row {first}), so the margin is 0"
        self._depart(why, "they are left out, the majority on each ray is kept")
        X, y = X[~bad], y[~bad]
        if len(np.unique(y)) < 2:
            raise ValueError(
                "only one class is left without the rows that contradict each other; the classes coincide"
            )
        return X, y, why + "; they were left out"


class F1MaxMarginClassifier(_Interpolating):
    """The max-margin function of an infinitely wide two-layer net with both layers trained (Chizat & Bach 2020).

    A finite net that attains the margin found: f = κ Σ_j sign_j mass_j φ(c_jᵀx̃)/γ, κ = ½ for relu and 1 for srelu.
    Attributes: neurons_ (directions, signs, masses), margin_ = γ1 as attained, certificate_; outside orthogonally
    separable data and small problems no upper bound is proved, and the status is `undecided`.
    """

    def __init__(
        self,
        *,
        activation: Literal["relu", "srelu"] = "relu",
        neurons: int = 100,
        rounds: int = 30,
        fit_intercept: bool = True,
        fallback: Fallback = "warn",
        random_state=None,
    ):
        self.activation = activation
        self.neurons = neurons
        self.rounds = rounds
        self.fit_intercept = fit_intercept
        self.fallback = fallback
        self.random_state = random_state

    def fit(self, X, y):
        from marginflow import margins

        X, y = self._read(X, y)
        X, y, left_out = self._consistent(X, y)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = margins.f1(
            Dataset(X, y, "training data"),
            activation=self.activation,
            neurons=self.neurons,
            rounds=self.rounds,
            seed=seed,
        )
        self.neurons_ = found.neurons
        if found.lower_bound > 0:
            self.margin_ = self.scale_ = float(found.value)
            self.certificate_ = _certificate("f1", found, left_out)
            return self
        why = "the search found no measure that separates the rows"
        self._depart(why, "the best one it found is kept; more neurons and rounds may help")
        values = self._measure(X)
        self.scale_, self.margin_ = float(np.median(np.abs(values))) or 1.0, float((y * values).min())
        self.certificate_ = Certificate(
            "f1", Status.VACUOUS, self.margin_, found.upper_bound, found.outcome, why
        )
        return self

    def _measure(self, X: np.ndarray) -> np.ndarray:
        """κ Σ_j sign_j mass_j φ(c_jᵀx̃): the function of unit variation norm."""
        pre = np.maximum(X @ self.neurons_.direction.T, 0.0)
        kappa, features = (1.0, pre**2) if self.activation == "srelu" else (0.5, pre)
        return kappa * features @ (self.neurons_.sign * self.neurons_.mass)

    def decision_function(self, X):
        """f(x̃)/γ1, which is at least 1 in absolute value, and of the right sign, on the rows fitted."""
        return self._measure(self._inputs(X)) / self.scale_


class F2MaxMarginClassifier(_Interpolating):
    """The max-margin function of an infinitely wide two-layer net with fixed directions: a kernel machine.

    f(x) = Σ_j β_j y_j K(x_j, x), K in closed form (relu, leaky:γ, srelu, linear). Holds the n x n kernel matrix.
    Attributes: rows_, coefficients_ (β_j y_j in normal form), margin_ = γ2, certificate_.
    """

    def __init__(self, *, activation: str = "relu", fit_intercept: bool = True, fallback: Fallback = "warn"):
        self.activation = activation
        self.fit_intercept = fit_intercept
        self.fallback = fallback

    def fit(self, X, y):
        from marginflow import margins
        from marginflow.margins.kernels import between
        from marginflow.nets.activations import activation

        between(
            np.ones((1, 1)), np.ones((1, 1)), activation(self.activation)
        )  # refuses those without closed form
        X, y = self._read(X, y)
        X, y, left_out = self._consistent(X, y)
        found = margins.f2(Dataset(X, y, "training data"), activation=self.activation)
        beta = found.vector
        if beta is None:
            why = "the kernel matrix determines no positive margin in double precision"
            self._depart(
                why, f"a 2-norm soft margin with ridge {RIDGE:g} of the mean diagonal is fitted instead"
            )
            K = np.outer(y, y) * between(X, X, activation(self.activation))
            beta = _soft_kernel_margin(K)
            reached = K @ beta
            self.margin_ = float(reached.min() / np.sqrt(beta @ reached))
            self.certificate_ = Certificate("f2", Status.VACUOUS, self.margin_, None, found.outcome, why)
        else:
            self.margin_ = float(found.value)
            self.certificate_ = _certificate("f2", found, left_out)
        acting = np.flatnonzero(beta)
        self.rows_, self.coefficients_ = X[acting], (beta * y)[acting]
        return self

    def decision_function(self, X):
        """Σ β_j y_j K(x_j, x̃), at least 1 in absolute value, and of the right sign, on the rows fitted."""
        from marginflow.margins.kernels import between
        from marginflow.nets.activations import activation

        X = self._inputs(X)
        sigma = activation(self.activation)
        step = max(1, 2**24 // max(len(self.rows_), 1))
        parts = [
            between(X[s : s + step], self.rows_, sigma) @ self.coefficients_ for s in range(0, len(X), step)
        ]
        return np.concatenate(parts)


def _soft_kernel_margin(K: np.ndarray) -> np.ndarray:
    """β of the least ½βᵀ(K + rI)β with (K + rI)β >= 1: the hard margin with slacks penalised by their squares."""
    from marginflow import margins

    ridged = K + RIDGE * np.trace(K) / len(K) * np.eye(len(K))
    found = margins.f2_finite(np.linalg.cholesky(ridged))
    if found.dual is None or found.vector is None:
        raise ValueError(
            f"F2MaxMarginClassifier: the soft margin did not converge ({found.message or found.outcome})"
        )
    return found.dual / float((ridged @ found.dual)[found.dual > 0].min())


def _certificate(problem: str, found, left_out: str) -> Certificate:
    status = Status.VACUOUS if left_out else Status.HOLDS if found.certified else Status.UNDECIDED
    message = "; ".join(filter(None, (left_out, found.message)))
    return Certificate(problem, status, float(found.lower_bound), found.upper_bound, found.outcome, message)

"""Theorems: assumptions, predictions, claims. One file per paper; a new one is a file and a line here."""

import dataclasses
from types import ModuleType

from marginflow._core.errors import unknown_name
from marginflow._core.record import Record, Table, show
from marginflow._core.status import Status
from marginflow.data.dataset import Dataset
from marginflow.nets.net import Net
from marginflow.theorems import chizat2020, frei2022, ji2019, lyu2020, maennel2018, phuong2021, soudry2018
from marginflow.theorems.base import Assumption as Assumption
from marginflow.theorems.base import Claim as Claim
from marginflow.theorems.base import Foresight as Foresight
from marginflow.theorems.base import Prediction as Prediction
from marginflow.theorems.base import Theorem as Theorem
from marginflow.theorems.base import Verdict as Verdict
from marginflow.theorems.evidence import Evidence as Evidence
from marginflow.theorems.evidence import Subject as Subject

PAPERS: tuple[ModuleType, ...] = (soudry2018, ji2019, lyu2020, maennel2018, phuong2021, frei2022, chizat2020)
THEOREMS: dict[str, Theorem] = {t.key: t for paper in PAPERS for t in paper.THEOREMS}


def theorem(key: str) -> Theorem:
    """The theorem with this key."""
    if key not in THEOREMS:
        raise unknown_name("theorem", key, THEOREMS)
    return THEOREMS[key]


def applicable(subject: Subject, keys=None) -> list[Theorem]:
    """The theorems that speak about this kind of net; of those named, all must."""
    chosen = [theorem(k) for k in keys] if keys is not None else list(THEOREMS.values())
    return [t for t in chosen if keys is not None or t.covers(subject) is None]


@dataclasses.dataclass(frozen=True, eq=False)
class Predictions(Record):
    """What the theorems say about this net on these data, before any training."""

    net: Net
    data: Dataset
    theorems: tuple[Foresight, ...]
    silent: dict[str, str]  # theorem -> why it does not speak about this net

    def __getitem__(self, key: str) -> Foresight:
        for foresight in self.theorems:
            if foresight.key == key:
                return foresight
        raise unknown_name("theorem", key, [f.key for f in self.theorems])

    def table(self) -> Table:
        rows = tuple(
            (
                f.key,
                f.status.value,
                "; ".join(f"{a.name} {a.status.value} ({show(a.slack)})" for a in f.assumptions),
                show(dict(f.prediction.values)) if f.prediction else f.message,
            )
            for f in self.theorems
        )
        return Table(
            f"predictions for {self.net} on {self.data.name}",
            ("theorem", "status", "assumptions (slack)", "prediction"),
            rows,
            tuple(f"{k} is silent: {why}" for k, why in self.silent.items()),
        )

    def to_json(self) -> dict:
        return {
            "net": str(self.net),
            "dataset": self.data.to_json(),
            "theorems": [f.to_json() for f in self.theorems],
            "silent": self.silent,
        }


def predict(net: Net, data: Dataset, theorems=None) -> Predictions:
    """Which theorems speak about this net, how far each assumption is from holding or failing, and the limit
    they predict.
    """
    subject = Subject(net, data)
    chosen = applicable(subject, theorems)
    silent = {
        t.key: why
        for t in THEOREMS.values()
        if (why := t.covers(subject)) is not None and t in (chosen or THEOREMS.values())
    }
    return Predictions(
        net, data, tuple(t.foresee(subject) for t in chosen if t.covers(subject) is None), silent
    )


def cite(what) -> str:
    """BibTeX of the paper behind a theorem, a verdict, a foresight, or a key like 'phuong2021.theorem1'."""
    key = what if isinstance(what, str) else getattr(what, "theorem", None) or getattr(what, "key", None)
    if not isinstance(key, str):
        raise unknown_name("theorem", str(type(what).__name__), THEOREMS)
    papers = {p.__name__.rsplit(".", 1)[1]: p for p in PAPERS}
    name = key.split(".", 1)[0]
    if name not in papers:
        raise unknown_name("theorem or paper", key, [*THEOREMS, *papers])
    return papers[name].BIBTEX


__all__ = [
    "THEOREMS",
    "Assumption",
    "Claim",
    "Evidence",
    "Foresight",
    "Prediction",
    "Predictions",
    "Status",
    "Subject",
    "Theorem",
    "Verdict",
    "applicable",
    "cite",
    "predict",
    "theorem",
]

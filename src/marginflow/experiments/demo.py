"""The demo: one data set taken along the whole chain, with a report at the end."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path

from marginflow._core.record import Record, Table, show
from marginflow._core.status import Status
from marginflow.conditions import Checks, check
from marginflow.data import phuong2021
from marginflow.flows import train
from marginflow.nets import TwoLayer, inits
from marginflow.runs import Run
from marginflow.theorems import Predictions, predict
from marginflow.verify import Verdicts, verify

SCALE = 1e-3  # λ of the balanced initial weights: small enough that every neuron reaches its absorbing sector


@dataclasses.dataclass(frozen=True, eq=False)
class Demo(Record):
    """verdict: of the theorem that predicts the limit network; `headline` says it in words."""

    verdict: Status
    headline: str
    report: str
    seconds: float
    stages: dict[str, float]
    figures: tuple[str, ...]
    checks: Checks
    predictions: Predictions
    run: Run
    verdicts: Verdicts

    def tables(self) -> Sequence[Table]:
        limit, foresight = self.run.limit, self.predictions["phuong2021.theorem1"]
        predicted = foresight.prediction["normalised_margin"] if foresight.prediction else None
        rows = (
            (
                "predicted normalised margin, without training",
                f"{predicted:.12g}" if predicted else foresight.message,
            ),
            (
                "gradient flow, normalised margin at t = infinity",
                f"{limit.normalised_margin:.12g}" if limit else "-",
            ),
            ("neurons at the end", show(self.run.extra.get("neurons", {}))),
            ("events", show(self.run.summary()["events"])),
        )
        summary = (
            ("verdict", show(self.verdict)),
            ("in words", self.headline),
            ("report", self.report),
            ("figures", ", ".join(self.figures)),
            (
                "seconds",
                ", ".join([f"{self.seconds:.1f}", *(f"{k} {v:.1f}" for k, v in self.stages.items())]),
            ),
        )
        return [
            *self.checks.tables(),
            Table("predicted and seen", ("quantity", "value"), rows),
            self.verdicts.tables()[0],
            Table("demo", ("what", "value"), summary),
        ]

    def to_json(self) -> dict:
        return {
            "verdict": self.verdict.value,
            "headline": self.headline,
            "report": self.report,
            "seconds": self.seconds,
            "stages": self.stages,
            "figures": list(self.figures),
            "verdicts": {v.theorem: v.status.value for v in self.verdicts.verdicts},
        }


def demo(seed: int = 0, out: str | Path = "demo-out", n: int = 500, d: int = 20, width: int = 100) -> Demo:
    """Check, predict, flow to t = infinity, verify and report on the data of Phuong & Lampert 2021."""
    from marginflow import store
    from marginflow.chain import drawn, report
    from marginflow.report.run_page import headline_of

    start, stages = time.monotonic(), {}
    folder = Path(out)
    store.prepare(folder / "run")

    def timed(name, call):
        began = time.monotonic()
        result = call()
        stages[name] = time.monotonic() - began
        return result

    data, net = phuong2021(n=n, d=d, seed=seed), TwoLayer(width)
    checks = timed("check", lambda: check(data))
    predictions = timed("predict", lambda: predict(net, data))
    theta = inits.balanced(net, data.d, SCALE, seed)
    asked = {"init": "balanced", "scale": SCALE, "seed": seed}
    run = timed("flow", lambda: train(net, theta, data, method="flow", until="limit", options=asked))
    store.save(run, folder / "run")
    verdicts = timed("verify", lambda: verify(run))
    figures = timed("figures", lambda: drawn(run, folder / "limit"))
    path = timed("report", lambda: report(run, folder / "report.html", verdicts))
    status, headline = headline_of(verdicts)
    seconds = time.monotonic() - start
    return Demo(
        Status(status), headline, path, seconds, stages, tuple(figures), checks, predictions, run, verdicts
    )

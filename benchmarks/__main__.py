"""The suite: every part of marginflow beside its peers, each time beside the quality of the answer.

    python -m benchmarks                       everything on this machine's processor
    python -m benchmarks --gpu                 on a CUDA device, peers too
    python -m benchmarks --only f1 flow        some groups; --quick for sizes that only show that every line still runs
    python -m benchmarks --render FILE.json    the page of an earlier run

Every group runs in a process of its own, so that none inherits another's compiled code or memory, and is stopped at
--limit seconds; what it had measured by then is kept.
"""

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path

from benchmarks import machine, page
from benchmarks.table import Entry, Run

GROUPS = (
    "startup",
    "orthogonal_separability",
    "hard_margin",
    "f1",
    "seeds",
    "flow",
    "basins",
    "late_phase",
    "estimators",
    "growth",
)
ROOT = Path(__file__).parent.parent
MARK = "benchmark entry "


def main(argv: list[str] | None = None) -> int:
    at = _arguments(argv)
    if at.render:
        return _written(page.Result.load(at.render), at.page)
    run = Run(quick=at.quick, gpu=at.gpu)
    if run.gpu and (missing := no_gpu()):
        print(f"benchmarks: {missing}", file=sys.stderr)
        return 2
    if at.child:
        return child(at.child, run)
    started, clock = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), time.perf_counter()
    described, rates = machine.describe(run.gpu), machine.rates(run.gpu, *run.choose((2048, 256), (256, 16)))
    entries: list[Entry] = []
    groups = {}
    for name in at.only:
        began = time.perf_counter()
        found, outcome = measured(name, run, at.limit)
        entries += found
        groups[name] = {"seconds": time.perf_counter() - began, "outcome": outcome, "load": os.getloadavg()[0]}
        command = "python -m benchmarks" + "".join(f" {shlex.quote(word)}" for word in (argv or sys.argv[1:]))
        result = page.Result(
            command, started, time.perf_counter() - clock, described, rates, groups, tuple(entries)
        )
        result.save(at.out)
    _written(result, at.page)
    return int(any(g["outcome"] != "finished" for g in groups.values()))


def _written(result: page.Result, target: Path | None) -> int:
    text = page.markdown(result)
    if target is None:
        print(text)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="small sizes: does every line still run?")
    parser.add_argument("--gpu", action="store_true", help="a CUDA device for marginflow and its peers")
    parser.add_argument(
        "--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="NAME", help=", ".join(GROUPS)
    )
    parser.add_argument("--limit", type=float, default=600.0, help="seconds a group may take")
    parser.add_argument("--out", type=Path, help="the JSON file (benchmarks/results/cpu.json)")
    parser.add_argument("--page", type=Path, help="the Markdown page; default: standard output")
    parser.add_argument(
        "--render", type=Path, metavar="FILE.json", help="only write the page of an earlier run"
    )
    parser.add_argument("--child", choices=GROUPS, help=argparse.SUPPRESS)
    at = parser.parse_args(argv)
    if at.out is None:
        at.out = (
            ROOT
            / "benchmarks"
            / "results"
            / f"{'gpu' if at.gpu else 'cpu'}{'-quick' if at.quick else ''}.json"
        )
    return at


def no_gpu() -> str:
    """Why --gpu cannot run here, or nothing."""
    import jax

    try:
        jax.devices("gpu")
    except RuntimeError:
        return (
            "JAX sees no CUDA device; install marginflow[cuda] on a machine that has one, or leave out --gpu"
        )
    try:
        import torch
    except ImportError:
        return ""
    return "" if torch.cuda.is_available() else "this PyTorch has no CUDA; install one that has, or none"


def measured(name: str, run: Run, limit: float) -> tuple[list[Entry], str]:
    """(entries of one group, how it ended), from a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "--child", name]
    command += ["--quick"] * run.quick + ["--gpu"] * run.gpu
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ)
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(limit, stop)
    timer.start()
    entries = []
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if line.startswith(MARK):
                document = json.loads(line.removeprefix(MARK))
                entries.append(page.decoded(document))
                print(
                    f"{name}: {json.dumps({k: v for k, v in document.items() if k != 'least'})}",
                    file=sys.stderr,
                )
    code = process.wait()
    timer.cancel()
    return (
        entries,
        "finished" if code == 0 else f"stopped at {limit:g} s" if late.is_set() else f"exit code {code}",
    )


def child(name: str, run: Run) -> int:
    for entry in importlib.import_module(f"benchmarks.{name}").rows(run):
        print(MARK + json.dumps(page.encoded(entry)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

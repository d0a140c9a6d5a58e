"""The figures of the theorem pages, from runs made here: `python docs/theorem_figures.py [NAME ...]` redraws them."""

import sys
from pathlib import Path

import numpy as np

import marginflow as mf
from marginflow.report import plots, style

OUT = Path(__file__).parent / "theorems" / "img"
PLANE = mf.Dataset(
    np.array([[1, 0.2], [0.2, 1.1], [0.9, 1.3], [-1, -0.3], [-0.25, -1], [-1.2, -1.4]]),
    [1, 1, 1, -1, -1, -1],
    "plane",
)


def angle(v, w):
    return mf.theorems.soudry2018.angle(v, w)


def soudry2018():
    data = mf.Dataset(PLANE.X + np.array([0.4, -0.2]), PLANE.y, "shifted plane")
    target = mf.margins.linear(data)
    times = np.geomspace(10, 1e5, 11)
    angles = []
    for t in times:
        run = mf.train(mf.Linear(), {"w": np.array([0.1, -0.3])}, data, until=("log_time", float(t)))
        angles.append(angle(run.theta["w"], target.vector))
    fig, axes = style.figure(1, 1, width=4.2, height=2.9)
    ax = axes[0, 0]
    plots.curve(ax, times, angles, "angle to $w_{max}$", marker="o", markersize=3)
    plots.slope(ax, times, angles[0], -1.0, "slope −1")
    ax.set(xscale="log", yscale="log", xlabel="log t", ylabel="angle (radians)")
    ax.legend()
    return fig


def ji2019():
    data = mf.Dataset(PLANE.X + np.array([0.4, -0.2]), PLANE.y, "shifted plane")
    target = mf.margins.linear(data).vector
    net = mf.DeepLinear(3, 4)
    theta = mf.inits.gaussian(net, 2, 0.4, key=3)
    times = np.geomspace(3, 1e4, 9)
    rank_one, angles = [], []
    for t in times:
        run = mf.train(net, theta, data, until=("log_time", float(t)))
        s = [np.linalg.svd(run.theta[k], compute_uv=False) for k in net.trained[:-1]]
        rank_one.append(max(x[1] / x[0] for x in s))
        angles.append(angle(net.end_to_end(run.theta), target))
    fig, axes = style.figure(1, 1, width=4.2, height=2.9)
    ax = axes[0, 0]
    plots.curve(ax, times, rank_one, "largest $\\sigma_2/\\sigma_1$ of a layer", marker="s", markersize=3)
    plots.curve(ax, times, angles, "angle of $W_3W_2W_1$ to $w_{max}$", marker="o", markersize=3)
    ax.set(xscale="log", yscale="log", xlabel="log t", ylabel="")
    ax.legend()
    return fig


def small_flow(width=20, until="limit", seed=1, d=3, n=30):
    data = mf.data.phuong2021(n=n, d=d, seed=seed)
    net = mf.TwoLayer(width)
    theta = mf.inits.balanced(net, d, 1e-3, key=seed)
    return mf.train(net, theta, data, until=until)


def lyu2020():
    run = small_flow()
    from marginflow.theorems.lyu2020 import smoothed_margins

    gamma = smoothed_margins(mf.theorems.Evidence(run.net, run.theta, run.data, run))
    t = run.history["log_time"][-len(gamma) :]
    fig, axes = style.figure(1, 1, width=4.2, height=2.9)
    ax = axes[0, 0]
    late = t > 0
    plots.curve(ax, t[late], gamma[late], "smoothed normalised margin")
    plots.level(ax, run.limit.normalised_margin, "limit")
    ax.set(xscale="log", xlabel="log t", ylabel="margin")
    ax.legend()
    return fig


def circle(ax, data, sign, radius=1.0):
    phi = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    directions = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    basins = mf.basins(data, directions, sign=np.full(len(phi), float(sign)))
    fates = np.asarray(basins.fate).astype(str)
    for name, color in style.FATE.items():
        rows = fates == name
        if rows.any():
            ax.scatter(
                *(radius * directions[rows]).T,
                s=6,
                c=color,
                label=f"{'+' if sign > 0 else '−'}: {name}",
                linewidths=0,
            )


def maennel2018():
    rng = np.random.default_rng(4)
    data = mf.Dataset(rng.standard_normal((9, 2)), np.where(np.arange(9) % 2 == 0, 1, -1), "nine points")
    fig, axes = style.figure(1, 2, width=3.0, height=3.0)
    for ax, sign in zip(axes[0], (1, -1), strict=True):
        circle(ax, data, sign)
        for e in mf.extremal(data).positive if sign > 0 else mf.extremal(data).negative:
            ax.plot(*(1.12 * e.direction), marker="*", color=style.PREDICTED, markersize=9)
        for s, color, marker in ((1, style.POSITIVE, "^"), (-1, style.NEGATIVE, "v")):
            ax.scatter(
                *(0.5 * data.X[data.y == s] / np.linalg.norm(data.X, axis=1).max()).T,
                s=14,
                c=color,
                marker=marker,
            )
        ax.set(
            aspect="equal",
            title=f"fate of $w$ with $a {'>' if sign > 0 else '<'} 0$",
            xlim=(-1.3, 1.3),
            ylim=(-1.3, 1.3),
            xticks=[],
            yticks=[],
        )
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=3, fontsize=8, markerscale=2)
    return fig


def phuong2021_theorem1():
    run = small_flow(width=40, d=5, n=60)
    from marginflow.portrait import of_run

    plus, minus = mf.margins.positive(run.data).vector, mf.margins.negative(run.data).vector
    seen = of_run(run, plus, minus)
    fig, axes = style.figure(1, 2, width=3.6, height=3.0)
    plots.neurons(axes[0, 0], seen.coordinates, seen.sign, seen.directions)
    t = run.history["log_time"]
    late = t > 1
    for name, color in (("positive", style.POSITIVE), ("negative", style.NEGATIVE)):
        plots.curve(axes[0, 1], t[late], run.history[f"angle_{name}"][late], f"{name} group", color=color)
    plots.slope(axes[0, 1], t[late], run.history["angle_positive"][late][0], -0.5, "slope −1/2")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="log t", ylabel="angle to $w_\\pm$ (radians)")
    axes[0, 1].legend()
    return fig


def phuong2021_lemma2():
    phi = np.linspace(0, 2 * np.pi, 721)
    directions = np.stack([np.cos(phi), np.sin(phi)], axis=1)
    values = np.array([mf.sectors.G(PLANE, w) for w in directions])
    found = mf.extremal(PLANE, by_lemma2=False)
    fig, axes = style.figure(1, 1, width=4.4, height=2.8)
    ax = axes[0, 0]
    plots.curve(ax, np.degrees(phi), values, "G", color=style.NEUTRAL)
    for group, color, marker in (
        (found.positive, style.POSITIVE, "^"),
        (found.negative, style.NEGATIVE, "v"),
    ):
        for e in group:
            at = np.degrees(np.arctan2(e.direction[1], e.direction[0])) % 360
            ax.plot(
                at,
                e.G,
                marker=marker,
                color=color,
                markersize=9,
                linestyle="none",
                label="extremal direction",
            )
    for x in PLANE.X:
        for turn in (90, -90):
            ax.axvline(
                (np.degrees(np.arctan2(x[1], x[0])) + turn) % 360,
                color=style.NEUTRAL,
                linewidth=0.5,
                alpha=0.5,
            )
    ax.set(xlabel="direction of $w$ (degrees); lines: hyperplanes", ylabel="G(w)", xticks=range(0, 361, 60))
    ax.legend()
    return fig


def phuong2021_lemma3():
    run = small_flow(width=60, d=5, n=60, until="frozen")
    verdict = mf.verify(run, theorems=["phuong2021.lemma3"])["phuong2021.lemma3"]
    t = np.sort(run.events.log_time)
    fig, axes = style.figure(1, 1, width=4.2, height=2.8)
    ax = axes[0, 0]
    plots.curve(ax, t, np.arange(1, len(t) + 1), "sector events so far")
    ax.axvline(
        run.frozen_log_time, linestyle="--", color=style.PREDICTED, linewidth=1, label="all neurons absorbed"
    )
    ax.set(xlabel="log t", ylabel="events", title=f"escapes: {verdict.claims[0].measured:g}")
    ax.legend()
    return fig


def phuong2021_lemmaC1():
    data = mf.data.phuong2021(n=30, d=3, seed=1)
    net = mf.TwoLayer(20)
    theta = mf.inits.balanced(net, 3, 1e-3, key=1)
    times = np.geomspace(10, 1e5, 9)
    residual = [
        mf.margins.kkt(net, mf.train(net, theta, data, until=("log_time", float(t))).theta, data).stationarity
        for t in times
    ]
    fig, axes = style.figure(1, 1, width=4.2, height=2.8)
    ax = axes[0, 0]
    plots.curve(ax, times, residual, "stationarity of the weights", marker="o", markersize=3)
    plots.slope(ax, times, residual[0], -0.5, "slope −1/2")
    ax.set(xscale="log", yscale="log", xlabel="log t", ylabel="‖θ − Σ λ y h‖ / ‖θ‖")
    ax.legend()
    return fig


def frei2022_flow():
    data = mf.data.gaussian_mixture(n=20, d=500, mean=0, seed=0)
    net = mf.TwoLayer(30, activation=mf.leaky(0.5), train="input")
    theta = mf.inits.signs(net, data.d, 1e-3, key=0)
    fig, axes = style.figure(1, 1, width=4.2, height=2.8)
    ax = axes[0, 0]
    for until, color in ((("log_time", 20.0), style.CYCLE[5]), (("log_time", 1e3), style.NEGATIVE)):
        run = mf.train(net, theta, data, until=until)
        s = np.linalg.svd(run.theta["W"], compute_uv=False)[:8]
        ax.semilogy(np.arange(1, 9), s / s[0], "o-", color=color, label=f"log t = {run.log_time:.0f}")
    ax.set(xlabel="index", ylabel="singular value / first")
    ax.legend()
    return fig


def frei2022_descent():
    data = mf.data.gaussian_mixture(n=20, d=1000, mean=0, seed=0)
    net = mf.TwoLayer(50, activation="smooth-leaky:0.5", train="input")
    fig, axes = style.figure(1, 1, width=4.2, height=2.8)
    ax = axes[0, 0]
    for scale in (1e-6, 1e-4, 1e-3, 1e-2):
        run = mf.train(
            net, mf.inits.signs(net, data.d, scale, key=0), data, method="gd", lr=0.01, epochs=1000
        )
        plots.curve(
            ax, run.history["step"] + 1, run.history["stable_rank"], f"sd {scale:g}", marker="o", markersize=3
        )
    ax.set(xscale="log", yscale="log", xlabel="step + 1", ylabel="stable rank of W")
    ax.legend(title="initial weights")
    return fig


def chizat2020_f1_f2():
    data = mf.data.chizat2020(n=60, d=3, k=3, seed=1)
    f1, f2 = mf.margins.f1(data), mf.margins.f2(data)
    from marginflow.theorems.chizat2020 import classifier

    net, theta = classifier(f1)
    grid = np.linspace(-0.6, 0.6, 121)
    x, y = np.meshgrid(grid, grid)
    points = np.c_[x.ravel(), y.ravel(), np.ones(x.size)]
    rng = np.random.default_rng(0)
    W = rng.standard_normal((4000, 3))
    W /= np.linalg.norm(W, axis=1, keepdims=True)
    Z = data.y[:, None] * np.maximum(data.X @ W.T, 0)
    kernel = np.maximum(points @ W.T, 0) @ (Z.T @ f2.dual)
    fig, axes = style.figure(1, 2, width=3.2, height=3.2)
    for ax, values, title in (
        (axes[0, 0], net(theta, points), "F1: both layers"),
        (axes[0, 1], kernel, "F2: output layer only"),
    ):
        plots.boundary(ax, grid, grid, values.reshape(x.shape), data.X[:, :2], data.y)
        ax.set_title(title)
    return fig


def chizat2020_rates():
    X = mf.data.phuong2021(n=16, d=3, seed=0).X
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    data = mf.Dataset(X, mf.data.phuong2021(n=16, d=3, seed=0).y, "directions of phuong2021")
    fig, axes = style.figure(1, 2, width=3.6, height=2.9)
    for ax, kind in zip(axes[0], ("both", "output"), strict=True):
        net = mf.TwoLayer(64, train="output" if kind == "output" else "both")
        run = mf.train(net, mf.inits.balanced(net, 3, 1.0, key=0), data, method=f"rate-{kind}", steps=500_000)
        claimed = mf.theorems.theorem(f"chizat2020.rate_{kind}")
        evidence = mf.theorems.Evidence(run.net, run.theta, data, run)
        from marginflow.theorems.chizat2020 import unit_features

        Z = unit_features(evidence)
        Z = Z * np.sign(run.theta0["a"]) if kind == "both" else Z
        finite = mf.margins.f1_finite(Z) if kind == "both" else mf.margins.f2_finite(Z)
        best, bound, _ = claimed.curves(run.history, Z, finite.lower_bound)
        t = run.history["step"]
        seen = bound > -0.9 * finite.lower_bound
        plots.curve(ax, t, best, "best margin so far", color=style.NEGATIVE)
        plots.curve(ax, t[seen], bound[seen], "bound", color=style.POSITIVE, linestyle="-.")
        plots.level(ax, finite.value, "optimum of these directions")
        ax.set(
            xscale="log",
            xlabel="step t",
            ylabel="margin",
            title=f"{kind} layer{'s' if kind == 'both' else ''}",
            ylim=(-0.9 * finite.value, 1.15 * finite.value),
        )
        ax.legend(fontsize=7, loc="best")
    return fig


FIGURES = [
    soudry2018,
    ji2019,
    lyu2020,
    maennel2018,
    phuong2021_theorem1,
    phuong2021_lemma2,
    phuong2021_lemma3,
    phuong2021_lemmaC1,
    frei2022_flow,
    frei2022_descent,
    chizat2020_f1_f2,
    chizat2020_rates,
]


def main(names) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for make in FIGURES:
        if not names or make.__name__ in names:
            with style.drawing():
                make().savefig(OUT / f"{make.__name__}.png", dpi=110, metadata={"Software": None})
            print(OUT / f"{make.__name__}.png", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

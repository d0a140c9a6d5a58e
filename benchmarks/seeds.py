"""Seeds per second of theory §8.1 (n=500, d=20, width 100, SGD, batch 50, 500 epochs), in single precision.

    python benchmarks/seeds.py [--seeds 100] [--torch-seeds 2] [--json]

marginflow, PyTorch eager (one net after the other) and torch.func.vmap (all nets in one call) train on the same data
from the same law of initial weights, in one process, one after the other; a warm-up of each is not timed. Beside them
the rate of one large matrix product on the same cores, and the share of it that the training attains: a step needs
3 products of 50 × 20 × 100 (activations, their weights' gradient) less the input's, so 4·50·20·100 flops, plus those
of the output layer.
"""

import argparse
import json
import time

import numpy as np

import marginflow as mf
from marginflow.flows import ensembles

N, D, WIDTH, BATCH, LR, SCALE = 500, 20, 100, 50, 0.1, 0.05
FLOPS_PER_STEP = 4 * BATCH * D * WIDTH + 4 * BATCH * WIDTH


def timed(run) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def ours(data, seeds: int, epochs: int):
    members = ensembles.grid(seeds=range(seeds), scales=[SCALE], lrs=[LR])
    return ensembles.ensemble(
        mf.TwoLayer(WIDTH),
        data,
        members,
        init="uniform",
        batch=BATCH,
        epochs=epochs,
        precision="single",
        progress=False,
    )


def torch_eager(X, y, epochs: int) -> None:
    import torch

    net = torch.nn.Sequential(
        torch.nn.Linear(D, WIDTH, bias=False), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1, bias=False)
    )
    with torch.no_grad():
        for w in net.parameters():
            w *= SCALE
    optimiser = torch.optim.SGD(net.parameters(), lr=LR)
    for _ in range(epochs):
        order = torch.randperm(N)
        for start in range(0, N, BATCH):
            rows = order[start : start + BATCH]
            loss = torch.nn.functional.softplus(-y[rows] * net(X[rows]).squeeze(-1)).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def torch_vmap(X, y, seeds: int, epochs: int) -> None:
    import torch
    from torch.func import grad, vmap

    def loss(W, a, x, labels):
        return torch.nn.functional.softplus(-labels * (torch.relu(x @ W.T) @ a)).mean()

    gradient = vmap(grad(loss, argnums=(0, 1)))
    W = torch.empty(seeds, WIDTH, D).uniform_(-1, 1) * SCALE * D**-0.5
    a = torch.empty(seeds, WIDTH).uniform_(-1, 1) * SCALE * WIDTH**-0.5
    for _ in range(epochs):
        order = torch.argsort(torch.rand(seeds, N), dim=1)
        for start in range(0, N, BATCH):
            rows = order[:, start : start + BATCH]
            gW, ga = gradient(W, a, X[rows], y[rows])
            W, a = W - LR * gW, a - LR * ga


def product_rate(size: int = 1024) -> float:
    """Flops per second of one large single-precision product, the best of five."""
    import jax
    import jax.numpy as jnp

    A = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda A: A @ A)
    product(A).block_until_ready()
    return 2 * size**3 / min(timed(lambda: product(A).block_until_ready()) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--torch-seeds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument(
        "--vmap-epochs", type=int, default=50, help="timed epochs of torch.func.vmap; scaled up"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import jax

    data = mf.data.phuong2021(n=N, d=D, seed=0)
    ours(data, args.seeds, 1)
    steps = args.epochs * N // BATCH
    found = {
        "device": str(jax.devices()[0]),
        "seeds": args.seeds,
        "marginflow_seconds_per_seed": timed(lambda: ours(data, args.seeds, args.epochs)) / args.seeds,
        "product_flops_per_second": product_rate(),
    }
    attained = FLOPS_PER_STEP * steps / found["marginflow_seconds_per_seed"]
    found |= {
        "attained_flops_per_second": attained,
        "share_of_product_rate": attained / found["product_flops_per_second"],
    }
    try:
        import torch
    except ImportError:
        found["torch"] = None
    else:
        X, y = (torch.tensor(np.array(v), dtype=torch.float32) for v in (data.X, data.y))
        torch_eager(X, y, 2)
        torch_vmap(X, y, args.seeds, 1)
        eager = [timed(lambda: torch_eager(X, y, args.epochs)) for _ in range(args.torch_seeds)]
        vmapped = (
            timed(lambda: torch_vmap(X, y, args.seeds, args.vmap_epochs)) * args.epochs / args.vmap_epochs
        )
        found |= {
            "torch": torch.__version__,
            "torch_threads": torch.get_num_threads(),
            "torch_eager_seconds_per_seed": min(eager),
            "torch_vmap_seconds_per_seed": vmapped / args.seeds,
        }
        for rival in ("eager", "vmap"):
            found[f"times_torch_{rival}"] = (
                found[f"torch_{rival}_seconds_per_seed"] / found["marginflow_seconds_per_seed"]
            )
    print(json.dumps(found) if args.json else "\n".join(f"{k:32} {v}" for k, v in found.items()))


if __name__ == "__main__":
    main()

"""Train two classifiers on MNIST 0 against 1, save them, and ask what they learned.

    python examples/what_did_my_classifier_learn.py [--net mlp|cnn|both] [--out FOLDER]

An MLP 784-128-64-1 without biases, and a CNN in the style of torchvision (features, pooling, classifier) that sees the
digits as 3 × 224 × 224 images through a DataLoader: 2 GiB of inputs that are never held at once. Needs
marginflow[torch] and the MNIST files; a few minutes on two cores.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

import marginflow as mf
from marginflow.bridges import inspect

SIZE = 224


class CNN(nn.Module):
    """Convolutions, pooling, and a classifier that ends Linear, ReLU, Linear."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 7, stride=4, padding=3), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.avgpool = nn.AdaptiveAvgPool2d(6)
        self.classifier = nn.Sequential(nn.Linear(32 * 36, 128), nn.ReLU(), nn.Dropout(), nn.Linear(128, 1))

    def forward(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


class Enlarged(torch.utils.data.Dataset):
    """Digits as colour images of the size that large nets take, made when they are asked for."""

    def __init__(self, data: mf.Dataset):
        self.pixels, self.labels = np.array(data.X).reshape(-1, 1, 28, 28), (data.y > 0).astype(np.int64)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, k):
        image = torch.from_numpy(self.pixels[k : k + 1])
        return nn.functional.interpolate(image, SIZE, mode="bilinear")[0].expand(3, -1, -1), self.labels[k]


def fit(net: nn.Module, batches, epochs: int) -> float:
    """Adam on the logistic loss; seconds."""
    start = time.perf_counter()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for _ in range(epochs):
        for x, y in batches:
            optimizer.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(net(x)[:, 0], y.float()).backward()
            optimizer.step()
    return time.perf_counter() - start


def retrained_head(found, features, epochs: int) -> float:
    """Seconds to train a head of the same width from scratch on the same frozen features."""
    h, y = features
    head = nn.Sequential(nn.Linear(h.shape[1], found.head.width), nn.ReLU(), nn.Linear(found.head.width, 1))
    return fit(
        head, torch.utils.data.DataLoader(torch.utils.data.TensorDataset(h, y), 128, shuffle=True), epochs
    )


def head_inputs(net, found, data):
    """What the head receives, and labels, for the rows it was looked at on."""
    seen = mf.bridges.capture(net, data, found.examples)
    given = seen.representations[found.head.layers[0], "input"]
    return torch.from_numpy(np.array(given.rows)), torch.from_numpy(
        (seen.labels[given.index] > 0).astype(np.int64)
    )


def tell(name: str, net, train, test, out: Path, seconds: float, epochs: int) -> None:
    torch.save(net.state_dict(), out / f"{name}.pt")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = inspect(net, train, held_out=test)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\n== {name}: trained in {seconds:.1f} s, {sum(p.numel() for p in net.parameters())} weights")
    print("\n\n".join(table.to_text() for table in found.tables()))
    print(f"\npeak memory of the process: {before:.0f} MiB before, {after:.0f} MiB after the inspection")
    again = retrained_head(found, head_inputs(net, found, train), epochs)
    print(f"a head of {found.head.width} trained again on the same inputs: {again:.2f} s")
    for pruned in found.head.pruned:
        print(f"{pruned.name}: {pruned.fit_seconds:.4f} s")
    print("page:", found.report(out / f"{name}.html"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", choices=("mlp", "cnn", "both"), default="both")
    parser.add_argument("--out", type=Path, default=Path("classifiers"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    train, test = mf.data.load("mnist:0,1"), mf.data.load("mnist:0,1,split=test")
    if options.net in ("mlp", "both"):
        net = nn.Sequential(
            nn.Linear(784, 128, bias=False), nn.ReLU(), nn.Linear(128, 64, bias=False), nn.ReLU(),
            nn.Linear(64, 1, bias=False),
        )  # fmt: skip
        rows = torch.utils.data.TensorDataset(torch.tensor(np.array(train.X)), torch.tensor(train.y > 0))
        batches = torch.utils.data.DataLoader(rows, 128, shuffle=True)
        tell("mlp", net, train, test, options.out, fit(net, batches, 20), 20)
    if options.net in ("cnn", "both"):
        net = CNN()
        seconds = fit(
            net, torch.utils.data.DataLoader(Enlarged(train.take(np.arange(2000))), 64, shuffle=True), 2
        )
        streams = [
            torch.utils.data.DataLoader(Enlarged(d), 64)
            for d in (train.take(np.arange(3000)), test.take(np.arange(600)))
        ]
        tell("cnn", net, *streams, options.out, seconds, 2)


if __name__ == "__main__":
    main()

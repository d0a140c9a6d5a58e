"""Trainings written out plainly, to hold the compiled ones against."""

import numpy as np


def two_layer_gradient(W, a, X, y):
    """∇L of the mean logistic loss of aᵀρ(Wx), by hand."""
    z = X @ W.T
    h = np.maximum(z, 0)
    q = y * (h @ a)
    g = -y / (1 + np.exp(q)) / len(y)
    return (np.outer(g, a) * (z > 0)).T @ X, h.T @ g


def torch_sgd(theta, X, y, batches, lr, dtype):
    """Weights after plain SGD of PyTorch from `theta` over the given batches of rows."""
    import torch

    kind = {"double": torch.float64, "single": torch.float32}[dtype]
    W = torch.tensor(theta["W"], dtype=kind, requires_grad=True)
    a = torch.tensor(theta["a"], dtype=kind, requires_grad=True)
    X, y = torch.tensor(np.array(X), dtype=kind), torch.tensor(np.array(y), dtype=kind)
    optimiser = torch.optim.SGD([W, a], lr=lr)
    for rows in batches:
        rows = torch.tensor(np.array(rows), dtype=torch.long)
        loss = torch.nn.functional.softplus(-y[rows] * (torch.relu(X[rows] @ W.T) @ a)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {"W": W.detach().numpy(), "a": a.detach().numpy()}

"""laplace-torch on given weights and rows: START {all,last_layer} OUT, or tasks on request where OUT is -."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from laplace import Laplace  # pyright: ignore[reportMissingImports]
from torch.utils.data import DataLoader, TensorDataset


class Flatten(torch.nn.Module):
    """Images as vectors, in the order in which the given weights read them: height, width, channels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


def network_of(given: dict[str, torch.Tensor]) -> torch.nn.Module:
    """Convolutions, each with a pooling, where a kernel has four axes, and dense layers."""
    layers: list[torch.nn.Module] = []
    kernels = [given[f"kernel{index}"] for index in range(sum(name.startswith("kernel") for name in given))]
    for index, kernel in enumerate(kernels):
        if kernel.ndim == 4:
            layer = torch.nn.Conv2d(kernel.shape[2], kernel.shape[3], kernel.shape[0], padding="same")
            layers += [layer, torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
        else:
            layer = torch.nn.Linear(*kernel.shape)
            before = [Flatten()] if index and kernels[index - 1].ndim == 4 else []
            layers += [*before, layer, torch.nn.ReLU()]
        layer.weight.data = (kernel.permute(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T).contiguous()
        assert layer.bias is not None
        layer.bias.data = given[f"bias{index}"]
    return torch.nn.Sequential(*layers[:-1])


def main() -> None:
    path, weights, out = sys.argv[1:]
    with np.load(path) as start:
        given = {name: torch.from_numpy(start[name]) for name in start.files}
    for name in ("x", "new"):  # channels before height and width
        given[name] = given[name].movedim(-1, 1).contiguous() if given[name].ndim == 4 else given[name]
    network = network_of(given)
    loader = DataLoader(TensorDataset(given["x"], given["y"].long()), batch_size=128)

    def fitted() -> Any:
        made = Laplace(
            network, "classification", subset_of_weights=weights, hessian_structure="kron", prior_precision=1.0
        )
        made.fit(loader)
        return made

    predicted = lambda made: made(given["new"], pred_type="glm", link_approx="probit").detach().numpy()
    made = fitted()
    if out != "-":
        np.save(out, predicted(made))
        return

    from benchmarks.speed.peers.worker import serve

    probabilities = lambda: {"probabilities": predicted(made).tolist()}
    serve({"fit": lambda: fitted() and None, "predict": lambda: predicted(made), "probabilities": probabilities})


if __name__ == "__main__":
    main()

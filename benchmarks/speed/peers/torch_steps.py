"""ivon-opt and Adam of PyTorch on a given start and batch: `python -m benchmarks.speed.peers.torch_steps START N`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ivon  # pyright: ignore[reportMissingImports]
import numpy as np
import torch
from torch.nn.functional import cross_entropy

from benchmarks.speed.peers.worker import serve

STEPS = 5


def main() -> None:
    with np.load(sys.argv[1]) as start:
        given = {name: torch.from_numpy(start[name]) for name in start.files}
    x, y, data = given["x"], given["y"].long(), int(sys.argv[2])

    def network() -> torch.nn.Sequential:
        layers: list[torch.nn.Module] = []
        for index in range(sum(name.startswith("kernel") for name in given)):
            kernel = given[f"kernel{index}"]
            layer = torch.nn.Linear(*kernel.shape)
            layer.weight.data, layer.bias.data = kernel.T.contiguous(), given[f"bias{index}"].clone()
            layers += [layer, torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    def steps(adam: bool) -> Callable[[], Any]:
        model = network()
        if adam:
            optimiser: Any = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
        else:
            optimiser = ivon.IVON(model.parameters(), lr=0.1, ess=data)

        def one() -> None:
            optimiser.zero_grad()
            cross_entropy(model(x), y).backward()

        def turn() -> None:
            for _ in range(STEPS):
                if adam:
                    one()
                else:
                    with optimiser.sampled_params(train=True):
                        one()
                optimiser.step()

        return turn

    loss = lambda: {"loss": float(cross_entropy(network()(x), y))}
    serve({"ivon": steps(adam=False), "adam": steps(adam=True), "loss": loss})


if __name__ == "__main__":
    main()

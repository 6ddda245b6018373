"""laplace-torch on given weights and rows: START {all,last_layer} OUT, or tasks on request where OUT is -."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from laplace import Laplace  # pyright: ignore[reportMissingImports]
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    path, weights, out = sys.argv[1:]
    with np.load(path) as start:
        given = {name: torch.from_numpy(start[name]) for name in start.files}
    layers: list[torch.nn.Module] = []
    for index in range(3):
        layer = torch.nn.Linear(*given[f"kernel{index}"].shape)
        layer.weight.data, layer.bias.data = given[f"kernel{index}"].T.contiguous(), given[f"bias{index}"]
        layers += [layer, torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers[:-1])
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

"""A posterior for a convolutional network that PyTorch has trained, in a few lines, without another training run.

A network as PyTorch's tutorials write it, with batch normalisation and dropout, learns the digits until it is sure of
itself. `lamu.networks.Torch` takes the module, `lamu.fit(..., epochs=0)` goes straight to the posterior of its last
layer. Shown are accuracy, negative log likelihood and calibration error on test rows before and after, and that the
weights go back into the module.

    python examples/pytorch_network.py
"""

import warnings

import numpy as np
import torch
from torch import nn

import lamu

x, y = lamu.data.load("digits")
x = np.asarray(x, np.float32).reshape(-1, 1, 8, 8)
train, test = lamu.data.split(y, test_size=0.8, seed=0, stratify=True)
kept, test = test[: len(test) // 5], test[len(test) // 5 :]  # rows to choose the scale of the prior by

torch.manual_seed(0)
module = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(256, 64),
    nn.ReLU(),
    nn.Dropout(0.1),
    nn.Linear(64, 10),
)
optimizer = torch.optim.Adam(module.parameters(), 3e-3)
inputs, labels = torch.tensor(x[train]), torch.tensor(np.array(y[train]), dtype=torch.long)
for _ in range(150):
    for rows in torch.randperm(len(inputs)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(inputs[rows]), labels[rows]).backward()
        optimizer.step()

# The posterior of the last layer, around the weights that PyTorch left; rows kept apart choose the scale of the prior.
network = lamu.networks.Torch(module, head="8/*")
model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.LearnedNormal())
options = {"epochs": 0, "statistics": lamu.batch_statistics.Frozen()}
warnings.simplefilter("ignore", lamu.Unconverged)  # PyTorch trained without a prior: the mean is no mode under one
posterior = lamu.fit(
    model, (x[train], y[train]), lamu.algorithms.last_layer(), validation=(x[kept], y[kept]), **options
).posterior
point = lamu.fit(posterior.model, (x[train], y[train]), lamu.algorithms.adam(), **options).posterior

print(f"{'':24}  accuracy    nll    ece")
for name, each in (("the network alone", point), ("its last layer believed", posterior)):
    pred = each.predict(x[test])
    figures = [score(pred, y[test]) for score in (lamu.scores.accuracy, lamu.scores.nll, lamu.scores.ece)]
    print(f"{name:24}  {figures[0]:8.3f}  {figures[1]:5.3f}  {figures[2]:5.3f}")

module.load_state_dict(network.state_dict(posterior.mean["network"]))
module.eval()
with torch.no_grad():
    right = (module(torch.tensor(x[test])).argmax(1).numpy() == np.asarray(y[test])).mean()
print(f"\nthe module with the posterior's mean in its last layer: accuracy {right:.3f}")

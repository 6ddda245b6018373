"""A posterior over low-rank adapters of a transformer that PyTorch has trained: the camera was turned, 150 labels left.

A small transformer reads the digits as eight rows of eight pixels and learns them upright. Then all images are turned
by 90 degrees. `lamu.LowRankAdapter` freezes the transformer and puts a correction of rank 2 beside each matrix;
the last layer is trained whole. Adam's point and IVON's belief about the same parameters learn from 150 of them.
Shown are the accuracy, the negative log likelihood and the calibration error on the other images.

    python examples/lora.py
"""

import warnings

import jax
import numpy as np
import torch
from torch import nn

import lamu

x, y = lamu.data.load("digits")
upright = np.asarray(x, np.float32).reshape(-1, 8, 8)
turned = np.ascontiguousarray(np.rot90(upright, axes=(1, 2)))
labels = np.asarray(y, np.int64)
rest, few = lamu.data.split(y, test_size=150 / len(y), seed=0, stratify=True)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.place = nn.Parameter(0.1 * torch.randn(8, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layers(self.embed(x) + self.place).mean(1))


torch.manual_seed(0)
module = Reader()
optimizer = torch.optim.Adam(module.parameters(), 2e-3)
for _ in range(30):
    for rows in torch.randperm(len(rest)).split(64):
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            module(torch.tensor(upright[rest[rows]])), torch.tensor(labels[rest[rows]])
        ).backward()
        optimizer.step()

network = lamu.LowRankAdapter(lamu.networks.Torch(module), rank=2, full="head/*")
model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))

# At T = 1 the mean-field belief of 2,026 weights hardly leaves its prior for 150 rows; a colder one does.
runs = {"adam, a point": (lamu.algorithms.adam(3e-3), 1.0), "ivon at T = 0.02": (lamu.algorithms.ivon(), 0.02)}
options = {"epochs": 300, "batch_size": 50}
warnings.simplefilter("ignore", lamu.Unconverged)  # 900 steps are few for IVON
with torch.no_grad():
    before = (module(torch.tensor(turned[rest])).argmax(1).numpy() == labels[rest]).mean()
print(f"the transformer on turned images: accuracy {before:.3f}")
print(f"\n{'150 turned images':24}  accuracy    nll    ece")
for name, (algorithm, temperature) in runs.items():
    posterior = lamu.fit(model, (turned[few], labels[few]), algorithm, temperature=temperature, **options).posterior
    pred = posterior.predict(turned[rest])
    figures = [score(pred, labels[rest]) for score in (lamu.scores.accuracy, lamu.scores.nll, lamu.scores.ece)]
    print(f"{name:24}  {figures[0]:8.3f}  {figures[1]:5.3f}  {figures[2]:5.3f}")
adapted = lamu.tree.dimension(posterior.model.init(jax.random.key(0), lamu.data.Batch.of(turned[few], labels[few]))[0])
print(f"\n{adapted} parameters learned, beside {sum(each.numel() for each in module.parameters())} that stay")

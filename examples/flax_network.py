"""A posterior for a network that Flax has trained, in a few lines, without another training run.

A convolutional network as Flax's tutorials write it learns the digits from few rows until it is sure of itself.
`lamu.networks.NNX.of` takes the module as it is, `lamu.fit(..., epochs=0)` goes straight to the posterior of its last
layer, and rows that the network has not seen choose the scale of the prior. Shown are accuracy, negative log
likelihood and calibration error on test rows before and after.

    python examples/flax_network.py
"""

import logging
import warnings

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import lamu

x, y = lamu.data.load("digits")
x = np.asarray(x, np.float32).reshape(-1, 8, 8, 1)
train, test = lamu.data.split(y, test_size=0.8, seed=0, stratify=True)
kept, test = test[: len(test) // 5], test[len(test) // 5 :]


class CNN(nnx.Module):
    """One convolution and two dense layers."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.hidden = nnx.Linear(256, 64, rngs=rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.max_pool(nnx.relu(self.conv(x)), (2, 2), (2, 2))
        return self.head(nnx.relu(self.hidden(x.reshape(x.shape[0], -1))))


module = CNN(nnx.Rngs(0))
optimizer = nnx.Optimizer(module, optax.adam(1e-2), wrt=nnx.Param)


@nnx.jit
def step(module, optimizer, images, labels):
    """One step of Adam."""

    def loss(module):
        return optax.softmax_cross_entropy_with_integer_labels(module(images), labels).mean()

    optimizer.update(module, nnx.grad(loss)(module))


for _ in range(1500):
    step(module, optimizer, jnp.asarray(x[train]), jnp.asarray(y[train]))

# The posterior of the last layer, around the weights that Flax left.
network = lamu.networks.NNX.of(module, head="head/*")
model = lamu.Model(network, lamu.likelihoods.Categorical(10), lamu.priors.LearnedNormal())
warnings.simplefilter("ignore", lamu.Unconverged)  # trained without a prior: the mean is no mode under one
logging.getLogger("lamu").setLevel(logging.ERROR)
data, unseen = (x[train], y[train]), (x[kept], y[kept])
posterior = lamu.fit(model, data, lamu.algorithms.last_layer(), epochs=0, validation=unseen).posterior
point = lamu.fit(posterior.model, data, lamu.algorithms.adam(), epochs=0).posterior

print(f"{'':24}  accuracy    nll    ece")
for name, each in (("the network alone", point), ("its last layer believed", posterior)):
    pred = each.predict(x[test])
    figures = [score(pred, y[test]) for score in (lamu.scores.accuracy, lamu.scores.nll, lamu.scores.ece)]
    print(f"{name:24}  {figures[0]:8.3f}  {figures[1]:5.3f}  {figures[2]:5.3f}")
print(f"\nthe scale of the prior that unseen rows chose: {float(posterior.model.prior.scale):.3g}")

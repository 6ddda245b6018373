r"""An algorithm of one's own, written as a class: an optimiser that measures the curvature at every k-th step only.

The curvature is the diagonal of the Hessian $H$, estimated by $u \odot H u$ with random signs $u$ (Hutchinson) and
averaged over time. One product $H u$ costs as much as two gradients, so that with $k = 10$ a step costs 1.2 gradients:

$$ \theta \leftarrow \theta - \rho_t\, \frac{m}{\max(h, \epsilon)}, \qquad
   h \leftarrow \beta h + (1 - \beta)\, |u \odot H u| \text{ at every k-th step} $$

Any class with `traits`, `choices`, `init`, `step` and `posterior` is an algorithm. Keys are arguments; `step` is pure.

    python examples/yours/curvature_every_k.py
    lamu fit diabetes --algorithm curvature_every_k:CurvatureEveryK --set every=5 --out run   # in this folder

Source: Liu et al. (2023), "Sophia", for the estimate at every k-th step.
"""

import warnings

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu import tree
from lamu.families import Point
from lamu.posterior import Posterior
from lamu.predictives import Sampled
from lamu.protocol import Choices, Info, Traits
from lamu.record import record, static


@record
class State:
    """What a step needs: parameters, momentum m, curvature h, the number of steps so far, and the network's state."""

    params: object
    momentum: object
    curvature: object
    count: object
    network_state: object


@record
class CurvatureEveryK:
    """The optimiser; its posterior is a point."""

    learning_rate: float = 0.3
    every: int = static(default=10)
    b1: float = 0.9
    b2: float = 0.9

    traits = Traits()
    choices = Choices("Gaussian, fixed covariance", "Delta", "Hutchinson, every k steps", departures=("momentum",))

    def init(self, key, objective, batch):
        params, network_state = objective.model.init(key, batch)
        zeros = tree.zeros_like(params)
        return State(params, zeros, zeros, jnp.zeros((), jnp.int32), network_state)

    def step(self, key, state, batch, objective):
        def loss(params):
            return objective.mean_loss(params, batch, state.network_state, key, train=True)

        (value, network_state), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)

        def measured():
            keys = tree.keys_like(key, state.params)
            signs = jax.tree.map(lambda k, p: jax.random.rademacher(k, p.shape, p.dtype), keys, state.params)
            product = jax.jvp(lambda p: jax.grad(loss, has_aux=True)(p)[0], (state.params,), (signs,))[1]
            beta = jnp.where(state.count == 0, 0.0, self.b2)
            return jax.tree.map(lambda h, u, v: beta * h + (1 - beta) * jnp.abs(u * v), state.curvature, signs, product)

        curvature = jax.lax.cond(state.count % self.every == 0, measured, lambda: state.curvature)
        momentum = jax.tree.map(lambda m, g: self.b1 * m + (1 - self.b1) * g, state.momentum, gradient)
        rate = self.learning_rate / (1 + state.count / 200)
        params = jax.tree.map(lambda p, m, h: p - rate * m / jnp.maximum(h, 1e-2), state.params, momentum, curvature)
        return State(params, momentum, curvature, state.count + 1, network_state), Info(value)

    def posterior(self, key, state, objective, data, trace):
        return Posterior(objective.model, Point(state.params), state.network_state, Sampled(), key)


if __name__ == "__main__":
    lamu.testing.check_algorithm(CurvatureEveryK(every=2))  # every law that it must obey
    x, y = lamu.data.load("diabetes")
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=0.7)).standardised(x, y)
    exact = lamu.fit(model, (x, y), lamu.algorithms.conjugate()).posterior.predict(x).mean  # the mean is the mode
    warnings.simplefilter("ignore", lamu.Unconverged)  # a hundred epochs are few, on purpose
    print("distance of the predictions from the exact mode's, in the units of the target, after 100 epochs")
    for name, algorithm in (
        ("curvature every step", CurvatureEveryK(every=1)),
        ("curvature every 10", CurvatureEveryK(every=10)),
        ("curvature every 50", CurvatureEveryK(every=50)),
        ("Adam", lamu.algorithms.adam()),
        ("SGD", lamu.algorithms.sgd()),
    ):
        posterior = lamu.fit(model, (x, y), algorithm, epochs=100, batch_size=64).posterior
        print(f"{name:22} {float(np.sqrt(np.mean((posterior.predict(x).mean - exact) ** 2))):.2f}")

"""Your own loop: `init`, `step` and `posterior` are the public way in, and `lamu.fit` is only one way to call them.

The first part is the whole loop, in twenty lines. The second mixes in optax: Adam's update with a clipped gradient and
a schedule, for a loss that the objective gives.

    python examples/your_own_loop.py
"""

import jax
import numpy as np
import optax

import lamu
from lamu.objective import Objective

x, y = lamu.data.load("digits")
train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=True)
model = lamu.Model(lamu.networks.MLP((32,)), lamu.likelihoods.Categorical(10), lamu.priors.Normal(1.0))


def loop():
    """A Bayesian training loop, by hand."""
    data = lamu.data.Arrays.of((x[train], y[train]))
    objective = Objective(model, data_size=data.count)
    algorithm = lamu.algorithms.ivon(learning_rate=0.1)
    step = jax.jit(algorithm.step)

    key = jax.random.key(0)
    state = algorithm.init(key, objective, data.example(64))
    for epoch in range(20):
        for number, batch in enumerate(data.batches(64)):  # in order; the last batch is padded and masked
            step_key = jax.random.fold_in(jax.random.fold_in(key, epoch), number)
            state, info = step(step_key, state, batch, objective)
    posterior = algorithm.posterior(key, state, objective, data, trace=None)

    pred = posterior.predict(x[test])
    accuracy, nll = lamu.scores.accuracy(pred, y[test]), lamu.scores.nll(pred, y[test])
    print(f"own loop, ivon:        accuracy {accuracy:.3f}, NLL {nll:.3f}, loss of the last batch {info.loss:.3f}")


def with_optax():
    """The objective's loss in an optax loop: nothing of the library's algorithms is needed."""
    data = lamu.data.Arrays.of((x[train], y[train]))
    objective = Objective(model, data_size=data.count)
    params, network_state = model.init(jax.random.key(0), data.example(64))
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-2, 460)))
    memory = optimiser.init(params)

    @jax.jit
    def step(params, memory, batch):
        gradient = jax.grad(lambda params: objective.mean_loss(params, batch, network_state)[0])(params)
        updates, memory = optimiser.update(gradient, memory, params)
        return optax.apply_updates(params, updates), memory

    for _ in range(20):
        for batch in data.batches(64):
            params, memory = step(params, memory, batch)
    f, _ = model.outputs(params, network_state, x[test])
    print(f"own loop, optax chain: accuracy {np.mean(np.argmax(f, axis=1) == y[test]):.3f}")

    # The same transformation as an algorithm, in lamu's loop.
    fit = lamu.fit(model, (x[train], y[train]), lamu.algorithms.map_estimate(optimiser), epochs=20)
    print(f"lamu.fit, optax chain: accuracy {lamu.scores.accuracy(fit.posterior.predict(x[test]), y[test]):.3f}")


if __name__ == "__main__":
    loop()
    with_optax()

"""Ask the right questions: Thompson sampling on real rows, against acting on the best guess.

Somebody hands over digits, 25 at a time, and for each we may try one of ten labels. All that we learn is whether it was
right: nobody tells us the label itself. So every answer is also a question, and who always acts on the best guess asks
the same ones again.

For each label the reward is a linear function of the 16 pixels of the shrunken image, learned by Bayes' rule in closed
form, one belief a label. The two players differ in one line: one acts on the mean of the belief, the other on a draw
from it (Thompson 1933), which is sure only where the belief is. Both see the same rows in the same order; ten orders
run side by side, and the difference is paired. Set, noise and width were chosen among a few where the draw gains; on
small and easy sets (wine) the best guess explores enough by its own mistakes, and wins.

    python examples/ask_the_right_questions.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import lamu
from lamu.data import Batch
from lamu.objective import Objective

LABELS, ROWS, AT_ONCE, ORDERS = 10, 1500, 25, 10
NOISE, WIDTH = 0.2, 0.2  # of a reward about its linear function, and of the weights beforehand


def digits():
    """Returns the digits at 4 x 4 pixels, standardised, and their labels."""
    x, y = lamu.data.load("digits")
    x = x.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16)
    return jnp.asarray((x - x.mean(0)) / x.std(0)), jnp.asarray(y)


x, y = digits()
algorithm = lamu.algorithms.conjugate()
model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Gaussian(scale=NOISE), lamu.priors.Normal(WIDTH))
objective = Objective(model, float(ROWS))


def best_guess(key, belief):
    """Acts on the mean."""
    return belief.mean


def thompson(key, belief):
    """Acts on a draw."""
    return belief.sample(key)


def play(choose, key):
    """Returns whether each row's label was right, `[rounds, rows]`, for one order of the rows."""
    order_key, key = jax.random.split(key)
    rounds = jax.random.permutation(order_key, len(x))[:ROWS].reshape(-1, AT_ONCE)
    example = Batch.of(x[:1], jnp.zeros(1))
    beliefs = jax.vmap(lambda _: algorithm.init(jax.random.key(0), objective, example))(jnp.arange(LABELS))

    def one_round(beliefs, step):
        number, rows = step
        keys = jax.random.split(jax.random.fold_in(key, number), (LABELS, AT_ONCE))

        def promise(state, key, row):
            weights = {"network": choose(key, state.belief), "likelihood": {}}
            return model.outputs(weights, {}, row[None])[0][0, 0]

        promised = jax.vmap(jax.vmap(promise, (None, 0, 0)), (0, 0, None))(beliefs, keys, x[rows])  # [labels, rows]
        tried = jnp.argmax(promised, axis=0)
        reward = (tried == y[rows]).astype(x.dtype)

        def learn(state, label):  # only from the rows for which this label was tried
            batch = Batch(x[rows], reward, (tried == label).astype(x.dtype), jnp.ones(AT_ONCE, x.dtype))
            return algorithm.step(jax.random.key(0), state, batch, objective)[0]

        return jax.vmap(learn)(beliefs, jnp.arange(LABELS)), reward

    return jax.lax.scan(one_round, beliefs, (jnp.arange(len(rounds)), rounds))[1]


keys = jax.random.split(jax.random.key(0), ORDERS)
rewards = {
    choose.__name__: np.asarray(jax.jit(jax.vmap(lambda key, choose=choose: play(choose, key)))(keys))
    for choose in (best_guess, thompson)
}
print(f"{ROWS} digits, {AT_ONCE} at a time, {ORDERS} orders; the share of labels that were right\n")
thirds = ("first third", "second third", "last third")
print(f"{'':12}{''.join(f'{name:>14}' for name in thirds)}{'all':>10}{'worst order':>14}")
for name, right in rewards.items():
    each = "".join(f"{part.mean():14.3f}" for part in np.array_split(right, 3, axis=1))
    print(f"{name:12}{each}{right.mean():10.3f}{right.mean(axis=(1, 2)).min():14.3f}")
away = rewards["thompson"].mean(axis=(1, 2)) - rewards["best_guess"].mean(axis=(1, 2))
error = away.std(ddof=1) / np.sqrt(ORDERS)
print(f"\nThompson sampling less the best guess: {away.mean():+.3f} ± {error:.3f} of the labels, over all rows")
late = (rewards["thompson"] - rewards["best_guess"])[:, -len(rewards["thompson"][0]) // 3 :].mean(axis=(1, 2))
print(f"in the last third:                     {late.mean():+.3f} ± {late.std(ddof=1) / np.sqrt(ORDERS):.3f}")
print("better" if away.mean() > 2 * error else "not better", "by two paired standard errors")

"""Your own algorithm in thirty lines: one row of the table with one column changed.

IVON averages over Gaussian draws. Here the draw is a corner of the box one standard deviation around the mean: a bit a
weight in the place of a normal number. A corner has the mean and the covariance of the belief, so that gradient and
curvature stay unbiased where the loss is quadratic; beyond that it is another estimate, and says so in its name. All
else (the rule, its geometry, momentum, prior, posterior, saving, prediction, checkpoints) comes from the parts.

    python examples/your_own_algorithm.py
"""

import jax

import lamu
from lamu import tree
from lamu.expectations import Expectation
from lamu.geometry import Retraction
from lamu.objective.curvature import Price
from lamu.operators import Diagonal
from lamu.rate import Annealed, Constant
from lamu.record import record
from lamu.rule import Rule
from lamu.update_rules import Clipped, Inverse, MovingAverage

# --- thirty lines ---------------------------------------------------------------------------------------------------


@record
class Corners(Expectation):
    """E_q by a random corner of the box m ± σ: exact in expectation for quadratic losses, one gradient."""

    departure = "draws at corners"

    def evaluate(self, key, belief, loss, curvature, structure):
        sign_key, layer_key = jax.random.split(key)
        keys = tree.keys_like(sign_key, belief.mean)
        signs = jax.tree.map(lambda k, m: jax.random.rademacher(k, m.shape, m.dtype), keys, belief.mean)
        theta = tree.add(belief.mean, belief.precision.inverse_root(signs))
        return curvature.evaluate(loss, theta, belief, structure, layer_key)


def cornered(learning_rate=Annealed(0.5), b1=0.9, b2=0.999):
    """IVON with one column changed: the expectation."""
    return Rule(
        structure=Diagonal,
        expectation=Corners(),
        curvature=Price(),
        geometry=Retraction(),
        learning_rate=learning_rate,
        precision_rate=Constant(1 - b2),
        momentum=MovingAverage(b1),
        metric=Clipped(Inverse(), 0.02),
        hess_init=0.5,
    )


# ---------------------------------------------------------------------------------------------------------------------


def show(name, algorithm):
    """Fits digits, saves, loads and scores: what every algorithm can, whoever wrote it."""
    x, y = lamu.data.load("digits")
    train, test = lamu.data.split(y, test_size=0.2, seed=0, stratify=True)
    model = lamu.Model(lamu.networks.MLP((64, 64)), lamu.likelihoods.Categorical(10)).standardised(x[train], y[train])
    posterior = lamu.fit(model, (x[train], y[train]), algorithm, epochs=30).posterior
    pred = posterior.predict(x[test])
    nll = lamu.scores.with_error(lamu.scores.nll, pred, y[test])
    row = algorithm.choices
    print(f"{name:9} {row.family} | {row.expectation} | {row.curvature} | {row.geometry}")
    print(f"{'':9} accuracy {lamu.scores.accuracy(pred, y[test]):.3f}, NLL {nll.value:.3f} ± {nll.error:.3f}")


if __name__ == "__main__":
    show("ivon", lamu.algorithms.ivon())
    show("cornered", cornered())

"""Natural gradients against plain ones: VOGN and Bayes by backprop from the same start to the same bound.

Logistic regression with a diagonal Gaussian belief. Khan et al. (2018), figure 2, take the Wisconsin breast cancer set
(prior precision 1) and 3 against 5 of the post's digits (25); here are the first, where LAMU_DATA names the folder that
holds it, 3 against 5 of the bundled digits and of MNIST in their place, 4 against 9 of the bundled ones, and a1a. Both
algorithms have the same family, start, prior, batches of 64 and ten draws a step, and the same six learning rates to
choose from; VOGN takes its curvature at the rate of its mean (b2=None), backprop goes by Adam. Seeds and rates run side
by side under one `vmap`.

Counted are gradient evaluations until the negative ELBO, exact by quadrature, is within 1 % of the better of the two
algorithms' long-run values. Printed are each algorithm's best rate by that count, the median of five seeds, and seconds
of wall time for as many steps of one run.

    python examples/vogn_versus_backprop.py [figure.png]
"""

import os
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import lamu
from lamu import tree
from lamu.data import Batch
from lamu.expectations import Quadrature
from lamu.families import Gaussian
from lamu.objective import BatchLoss, Objective, Weights
from lamu.objective.curvature import Hessian
from lamu.operators import Diagonal

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SEEDS, STEPS, EVERY, ROWS, DRAWS = 5, 2000, 5, 64, 10
WIDTH = 0.1  # the belief's standard deviation at the start


def sets():
    """Yields name, features, labels and the prior's precision."""
    folder = Path(os.environ.get("LAMU_DATA", "."))
    if (folder / "tabular").exists():
        with np.load(folder / "tabular" / "breast_cancer.npz") as archive:
            yield "breast cancer", archive["X"].astype(np.float32), archive["y"].astype(int), 1.0
    x, y = lamu.data.load("digits")
    for one, other in ((3, 5), (4, 9)):
        chosen = np.isin(y, (one, other))
        yield f"digits, {one} against {other}", x[chosen] / 16, (y[chosen] == other).astype(int), 1.0
    if (folder / "images").exists():
        with np.load(folder / "images" / "mnist.npz") as archive:
            x, y = archive["X_train"][:8000], archive["y_train"][:8000]
        chosen = np.flatnonzero(np.isin(y, (3, 5)))[:770]
        halved = x[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255
        yield "MNIST at 14 x 14, 3 against 5", halved, (y[chosen] == 5).astype(int), 25.0
    if (folder / "tabular").exists():
        with np.load(folder / "tabular" / "a1a.npz") as archive:
            yield "a1a", archive["X_train"].astype(np.float32), archive["y_train"].astype(int), 2.8072


class Problem:
    """One set, its model, and the exact bound."""

    def __init__(self, x, y, delta):
        """Keeps the data on the device."""
        self.x, self.y = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)
        self.count = len(self.x)
        prior = lamu.priors.Normal(delta**-0.5)
        self.model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Bernoulli(), prior)
        self.objective = Objective(self.model, float(self.count))
        self.whole, self.delta = Batch.of(self.x, self.y), delta
        params, _ = self.model.init(jax.random.key(0), self.whole)
        self.model = self.model.starting_at(tree.zeros_like(params))
        self.objective = Objective(self.model, float(self.count))

    def negative_elbo(self, belief):
        """The bound of a Gaussian belief, in nats."""
        mean, precision = Weights().conjugate_prior(self.objective, belief.mean)
        prior = Gaussian(mean, Diagonal(tree.scale(precision, self.objective.data_size)))
        loss = BatchLoss(self.objective, self.whole, {}, Weights(), {}, conjugate=True)
        expected = Quadrature(40).evaluate(jax.random.key(0), belief, loss, Hessian(), Diagonal).value
        return self.count * expected + belief.kl(prior)

    def vogn(self, rate):
        """The curvature at the start is what makes the belief as wide as backprop's."""
        initial = 1 / (self.count * WIDTH**2) - self.delta / self.count
        return lamu.algorithms.vogn(rate, b2=None, clip=None, draws=DRAWS, initial=initial)

    def backprop(self, rate):
        """Adam, whose steps are multiplied with the rate, which may differ from run to run."""
        return lamu.algorithms.bayes_by_backprop(optax.adam(1.0), draws=DRAWS, initial=WIDTH, factor=rate)

    def natural_belief(self, algorithm, state):
        """VOGN's Gaussian."""
        return algorithm.belief(state, self.objective)

    def plain_belief(self, algorithm, state):
        """Backprop's Gaussian."""
        return algorithm.belief(state.params).gaussian()

    def path(self, make, belief_of):
        """Returns one run's negative ELBOs, as a function of the rate and of a seed."""

        def run(rate, seed):
            algorithm, key = make(rate), jax.random.key(seed)
            state = algorithm.init(key, self.objective, self.whole)

            def step(state, t):
                rows, noise = jax.random.split(jax.random.fold_in(key, t))
                chosen = jax.random.choice(rows, self.count, (ROWS,), replace=False)
                batch = Batch.of(self.x[chosen], self.y[chosen])
                return algorithm.step(noise, state, batch, self.objective)[0], None

            def block(state, start):
                state, _ = jax.lax.scan(step, state, start + jnp.arange(EVERY))
                return state, self.negative_elbo(belief_of(algorithm, state))

            return jax.lax.scan(block, state, jnp.arange(0, STEPS, EVERY))[1]

        return run


def first(paths, target):
    """How many gradients until each path is at the target; infinite where it never is."""
    reached = paths <= target
    return np.where(reached.any(-1), (reached.argmax(-1) + 1) * EVERY * DRAWS, np.inf)


def main():
    """Prints the counts, and draws the paths."""
    import matplotlib.pyplot as plt

    found_sets = list(sets())
    figure, axes = plt.subplots(1, len(found_sets), figsize=(5 * len(found_sets), 4), squeeze=False)
    for axis, (name, x, y, delta) in zip(axes[0], found_sets, strict=True):
        problem, found, seconds = Problem(x, y, delta), {}, {}
        contest = {
            "VOGN": (problem.vogn, problem.natural_belief),
            "Bayes by backprop": (problem.backprop, problem.plain_belief),
        }
        for label, parts in contest.items():
            run = problem.path(*parts)
            every = jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))
            paths = np.asarray(every(jnp.asarray(RATES), jnp.arange(SEEDS)))  # [rates, seeds, checkpoints]
            found[label] = np.where(np.isfinite(paths), paths, np.inf)
            alone = jax.jit(run)
            jax.block_until_ready(alone(RATES[2], 0))
            start = time.perf_counter()
            jax.block_until_ready(alone(RATES[2], 0))
            seconds[label] = (time.perf_counter() - start) / STEPS
        best = min(paths[:, :, -STEPS // EVERY // 10 :].mean((1, 2)).min() for paths in found.values())
        print(f"{name}, {problem.count} rows: the better long-run value of the negative ELBO is {best:.2f} nats")
        evaluations = {}
        for label, paths in found.items():
            counts = np.median(first(paths, 1.01 * best), axis=1)
            chosen = int(np.argmin(counts))
            evaluations[label] = counts[chosen]
            middle, low, high = (np.quantile(paths[chosen], q, axis=0) for q in (0.5, 0.0, 1.0))
            steps = EVERY * DRAWS * (1 + np.arange(len(middle)))
            (line,) = axis.plot(steps, middle, label=f"{label}, rate {RATES[chosen]:g}")
            axis.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
            spent = f"{counts[chosen] / DRAWS * seconds[label]:.3f} s"
            print(f"    {label:18} rate {RATES[chosen]:<6g} {counts[chosen]:6.0f} gradients, {spent}")
        ratio = evaluations["VOGN"] / evaluations["Bayes by backprop"]
        print(f"    VOGN needs {ratio:.2f} of backprop's gradients")
        axis.axhline(1.01 * best, color="grey", lw=0.8, ls="--")
        axis.set(title=name, xlabel="gradient evaluations", xscale="log", ylim=(0.98 * best, 1.7 * best))
        axis.legend(frameon=False)
    axes[0, 0].set_ylabel("negative ELBO, nats")
    figure.tight_layout()
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "vogn_versus_backprop.png")
    figure.savefig(place, dpi=120)
    print(f"wrote {place}")


if __name__ == "__main__":
    main()

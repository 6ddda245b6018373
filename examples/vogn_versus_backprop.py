"""Natural gradients against plain ones: VOGN and Bayes by backprop from the same start to the same bound.

Logistic regression with a diagonal Gaussian belief. Khan et al. (2018), figure 2, take the Wisconsin breast cancer set
(prior precision 1) and 3 against 5 of the post's digits (25), and find in its curves (no figures are given) that
natural gradients need fewer passes than black-box variational inference. Here are breast cancer, a1a and 3 against 5 of
MNIST where LAMU_DATA names the folder that holds them; breast cancer and 3 against 5 of the bundled digits where it
does not.

Both algorithms have the same family, start, prior, batches of 64 and ten draws a step; VOGN takes its curvature at the
rate of its mean (b2=None), backprop goes by Adam. Both are tuned alike: six learning rates, and of these the one with
the lowest area under the negative log likelihood of a fifth of the training rows, which the run does not see, over all
its checkpoints (the area, so that a slow rate and a bad end both count). The chosen rate then runs on all training
rows, with other seeds. Seeds and rates run side by side under one `vmap`.

Counted are gradient evaluations until the negative ELBO, exact by quadrature, is within 1 % of the better of the two
algorithms' long-run values: the median of five seeds, infinite where most never are. Printed is that beside the
published claim, and seconds of wall time for as many steps of one run.

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
from lamu.objective import BatchLoss, NetworkParameters, Objective
from lamu.objective.curvature import Hessian
from lamu.operators import Diagonal

RATES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
SEEDS, STEPS, EVERY, ROWS, DRAWS = 5, 2000, 5, 64, 10
WIDTH = 0.1  # the belief's standard deviation at the start


def sets():
    """Yields name, features, labels and the prior's precision."""
    folder = Path(os.environ.get("LAMU_DATA", "."))
    x, y = lamu.data.load("breast_cancer")
    yield "breast cancer", standardised(x), y, 1.0
    if (folder / "tabular" / "a1a.npz").exists():
        with np.load(folder / "tabular" / "a1a.npz") as archive:
            yield "a1a", archive["X_train"].astype(np.float32), archive["y_train"].astype(int), 2.8072
    if (folder / "images" / "mnist.npz").exists():
        with np.load(folder / "images" / "mnist.npz") as archive:
            x, y = archive["X_train"][:8000], archive["y_train"][:8000]
        chosen = np.flatnonzero(np.isin(y, (3, 5)))[:770]
        halved = x[chosen].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(-1, 196) / 255
        yield "MNIST at 14 x 14, 3 against 5", halved.astype(np.float32), (y[chosen] == 5).astype(int), 25.0
    else:
        x, y = lamu.data.load("digits")
        chosen = np.isin(y, (3, 5))
        yield "digits, 3 against 5", x[chosen], (y[chosen] == 5).astype(int), 25.0


def standardised(x):
    """Columns with mean zero and deviation one."""
    return (x - x.mean(0)) / x.std(0)


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
        mean, precision = NetworkParameters().conjugate_prior(self.objective, belief.mean)
        prior = Gaussian(mean, precision.scale(self.objective.data_size))
        loss = BatchLoss(self.objective, self.whole, {}, NetworkParameters(), {}, conjugate=True)
        expected = Quadrature(40).evaluate(jax.random.key(0), belief, loss, Hessian(), Diagonal).value
        return self.count * expected + belief.kl(prior)

    def vogn(self, rate):
        """The curvature at the start is what makes the belief as wide as backprop's."""
        initial = 1 / (self.count * WIDTH**2) - self.delta / self.count
        return lamu.algorithms.vogn(rate, b2=None, max_step=None, samples=DRAWS, hess_init=initial)

    def backprop(self, rate):
        """Adam, whose steps are multiplied with the rate, which may differ from run to run."""
        return lamu.algorithms.bayes_by_backprop(optax.adam(1.0), samples=DRAWS, init_scale=WIDTH, factor=rate)

    def natural_belief(self, algorithm, state):
        """VOGN's Gaussian."""
        return algorithm.belief(state, self.objective)

    def plain_belief(self, algorithm, state):
        """Backprop's Gaussian."""
        return algorithm.belief(state.params).gaussian()

    def held_out(self, x, y):
        """The negative log likelihood of other rows under a belief, in nats a row, by quadrature."""
        rows, labels = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)
        nodes, weights = np.polynomial.hermite_e.hermegauss(20)

        def score(belief):
            mean, variance = (tree.ravel(part)[0] for part in (belief.mean, belief.precision.variance(belief.mean)))
            design = jnp.column_stack([jnp.ones(len(rows)), rows])
            f = (design @ mean)[:, None] + jnp.sqrt(design**2 @ variance)[:, None] * nodes
            likelihood = jax.nn.sigmoid(jnp.where(labels[:, None] > 0, f, -f)) @ (weights / weights.sum())
            return -jnp.mean(jnp.log(likelihood))

        return score

    def path(self, make, belief_of, score):
        """Returns one run's scores, as a function of the rate and of a seed."""

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
                return state, score(belief_of(algorithm, state))

            return jax.lax.scan(block, state, jnp.arange(0, STEPS, EVERY))[1]

        return run


def first(paths, target):
    """How many gradients until each path is at the target; infinite where it never is."""
    reached = paths <= target
    return np.where(reached.any(-1), (reached.argmax(-1) + 1) * EVERY * DRAWS, np.inf)


def contest(problem):
    """Each algorithm of a rate, and how its state becomes a Gaussian."""
    return {
        "VOGN": (problem.vogn, problem.natural_belief),
        "Bayes by backprop": (problem.backprop, problem.plain_belief),
    }


def tuned(x, y, delta):
    """Each algorithm's rate with the lowest area under the score of a fifth of the training rows."""
    train, held = lamu.data.split(y, test_size=0.2, seed=0, stratify=True)
    problem, chosen = Problem(x[train], y[train], delta), {}
    score = problem.held_out(x[held], y[held])
    for label, parts in contest(problem).items():
        every = jax.jit(jax.vmap(jax.vmap(problem.path(*parts, score), (None, 0)), (0, None)))
        paths = np.asarray(every(jnp.asarray(RATES), 1000 + jnp.arange(SEEDS)))  # [rates, seeds, checkpoints]
        area = np.where(np.isfinite(paths), paths, np.inf).mean((1, 2))
        chosen[label] = RATES[int(np.argmin(area))]
    return chosen


def main():
    """Prints the counts, and draws the paths."""
    import matplotlib.pyplot as plt

    found_sets = list(sets())
    figure, axes = plt.subplots(1, len(found_sets), figsize=(5 * len(found_sets), 4), squeeze=False)
    for axis, (name, x, y, delta) in zip(axes[0], found_sets, strict=True):
        rates = tuned(x, y, delta)
        problem, found, seconds = Problem(x, y, delta), {}, {}
        for label, parts in contest(problem).items():
            run = problem.path(*parts, problem.negative_elbo)
            paths = np.asarray(jax.jit(jax.vmap(run, (None, 0)))(rates[label], jnp.arange(SEEDS)))
            found[label] = np.where(np.isfinite(paths), paths, np.inf)  # [seeds, checkpoints]
            alone = jax.jit(run)
            jax.block_until_ready(alone(rates[label], 0))
            start = time.perf_counter()
            jax.block_until_ready(alone(rates[label], 0))
            seconds[label] = (time.perf_counter() - start) / STEPS
        best = min(paths[:, -STEPS // EVERY // 10 :].mean() for paths in found.values())
        print(f"{name}, {problem.count} rows: the better long-run value of the negative ELBO is {best:.2f} nats")
        evaluations = {}
        for label, paths in found.items():
            evaluations[label] = np.median(first(paths, 1.01 * best))
            middle, low, high = (np.quantile(paths, q, axis=0) for q in (0.5, 0.0, 1.0))
            steps = EVERY * DRAWS * (1 + np.arange(len(middle)))
            (line,) = axis.plot(steps, middle, label=f"{label}, rate {rates[label]:g}")
            axis.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
            count, spent = evaluations[label], evaluations[label] / DRAWS * seconds[label]
            told = f"{count:6.0f} gradients, {spent:.3f} s" if np.isfinite(count) else "does not get there"
            end = np.median(paths[:, -STEPS // EVERY // 10 :].mean(-1))
            print(f"    {label:18} rate {rates[label]:<6g} {told}; in the end {end:.2f} nats")
        ours, theirs = evaluations["VOGN"], evaluations["Bayes by backprop"]
        verdict = "as published, faster" if ours < theirs else "OTHERWISE: not faster"
        ratio = f"{ours / theirs:.2f} of backprop's gradients" if np.isfinite(ours / theirs) else "no ratio"
        print(f"    VOGN: {ratio}; {verdict} (Khan et al. 2018, figure 2: VOGN is the faster one)", flush=True)
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

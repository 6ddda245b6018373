r"""One rule, many algorithms: each row is the same update with other choices, and lands where its classic does.

    λ ← λ − ρ ∇_μ ( E_q[ℓ(θ)] − H(q) )

The script runs rows of the table (`lamu algorithms` prints all of them) beside what a textbook would do, written out
here by hand or taken from SciPy, and prints the largest difference.

    python examples/one_rule.py
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import lamu
from lamu.data import Batch
from lamu.expectations import Delta
from lamu.objective import Objective
from lamu.operators import Dense
from lamu.rule import natural_step

jax.config.update("jax_enable_x64", True)
A = lamu.algorithms

x, y = lamu.data.load("breast_cancer")
x = x.astype(float)
X = ((x - x.mean(0)) / x.std(0))[:, :8]
Y = np.asarray(y, int)
MODEL = lamu.Model(lamu.networks.Linear(bias=False), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(1.0))
BATCH, OBJECTIVE = Batch.of(X, Y), Objective(MODEL, len(Y))


def by_hand(theta):
    """Mean loss of logistic regression with a standard normal prior, its gradient and its Hessian."""
    f = X @ theta
    p = 1 / (1 + np.exp(-f))
    value = np.mean(np.logaddexp(0, f) - Y * f) + theta @ theta / 2 / len(Y)
    gradient = X.T @ (p - Y) / len(Y) + theta / len(Y)
    return value, gradient, (X.T * (p * (1 - p))) @ X / len(Y) + np.eye(X.shape[1]) / len(Y)


def run(algorithm, steps):
    """Steps the algorithm on all rows; returns its first and last point, and its belief's precision or None."""
    state = algorithm.init(jax.random.key(0), OBJECTIVE, BATCH)
    start = weights(algorithm, state)
    step = jax.jit(algorithm.step)
    for t in range(steps):
        state, _ = step(jax.random.fold_in(jax.random.key(1), t), state, BATCH, OBJECTIVE)
    return start, weights(algorithm, state), state


def weights(algorithm, state):
    mean = algorithm.posterior(jax.random.key(0), state, OBJECTIVE, None, None).mean["network"]
    return np.asarray(lamu.tree.ravel(mean)[0])


def row(choices, classic, difference):
    words = " | ".join((choices.family, choices.expectation, choices.curvature, choices.geometry))
    print(f"{words}\n    = {classic}: largest difference {difference:.1e}")


def coin():
    """Conjugate Bayes: E_q[ℓ] is linear in μ, so one step with ρ = 1 is Bayes' rule."""
    prior, tosses = lamu.families.Beta(2.0, 3.0), jnp.array([1, 1, 0, 1, 1, 0, 1])

    def expected_loss(mu):
        data = sum(tosses) * mu.values[0] + sum(1 - tosses) * mu.values[1]
        return -data - sum(a * b for a, b in zip(prior.natural().values, mu.values, strict=True))

    after = natural_step(prior.natural(), jax.grad(expected_loss)(prior.expectation()), 1.0).family()
    print("Beta | Exact | none needed | straight, ρ = 1")
    print(f"    = Bayes' rule: Beta({float(after.alpha):g}, {float(after.beta):g}); by counting: Beta(7, 5)")


def gradient_descent():
    algorithm = A.gradient_descent(0.5)
    theta, after, _ = run(algorithm, 50)
    for _ in range(50):
        theta = theta - 0.5 * by_hand(theta)[1]
    row(algorithm.choices, "gradient descent, 50 steps by hand", np.abs(theta - after).max())


def newton():
    algorithm = A.newton()
    theta, after, _ = run(algorithm, 6)
    for _ in range(6):
        _, gradient, hessian = by_hand(theta)
        theta = theta - np.linalg.solve(hessian, gradient)
    row(algorithm.choices, "Newton's method, 6 steps by hand", np.abs(theta - after).max())


def laplace():
    """The fixed point of the delta method: the mode, and the Hessian there."""
    algorithm = A.von(0.5, Dense, Delta())
    _, after, state = run(algorithm, 80)
    mode = minimize(lambda t: by_hand(t)[:2], np.zeros(X.shape[1]), jac=True, options={"gtol": 1e-12}).x
    found = np.asarray(algorithm.belief(state, OBJECTIVE).precision.dense(None))
    away = max(np.abs(after - mode).max(), np.abs(found / (len(Y) * by_hand(mode)[2]) - 1).max())
    row(algorithm.choices, "Laplace's method (mode by SciPy, Hessian by hand)", away)


def one_edit_apart():
    """Adam → OGN → VOGN: the fields of the recipes that differ."""
    recipes = [A.adam(), A.ogn(max_step=None), A.vogn(max_step=None)]
    for one, other in itertools.pairwise(recipes):
        a, b = one.choices, other.choices
        changed = [f"{name}: {getattr(a, name)} → {getattr(b, name)}" for name in ("expectation", "curvature")]
        print("   ", "; ".join(line for line in changed if len(set(line.split(": ")[1].split(" → "))) == 2))
        gone = [word for word in a.departures if word not in b.departures]
        if gone:
            print("    no longer:", ", ".join(gone))


if __name__ == "__main__":
    coin()
    gradient_descent()
    newton()
    laplace()
    print("Adam → OGN → VOGN, one edit at a time:")
    one_edit_apart()

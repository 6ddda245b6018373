"""Yesterday's posterior is today's prior: digits that come in five tasks, new writers, and rows to be forgotten.

1. Continual learning. A network learns to tell 0 from 1, then 2 from 3, and so on, and never sees old rows again. With
   `model.with_prior(posterior)` each task starts from what the last one left: a belief, which knows the weights that
   must not move. Beside it: going on without any prior of the past (fine-tuning), a prior of one scale around the last
   weights (L2), and all five tasks at once (joint), which is the ceiling.
2. Transfer. The digits' rows are in the order of their writers. With the posterior of the first writers as prior, a
   quarter of the new writers' labels does what all of them do from a cold start.
3. Forgetting. `lamu.combine.remove` takes rows out of a Laplace posterior by one step, without the other rows; the
   script prints how far that is from fitting again.

    python examples/continual_digits.py
"""

import numpy as np

import lamu
from lamu.combine import remove

TASKS = [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
TRAIN, TEST = 240, 100  # rows a task
x, y = lamu.data.load("digits")
x = np.asarray(x, np.float32)
adam = lamu.algorithms.adam(lamu.rate.Annealed(1e-2))
ivon = lamu.algorithms.ivon()
laplace = lamu.algorithms.laplace(adam, structure=lamu.operators.Diagonal)


def task(number, part):
    """The rows of two digits; an offset takes the eight other classes out of question."""
    rows = np.random.default_rng(100 + number).permutation(np.flatnonzero(np.isin(y, TASKS[number])))
    rows = rows[:TRAIN] if part == "train" else rows[TRAIN : TRAIN + TEST]
    offset = np.full((len(rows), 10), -100.0, np.float32)
    offset[:, list(TASKS[number])] = 0.0
    return {"x": x[rows], "y": y[rows], "offset": offset}


def accuracies(posterior):
    tests = [task(number, "test") for number in range(5)]
    return [
        float(lamu.scores.accuracy(posterior.predict(test["x"], offset=test["offset"]), test["y"])) for test in tests
    ]


def in_turn(model, algorithm, following):
    """Fits the tasks one after the other; `following` makes the next model of the last posterior."""
    for number in range(5):
        posterior = lamu.fit(model, task(number, "train"), algorithm, epochs=40).posterior
        model = following(posterior)
    return accuracies(posterior)


def around(model, point, precision):
    """L2: a prior of one scale around the last weights."""
    gaussian = lamu.families.Gaussian(point["network"], lamu.operators.Scalar(precision))
    return lamu.Model(model.network, model.likelihood, lamu.priors.Belief(gaussian)).starting_at(point)


def continual():
    model = lamu.Model(lamu.networks.MLP((16,), "tanh"), lamu.likelihoods.Categorical(10), lamu.priors.Normal(0.5))
    parts = [task(number, "train") for number in range(5)]
    everything = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    results = {
        "fine-tuning": in_turn(model, adam, lambda last: model.starting_at(last.mean)),
        "L2 to the last weights": in_turn(model, adam, lambda last: around(model, last.mean, 10.0)),
        "laplace, with_prior": in_turn(model, laplace, lambda last: last.model.with_prior(last)),
        "ivon, with_prior": in_turn(model, ivon, lambda last: last.model.with_prior(last)),
        "joint": accuracies(lamu.fit(model, everything, adam, epochs=40).posterior),
    }
    print(f"{'accuracy after five tasks':<26} {'mean':>6} " + " ".join(f"{f'{a}/{b}':>5}" for a, b in TASKS))
    for name, found in results.items():
        print(f"{name:<26} {np.mean(found):6.3f} " + " ".join(f"{value:5.2f}" for value in found))
    return {name: np.mean(found) for name, found in results.items()}


def transfer():
    model = lamu.Model(lamu.networks.MLP((32,), "tanh"), lamu.likelihoods.Categorical(10), lamu.priors.Normal(2.0))
    old, new, test = slice(0, 1000), slice(1000, 1400), slice(1400, None)
    quarter = slice(1000, 1100)

    def fit(model, rows):  # the mode, so that only the prior differs
        return lamu.fit(model, (x[rows], y[rows]), adam, steps=400).posterior

    before = lamu.fit(model, (x[old], y[old]), laplace, steps=400).posterior
    posteriors = {
        "cold start, all 400 labels": fit(model, new),
        "cold start, 100 labels": fit(model, quarter),
        "old posterior as prior, 100": fit(model.with_prior(before), quarter),
    }
    found = {name: float(lamu.scores.accuracy(q.predict(x[test]), y[test])) for name, q in posteriors.items()}
    print("\naccuracy on new writers")
    for name, value in found.items():
        print(f"{name:<28} {value:.3f}")
    return found


def forgetting():
    rows = np.flatnonzero(np.isin(y, (3, 8)))
    labels = (y == 8).astype(int)
    gone, kept, test = rows[:20], rows[20:240], rows[240:]
    model = lamu.Model(lamu.networks.MLP((4,), "tanh"), lamu.likelihoods.Bernoulli(), lamu.priors.Normal(0.5))
    dense = lamu.algorithms.laplace(adam, structure=lamu.operators.Dense)

    def fit(model, rows):
        return lamu.fit(model, (x[rows], labels[rows]), dense, steps=3000, batch_size=240).posterior

    whole = fit(model, rows[:240])
    refit = fit(model.starting_at(whole.mean), kept)  # from there, so that it is the same mode
    removed = remove(whole, (x[gone], labels[gone]))
    means = [lamu.tree.ravel(q.mean["network"])[0] for q in (whole, removed, refit)]
    probabilities = [q.predict(x[test]).mean for q in (whole, removed, refit)]
    print("\nwithout 20 of 240 rows: distance from the refit, of the mean of the weights and of predictions")
    for name, mean, p in zip(("nothing removed", "removed by one step"), means, probabilities, strict=False):
        weights, shift = float(np.linalg.norm(mean - means[2])), float(np.abs(p - probabilities[2]).max())
        print(f"{name:<20} {weights:8.4f} {shift:8.4f}")
    return [float(np.linalg.norm(mean - means[2])) for mean in means[:2]]


if __name__ == "__main__":
    mean = continual()
    assert mean["ivon, with_prior"] > mean["fine-tuning"]
    assert mean["laplace, with_prior"] > mean["fine-tuning"]
    assert mean["joint"] > 0.95
    accuracy = transfer()
    assert accuracy["old posterior as prior, 100"] >= accuracy["cold start, all 400 labels"]
    before, after = forgetting()
    assert after < before

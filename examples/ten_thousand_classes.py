"""Ten thousand classes: a last layer of 1.29 million weights, fitted and asked in seconds and under two gigabytes.

The precision of all its weights would have 1.7e12 entries, and the covariance of the logits of one input 1e8. What is
held here is one basis of the features and a number a weight: no two logits are correlated, and no matrix of logits is
made for any input. The problem is synthetic: features of width 128 around ten thousand class centres.
"""

from __future__ import annotations

import time

import jax
import jax.numpy as jnp
import numpy as np

import lamu

CLASSES, WIDTH, ROWS, NEW = 10_000, 128, 10_000, 1_000


def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of norm about two around class centres, their classes, and the centres."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(CLASSES, WIDTH)).astype(np.float32) / np.sqrt(WIDTH)
    y = generator.integers(0, CLASSES, size=ROWS + NEW)
    noise = generator.normal(size=(ROWS + NEW, WIDTH)).astype(np.float32) / np.sqrt(WIDTH)
    return centres[y] + 1.5 * noise, y.astype(np.int32), centres


def main() -> None:
    """Fits, predicts, and prints what it took."""
    x, y, centres = problem()
    # A head that arrives trained: the best one for these centres, as a network would have learned it.
    layer = {"kernel": jnp.asarray(16 * centres.T), "bias": jnp.asarray(-8 * np.sum(centres**2, axis=1))}
    trained = {"network": {"layers": {0: layer}}, "likelihood": {}}
    model = lamu.Model(lamu.networks.Linear(), lamu.likelihoods.Categorical(CLASSES), lamu.priors.Normal(1.0))

    start = time.perf_counter()
    algorithm = lamu.algorithms.last_layer()
    posterior = lamu.fit(model.starting_at(trained), (x[:ROWS], y[:ROWS]), algorithm, epochs=0).posterior
    jax.block_until_ready(jax.tree.leaves(posterior.belief))
    fitted = time.perf_counter()
    new, targets = x[ROWS:], y[ROWS:]
    pred = posterior.with_rule(lamu.predictives.Probit()).predict(new)
    nll, accuracy = lamu.scores.nll(pred, targets), lamu.scores.accuracy(pred, targets)
    doubt = float(np.median(np.asarray(pred.epistemic)))
    end = time.perf_counter()
    peak = (lamu.memory.most_held() or np.nan) / 2**30

    print(f"{CLASSES:,} classes, width {WIDTH}, {ROWS:,} rows: {CLASSES * (WIDTH + 1):,} weights")
    print(f"fitted in {fitted - start:.1f} s; {NEW:,} inputs predicted and scored in {end - fitted:.1f} s")
    print(f"accuracy {accuracy:.3f}, negative log likelihood {nll:.3f} nats, median epistemic part {doubt:.3f} nats")
    print(f"peak memory {peak:.2f} GiB")
    assert not peak >= 2.0, "more than two gigabytes"  # nor where the system does not say


if __name__ == "__main__":
    main()

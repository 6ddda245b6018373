"""The rule in full, in figures: `python -m benchmarks.rule`. Parts that need larger data say so and are left out.

1. What a step of Adam through the rule costs, beside optax's.
2. Which geometry keeps a precision positive at long steps.
3. Negative ELBOs of logistic regression beside their anchors.
4. Binary networks: BayesBiNN beside the straight-through estimator.
5. SAM and bSAM beside SGD.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import adam_step, anchors, binary, positivity, sharpness

PARTS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("A step of Adam, a million weights", adam_step.main),
    ("Positive precisions over 10,000 steps", positivity.main),
    ("Logistic regression, negative ELBO in nats", anchors.main),
    ("Binary weights", binary.main),
    ("The worst case nearby, Fashion-MNIST", sharpness.main),
)


def main() -> None:
    """Runs the parts one after the other."""
    for title, part in PARTS:
        print(f"\n{title}\n{'-' * len(title)}", flush=True)
        try:
            part()
        except SystemExit as missing:
            print(missing)


if __name__ == "__main__":
    main()

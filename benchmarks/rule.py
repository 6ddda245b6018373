"""The rule in full, in figures: `python -m benchmarks.rule`. Parts that need larger data say so and are left out.

1. Which geometry keeps a precision positive at long steps.
2. Negative ELBOs of logistic regression beside their anchors.
3. Binary networks: BayesBiNN beside the straight-through estimator.
4. SAM and bSAM beside SGD.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks import anchors, binary, positivity, sharpness

PARTS: tuple[tuple[str, Callable[[], None]], ...] = (
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

"""The rows of a recipe under the laws of the protocol, of posteriors and of random steps: new ones are added here."""

from __future__ import annotations

import optax

from lamu.algorithms import mirror_descent, variational_head
from tests.laws.harness import row
from tests.laws.posteriors import CLASSES, Fitted, X, Y, fitted, hidden, learned, linear
from tests.laws.protocol import classes, regression
from tests.laws.stochastic import ALL, STEPS, exact

by_adam = variational_head(optax.adam(0.05))
row("protocol", "variational_head", by_adam, "full regression dispersions", problem=regression)
row("protocol", "variational_head of classes", by_adam, "full long", problem=classes)
fitted("variational_head", "classes", Fitted(hidden, (X, CLASSES), variational_head(), steps=50))
falling = optax.adam(optax.polynomial_schedule(0.03, 0.0, 1.0, STEPS))
row("stochastic", "variational_head", variational_head(falling, factor=1.0), f"{ALL} dense", answer=exact)

POINT = "deterministic dispersions descends eager mode"
row("protocol", "mirror_descent", mirror_descent(0.1), POINT, problem=regression, with_rate=mirror_descent)
fitted("mirror_descent", "regression point", Fitted(linear(learned), (X, Y), mirror_descent(0.1), steps=50))

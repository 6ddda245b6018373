r"""Elimination of a row's latents, one local after the other, before the row's loss is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from lamu.graphs.expressions import Environment
from lamu.graphs.joint import Row, shape_of
from lamu.graphs.local import Coordinate, Eliminated, ExactElimination, Local, bound_at
from lamu.graphs.network import applications

__all__ = ["eliminated", "first_local", "require_key", "require_summed", "settled"]


def eliminated(
    local: Mapping[str, Local], row: Row, at: Environment, key: Any, natural: dict[str, Any] | None = None
) -> Eliminated:
    """Returns the row's log density or bound in nats, and λ of every latent by name."""
    # The locals that the program's user named come first, in the order of the program, each after those that it is
    # given, and leave what remains to the next; the last is exact where the latents that are left do not meet, and lets
    # them take turns where they do.
    if natural:
        return bound_at(natural, row, at), natural
    name, first, others = first_local(local, row)
    own = at.statistics.get("local", {}).get(name, {})
    return first.eliminated(name, own, row, at, key, partial(eliminated, others))


def settled(local: Mapping[str, Local], row: Row, at: Environment) -> dict[str, Any]:
    """Returns λ of the latents of a row that take turns before any other leaves; nothing where another leaves first."""
    # No gradient passes this iteration, so that it can run over all rows before `eliminated`, and in other blocks.
    _, first, _ = first_local(local, row)
    return first.settled(row, at) if isinstance(first, Coordinate) else {}


def first_local(local: Mapping[str, Local], row: Row) -> tuple[str, Local, dict[str, Local]]:
    """Returns the local that takes its latents out first, after their name, and those that are left to the rest."""
    # One whose latents meet nothing has a closed form, whatever its turns.
    names = [site.name for site in row.latent if site.name in local]
    names = [name for name in names if row.coupled or local[name].random]
    if not names:
        return "", Coordinate() if row.coupled else ExactElimination(), {}
    name = next((name for name in names if set(local[name].given) <= set(row.known)), None)
    if name is None:
        raise ValueError(
            f"the local of {names[0]!r} is given {', '.join(local[names[0]].given)}, which has no value before it; "
            "give it what is observed or what another local draws"
        )
    return name, local[name], {other: taken for other, taken in local.items() if other != name}


def require_key(local: Mapping[str, Local], key: Any) -> Any:
    """Returns the key, or where it is None a fixed one for locals that draw: a fixed function of the bound."""
    if not any(each.random for each in local.values()):
        return None
    return jax.random.key(0) if key is None else key


def require_summed(local: Mapping[str, Local], row: Row) -> None:
    """Raises a TypeError where latents of a row meet that take turns, so that at a point only a bound is known."""
    for name, taken in local.items():
        site = next((site for site in row.latent if site.name == name), None)
        if site is not None and not isinstance(taken, Coordinate):
            row = row.given(name, jnp.ones(shape_of(site)))
    if row.coupled and row.latent:
        names = ", ".join(site.name for site in row.latent)
        networks = {call.of.name for call in applications([site.factor for site in row.sites])}
        if networks:
            raise TypeError(
                f"networks ({', '.join(sorted(networks))}) depend on the latents {names} of a row, whose sum has no "
                "closed form; say how each leaves, Graph(program, local={...}), by one of lamu.latent: "
                "Amortised(network) or Delta(network), or for a category SummedOut() or Enumerated(network)"
            )
        raise TypeError(
            f"the latents {names} of a row meet, and their sum has no closed form at a point; use vmp(), svi() or "
            "em(), observe one of them, or name a local that draws one, Graph(program, local={...})"
        )

"""What is known of each variable of a graph, and how algorithms learn it, as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lamu.graphs.joint import Row
from lamu.graphs.network import applications
from lamu.graphs.potential import AtMean, Potential
from lamu.graphs.prior import Known
from lamu.graphs.program import Site
from lamu.graphs.statistics import Categories, States

__all__ = ["table"]


def table(graph: Any, observed: Iterable[str] | None) -> str:
    """Returns each variable with its family, its factors, the verdict, and the method."""
    rows = graph.in_rows
    needed = frozenset().union(*(site.factor.names for site in rows))
    seen = {site.name for site in rows if site.name not in needed} if observed is None else set(observed)
    row = Row(rows, dict.fromkeys(site.name for site in rows if site.name in seen), {}, {}, {})
    lines = [("variable", "of", "family", "factors", "verdict", "method")]
    for site in graph.sites:
        factors = [other for other in graph.sites if other is site or site.name in other.factor.names]
        names = ", ".join(other.name for other in factors)
        if site.name in row.known:
            lines.append((site.name, "a row", _family(site), names, "", "observed"))
            continue
        open_to = [other.name for other in factors if _is_open(other, site.name)]
        by_quadrature = [other.name for other in factors if other is not site and not other.factor.exact]
        verdict = (
            f"not in {', '.join(dict.fromkeys([*open_to, *by_quadrature]))}" if open_to + by_quadrature else "conjugate"
        )
        method = _of_row(site, row, graph.local or {}) if site.in_rows else _of_all(open_to, by_quadrature)
        lines.append((site.name, "a row" if site.in_rows else "all rows", _family(site), names, verdict, method))
    for network in graph.networks:
        factors = [s.name for s in graph.sites if any(call.of.name == network.name for call in applications(s.factor))]
        kind = type(network.network).__name__
        lines.append((network.name, "all rows", kind, ", ".join(factors), f"not in {', '.join(factors)}", "gradients"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(w.ljust(n) for w, n in zip(line, widths, strict=True)).rstrip() for line in lines)


def _family(site: Site) -> str:
    factor: Any = site.factor
    if isinstance(factor, Known):
        return type(factor.belief).__name__
    if isinstance(factor, Potential):
        return factor.likelihood.name
    return type(factor).__name__.removesuffix("Factor").removeprefix("Located")


def _is_open(site: Site, name: str) -> bool:
    """Whether a variable enters a site through a network, or a likelihood whose expectation is not taken."""
    at_mean = isinstance(site.factor, Potential) and isinstance(site.factor.expectation, AtMean)
    called = any(name in call.names for call in applications(site.factor))
    return name in site.factor.names and (at_mean or called)


def _of_all(open_to: list[str], by_quadrature: list[str]) -> str:
    if open_to:
        return "gradients"
    return "message by quadrature" if by_quadrature else "exact message"


def _of_row(site: Site, row: Row, local: dict[str, Any]) -> str:
    if site.name in local:
        return type(local[site.name]).__name__
    if row.coupled:
        return "closed form, in turns"
    return "summed out" if issubclass(site.kind, Categories | States) else "closed form"

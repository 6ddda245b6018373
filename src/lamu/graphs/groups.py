"""Which shared variables of a graph can be updated at once."""

from __future__ import annotations

from lamu.graphs.program import Site

__all__ = ["independent_groups"]


def independent_groups(sites: tuple[Site, ...]) -> tuple[tuple[str, ...], ...]:
    """Returns the shared variables in groups that no factor brings together, in the order of the program."""
    # Given the latents of the rows, the variables of a group are independent: one step updates all of them.
    beside: dict[str, set[str]] = {site.name: set() for site in sites if not site.in_rows}
    for site in sites:
        meeting = set(beside) & {site.name, *site.factor.names}
        for name in meeting:
            beside[name] |= meeting - {name}
    groups: list[list[str]] = []
    for name in beside:
        group = next((g for g in groups if not beside[name] & set(g)), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    return tuple(tuple(group) for group in groups)

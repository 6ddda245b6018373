"""Which shared variables of a graph can be updated at once."""

from __future__ import annotations

from lamu.graphs.program import Site

__all__ = ["independent_groups"]


def independent_groups(sites: tuple[Site, ...]) -> tuple[tuple[str, ...], ...]:
    """Returns the shared variables in groups that no factor brings together, in the order of the program.

    Given the latents of the rows, the variables of a group are independent: one step updates all of them.

    Args:
        sites: all sites of a program.

    Examples:
        >>> from lamu import graphs
        >>> from lamu.families import Gamma
        >>> from lamu.graphs.groups import independent_groups
        >>> m = graphs.Program()
        >>> a, b = (m.sample(name, Gamma(1.0, 1.0)) for name in "ab")
        >>> c = m.sample("c", graphs.Gamma(1.0, a))
        >>> independent_groups(m.sites)
        (('a', 'b'), ('c',))
    """
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

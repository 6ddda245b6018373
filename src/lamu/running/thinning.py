"""Which draws of a run are kept: after the warm-up, outside of exploration, every so many steps."""

from __future__ import annotations

from lamu.protocol import Traits

__all__ = ["collects", "count", "keeps", "stage_end"]


def collects(traits: Traits, t: int) -> bool:
    """Whether step t lies where draws are kept at all."""
    return t >= traits.warmup and _within(traits, t) >= traits.exploration


def keeps(traits: Traits, t: int) -> bool:
    """Whether the draw of step t is kept: the last of every `thinning` steps of its stage."""
    return collects(traits, t) and (_within(traits, t) - traits.exploration + 1) % traits.thinning == 0


def count(traits: Traits, steps: int) -> int:
    """Returns how many draws the first `steps` steps leave."""
    after = max(steps - traits.warmup, 0)
    if not traits.cycle:
        return max(after - traits.exploration, 0) // traits.thinning
    whole, rest = divmod(after, traits.cycle)
    each = (traits.cycle - traits.exploration) // traits.thinning
    return whole * each + max(rest - traits.exploration, 0) // traits.thinning


def stage_end(traits: Traits, t: int, total: int) -> int:
    """Returns where the stage of step t ends: the first step after it that is of another stage, or the run's end."""
    if t < traits.warmup:
        return min(traits.warmup, total)
    within = _within(traits, t)
    if within < traits.exploration:
        return min(t - within + traits.exploration, total)
    return min(t - within + traits.cycle, total) if traits.cycle else total


def _within(traits: Traits, t: int) -> int:
    """The number of a step within its cycle; within the run after the warm-up where there is none."""
    after = t - traits.warmup
    return after % traits.cycle if traits.cycle else after

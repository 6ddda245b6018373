"""A hostile environment: runtime type checks, strict promotion, reused keys found; and the count of broken twins."""

from __future__ import annotations

import os

from jaxtyping import install_import_hook

os.environ.setdefault("JAX_PLATFORMS", "cpu")
install_import_hook("lamu", "beartype.beartype")

import jax  # noqa: E402  (the import hook must stand before anything that could import the package)

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints how many broken twins were planted, and how many each law rejected."""
    outcomes: dict[str, list[tuple[str, bool]]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", []))
            if "twin" in properties and report.when == "call":
                outcomes.setdefault(properties["law"], []).append((properties["twin"], outcome == "passed"))
    if not outcomes:
        return
    everything = [result for results in outcomes.values() for result in results]
    planted = {twin for twin, _ in everything}
    survivors = {twin for twin, rejected in everything if not rejected}
    terminalreporter.section("broken twins")
    for law in sorted(outcomes):
        results = outcomes[law]
        terminalreporter.write_line(f"{law}: rejected {sum(rejected for _, rejected in results)} of {len(results)}")
    terminalreporter.write_line(
        f"{len(planted)} twins planted, {len(planted - survivors)} rejected, {len(survivors)} survived"
    )

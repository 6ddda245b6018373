"""`--config FILE.toml`: the options of a command by name; the command line takes precedence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["read_options", "refuse_untrusted"]


def read_options(context: Any, path: Path | None) -> Path | None:
    """Sets the options of a file as the defaults of a command; the callback of an eager option."""
    if path is None or context.resilient_parsing:
        return path
    import tomllib

    from lamu.data.wording import quoted

    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = str(error.strerror).lower()
        raise ValueError(f"--config {quoted(str(path))} cannot be read ({reason}); check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--config {str(path)!r} is not UTF-8 text; write it as TOML, for instance seed = 1"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"--config {str(path)!r} is not TOML ({error}); write lines such as seed = 1") from error
    context.default_map = {**(context.default_map or {}), **_by_parameter(context, path, entries)}
    return path


def refuse_untrusted(context: Any, trust: list[str] | None) -> list[str] | None:
    """Rejects modules that a configuration file names and that would be imported; the callback of `--trust`."""
    for name in ("algorithm", "algorithms", "likelihood", "reference"):
        source = context.get_parameter_source(name)  # None if it is not yet processed
        if source is not None and source.name == "COMMANDLINE":
            continue
        for word in str((context.default_map or {}).get(name, "")).split(","):
            module, colon, _ = word.strip().partition(":")
            if colon and not any(f"{module}.".startswith(f"{trusted}.") for trusted in trust or ()):
                raise ValueError(
                    f"--config names {word.strip()!r}, and a module that a file names is imported only where the "
                    f"command line trusts it; if you trust its code, give --trust {module}"
                )
    return trust


def _by_parameter(context: Any, path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the values by the names of the command's parameters, which may differ from the names of its options."""
    parameters = {}
    for parameter in context.command.params:
        names = [parameter.name, *parameter.opts]
        parameters |= {str(name).lstrip("-").replace("-", "_"): parameter for name in names}
    allowed = sorted(
        {max(parameter.opts, key=len).lstrip("-") for parameter in context.command.params} - {"config", "help", "trust"}
    )
    values = {}
    for name, value in given.items():
        parameter = parameters.get(name.replace("-", "_"))
        if parameter is not None and parameter.name == "trust":
            raise ValueError(f"--config {str(path)!r} has 'trust', which a file may not say; give --trust itself")
        if parameter is None or parameter.name == "config":
            from lamu.data.wording import nearest

            raise ValueError(
                f"--config {str(path)!r} has {name!r}, which is not an option of `lamu {context.info_name}`; "
                f"{nearest(name, allowed)}"
            )
        values[str(parameter.name)] = _value(name, value, parameter.multiple)
    return values


def _value(name: str, value: object, multiple: bool) -> Any:
    """Returns a value as the command line would give it: settings as `key=value`, lists with commas."""
    if multiple:
        if isinstance(value, dict):
            return [f"{key}={item}" for key, item in _flat(value)]
        return [str(item) for item in value] if isinstance(value, list) else [str(value)]
    if isinstance(value, dict):
        raise ValueError(f"--config has a table [{name}], and --{name} takes one value; write {name} = ...")
    return ",".join(map(str, value)) if isinstance(value, list) else value


def _flat(table: dict[str, object], before: str = "") -> list[tuple[str, Any]]:
    """Returns the entries of a table and of its nested tables, with names joined by points."""
    entries: list[tuple[str, Any]] = []
    for key, value in table.items():
        entries += _flat(value, f"{before}{key}.") if isinstance(value, dict) else [(f"{before}{key}", value)]
    return entries

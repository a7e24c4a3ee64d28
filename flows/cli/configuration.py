"""Settings from a file, for options that would otherwise be typed again and again.

What is typed comes first, then the environment (``ACTLAS_STORE``, ``ACTLAS_COMPUTE_SAMPLE``), then
``actlas.toml`` of the folder one is in, then the user's own file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import click

from flows.cli.suggestions import near

PROJECT_FILE: Final = "actlas.toml"
USER_FILE: Final = "config.toml"
VARIABLES: Final = "ACTLAS"
"""What the names of environment variables begin with."""

Setting: TypeAlias = str | int | float | bool | list[str]
Settings: TypeAlias = "dict[str, Setting | Settings]"


def configuration_files(given: Path | None) -> list[Path]:
    """Return the files that hold settings, the strongest last: one that is given stands alone."""
    if given is not None:
        return [given]
    places = (Path(click.get_app_dir("actlas")) / USER_FILE, Path(PROJECT_FILE))
    return [place for place in places if place.is_file()]


def read_settings(files: Iterable[Path], group: click.Group) -> Settings:
    """Read settings for the commands of a group, those of later files over those of earlier ones.

    Args:
        files: TOML files. A key is an option's name without its dashes; at the top it is meant
            for every command that has the option, in a table for the command of that name.
        group: The commands.

    Returns:
        What click takes for defaults, by command and parameter.

    Raises:
        click.UsageError: If a file is no TOML, or has a key that no command knows.
    """
    merged: Settings = {}
    for file in files:
        try:
            document = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise click.UsageError(f"cannot read the settings of {file}: {error}") from error
        _merge(merged, _checked(document, group, file))
    return merged


def unknown_variables(names: Iterable[str], group: click.Group) -> list[str]:
    """Say of environment variables that are named after a command that it reads no such one.

    Args:
        names: Names of environment variables; those named after no command are passed over.
        group: The commands, with their variables named.
    """
    known = dict(_variables(group, f"{VARIABLES}_"))
    told = []
    for name in names:
        beginning = max((one for one in known if name.startswith(one)), key=len, default=None)
        rest = name.removeprefix(beginning or "")
        if beginning is not None and rest not in known[beginning]:
            missing = f"no {rest!r} after {beginning}{near(rest, known[beginning])}"
            told.append(f"nothing reads {name}: {missing}")
    return told


def _variables(group: click.Group, prefix: str) -> Iterable[tuple[str, set[str]]]:
    """Give what the variables of each command begin with, and how they end."""
    for name, command in group.commands.items():
        within = f"{prefix}{name}_".replace("-", "_").upper()
        if isinstance(command, click.Group):
            yield from _variables(command, within)
        else:
            variables = (str(option.envvar) for option in _options(command).values())
            yield within, {one.removeprefix(within) for one in variables}


def _checked(document: Mapping[str, object], group: click.Group, file: Path) -> Settings:
    shared = {key: value for key, value in document.items() if not isinstance(value, dict)}
    known = {name for command in _commands(group) for name in _options(command)}
    for key in shared:
        if key not in known:
            raise _unknown("option", key, known, file)
    settings = _spread(shared, group, file)
    for key, value in document.items():
        if isinstance(value, dict):
            _merge(settings, {key: _of_command(value, key, group, file)})
    return settings


def _spread(shared: Mapping[str, object], group: click.Group, file: Path) -> Settings:
    """Give shared settings to every command that has the option."""
    settings: Settings = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            settings[name] = _spread(shared, command, file)
        else:
            own = _options(command)
            settings[name] = {
                str(own[key].name): _plain(value, own[key], file)
                for key, value in shared.items()
                if key in own
            }
    return settings


def _of_command(table: Mapping[str, object], name: str, group: click.Group, file: Path) -> Settings:
    if name not in group.commands:
        raise _unknown("command", name, group.commands, file)
    command = group.commands[name]
    settings: Settings = {}
    if isinstance(command, click.Group):
        for key, value in table.items():
            if not isinstance(value, dict):
                raise _unknown("command", f"{name}.{key}", command.commands, file)
            settings[key] = _of_command(value, key, command, file)
        return settings
    own = _options(command)
    for key, value in table.items():
        if key not in own:
            raise _unknown(f"option of {name}", key, own, file)
        settings[str(own[key].name)] = _plain(value, own[key], file)
    return settings


def _plain(value: object, option: click.Option, file: Path) -> Setting:
    """Return a value as it would be typed: lists with commas, or once for each."""
    if isinstance(value, list):
        words = list(map(str, value))
        return words if option.multiple else ",".join(words)
    if isinstance(value, str | int | float):
        return value
    raise click.UsageError(
        f"{file}: {option.opts[0]} is {value!r}; expected text, a number or a list"
    )


def _commands(group: click.Group) -> Iterable[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from _commands(command)
        else:
            yield command


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by their names without dashes."""
    return {
        option.removeprefix("--"): parameter
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for option in parameter.opts
        if option.startswith("--") and option != "--help"
    }


def _unknown(kind: str, name: str, known: Iterable[str], file: Path) -> click.UsageError:
    return click.UsageError(f"{file}: there is no {kind} {name!r}{near(name, known)}")


def name_variables(group: click.Group, prefix: str = VARIABLES) -> None:
    """Have each option read the environment variable that is called as it is typed.

    ``--dask`` of ``watch`` would otherwise be ``ACTLAS_WATCH_SCHEDULER``, after a name in our code.
    Options that already have a variable, the same for every command, keep it.

    Args:
        group: The commands.
        prefix: What the names begin with.
    """
    for option in _options(group).values():
        _name_variable(option, prefix)
    for name, command in group.commands.items():
        within = f"{prefix}_{name}"
        if isinstance(command, click.Group):
            name_variables(command, within)
        else:
            for option in _options(command).values():
                _name_variable(option, within)


def _name_variable(option: click.Option, prefix: str) -> None:
    if option.envvar is None and not option.is_eager:
        typed = max(option.opts, key=len).removeprefix("--")
        option.envvar = f"{prefix}_{typed}".replace("-", "_").upper()


def _merge(settings: Settings, over: Settings) -> None:
    for key, value in over.items():
        held = settings.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            _merge(held, value)
        else:
            settings[key] = value

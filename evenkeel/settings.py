"""Settings: a flag, then the environment, then `evenkeel.toml`, then the default.

A part declares a frozen `Settings` subclass with a `section`; its field `http_port` is then the
flag the part chose, `EVENKEEL_COLLECTOR_HTTP_PORT`, and `http_port` under `[collector]`.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from evenkeel.errors import ConfigurationError

FILE_NAME = "evenkeel.toml"
DATA_DIR_VARIABLE = "EVENKEEL_DATA_DIR"


class Settings(BaseSettings):
    """Base of each part's settings; unknown keys are refused, secrets are `SecretStr`.

    A field named `data_dir` is read from `EVENKEEL_DATA_DIR` in every part.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True)
    section: ClassVar[str]

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read nothing by itself: `load` merges the sources, so that it can name them."""
        return (init_settings,)


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings together with where each value came from."""

    settings: S
    sources: Mapping[str, str]

    def describe(self) -> str:
        """Return one `name = value  # source` line a setting, secrets masked."""
        values = self.settings.model_dump()
        return "\n".join(f"{name} = {values[name]!s}  # {self.sources[name]}" for name in values)


def load(
    cls: type[S],
    flags: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Loaded[S]:
    """Merge the four sources into settings; flags that are None count as not given.

    Raises:
        ConfigurationError: On an unknown key, a value of the wrong type, or an unreadable file.
    """
    environment = os.environ if environment is None else environment
    layers = [
        (FILE_NAME, _read_file(cls, (directory or Path.cwd()) / FILE_NAME)),
        ("environment", _read_environment(cls, environment)),
        ("flag", {k: v for k, v in flags.items() if v is not None and k in cls.model_fields}),
    ]
    values: dict[str, Any] = {}
    sources = dict.fromkeys(cls.model_fields, "default")
    for source, layer in layers:
        values.update(layer)
        sources.update(dict.fromkeys(layer, source))
    try:
        return Loaded(cls(**values), sources)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        where = sources.get(str(first["loc"][0]), "settings") if first["loc"] else "settings"
        raise ConfigurationError(
            f"{cls.section}.{name} from {where}: {first['msg']} (value {first.get('input')!r})"
        ) from error


def read_otel(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the standard `OTEL_*` variables, which keep their meaning in every part."""
    environment = os.environ if environment is None else environment
    return {name: value for name, value in environment.items() if name.startswith("OTEL_")}


def _variable(cls: type[Settings], name: str) -> str:
    return DATA_DIR_VARIABLE if name == "data_dir" else f"EVENKEEL_{cls.section}_{name}".upper()


def read_environment(name: str) -> str | None:
    """Return one variable of the environment, such as a secret that a file names; None if unset."""
    return os.environ.get(name)


def hand_down(name: str, value: str) -> None:
    """Set a variable of the environment that processes started from here inherit."""
    os.environ.update({name: value})


def _read_environment(cls: type[Settings], environment: Mapping[str, str]) -> dict[str, str]:
    field_of = {_variable(cls, name): name for name in cls.model_fields}
    prefix = f"EVENKEEL_{cls.section}_".upper()
    for variable in environment:
        if variable.startswith(prefix) and variable not in field_of:
            raise ConfigurationError(
                f"{variable} is set, but {cls.section} has no such setting; "
                f"known: {', '.join(sorted(field_of))}"
            )
    # Empty is unset, as OpenTelemetry has it: `${NAME:-}` of a compose file sets it to nothing.
    return {field_of[v]: environment[v] for v in field_of if environment.get(v)}


def _read_file(cls: type[Settings], path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        section = tomllib.loads(path.read_text(encoding="utf-8")).get(cls.section, {})
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error}") from error
    unknown = set(section) - set(cls.model_fields)
    if unknown:
        raise ConfigurationError(
            f"{path}: [{cls.section}] has no setting {sorted(unknown)[0]!r}; "
            f"known: {', '.join(sorted(cls.model_fields))}"
        )
    return dict(section)

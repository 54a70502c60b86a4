"""Settings: a flag, then the environment, then `evenkeel.toml`, then the default.

Each part declares a frozen `Settings` subclass with a `section`, and each field once, with a
description. It defines the flag `--http-port` and its line of `--help`, the variable
`EVENKEEL_COLLECTOR_HTTP_PORT`, the key `http_port` under `[collector]`, and the entry in
docs/reference/settings.md. A secret may be `@PATH` in any of them (`evenkeel.secret_text`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    Secret,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import bare_host
from evenkeel.ratios import parse_ratio
from evenkeel.secret_text import (
    SecretAddress,
    read_secret,
    warn_of_command_line,
    write_secret,
)
from evenkeel.toml_file import read_toml

FILE_NAME = "evenkeel.toml"
DATA_DIR_VARIABLE = "EVENKEEL_DATA_DIR"
DEFAULT_DATA_DIR = Path("data")
# Those of all parts, so that a mistyped one is not taken for that of a part which is not installed.
SECTIONS = (
    "collector", "dashboard", "demo", "eval", "redaction", "runtime", "speculation", "steps",
)  # fmt: skip
# A file that only a collector creates, in its own folder.
COLLECTOR_MARKER = "collector-id"
_HANDED_DOWN = "handed_down"
_FURTHER_FLAG = "further flag"


class Settings(BaseSettings):
    """Base class of each part's settings; rejects unknown keys and masks secrets.

    A field named `data_dir` is read from `EVENKEEL_DATA_DIR` in every part.

    Attributes:
        section: Its section in `evenkeel.toml`, also part of the variables' names.
        flag_prefix: Prefix of its flags in commands that take several sections.
    """

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    section: ClassVar[str]
    flag_prefix: ClassVar[str] = ""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read no source itself: `load` merges them, so that it can name them."""
        return (init_settings,)


def _split(value: Any) -> Any:
    """Also accept comma-separated lists: the environment has no other kind."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        return value
    return tuple(item.strip() for part in parts for item in part.split(",") if item.strip())


SplitAtCommas = BeforeValidator(_split)
# A list: comma-separated in the environment, repeated as a flag.
Listed = Annotated[tuple[str, ...], SplitAtCommas]


def _read_percentage(value: Any) -> Any:
    if not isinstance(value, str) or not value.rstrip().endswith("%"):
        return value
    try:
        return float(parse_ratio(value))
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


# A share, 0.05 or 5%.
Ratio = Annotated[float, BeforeValidator(_read_percentage)]


# An address to listen on; IPv6 with or without the brackets that it has in a URL.
Host = Annotated[str, AfterValidator(bare_host)]


def handed_down(default: Any, description: str) -> Any:
    """Declare a field that a parent process sets for its children; it has no flag."""
    return Field(default=default, description=description, json_schema_extra={_HANDED_DOWN: True})


def with_flag(flag: str) -> dict[str, JsonValue]:
    """Return the `json_schema_extra` of a field with a further flag, its name elsewhere."""
    return {_FURTHER_FLAG: flag}


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as declared by its field.

    Attributes:
        name: The key in `evenkeel.toml`.
        flag: Such as `--http-port`.
        variable: Such as `EVENKEEL_COLLECTOR_HTTP_PORT`.
        default: Its value if none is given.
        description: What it means, in one line.
        type: Its Python type; for a list, that of its elements.
        is_list: Whether it may be given several times.
        is_handed_down: Whether a parent process sets it for its children.
        further_flag: Its flag's name in other commands, which is accepted too.
    """

    name: str
    flag: str
    variable: str
    default: Any
    description: str
    type: Any
    is_list: bool = False
    is_handed_down: bool = False
    further_flag: str | None = None

    @property
    def flags(self) -> list[str]:
        """Its flags, the one that all commands share first."""
        return [self.flag] if self.further_flag is None else [self.further_flag, self.flag]

    @property
    def is_address(self) -> bool:
        """Whether it is an address that may contain a password."""
        return self._is_a(SecretAddress)

    @property
    def is_secret(self) -> bool:
        """Whether it is masked, and may be read from a file with `@PATH`."""
        return self._is_a(Secret) or self._is_a(SecretStr)

    def _is_a(self, kind: type) -> bool:
        return any(
            isinstance(each, type) and issubclass(each, kind)
            for each in (self.type, *get_args(self.type))
        )

    def read_secrets(self, value: Any) -> Any:
        """Return the value with each `@PATH` replaced by the file's contents."""
        if self.is_list and isinstance(value := _split(value), tuple):
            return tuple(read_secret(part) for part in value)
        return read_secret(value) if isinstance(value, str) else value

    def warn_if_exposed(self, value: Any) -> None:
        """Print a warning if this value, given as a flag, exposes a secret to other users."""
        texts = [value] if isinstance(value, str) else value
        for text in texts if isinstance(texts, list | tuple) else ():
            warn_of_command_line(
                self.flag, text, is_address=self.is_address, variable=self.variable
            )


def find_settings(cls: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings a class declares, in order."""
    found = []
    for name, field in cls.model_fields.items():
        is_list = get_origin(field.annotation) is tuple
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        further = extra.get(_FURTHER_FLAG)
        found.append(
            Setting(
                name=name,
                flag=f"--{cls.flag_prefix}{name}".replace("_", "-"),
                variable=_variable(cls, name),
                default=field.get_default(call_default_factory=True),
                description=field.description or "",
                type=get_args(field.annotation)[0] if is_list else field.annotation,
                is_list=is_list,
                is_handed_down=_HANDED_DOWN in extra,
                further_flag=None if further is None else str(further),
            )
        )
    return tuple(found)


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings together with where each value came from."""

    settings: S
    sources: Mapping[str, str]

    def describe(self, section: str = "") -> str:
        """Return one `name = value  # source` line per setting, secrets masked.

        Args:
            section: Prefix for each name, for commands that show several sections.
        """
        prefix = section and f"{section}."
        return "\n".join(
            f"{prefix}{name} = {value!s}  # {self.sources[name]}"
            for name, value in self.settings.model_dump().items()
        )


def load(
    cls: type[S],
    flags: Mapping[str, Any],
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Loaded[S]:
    """Merge the four sources into settings; flags that are None count as unset.

    Warns about secrets given as flags, and reads the file if a secret is `@PATH`.

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
    secrets = {setting.name: setting for setting in find_settings(cls) if setting.is_secret}
    for name in secrets.keys() & values.keys():
        if sources[name] == "flag":
            secrets[name].warn_if_exposed(values[name])
        try:
            values[name] = secrets[name].read_secrets(values[name])
        except ConfigurationError as error:
            raise ConfigurationError(
                f"{cls.section}.{name} from {sources[name]}: {error}"
            ) from error
    try:
        return Loaded(cls(**values), sources)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        field = str(first["loc"][0]) if first["loc"] else ""
        shown = "" if field in secrets or not field else f" (value {first.get('input')!r})"
        raise ConfigurationError(
            f"{cls.section}.{name} from {sources.get(field, 'settings')}: {first['msg']}{shown}"
        ) from error


def find_collector_folder(flag: Path | None) -> tuple[Path, bool]:
    """Return the collector's folder as the collector resolves it, for parts that write next to it.

    Returns:
        The folder, and whether it was set by a flag, the environment or `evenkeel.toml`.

    Raises:
        ConfigurationError: If `evenkeel.toml` cannot be read.
    """
    section = _read_section("collector", Path.cwd() / FILE_NAME)
    named = flag or os.environ.get(DATA_DIR_VARIABLE) or section.get("data_dir")
    return Path(str(named or DEFAULT_DATA_DIR)), bool(named)


def read_otel() -> dict[str, str]:
    """Return the standard `OTEL_*` variables, which mean the same in every part."""
    return {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}


def _variable(cls: type[Settings], name: str) -> str:
    return DATA_DIR_VARIABLE if name == "data_dir" else f"EVENKEEL_{cls.section}_{name}".upper()


def read_environment(name: str) -> str | None:
    """Return one environment variable, such as a secret that a file names; None if unset."""
    return os.environ.get(name)


def hand_down(name: str, value: str) -> None:
    """Set an environment variable for child processes to inherit."""
    os.environ.update({name: value})


def take_back(name: str) -> None:
    """Unset the variables that `hand_down` set."""
    os.environ.pop(name, None)


def write_environment(settings: Settings) -> dict[str, str]:
    """Return the variables that give another process the same settings."""
    variables = {}
    for setting in find_settings(type(settings)):
        value = getattr(settings, setting.name)
        values = value if setting.is_list else [] if value is None else [value]
        plain = [
            write_secret(each.get_secret_value()) if setting.is_secret else str(each)
            for each in values
        ]
        if plain:
            variables[setting.variable] = ",".join(plain)
    return variables


def _read_environment(cls: type[Settings], environment: Mapping[str, str]) -> dict[str, str]:
    field_of = {_variable(cls, name): name for name in cls.model_fields}
    prefix = f"EVENKEEL_{cls.section}_".upper()
    for variable in environment:
        if variable.startswith(prefix) and variable not in field_of:
            raise ConfigurationError(
                f"{variable} is set, but {cls.section} has no such setting; "
                f"known: {', '.join(sorted(field_of))}"
            )
        meant = _meant(variable, cls.section)
        if variable not in field_of and meant in field_of:
            raise ConfigurationError(
                f"{variable} is set, but there is no such section; did you mean {meant}?"
            )
    # Empty means unset, as in OpenTelemetry: `${NAME:-}` in a compose file sets an empty value.
    return {field_of[v]: environment[v] for v in field_of if environment.get(v)}


def _meant(variable: str, section: str) -> str | None:
    """Return the variable that one with a mistyped section means: COLECTOR, EVALS; else None."""
    word, _, name = variable.removeprefix("EVENKEEL_").partition("_")
    is_typo = word.lower() not in SECTIONS and get_close_matches(
        word.lower(), [section], cutoff=0.7
    )
    return f"EVENKEEL_{section}_{name}".upper() if is_typo else None


def _read_section(name: str, path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    sections = read_toml(path)
    known = ", ".join(f"[{section}]" for section in SECTIONS)
    for section, keys in sections.items():
        if not isinstance(keys, dict):
            raise ConfigurationError(
                f"{path}: {section} = … is outside all sections; put it below one of {known}"
            )
        if section not in (*SECTIONS, name):
            close = get_close_matches(section, SECTIONS, n=1)
            hint = f"did you mean [{close[0]}]?" if close else f"expected one of {known}"
            raise ConfigurationError(f"{path}: [{section}] is not a section; {hint}")
    found: dict[str, Any] = sections.get(name, {})
    return found


def _read_file(cls: type[Settings], path: Path) -> dict[str, Any]:
    section = _read_section(cls.section, path)
    unknown = set(section) - set(cls.model_fields)
    if unknown:
        raise ConfigurationError(
            f"{path}: [{cls.section}] has no setting {sorted(unknown)[0]!r}; "
            f"known: {', '.join(sorted(cls.model_fields))}"
        )
    return dict(section)

"""Reads a TOML file into a model, and says in one line what is wrong with it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from evenkeel.errors import ConfigurationError

Model = TypeVar("Model", bound=BaseModel)


def read_toml_file(path: Path, model: type[Model]) -> Model:
    """Return the file's content.

    Raises:
        ConfigurationError: If it cannot be read, or a key is unknown, missing or wrong; names the
            file and the key.
    """
    try:
        return model.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not TOML: {error}") from error
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {first_problem(error)}") from error


def first_problem(error: ValidationError, prefix: str = "") -> str:
    """Return in a few words what is wrong first: a key missing, unknown, or its value."""
    first = error.errors()[0]
    where = prefix + (".".join(str(part) for part in first["loc"]) or "the whole")
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "extra_forbidden":
        return f"{where} is an unknown key"
    return f"{where}: {first['msg']}"

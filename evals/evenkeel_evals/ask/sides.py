"""The two sides of a comparison: server, model, prompt and sampling."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import check_http_address
from evenkeel.prompts.registry import PromptRegistry, PromptVersion
from evenkeel.toml_file import first_problem, read_toml_file
from evenkeel_evals.dataset.dataset import Item


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """A server that the run starts for a side.

    Attributes:
        model: The model argument of `evenkeel serve`: a folder, a hub name, or `demo`.
        flags: Flags of `evenkeel serve` and vLLM.
    """

    model: str
    flags: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of `evenkeel serve`."""
        return (self.model, *self.flags)


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a run.

    Attributes:
        name: Its name in tables and spans.
        url: Base URL of an OpenAI-compatible server, without a trailing `/v1`; with `serve`, set
            once its server runs.
        model: Model name; None uses the server's first.
        prompt_name: Name of the prompt, recorded on its requests.
        prompt_version: Version of the prompt.
        system: System message put before each item, replacing the item's own.
        sampling: Request fields such as temperature and max_tokens.
        serve: The server that the run starts for this side; None if it is already running.
    """

    name: str
    url: str
    model: str | None
    prompt_name: str
    prompt_version: str
    system: str | None
    sampling: Mapping[str, float | int | str | list[str]]
    serve: ServeConfig | None = None

    @property
    def prompt_label(self) -> str:
        """Return the prompt as `name@version`."""
        return f"{self.prompt_name}@{self.prompt_version}"

    @property
    def content_hash(self) -> str:
        """Return a digest of everything that can change an answer."""
        record = {**asdict(self), "sampling": dict(self.sampling)}
        text = json.dumps(record, sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def messages_for(self, item: Item) -> list[dict[str, str]]:
        """Return the messages that this side sends for an item."""
        turns = [{"role": m.role, "content": m.content} for m in item.messages]
        if self.system is None:
            return turns
        rest = [turn for turn in turns if turn["role"] not in ("system", "developer")]
        return [{"role": "system", "content": self.system}, *rest]


def other_changes(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """Return what two sides, as dicts of their fields, differ in besides the prompt.

    Names and addresses of servers do not count. "" if the prompt is all that differs.
    """
    changed = ("model", "sampling", "serve")
    return ", ".join(name for name in changed if baseline.get(name) != candidate.get(name))


class _Prompt(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = "default"
    version: str | int = "0"
    system: str | None = None
    ref: str | None = None


class _Sampling(BaseModel):
    model_config = ConfigDict(extra="forbid")
    temperature: float = Field(default=0.0, ge=0)
    max_tokens: int = Field(default=256, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None


class _Serve(BaseModel):
    model_config = ConfigDict(extra="forbid")
    model: str = Field(min_length=1)
    flags: list[str] = []


# Flags that the run sets itself for a server it starts.
_OWN_FLAGS = ("--host", "--port", "--data-dir", "--otlp-endpoint", "--uds")


class _SideFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str | None = None
    url: str | None = Field(default=None, pattern="^https?://")
    model: str | None = None
    description: str | None = None
    prompt: _Prompt = _Prompt()
    sampling: _Sampling = _Sampling()
    serve: _Serve | None = None


def load_side(path: Path, default_url: str, prompts_dir: Path = Path("prompts")) -> Side:
    """Read a side from TOML: name, url, model, [prompt], [sampling] and [serve].

    Args:
        path: The file.
        default_url: Server for a side that names none.
        prompts_dir: The registry in which `ref` of [prompt], such as support@draft, is looked up.

    Raises:
        ConfigurationError: If the file is missing, is not TOML, has an unknown or wrong key, or
            refers to a prompt that does not exist.
    """
    side = read_toml_file(path, _SideFile, secrets=frozenset({"url"}))
    prompt = _resolve(path, side.prompt, prompts_dir)
    serve = _read_serve(path, side)
    return Side(
        name=side.name or path.stem,
        url=base_url(side.url or default_url) if serve is None else "",
        model=side.model,
        prompt_name=prompt.name,
        prompt_version=str(prompt.version),
        system=prompt.system,
        sampling=side.sampling.model_dump(exclude_none=True),
        serve=serve,
    )


def _read_serve(path: Path, side: _SideFile) -> ServeConfig | None:
    if side.serve is None:
        return None
    if side.url is not None:
        raise ConfigurationError(f"{path}: url and [serve] cannot be combined")
    taken = [f for f in side.serve.flags if f.split("=")[0] in _OWN_FLAGS]
    if taken:
        raise ConfigurationError(f"{path}: [serve] has {taken[0]}, which the run sets itself")
    return ServeConfig(side.serve.model, tuple(side.serve.flags))


def read_sampling(
    path: Path, fields: Mapping[str, Any]
) -> dict[str, float | int | str | list[str]]:
    """Return a side's sampling from its fields.

    Raises:
        ConfigurationError: If a field is unknown or wrong; the message names `path`.
    """
    try:
        return _Sampling.model_validate(fields).model_dump(exclude_none=True)
    except ValidationError as error:
        raise ConfigurationError(f"{path}: {first_problem(error, 'sampling.')}") from error


def resolve_prompt(reference: str, prompts_dir: Path) -> PromptVersion:
    """Return the prompt that a reference such as support@draft points to.

    Raises:
        ConfigurationError: If the registry has no such prompt.
    """
    return PromptRegistry(prompts_dir).resolve(reference)


def _resolve(path: Path, prompt: _Prompt, prompts_dir: Path) -> _Prompt:
    """Return the prompt, with its `ref` resolved to name, version and text if it has one."""
    if prompt.ref is None:
        return prompt
    if prompt.model_fields_set != {"ref"}:
        raise ConfigurationError(f"{path}: [prompt] has ref and other keys; ref alone is enough")
    found = resolve_prompt(prompt.ref, prompts_dir)
    return _Prompt(name=found.name, version=found.version, system=found.system)


def base_url(url: str) -> str:
    """Return the URL without a trailing slash or `/v1`.

    Raises:
        ConfigurationError: If it is not an http or https URL.
    """
    check_http_address("url", url, "http://127.0.0.1:8000")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")

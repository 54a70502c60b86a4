"""Hashes of everything that went into a run: enough to compare it with another, or repeat it."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.gate_verdict import JudgedRun
from evenkeel.prompts.registry import DIGITS
from evenkeel.secret_text import hide_password
from evenkeel_evals.ask.sides import other_changes
from evenkeel_evals.verdict.finished_run import Outcome

# Of a run's identity, what the manifest says nowhere else.
_FURTHER = ("slo_class", "warmup", "repeats", "guard", "answer_cache", "judge", "prices", "checks")
# Packages that can change a number in a verdict.
PACKAGES = ("evenkeel", "evenkeel-evals", "numpy", "scipy", "statsmodels", "httpx")


def to_manifest(outcome: Outcome) -> dict[str, Any]:
    """Return a run's dataset, prompts, configuration and engine, each with its hash."""
    return {
        "run_id": outcome.run_id,
        "dataset": {
            "name": outcome.dataset.name,
            "version": outcome.dataset.version,
            "content_hash": outcome.dataset.content_hash,
            "num_items": len(outcome.dataset.items),
            "items_asked_hash": hash_of("\n".join(pair.item.id for pair in outcome.pairs)),
        },
        "prompts": {
            role: {
                "name": side.prompt_name,
                "version": side.prompt_version,
                "content_hash": hash_of(side.system or ""),
            }
            for role, side in _roles(outcome)
        },
        "configuration": {
            "gates": list(dict.fromkeys(r.gate.text for r in outcome.results)),
            "seed": outcome.seed,
            "concurrency": outcome.concurrency,
            "cache": outcome.cache.value,
            "mode": outcome.mode.value,
            "max_unmeasured_ratio": outcome.decision.max_unmeasured_ratio,
            "allows_inconclusive": outcome.decision.allows_inconclusive,
            **{name: outcome.identity[name] for name in _FURTHER if name in outcome.identity},
        },
        "sides": {
            role: {
                **asdict(side),
                "url": hide_password(side.url),
                "sampling": dict(side.sampling),
                "content_hash": side.content_hash,
            }
            for role, side in _roles(outcome)
        },
        "engine": {
            role: outcome.engines.get(letter)
            for role, letter in (("baseline", "A"), ("candidate", "B"))
        },
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _roles(outcome: Outcome) -> list[tuple[str, Any]]:
    return [("baseline", outcome.sides["A"]), ("candidate", outcome.sides["B"])]


def hash_of(text: str) -> str:
    """Return the digest of a text, prefixed with the algorithm."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def read_judged_run(folder: Path) -> JudgedRun:
    """Return the evidence of the run in a `--report` folder.

    Raises:
        ConfigurationError: If the folder holds no report.
    """
    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        sides = manifest["sides"]
        is_same_run = manifest["run_id"] == run["run_id"]
        judged = JudgedRun(
            run_id=str(run["run_id"]),
            verdict=str(run["verdict"]),
            baseline=_version_of(manifest["prompts"]["baseline"]),
            candidate=_version_of(manifest["prompts"]["candidate"]),
            remark=str(run["headline"]),
            other_changes=other_changes(sides["baseline"], sides["candidate"]),
        )
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{folder} has no report from `evenkeel eval run`") from error
    if not is_same_run:
        raise ConfigurationError(f"{folder}: run.json and manifest.json belong to different runs")
    return judged


def _version_of(prompt: dict[str, Any]) -> str:
    """Return the version of a text: the first digits of its `hash_of`."""
    return str(prompt["content_hash"]).removeprefix("sha256:")[:DIGITS]


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found

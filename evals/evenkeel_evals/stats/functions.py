"""`evenkeel eval stats FUNCTION`: the statistics by name, JSON in and JSON out.

Functions are imported on demand, so that a call does not wait for all of scipy.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib import import_module
from typing import Any

import numpy as np

from evenkeel.errors import ConfigurationError

MODULE_OF_FUNCTION: Mapping[str, str] = {
    "clustered_mean": "clusters",
    "confidence_sequence": "sequential",
    "evalue_discordant": "sequential",
    "judge_corrected": "judge_reliability",
    "judge_swap": "judge_reliability",
    "kappa": "judge_reliability",
    "mcnemar_power": "power",
    "multiplicity": "multiplicity",
    "noninferior_accuracy": "noninferiority",
    "noninferior_latency": "noninferiority",
    "paired_binary": "binary",
    "permutation_paired": "permutation",
    "proportion": "binary",
    "quantile_ci": "quantiles",
    "quantiles": "quantiles",
    "sample_size_paired": "power",
    "shift_paired": "wilcoxon",
    "shift_unpaired": "wilcoxon",
}


def find_function(name: str) -> Callable[..., Any]:
    """Return the statistic with this name.

    Raises:
        ConfigurationError: If there is none.
    """
    if name not in MODULE_OF_FUNCTION:
        raise ConfigurationError(
            f"no statistic is named {name!r}; known: {', '.join(MODULE_OF_FUNCTION)}"
        )
    module = import_module(f"evenkeel_evals.stats.{MODULE_OF_FUNCTION[name]}")
    function: Callable[..., Any] = getattr(module, name)
    return function


def answer(name: str, text: str) -> str:
    """Call the named statistic with the JSON object in `text`; return its result as JSON.

    Numbers keep full precision; missing values are null, never NaN or Infinity.

    Raises:
        ConfigurationError: If the text is not a JSON object, an argument is missing or unknown,
            or the statistic is undefined for the input.
    """
    function = find_function(name)
    payload = _read(text)
    expected = list(inspect.signature(function).parameters)
    missing = [key for key in expected if key not in payload]
    unknown = [key for key in payload if key not in expected]
    if missing or unknown:
        what = f"needs {missing[0]!r}" if missing else f"has no argument {unknown[0]!r}"
        raise ConfigurationError(f"{name} {what}; its input is {', '.join(expected)}")
    try:
        with np.errstate(all="ignore"):
            record = asdict(function(**payload))
    except (ArithmeticError, MemoryError) as error:
        raise ConfigurationError(f"{name} has no answer for this input: {error}") from error
    return json.dumps(_without_nan(record), allow_nan=False)


def _read(text: str) -> dict[str, Any]:
    def refuse(constant: str) -> float:
        raise ConfigurationError(f"the input contains {constant}, expected finite numbers")

    try:
        payload = json.loads(text, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"the input is not JSON: {error}") from error
    if not isinstance(payload, dict):
        raise ConfigurationError("the input must be a JSON object with the function's arguments")
    return payload


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(member) for member in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value

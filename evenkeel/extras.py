"""How to install an optional part."""

from __future__ import annotations

# pip arguments for a checkout, where our own packages must not be looked up in an index.
_IN_A_CHECKOUT = {
    "runtime": "'./runtime[gpu]'",
    "runtime-cpu": "'./runtime[cpu]'",
    "cache": "'.[embeddings]' './runtime[cache]'",
    "collector": "'./collector[embedded]'",
    "embedded": "'./collector[embedded]'",
    "embeddings": "'.[embeddings]'",
    "grafana": "'./collector[grafana]'",
    "dashboard": "./dashboard",
    "evals": "./evals",
    "demo": "./demo",
    "qdrant": "'.[embeddings]' './runtime[cache,qdrant]'",
    "all": "'./runtime[gpu]' './collector[embedded,grafana]' ./dashboard ./evals ./demo",
}
# Both bring the module `vllm`: the one for a CPU must not go over the one for a GPU.
_ON_A_GPU = {"runtime-cpu": "; with a GPU [runtime] or [gpu] instead"}
# Extras that only a part has.
_OF_A_PART = {"qdrant": "evenkeel-runtime[cache,qdrant]"}


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, and the one for a checkout if it differs."""
    command = f"pip install '{_OF_A_PART.get(extra, f'evenkeel[{extra}]')}'"
    folders = _IN_A_CHECKOUT.get(extra)
    if folders is not None:
        command += f", in a checkout pip install {folders}"
    return command + _ON_A_GPU.get(extra, "")

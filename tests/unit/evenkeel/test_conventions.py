"""The conventions' names: as their models have them, and every name in our code is one of them."""

import json
import re

from evenkeel import conventions, spans
from tests.checkout import ROOT

MODELS = json.loads((ROOT / "tests/fixtures/semantic_conventions.json").read_text(encoding="utf-8"))
# Names of other tools: vLLM, SGLang, OpenLLMetry, LiteLLM, Anthropic's SDK, Pydantic AI, Strands;
# and of earlier conventions.
OTHERS = re.compile(
    r"gen_ai\.(latency\..+|request\.id|request\.(max_completion_tokens|n)|response\.finish_reason"
    r"|cost\.total_cost|usage\.(cost|cache_(read|creation|write)_input_tokens|reasoning_tokens|total_tokens|num_sequences"
    r"|cached_tokens|cache_write\.input_tokens|details\.reasoning_tokens)|task\.(input|output)"
    r"|prompt\.version|(content|prompt|completion)\..*|.*\.message|choice|tool\.message)"
)
NAME = re.compile(r"\bgen_ai\.[a-z_]+(?:\.[a-z_0-9]+)*(?![\w.*{])")
FILES = sorted(
    path
    for part in ("evenkeel", "collector", "runtime", "evals", "dashboard", "demo")
    for suffix in ("*.py", "*.sql", "*.toml")
    for path in (ROOT / part).rglob(suffix)
    if ".venv" not in path.parts and "build" not in path.relative_to(ROOT).parts
)


def test_the_list_is_the_models() -> None:
    names = {*MODELS["attributes"]["names"], *MODELS["modalities"]["names"]}
    assert names == conventions.ATTRIBUTES
    assert set(MODELS["events"]["names"]) == conventions.EVENTS
    assert set(MODELS["metrics"]["names"]) == conventions.METRICS
    assert MODELS["deprecated"]["renamed_to"] == conventions.DEPRECATED


def test_the_boundaries_of_server_metrics_are_the_conventions() -> None:
    expected = {name: tuple(b) for name, b in MODELS["server_metrics"]["boundaries"].items()}
    assert expected == conventions.SERVER_METRIC_BOUNDS_S
    assert expected.keys() <= conventions.METRICS


def test_what_replaced_a_name_is_current() -> None:
    replaced = {name for name in conventions.DEPRECATED.values() if name is not None}
    assert {name for name in replaced if name.startswith("gen_ai.")} <= conventions.ATTRIBUTES
    assert conventions.ATTRIBUTES.isdisjoint(conventions.DEPRECATED)


def test_what_our_spans_have_is_current() -> None:
    written = {value for value in vars(spans).values() if str(value).startswith("gen_ai.")}
    assert written <= conventions.ATTRIBUTES


def test_every_name_in_our_code_is_one() -> None:
    known = conventions.ATTRIBUTES | conventions.EVENTS | conventions.METRICS
    known |= set(conventions.DEPRECATED)
    unknown = {
        (str(path.relative_to(ROOT)), name)
        for path in FILES
        for name in NAME.findall(path.read_text(encoding="utf-8"))
        if name not in known and not OTHERS.fullmatch(name)
    }
    assert len(FILES) > 500
    assert unknown == set()

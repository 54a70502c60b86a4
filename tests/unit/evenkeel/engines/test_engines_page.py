"""docs/start/engines.md: its table is what the engines' files say."""

from evenkeel.engines.engine_map import EngineMap, known_engines
from evenkeel.engines.measures import PAGE_PARTS, PagePart
from evenkeel.engines.reported import CLIENT_FIELDS, fills_by_spans
from tests.checkout import ROOT

WITH_FACTS = (
    "vllm",
    "sglang",
    "tgi",
    "tensorrt-llm",
    "triton",
    "llama.cpp",
    "bedrock",
    "opentelemetry",
)
TITLES = {
    "tgi": "TGI",
    "triton": "Triton",
    "bedrock": "Bedrock",
    "opentelemetry": "OpenTelemetry",
}


def filled_by(engine: EngineMap, part: PagePart) -> str:
    sources = [engine.sources(measure) for measure in part.measures]
    if part.is_live_only:
        sources = [[s for s in each if not s.may_count_cached] for each in sources]
    if any(sources) and (all(sources) or not part.needs_all):
        return "metrics"
    if fills_by_spans(engine, part):
        return "traces"
    return "–" if CLIENT_FIELDS.isdisjoint(part.fields) else "clients"


def table() -> str:
    engines = [known_engines()[name] for name in WITH_FACTS]
    others = [each for name, each in known_engines().items() if name not in WITH_FACTS]
    heads = [TITLES.get(each.name, each.title) for each in engines]
    lines = [
        "| page | part | " + " | ".join([*heads, "others"]) + " |",
        "|" + "---|" * (len(heads) + 3),
    ]
    for part in PAGE_PARTS:
        rest = {filled_by(each, part) for each in others}
        assert len(rest) == 1
        cells = [filled_by(each, part) for each in engines] + sorted(rest)
        lines.append(f"| {part.page} | {part.part} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def test_the_table_of_the_page_is_what_the_files_say() -> None:
    page = (ROOT / "docs" / "start" / "engines.md").read_text(encoding="utf-8")
    assert table() in page


def test_every_engine_is_on_the_page() -> None:
    page = (ROOT / "docs" / "start" / "engines.md").read_text(encoding="utf-8")
    for engine in known_engines().values():
        assert engine.title in page and f"`{engine.name}`" in page

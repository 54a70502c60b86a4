"""Writes docs/reference/ from the code: commands, settings, attributes, tables, metrics, HTTP.

    python tools/reference.py            rewrites every page
    python tools/reference.py --check    changes nothing; exit code 1 if a page is out of date
    python tools/reference.py tables     only this page

Nothing in these pages is written by hand except the meaning of columns: the schema has no comments
for them, so tables.md keeps that cell, and a new column gets a `?` to replace.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from evenkeel import spans
from evenkeel.api_page import kind_of, meanings_of, text_of
from evenkeel.cli import build_parser, find_commands
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.settings import Settings, find_settings
from evenkeel.settings_flags import show_default
from evenkeel_collector.operators.api import openapi
from evenkeel_runtime.serve.api import make_api
from tools.house import PARTS

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference"
NOTE = "Written by `tools/reference.py`; `make golden` renews it."
# The command with the flags for a section's settings.
COMMANDS = {
    "runtime": ["serve"],
    "speculation": ["serve"],
    "steps": ["serve"],
    "collector": ["collect"],
    "redaction": ["collect"],
    "dashboard": ["dashboard"],
    "eval": ["eval", "run"],
    "demo": ["demo"],
}
# Tables that only pass rows from one view to the next, and internal bookkeeping.
HIDDEN_ENGINES = ("MaterializedView", "Null")
# Requests on their way to `requests`, and turns between collectors, are nothing to query.
HIDDEN_TABLES = ("schema_migrations", "held_requests", "settlement_turns")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; a `|` in a cell is escaped."""
    names = list(head)
    lines = [names, ["---"] * len(names), *([c.replace("|", "\\|") for c in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---") + "\n"


def page(title: str, *sections: str) -> str:
    """Return a page with its note."""
    return "\n".join((f"# {title}\n", f"{NOTE}\n", *sections))


def subparsers_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    """Return a parser's sub-commands by name."""
    found = (a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return next(found, {})


def commands() -> str:
    """Return the `--help` output of every command."""

    def walk(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
        parser.formatter_class = partial(parser.formatter_class, width=100)  # type: ignore[assignment]
        yield f"{'#' * level} `{parser.prog}`\n\n```\n{parser.format_help().rstrip()}\n```\n"
        for child in dict.fromkeys(subparsers_of(parser).values()):
            yield from walk(child, min(level + 1, 4))

    return page("Commands", *walk(build_parser(find_commands()), 2))


def settings_classes() -> dict[str, type[Settings]]:
    """Return the settings of every part by their section."""
    for part, folder in PARTS.items():
        for path in sorted((ROOT / folder / part).rglob("*.py")):
            if re.search(r"^class \w+\(Settings\):", path.read_text(encoding="utf-8"), re.M):
                name = path.relative_to(ROOT / folder).with_suffix("")
                import_module(".".join(name.parts))
    # Tests declare settings of their own.
    found = [c for c in Settings.__subclasses__() if c.__module__.split(".")[0] in PARTS]
    return {
        cls.section: cls for cls in sorted(found, key=lambda c: list(COMMANDS).index(c.section))
    }


def settings() -> str:
    """Return every setting with its flag, variable and default."""

    def rows(cls: type[Settings]) -> Iterator[list[str]]:
        for setting in find_settings(cls):
            flags = ", ".join(f"`{flag}`" for flag in setting.flags)
            flag = "– (set by `evenkeel serve`)" if setting.is_handed_down else flags
            # `--help` gives page paths relative to the checkout.
            meaning = re.sub(r"docs/([\w/]+/(\w+\.md))", r"[\2](../\1)", setting.description)
            meaning += " (*secret*)" if setting.is_secret else ""
            default = show_default(setting)
            yield [f"`{setting.name}`", flag, f"`{setting.variable}`", default, meaning]

    head = ("setting", "flag", "variable", "default", "meaning")
    return page(
        "Settings",
        "Where a value comes from, and secrets: [configuration](../guide/configuration.md).\n",
        *(
            f"## `[{name}]`: `evenkeel {' '.join(COMMANDS[name])}`\n\n{table(head, rows(cls))}"
            for name, cls in settings_classes().items()
        ),
    )


def span_attributes() -> list[str]:
    """Return every attribute our spans may have."""
    named = (v for k, v in vars(spans).items() if k.isupper() and isinstance(v, str))
    span_names = {v for k, v in vars(spans).items() if k.startswith("SPAN_")}
    prefixes = ("evenkeel.", "gen_ai.", "error.", "http.")
    of_requests = {field.attribute for field in REQUEST_FIELDS.values()}
    others = {v for v in named if v.startswith(prefixes) and v not in span_names}
    return sorted(of_requests | others)


def attributes() -> str:
    """Return every span attribute; meanings come from the list of fields or docs/metrics.md."""
    meanings: dict[str, str] = {}
    for line in (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        word = f"{cells[0].removeprefix('… ')}: " if len(cells) == 3 else ""
        names = cells[-1] if word else cells[0]
        if line.startswith("| ") and re.fullmatch(r"(`[^`]+`(, )?)+", names):
            for name in re.findall(r"`([\w.]+)", names):
                meanings[name] = word + re.sub(
                    r"\]\((?=\w)", "](../", cells[1].replace("](#", "](metrics.md#")
                )
    of_requests = {field.attribute: field.meaning for field in REQUEST_FIELDS.values()}
    meanings = of_requests | meanings
    rows = ([f"`{name}`", meanings.get(name, "?")] for name in span_attributes())
    words = "Words, units and formulas: [metrics.md](../metrics.md).\n"
    return page("Span attributes", words, table(("attribute", "meaning"), rows))


def read_schema() -> dict[str, list[tuple[str, str, str]]]:
    """Return name, type and comment of each table's columns, from a new embedded store."""
    from evenkeel_collector.store.storage import open_embedded

    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder) / "store")
        client = storage.connect()
        rows = client.query(
            "SELECT c.table, c.name, c.type, c.comment FROM system.columns AS c"
            " JOIN system.tables AS t ON t.database = c.database AND t.name = c.table"
            f" WHERE c.database = 'evenkeel' AND t.engine NOT IN {HIDDEN_ENGINES}"
            " ORDER BY c.table, c.position"
        ).result_rows
        client.close()
        storage.close()
    found: dict[str, list[tuple[str, str, str]]] = {}
    for name, *column in rows:
        if name not in HIDDEN_TABLES:
            found.setdefault(name, []).append((column[0], column[1], column[2]))
    return found


def tables() -> str:
    """Return every column of a new store; meanings are taken from the existing page."""
    path = FOLDER / "tables.md"
    kept: dict[tuple[str, str], str] = {}
    for section in path.read_text(encoding="utf-8").split("\n## ")[1:] if path.exists() else ():
        for name, meaning in re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", section, re.M):
            kept[section.split("`")[1], name] = meaning.replace("\\|", "|")
    kept |= {("requests", field.name): field.meaning for field in REQUEST_FIELDS.values()}
    return page(
        "Tables",
        "Database `evenkeel`. How rows are written: [the data model](../guide/data-model.md).\n",
        *(
            f"## `{name}`\n\n"
            + table(
                ("column", "type", "meaning"),
                ([f"`{c}`", type_, note or kept.get((name, c), "?")] for c, type_, note in columns),
            )
            for name, columns in read_schema().items()
        ),
    )


def runtime_families() -> Iterator[Any]:
    """Yield the metric families of a server with every hook on; values are meaningless."""
    from evenkeel_runtime.compression.metrics import CompressionMetrics
    from evenkeel_runtime.control.metrics import ControlMetrics
    from evenkeel_runtime.response_cache.metrics import CacheMetrics
    from evenkeel_runtime.serve.engine_metrics import EngineMetrics
    from evenkeel_runtime.serve.exporter_metrics import TelemetryMetrics
    from evenkeel_runtime.serve.in_flight_metrics import InFlightMetrics
    from evenkeel_runtime.serve.speculation_metrics import SpeculationMetrics
    from evenkeel_runtime.wire.in_flight import InFlight
    from evenkeel_runtime.wire.snapshot import Histogram, Snapshot

    hooks = MagicMock()
    hooks.totals.engine.__contains__.return_value = True
    snapshot = Snapshot(ttft=Histogram((1.0,)), e2e=Histogram((1.0,)))
    yield from EngineMetrics(lambda: snapshot, ()).collect()
    yield from TelemetryMetrics(hooks).collect()
    yield from InFlightMetrics(lambda: InFlight()).collect()
    for cls in (SpeculationMetrics, ControlMetrics, CacheMetrics, CompressionMetrics):
        yield from cls(hooks).collect()


def collector_families() -> Iterator[Any]:
    """Yield the metric families of a collector that evaluates SLOs."""
    from evenkeel_collector.log.write_ahead_log import WriteAheadLog
    from evenkeel_collector.slo.metrics import SloMetrics
    from evenkeel_collector.telemetry.metrics import SelfMetrics
    from evenkeel_collector.telemetry.refused_numbers import refused_family

    own = SelfMetrics()
    SloMetrics(own.registry)
    with tempfile.TemporaryDirectory() as folder:
        log = WriteAheadLog(Path(folder), "node")
        own.watch_log(log)
        log.close()
        for collector in own.registry._collector_to_names:
            for family in collector.collect():
                family._labelnames = getattr(collector, "_labelnames", ())
                yield family
    yield refused_family({})


def metrics() -> str:
    """Return the names on each `/metrics`, with their labels and their help."""

    def rows(families: Iterable[Any]) -> Iterator[list[str]]:
        for family in families:
            name = family.name + ("_total" if family.type == "counter" else "")
            text = re.sub(r"docs/([\w/]+/(\w+\.md))", r"[\2](../\1)", family.documentation)
            labels = ", ".join(f"`{label}`" for label in family._labelnames) or "–"
            yield [f"`{name}`", family.type, labels, text]

    head = ("metric", "type", "labels", "meaning")
    return page(
        "Metrics",
        "Metrics returned by `GET /metrics`. The server also exports vLLM's own metrics.\n",
        f"## `evenkeel serve`, port 8000\n\n{table(head, rows(runtime_families()))}",
        f"## `evenkeel collect`, port 4318\n\n{table(head, rows(collector_families()))}",
    )


def http_api(title: str, openapi: Mapping[str, Any]) -> str:
    """Return the section of an OpenAPI document: its routes, their parameters and its models."""
    schemas = openapi.get("components", {}).get("schemas", {})
    routes = {
        f"`{method.upper()} {path}`": route
        for path, methods in sorted(openapi["paths"].items())
        for method, route in methods.items()
    }
    head = ("route", "what it does", "parameters", "body", "answer, 200")
    sections = [
        f"## {title}\n",
        table(
            head,
            (
                [
                    name,
                    route.get("description", route.get("summary", "")).partition("\n")[0],
                    ", ".join(f"`{each['name']}`" for each in route.get("parameters", ())) or "–",
                    bodies(route.get("requestBody", {}), schemas),
                    bodies(route["responses"].get("200", {}), schemas),
                ]
                for name, route in routes.items()
            ),
        ),
    ]
    parameters = [
        [name, f"`{each['name']}`", kind_of(each["schema"]), sentence(each.get("description", ""))]
        for name, route in routes.items()
        for each in route.get("parameters", ())
    ]
    if parameters:
        sections.append(table(("route", "parameter", "value", "meaning"), parameters))
    return "\n".join(sections + [model(name, schemas) for name in sorted(schemas)])


def sentence(text: str) -> str:
    """Return the text of a cell, or `?` if there is none."""
    return text.rstrip(".") or "?"


def bodies(message: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """Return the models of a body or an answer, or its media types."""
    found = []
    for media, content in message.get("content", {}).items():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        found.append(f"[`{name}`](#{name.lower()})" if name in schemas else f"`{media}`")
    return ", ".join(found) or "–"


def model(name: str, schemas: Mapping[str, Any]) -> str:
    """Return the section of a model: its meaning and its fields."""
    schema = schemas[name]
    text = " ".join(text_of(schema).split())
    if "properties" not in schema:
        return f"### {name}\n\n{text} One of: {kind_of(schema)}.\n"

    def link(word: re.Match[str]) -> str:
        return f"[{word[0]}](#{word[0].lower()})" if word[0] in schemas else word[0]

    meanings = meanings_of(schema)
    rows = (
        [
            f"`{field}`",
            re.sub(r"[A-Z]\w+", link, kind_of(value)),
            "yes" if field in schema.get("required", ()) else "",
            sentence(meanings[field]),
        ]
        for field, value in schema["properties"].items()
    )
    return f"### {name}\n\n{text}\n\n{table(('field', 'value', 'required', 'meaning'), rows)}"


# OpenAPI documents by section title.
OPENAPI: dict[str, Callable[[], Mapping[str, Any]]] = {
    "Operators' API, port 4318": openapi,
    "Server, port 8000, in addition to vLLM's own routes": make_api().openapi,
}


def http() -> str:
    """Return every HTTP route: our APIs' from OpenAPI, the others from their tables."""
    from evenkeel_collector.intake.signals import SIGNALS

    guide = "../guide/collector.md"
    intake = [
        *([f"`POST {signal.path}`", "OTLP", f"[send]({guide}#send)"] for signal in SIGNALS),
        ["`GET /metrics`", "Prometheus text", "[metrics](metrics.md)"],
        ["`GET /healthz`, `GET /readyz`", "text", f"[watch]({guide}#watch)"],
    ]
    head = ("route", "format", "more")
    return page(
        "HTTP",
        f"## Collector, port 4318\n\n{table(head, intake)}",
        f"## Query port, 8123\n\nClickHouse's HTTP protocol, read-only: [queries]({guide}#ask).\n",
        "Refused requests of the two APIs below get a problem document (RFC 9457).\n",
        *(http_api(title, read()) for title, read in OPENAPI.items()),
    )


PAGES: dict[str, Callable[[], str]] = {
    "attributes": attributes,
    "commands": commands,
    "http": http,
    "metrics": metrics,
    "settings": settings,
    "tables": tables,
}


def main() -> int:
    """Rewrite pages, or report which are out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"of {', '.join(PAGES)}")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    outdated = []
    for name in args.pages or PAGES:
        path = FOLDER / f"{name}.md"
        text = PAGES[name]()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            outdated.append(str(path.relative_to(ROOT)))
            if not args.check:
                path.write_text(text, encoding="utf-8")
    print("\n".join(outdated) or "current")
    return 1 if args.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())

"""`evenkeel doctor --scrape URL`: which engine a metrics page is of, and what it fills."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from queue import Empty, Queue
from threading import Thread
from urllib.parse import unquote, urlsplit

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel.conventions import PROVIDER
from evenkeel.doctor.prometheus_page import PrometheusPage, read_prometheus_page
from evenkeel.engines.engine_map import EngineMap, MetricSource, by_provider, known_engines
from evenkeel.engines.measures import PAGE_PARTS, PagePart
from evenkeel.engines.reported import CLIENT_FIELDS, NOT_REPORTED, fills_by_spans
from evenkeel.errors import CannotMeasureError, first_line
from evenkeel.http_address import check_http_address
from evenkeel.outside_text import for_terminal
from evenkeel.secret_text import hide_password

MAX_PAGE_BYTES = 20 << 20
MAX_S = 10.0
FILLED, BY_TRACES = "filled", "with traces"
_PROVIDER_LABEL = PROVIDER.replace(".", "_")
# Ours has hooks besides its metrics: docs/start/vllm.md.
_STEP_RECORDS = "with evenkeel's runtime"


@dataclass(frozen=True, slots=True)
class PartReport:
    """What fills a part of a page: filled, with traces, or not reported; and from which metric."""

    page: str
    part: str
    state: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """One engine found on a page.

    Attributes:
        engine: Its name; `title` is for people.
        version: What the page says about its version; "" if nothing.
        facts: The version that our names hold for.
        models: Models that the metrics name.
        parts: What fills each part of each page.
        empty: Mapped metrics that have no number on the page yet.
    """

    engine: str
    title: str
    version: str
    facts: str
    models: list[str]
    parts: list[PartReport]
    empty: list[str]


def report_page(page: PrometheusPage) -> list[EngineReport]:
    """Return a report per engine that the page has metrics of; [] if it has none we know.

    As on the Engine page, names that engines share count only without an engine's own names.
    """
    own: list[EngineMap] = []
    shared: list[EngineMap] = []
    for engine in known_engines().values():
        metrics = engine.metrics
        if metrics and any(name.startswith(tuple(metrics.prefixes)) for name in page.metrics):
            (shared if metrics.is_shared else own).append(engine)
    return [_report(each, page) for each in own or [_as_named(each, page) for each in shared]]


def _as_named(shared: EngineMap, page: PrometheusPage) -> EngineMap:
    """Return the engine that the page says it is of, with the metrics that engines share."""
    engines = by_provider(known_engines().values())
    named = {
        engines.get(value.lower(), shared.name)
        for found in page.metrics.values()
        for value in found.labels.get(_PROVIDER_LABEL, ())
    }
    if len(named) != 1:
        return shared
    known = known_engines()[named.pop()]
    return known.model_copy(update={"metrics": shared.metrics, "facts": shared.facts})


def _report(engine: EngineMap, page: PrometheusPage) -> EngineReport:
    metrics = engine.metrics
    assert metrics is not None
    version = next((h.version for h in metrics.version_hints if page.has(h.metric)), "")
    models = {
        value
        for name, found in page.metrics.items()
        if metrics.model_label and name.startswith(tuple(metrics.prefixes))
        for value in found.labels.get(metrics.model_label, ())
    }
    present = [s for sources in metrics.names.values() for s in sources if _is_on(page, s)]
    return EngineReport(
        engine=engine.name,
        title=engine.title,
        version=version,
        facts=engine.facts.version,
        models=sorted(models)[:20],
        parts=[_part_report(engine, part, page) for part in PAGE_PARTS],
        empty=sorted({s.metric for s in present if not page.has_value(s.metric)}),
    )


def _part_report(engine: EngineMap, part: PagePart, page: PrometheusPage) -> PartReport:
    found = [_first_on(engine, measure, page, part) for measure in part.measures]
    present = [source for source in found if source]
    if present and (len(present) == len(found) or not part.needs_all):
        return PartReport(part.page, part.part, FILLED, ", ".join(present))
    if fills_by_spans(engine, part):
        return PartReport(part.page, part.part, BY_TRACES, "the engine's spans")
    if not CLIENT_FIELDS.isdisjoint(part.fields):
        return PartReport(part.page, part.part, BY_TRACES, "spans of its clients")
    if not part.measures and engine.name == "vllm":
        return PartReport(part.page, part.part, _STEP_RECORDS)
    return PartReport(part.page, part.part, NOT_REPORTED)


def _first_on(engine: EngineMap, measure: str, page: PrometheusPage, part: PagePart) -> str:
    sources = engine.sources(measure)
    if part.is_live_only:
        sources = [source for source in sources if not source.may_count_cached]
    return next((source.metric for source in sources if _is_on(page, source)), "")


def _is_on(page: PrometheusPage, source: MetricSource) -> bool:
    return page.has(source.metric, list(source.where.items()))


def fetch_page(url: str, max_s: float = MAX_S) -> str:
    """Return the text of a metrics page, read within bounds of size and time.

    An address without a path means the path of each engine we know, in turn.

    Raises:
        ConfigurationError: If it is not an http(s) address.
        CannotMeasureError: If nothing answers, or too slowly, or with too much.
    """
    check_http_address("--scrape", url, "http://127.0.0.1:8000/metrics")
    parts = urlsplit(url)
    login = None
    if parts.username is not None:
        login = unquote(parts.username), unquote(parts.password or "")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    paths = [parts.path]
    if parts.path in ("", "/"):
        paths = list(dict.fromkeys(e.metrics.path for e in known_engines().values() if e.metrics))
    urls = [address._replace(path=path).geturl() for path in paths]
    try:
        return _in_time(partial(_fetch_first, urls, login), max_s)
    except CannotMeasureError as error:
        raise CannotMeasureError(f"cannot scrape {address.geturl()}: {error}") from error


def _in_time(fetch: Callable[[], str], max_s: float) -> str:
    """Return a page that is there in time; HTTP clients limit only each part of an answer."""
    done: Queue[str | Exception] = Queue()

    def work() -> None:
        try:
            done.put(fetch())
        except Exception as error:
            done.put(error)

    Thread(target=work, daemon=True).start()
    try:
        found = done.get(timeout=max_s)
    except Empty:
        raise CannotMeasureError(f"the page took longer than {max_s:.0f} s") from None
    if isinstance(found, Exception):
        raise found
    return found


def _fetch_first(urls: Sequence[str], login: tuple[str, str] | None) -> str:
    """Return the first page there is; the reason why there is none is that of the first address."""
    reason = ""
    for url in urls:
        try:
            return _fetch(url, login)
        except (httpx.HTTPError, httpx.InvalidURL, CannotMeasureError) as error:
            reason = reason or first_line(error)
    raise CannotMeasureError(reason)


def _fetch(url: str, login: tuple[str, str] | None) -> str:
    headers = {"accept": "text/plain", "accept-encoding": "gzip"}
    with (
        httpx.Client(timeout=MAX_S, follow_redirects=False, trust_env=False) as client,
        client.stream("GET", url, headers=headers, auth=login) as answer,
    ):
        if answer.is_redirect:
            target = hide_password(answer.headers.get("location", ""))
            raise CannotMeasureError(f"it answered {answer.status_code}: see {target!r:.200}")
        if answer.status_code != httpx.codes.OK:
            raise CannotMeasureError(f"it answered {answer.status_code}")
        return _read_text(answer)


def _read_text(answer: httpx.Response) -> str:
    """Return an answer's text; never unpack more than a page may have."""
    encoding = answer.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        raise CannotMeasureError(f"it is encoded as {encoding!r:.80}, expected gzip or nothing")
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
    text = bytearray()
    try:
        for chunk in answer.iter_raw():
            left = MAX_PAGE_BYTES + 1 - len(text)
            text += chunk[:left] if unpacker is None else unpacker.decompress(chunk, left)
            if len(text) > MAX_PAGE_BYTES:
                raise CannotMeasureError(f"the page is larger than {MAX_PAGE_BYTES >> 20} MiB")
    except zlib.error as error:
        raise CannotMeasureError(f"it claims to be gzip, but is not: {error}") from error
    if unpacker is not None and not unpacker.eof:
        raise CannotMeasureError("its gzip is cut off")
    return text.decode("utf-8", errors="replace")


def read_reports(url: str) -> tuple[PrometheusPage, list[EngineReport]]:
    """Return what a page has, and a report per engine on it.

    Raises:
        ConfigurationError: If `url` is not an http(s) address.
        CannotMeasureError: If there is no such page, or it is not a Prometheus page.
    """
    page = read_prometheus_page(fetch_page(url))
    if not page.metrics:
        what = f"its first line is {page.wrong_line!r}" if page.wrong_line else "it is empty"
        raise CannotMeasureError(f"{hide_password(url)} is not a Prometheus page: {what}")
    return page, report_page(page)


def run_report(url: str, *, is_json: bool) -> int:
    """Print the report of a page; return 0, or 3 if it is of no engine that we know.

    Raises:
        ConfigurationError: If `url` is not an http(s) address.
        CannotMeasureError: If there is no such page, or it is not a Prometheus page.
    """
    page, reports = read_reports(url)
    if is_json:
        print(json.dumps(_as_json(url, page, reports), indent=2))
    elif reports:
        _show(page, reports)
    if not reports:
        known = ", ".join(e.title for e in known_engines().values() if e.metrics)
        raise CannotMeasureError(
            f"{hide_password(url)} has {len(page.metrics)} metrics of no engine we know ({known}); "
            "the collector stores them under their own names"
        )
    return 0


def _as_json(url: str, page: PrometheusPage, reports: Sequence[EngineReport]) -> dict[str, object]:
    return {
        "url": hide_password(url),
        "num_metrics": len(page.metrics),
        "num_wrong_lines": page.num_wrong,
        "engines": [asdict(report) for report in reports],
    }


def _show(page: PrometheusPage, reports: Sequence[EngineReport]) -> None:
    console = Console(highlight=False)
    for report in reports:
        models = f", models {', '.join(map(for_terminal, report.models))}" if report.models else ""
        version = report.version or "not reported"
        console.print(Text(f"{report.title}: version {version} (names of {report.facts}){models}"))
        table = Table("page", "part", "")
        # A metric's name that is too long continues on the next line.
        table.add_column("from", overflow="fold")
        for part in report.parts:
            table.add_row(*map(Text, (part.page, part.part, part.state, part.source)))
        console.print(table)
        if report.empty:
            console.print(Text(f"without a number yet: {', '.join(report.empty)}"))
    if len(reports) > 1:
        console.print(Text("several engines share this page: choose one on the Engine page"))
    if page.num_wrong:
        console.print(
            Text(
                f"{page.num_wrong} lines are not in the format, so the collector reads nothing "
                f"of this page; first: {page.wrong_line!r}"
            )
        )

"""The collector as a service: starts its parts in order and drains them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.http_address import with_port
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import Slo
from evenkeel.store import check_url
from evenkeel_collector.intake.awaited_calls import AwaitedCalls, CallSettler
from evenkeel_collector.intake.intake import Intake
from evenkeel_collector.intake.pipeline import IntakePipeline, bad_statuses_of, objectives_of
from evenkeel_collector.intake.readiness import Readiness
from evenkeel_collector.intake.sampling import Sampler
from evenkeel_collector.intake.scraper import Scraper, ScrapeTarget, read_targets
from evenkeel_collector.log.quarantine import replay_quarantine
from evenkeel_collector.log.seal_policy import LogLimits
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from evenkeel_collector.operators.api import build_api
from evenkeel_collector.operators.service import OperatorService
from evenkeel_collector.ports.access import Access
from evenkeel_collector.ports.access_reload import AccessControl
from evenkeel_collector.ports.connections import (
    Connections,
    connections_per_port,
    raise_descriptor_limit,
)
from evenkeel_collector.ports.grpc_connections import GrpcConnections
from evenkeel_collector.ports.hosts import KnownHosts
from evenkeel_collector.ports.memory_budget import MemoryBudget
from evenkeel_collector.ports.server import HttpServer, listen
from evenkeel_collector.ports.tls import Tls, read_tls
from evenkeel_collector.redaction.settings import RedactionSettings
from evenkeel_collector.serve import otlp_grpc
from evenkeel_collector.serve.otlp_http import OtlpHttpApp
from evenkeel_collector.serve.price_follower import PriceFollower
from evenkeel_collector.serve.settings import CollectorSettings
from evenkeel_collector.serve.write_fence import confine
from evenkeel_collector.slo import service as slo_service
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.store.call_settlement import CallSettlement
from evenkeel_collector.store.data_folder import DataFolder, hold
from evenkeel_collector.store.inserter import Inserter
from evenkeel_collector.store.retention import Retention, apply_retention, read_retention
from evenkeel_collector.store.storage import Storage, open_embedded, open_server
from evenkeel_collector.telemetry.metrics import SelfMetrics
from evenkeel_collector.telemetry.refused_numbers import RefusedNumbers

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

    from evenkeel_collector.query.port import QueryHttpApp

logger = logging.getLogger(__name__)

DRAIN_S = 3.0
# At light load, how long data without a reader may wait for the store, and how long a reader waits
# for the insert that it caused (docs/decisions/0200).
UNREAD_AGE_S = 20.0
VISIBLE_WITHIN_S = 2.0
GRPC_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of a running collector; with `--clickhouse`, `query_url` is the server's."""

    http_url: str
    grpc_url: str
    query_url: str


async def serve(
    settings: CollectorSettings,
    announce: asyncio.Queue[Addresses],
    redaction: RedactionSettings | None = None,
) -> None:
    """Run until SIGTERM or SIGINT, then drain; `announce` gets the addresses when ready.

    Raises:
        ConfigurationError: If a port, the folder or the store is unavailable; nothing was started.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with run(settings, redaction) as addresses:
        await announce.put(addresses)
        logger.info("started http=%s grpc=%s query=%s", *astuple(addresses))
        await stop.wait()
        logger.info("stopping")
    logger.info("stopped")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What a collector needs before it creates a file or starts a thread."""

    tls: Tls | None
    targets: list[ScrapeTarget]
    retention: Mapping[str, Retention]
    metrics: SelfMetrics
    max_connections: int
    control: AccessControl
    pipeline: IntakePipeline
    prices: PriceFollower


def _prepare(settings: CollectorSettings, redaction: RedactionSettings) -> _Prepared:
    """Read all configuration, so that an error in it has no side effects."""
    if settings.clickhouse is not None:
        check_url(settings.clickhouse.get_secret_value())
    metrics = SelfMetrics()
    control = AccessControl(settings.access, metrics)
    addresses = [address.get_secret_value() for address in settings.scrape]
    prepared = _Prepared(
        tls=read_tls(settings.tls_certificate, settings.tls_key, settings.tls_client_ca),
        targets=read_targets(addresses, settings.scrape_service),
        retention=read_retention(settings.retention),
        metrics=metrics,
        max_connections=_bound_connections(settings.max_connections),
        control=control,
        pipeline=_make_pipeline(settings, redaction, metrics, control.access),
        prices=PriceFollower(settings.prices, metrics),
    )
    if prepared.control.access.is_open and not _is_loopback(settings.host):
        logger.warning(
            "anyone who can reach host=%s may send and query; set tokens with --access",
            settings.host,
        )
    return prepared


@dataclass(frozen=True, slots=True)
class _Sockets:
    """The bound ports; no query port with a ClickHouse server."""

    http: socket.socket
    query: socket.socket | None


def _bind(stack: contextlib.AsyncExitStack, settings: CollectorSettings) -> _Sockets:
    """Bind the ports, so that one in use is found before anything is opened or changed."""
    http = listen(settings.host, settings.http_port, "--http-port")
    stack.callback(http.close)
    # gRPC binds its port itself, and would print its own errors.
    listen(settings.host, settings.grpc_port, "--grpc-port").close()
    query = None
    if settings.clickhouse is None:
        query = listen(settings.host, settings.query_port, "--query-port")
        stack.callback(query.close)
    return _Sockets(http, query)


def _open_store(
    stack: contextlib.AsyncExitStack,
    settings: CollectorSettings,
    prepared: _Prepared,
    folder: DataFolder,
) -> tuple[Storage, WriteAheadLog]:
    """Open the store and the log, and start to insert one into the other."""
    metrics = prepared.metrics
    storage = _open_storage(settings, folder)
    stack.callback(storage.close)
    _keep_for(storage, prepared.retention, settings.clickhouse_cluster)
    _count_objectives(storage, settings.slos)
    prepared.prices.start(storage.prices)
    log = _open_log(settings, folder)
    metrics.watch_log(log)
    settlement = CallSettlement(
        storage, metrics, settings.client_hold_s, settings.clickhouse_cluster
    )
    # After the log is drained: what was held last is settled too.
    stack.push_async_callback(asyncio.to_thread, settlement.close)
    inserter = Inserter(log, storage, metrics, settings.min_free_bytes)
    stack.push_async_callback(_drain, log, inserter)
    refused = RefusedNumbers(storage.connect, metrics.num_segments_stored, metrics.registry)
    stack.push_async_callback(asyncio.to_thread, refused.close)
    return storage, log


@contextlib.asynccontextmanager
async def run(
    settings: CollectorSettings, redaction: RedactionSettings | None = None
) -> AsyncIterator[Addresses]:
    """Run a collector for the duration of the block, then drain it.

    Raises:
        ConfigurationError: As `serve`.
    """
    prepared = _prepare(settings, redaction or RedactionSettings())
    metrics, control, pipeline = prepared.metrics, prepared.control, prepared.pipeline
    tls, max_connections = prepared.tls, prepared.max_connections
    # From here on, files are created and threads started.
    confinement = confine(settings)
    async with contextlib.AsyncExitStack() as stack:
        folder = hold(settings.data_dir)
        stack.callback(folder.release)
        sockets = _bind(stack, settings)
        storage, log = _open_store(stack, settings, prepared, folder)
        memory = MemoryBudget(settings.max_inflight_bytes)
        readiness = Readiness(log, memory)
        intake = Intake(
            log=log, metrics=metrics, pipeline=pipeline, access=control.access,
            meter=control.meter, memory=memory, readiness=readiness, awaited=AwaitedCalls(),
        )  # fmt: skip
        grpc_server = otlp_grpc.build_server(intake, settings.max_grpc_body_bytes, max_connections)
        grpc_port = otlp_grpc.bind(grpc_server, settings.host, settings.grpc_port, tls)
        context = _make_context(settings, storage, log, prepared)
        await _start_slos(stack, context, readiness)
        stack.push_async_callback(CallSettler(intake.awaited, intake.accept, context.connect).close)

        if sockets.query is not None and storage.embedded_path is not None:
            server = _make_query_server(
                stack, settings, storage.embedded_path, log, metrics, control.access
            )
            places = Connections("query", max_connections, metrics)
            await _start(stack, HttpServer(server, sockets.query, places, tls))

        await grpc_server.start()
        stack.push_async_callback(grpc_server.stop, GRPC_GRACE_S)
        _keep_running(stack, GrpcConnections(grpc_port, max_connections, metrics).follow())
        hosts = KnownHosts(settings.host, settings.allowed_hosts)
        api = build_api(OperatorService(context, intake), hosts)
        app = OtlpHttpApp(intake, settings.max_http_body_bytes, readiness.why_not, api)
        places = Connections("http", max_connections, metrics)
        await _start(stack, HttpServer(app, sockets.http, places, tls))
        _keep_running(stack, control.follow())
        if tls is not None:
            _keep_running(stack, tls.follow())
        _keep_running(stack, prepared.prices.follow())
        if prepared.targets:
            scraper = Scraper(prepared.targets, settings.scrape_interval_s, intake)
            stack.push_async_callback(scraper.close)
        confinement.log()
        scheme = "http" if tls is None else "https"
        yield Addresses(
            http_url=_url(scheme, settings.host, sockets.http.getsockname()[1]),
            grpc_url=_url(scheme, settings.host, grpc_port),
            query_url=_query_url(scheme, settings, sockets.query),
        )


def _make_context(
    settings: CollectorSettings, storage: Storage, log: WriteAheadLog, prepared: _Prepared
) -> CollectorContext:
    return CollectorContext(
        connect=partial(_connect_fresh, storage, log),
        make_visible=partial(log.make_visible, VISIBLE_WITHIN_S, rest_s=0.0),
        data_dir=settings.data_dir,
        slo_file=settings.slos,
        dashboard_url=settings.dashboard_url,
        metrics=prepared.metrics.registry,
        use_slos=partial(_follow_slos, storage, prepared.pipeline),
        prompts_dir=settings.prompts_dir,
        retention=prepared.retention,
        has_own_store=settings.clickhouse is None,
    )


def _keep_running(stack: contextlib.AsyncExitStack, task: Coroutine[None, None, None]) -> None:
    stack.callback(asyncio.create_task(task).cancel)


async def _start(stack: contextlib.AsyncExitStack, server: HttpServer) -> None:
    await server.start()
    stack.push_async_callback(server.stop)


def _bound_connections(wanted: int) -> int:
    """Return the connection limit per port."""
    num_descriptors = raise_descriptor_limit()
    allowed = connections_per_port(wanted, num_descriptors)
    if allowed < wanted:
        logger.warning(
            "limiting each port to connections=%d instead of %d: this process may only open "
            "files=%d (ulimit -n)",
            allowed, wanted, num_descriptors,
        )  # fmt: skip
    return allowed


def _make_pipeline(
    settings: CollectorSettings, redaction: RedactionSettings, metrics: SelfMetrics, access: Access
) -> IntakePipeline:
    slos = read_slo_file(settings.slos).slos if settings.slos is not None else ()
    sampler = Sampler(settings.detail_probability, objectives_of(slos), bad_statuses_of(slos))
    return IntakePipeline(redaction.build(), sampler, metrics, access)


async def _start_slos(
    stack: contextlib.AsyncExitStack, context: CollectorContext, readiness: Readiness
) -> None:
    """Start SLO evaluation and alert delivery, which end before the store does."""
    service = slo_service.start(context)
    stack.push_async_callback(service.close)
    readiness.watch(service.why_not)


async def _drain(log: WriteAheadLog, inserter: Inserter) -> None:
    await asyncio.to_thread(log.close)
    if not await asyncio.to_thread(inserter.close, DRAIN_S):
        logger.warning("the log is not empty; the rest will be stored at the next start")


def _open_storage(settings: CollectorSettings, folder: DataFolder) -> Storage:
    if settings.clickhouse_cluster is not None and settings.clickhouse is None:
        raise ConfigurationError("--clickhouse-cluster needs --clickhouse: one of its servers")
    if settings.clickhouse is not None:
        url = settings.clickhouse.get_secret_value()
        return open_server(url, settings.clickhouse_cluster, folder.log)
    return open_embedded(folder.store, folder.log)


def _keep_for(storage: Storage, retention: Mapping[str, Retention], cluster: str | None) -> None:
    client = storage.connect()
    try:
        apply_retention(client, retention, cluster)
    finally:
        client.close()


def _count_objectives(storage: Storage, slo_file: Path | None) -> None:
    """Set the objectives that the rollups count; without a file, they stay as they were."""
    if slo_file is not None:
        storage.rollups.use(read_slo_file(slo_file).slos)


def _connect_fresh(storage: Storage, log: WriteAheadLog) -> Client:
    """Return a client that sees everything acknowledged so far."""
    log.make_visible(VISIBLE_WITHIN_S, rest_s=0.0)
    return storage.connect()


def _follow_slos(storage: Storage, pipeline: IntakePipeline, slos: Sequence[Slo]) -> None:
    pipeline.use_slos(slos)
    storage.rollups.use(slos)


def _open_log(settings: CollectorSettings, folder: DataFolder) -> WriteAheadLog:
    try:
        if settings.replay_quarantine:
            logger.info("quarantine put back: %s", replay_quarantine(folder.log))
        # Readers of a ClickHouse server bypass the collector.
        unread_age_s = UNREAD_AGE_S if settings.clickhouse is None else None
        limits = LogLimits(max_log_bytes=settings.max_log_bytes, unread_age_s=unread_age_s)
        return WriteAheadLog(folder.log, folder.node, limits)
    except OSError as error:
        reason = first_line(error, folder=folder.log)
        raise ConfigurationError(f"the log in {folder.log} cannot be opened: {reason}") from error


def _make_query_server(
    stack: contextlib.AsyncExitStack,
    settings: CollectorSettings,
    path: Path,
    log: WriteAheadLog,
    metrics: SelfMetrics,
    access: Access,
) -> QueryHttpApp:
    """Return the embedded store's query port; with a ClickHouse server, readers query that."""
    # chDB is an optional extra, not needed with a ClickHouse server.
    from evenkeel_collector.query.engine import QueryEngine, QueryLimits
    from evenkeel_collector.query.port import QueryHttpApp

    limits = QueryLimits(
        num_threads=settings.query_threads,
        timeout_s=settings.query_timeout_s,
        memory_bytes=settings.query_memory_bytes,
        result_rows=settings.query_result_rows,
    )
    engine = QueryEngine(path, limits)
    stack.callback(engine.close)
    hosts = KnownHosts(settings.host, settings.allowed_hosts)
    make_visible = partial(log.make_visible, VISIBLE_WITHIN_S)
    return QueryHttpApp(engine, metrics, access, hosts, make_visible)


def _query_url(scheme: str, settings: CollectorSettings, sock: socket.socket | None) -> str:
    if sock is not None:
        return _url(scheme, settings.host, sock.getsockname()[1])
    return str(settings.clickhouse or "")


def _url(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{with_port(host, port)}"


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")

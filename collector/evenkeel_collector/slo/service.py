"""Runs SLO evaluation and alert delivery inside the collector, each in its own thread."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from evenkeel.error_guard import ErrorGuard
from evenkeel.errors import ConfigurationError, EvenkeelError, UnusableFileError
from evenkeel.prompts.freeze import Freeze, read_freezes, write_freezes
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.receiver import Receiver
from evenkeel.slo.series import SloStatus
from evenkeel.watched_file import WatchedFile
from evenkeel_collector.alerts.book import FILE_NAME, AlertBook
from evenkeel_collector.alerts.evidence_requests import EvidenceQueue
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker
from evenkeel_collector.slo.budget_steps import promotion_freezes
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.gathering import Gatherer
from evenkeel_collector.slo.metrics import SloMetrics
from evenkeel_collector.slo.short_history import short_histories
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.watchdog import Heartbeat, watch

logger = logging.getLogger(__name__)

_KEEP_NS = 90 * 86400 * 10**9
_FORGET_EVERY_NS = 3600 * 10**9
_RETRY_S = 5.0


class SloService:
    """The running threads; none if there is nothing to evaluate.

    Raises:
        ConfigurationError: If the SLO file is wrong or the data folder cannot be used.
    """

    def __init__(self, context: CollectorContext, policy: DeliveryPolicy) -> None:
        self._context = context
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._is_evaluating = False
        path = context.evaluated_file
        if path is None:
            logger.info("no slo file given and the store may be shared, not evaluating alerts")
            return
        self._metrics = SloMetrics(context.metrics)
        self._file = WatchedFile(path, read_slo_file, logger, self._metrics.rejected_files.inc)
        self._freeze_error = ""
        self._warn_of_lacks()
        for note in self._file.current.notes:
            logger.warning("slo file: %s", note)
        self._book_path = context.data_dir / FILE_NAME
        self._worker = DeliveryWorker(
            self._book_path, self._find_receivers, policy, self._count_delivery
        )
        self._evidence_queue = EvidenceQueue(time.monotonic)
        try:
            AlertBook(self._book_path).close()
        except UnusableFileError as error:
            if context.slo_file is not None:
                raise
            # On a full disk, say: nobody asked for alerts, and all else works without.
            logger.error("alerts are not evaluated, retrying error=%s", error)
            self._start_thread("slo-wait", self._start_later)
        else:
            self._start_threads()

    def _start_later(self) -> None:
        while not self._stop.wait(_RETRY_S):
            with suppress(UnusableFileError):
                AlertBook(self._book_path).close()
                self._start_threads()
                return

    def _start_threads(self) -> None:
        self._heartbeat = Heartbeat(lambda: float(self._file.current.interval_s))
        self._is_evaluating = True
        self._threads += Gatherer(
            self._context.connect,
            self._book_path,
            self._evidence_queue,
            self._find_receivers,
            self._stop,
        ).start()
        self._start_thread("slo-evaluation", self._evaluate)
        self._start_thread("slo-watch", self._watch)
        if self._context.slo_file is not None:
            self._start_thread("alert-delivery", self._deliver)
        logger.info(
            "slo evaluation started path=%s slos=%d rules=%d interval_s=%s",
            self._context.evaluated_file,
            len(self._file.current.slos),
            len(self._file.current.all_rules),
            self._file.current.interval_s,
        )

    def _start_thread(self, name: str, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    async def close(self) -> None:
        """Stop after the current step; undelivered notifications wait in the data folder."""
        self._stop.set()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def why_not(self) -> str | None:
        """Return why SLOs are no longer evaluated; None if they are, or have not begun to be."""
        return self._heartbeat.why_not() if self._is_evaluating else None

    def _watch(self) -> None:
        watch(
            self._heartbeat,
            self._book_path,
            lambda: self._file.current.receivers,
            self._context.dashboard_url,
            self._stop,
            has_file=self._context.slo_file is not None,
        )

    def _warn_of_lacks(self) -> None:
        """Warn about problems that would otherwise surface only during an incident."""
        steps = [step for slo in self._file.current.slos for step in slo.budget_policy]
        if self._context.prompts_dir is None and any(s.freezes_promotions for s in steps):
            logger.warning("cannot freeze prompt promotions: --prompts-dir is not set")
        for note in short_histories(self._file.current.slos, self._context.retention):
            logger.warning("%s", note)
        if not self._file.current.receivers:
            logger.info("no receivers: alerts notify nobody, see evenkeel alerts list")
        for receiver in self._file.current.receivers:
            lack = receiver.lack()
            if lack is not None:
                logger.warning("cannot notify receiver=%s: %s", receiver.name, lack)

    def _find_receivers(self) -> Mapping[str, Receiver]:
        return {receiver.name: receiver for receiver in self._file.current.receivers}

    def _count_delivery(self, outcome: str) -> None:
        self._metrics.deliveries.labels(outcome).inc()

    def _evaluate(self) -> None:
        """Run cycles until stopped; if the store is unavailable, reconnect and start over."""
        failures = ErrorGuard(
            logger.error,
            "slo evaluation failed, retrying error=%s",
            expected=(EvenkeelError, SQLAlchemyError),
            count=self._metrics.failures.inc,
        )
        while not self._stop.is_set():
            try:
                self._evaluate_connected(failures)
            except Exception as error:
                # The thread's outermost guard: not evaluating alerts is worse than a
                # failed cycle, so count it, log it and start over.
                failures.record(error)
                self._stop.wait(self._file.current.interval_s)

    def _evaluate_connected(self, failures: ErrorGuard) -> None:
        client = self._context.connect()
        book = AlertBook(self._book_path)
        try:
            evaluator = Evaluator(
                self._file.current,
                SloStore(client),
                book,
                self._context.dashboard_url,
                failures.record,
                self._evidence_queue,
                self._heartbeat.long_read,
                has_file=self._context.slo_file is not None,
            )
            next_forget_ns = 0
            while not self._stop.is_set():
                began = time.monotonic()
                changed = self._file.reload()
                if changed is not None:
                    evaluator.use_file(changed)
                    self._warn_of_lacks()
                num_before = failures.num_errors
                self._context.make_visible()
                visible = time.monotonic()
                now_ns = time.time_ns()
                try:
                    # Without a file, the rollups count what they counted before.
                    if self._context.slo_file is not None:
                        self._context.use_slos(self._file.current.slos)
                except Exception as error:
                    failures.record(error)
                try:
                    verdicts = evaluator.cycle(now_ns)
                    self._metrics.show(verdicts)
                    self._metrics.show_events(evaluator.counted, evaluator.slos)
                    self._metrics.show_groups_left_out(evaluator.groups_left_out)
                    self._metrics.show_cohorts(evaluator.num_cohorts)
                    if not evaluator.is_store_gone:
                        self._heartbeat.beat()
                    self._freeze_promotions(evaluator, verdicts, now_ns)
                except (EvenkeelError, SQLAlchemyError) as error:
                    failures.record(error)
                if failures.num_errors == num_before and failures.clear():
                    logger.info("slo evaluation recovered")
                if now_ns >= next_forget_ns:
                    book.forget_before(now_ns - _KEEP_NS)
                    next_forget_ns = now_ns + _FORGET_EVERY_NS
                self._metrics.evaluation_s.observe(time.monotonic() - visible)
                left_s = self._file.current.interval_s - (time.monotonic() - began)
                self._stop.wait(max(left_s, 0.05))
        finally:
            book.close()
            client.close()

    def _freeze_promotions(
        self, evaluator: Evaluator, verdicts: Mapping[str, SloStatus], now_ns: int
    ) -> None:
        """Record which prompts may not be promoted, if that changed; only a file says which.

        Failures to write to the prompt registry are logged once and do not fail the evaluation.
        """
        folder = self._context.prompts_dir
        if folder is None or self._context.slo_file is None:
            return
        before: list[Freeze] | None = None
        try:
            # A damaged file is rewritten.
            with suppress(ConfigurationError):
                before = read_freezes(folder)
            now = promotion_freezes(
                evaluator.slos, verdicts, before or [], now_ns, evaluator.unknown_definitions
            )
            if now != before:
                write_freezes(folder, now)
                logger.warning("promotions frozen by slos=%s", [f.slo for f in now] or "none")
            self._freeze_error = ""
        except ConfigurationError as error:
            if str(error) != self._freeze_error:
                logger.error("cannot freeze promotions, retrying error=%s", error)
            self._freeze_error = str(error)

    def _deliver(self) -> None:
        """Run the worker until stopped; restart it if it fails."""
        while not self._stop.is_set():
            try:
                asyncio.run(self._worker.run(self._stop))
            except Exception:
                self._count_delivery("error")
                logger.exception("alert delivery failed, restarting")
                self._stop.wait(self._file.current.interval_s)


def start(context: CollectorContext, policy: DeliveryPolicy | None = None) -> SloService:
    """Start evaluation and delivery, and return at once.

    Args:
        context: The running collector.
        policy: Retry limits for delivery; None means the defaults.

    Raises:
        ConfigurationError: If the SLO file is wrong; nothing was started.
    """
    return SloService(context, policy or DeliveryPolicy())

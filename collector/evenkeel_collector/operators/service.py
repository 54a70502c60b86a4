"""Reads and actions of operators in a running collector."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel import spans
from evenkeel.audit import FILE_NAME as AUDIT_NAME
from evenkeel.audit import Audit, AuditEntry, write_down
from evenkeel.errors import ConfigurationError, StoreError, first_line
from evenkeel.prompts.registry import PromptRegistry
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.groups import with_groups
from evenkeel.slo.query import Span
from evenkeel.store import read_query
from evenkeel.times import parse_time_ns, rfc3339
from evenkeel_collector.alerts.book import FILE_NAME as BOOK_NAME
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.intake.intake import Intake
from evenkeel_collector.intake.otlp_body import check_protobuf
from evenkeel_collector.intake.signals import PROTOBUF, SIGNALS
from evenkeel_collector.operators import actions as operator_actions
from evenkeel_collector.operators import prompts as prompt_actions
from evenkeel_collector.operators.alert_list import listing_json, read_listing
from evenkeel_collector.operators.feedback import Feedback, Judge, Review, identity_of, to_span
from evenkeel_collector.operators.problems import TRANSPORT
from evenkeel_collector.ports.access import ForbiddenError
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.slo.corrections import Correction, Corrections
from evenkeel_collector.slo.report import SloReport, measure

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_HERE = Path(__file__).parent
_MAX_LISTED = 500
_TRACES = next(signal for signal in SIGNALS if signal.path == "/v1/traces")
_LONGEST_REPORT_NS = 400 * 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class _Reader:
    """Runs queries over a client of the store.

    Raises:
        StoreError: If the store is unavailable or rejects a query.
    """

    client: Client

    def rows(
        self, query: Path, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        try:
            result = self.client.query(read_query(query), parameters=dict(parameters or {}))
        except (ClickHouseError, OSError) as error:
            raise StoreError(f"the store rejects {query.name}: {first_line(error)}") from error
        return list(result.named_results())


class OperatorService:
    """Reads and actions of operators in a running collector.

    Args:
        context: The running collector.
        intake: Stores feedback, like all other data.
    """

    def __init__(self, context: CollectorContext, intake: Intake) -> None:
        self.intake = intake
        self._context = context
        self._book = context.data_dir / BOOK_NAME

    async def judge(self, name: str, order: Judge | Review, token: str) -> dict[str, Any]:
        """Store an operator's feedback; its text is redacted, and not recorded in the audit log.

        Raises:
            ConfigurationError: If it has no content, or the audit log cannot be written.
            LogFullError: If the log has no room; nothing is recorded.
            LogWriteError: If the disk refused; nothing is recorded.
        """
        said = order.to_feedback()
        span_id, body = to_span(said)
        kept = {"trace_id": said.trace_id, "label": said.label, "score": said.score}
        details = {key: value for key, value in kept.items() if value is not None}
        entry = AuditEntry(time_ns(), order.by, token, name, details)
        loop = asyncio.get_running_loop()

        def store() -> dict[str, Any]:
            # Not as from a sender, whose reviews are none.
            finish = self.intake.pipeline.finish_for(None, is_review=True)
            accepting = self.intake.accept(check_protobuf(body, finish), TRANSPORT)
            asyncio.run_coroutine_threadsafe(accepting, loop).result()
            return {"feedback_id": span_id}

        # In a thread, because redaction may be slow.
        path = self._context.data_dir / AUDIT_NAME
        return await asyncio.to_thread(write_down, path, entry, store)

    async def keep_feedback(self, said: Feedback, tenant: str | None) -> dict[str, Any]:
        """Store feedback from an application's user; `tenant` is that of the sender's token.

        Raises:
            ForbiddenError: If it is a review, which is an operator's.
        """
        if said.label in spans.REVIEWS and not self.intake.access.is_open:
            raise ForbiddenError(
                f"the label {said.label!r} is a review's: send it to /api/review with a token that "
                "has the scope admin"
            )
        span_id, body = to_span(said)
        # The bytes of feedback sent again differ in their time.
        identity = identity_of(said, tenant)
        await self.intake.take(_TRACES, PROTOBUF, body, tenant, TRANSPORT, identity)
        return {"trace_id": said.trace_id, "feedback_id": span_id}

    def perform(self, name: str, order: operator_actions.Order, token: str) -> dict[str, Any]:
        """Run one action and record it in the audit log.

        Raises:
            EvenkeelError: If the action is invalid, fails or cannot be recorded.
        """
        now_ns = time_ns()
        entry = operator_actions.entry_of(name, order, token, now_ns)
        path = self._context.data_dir / AUDIT_NAME
        return write_down(path, entry, lambda: self._do(name, order, now_ns))

    def _do(self, name: str, order: operator_actions.Order, now_ns: int) -> dict[str, Any]:
        match order:
            case prompt_actions.Promote():
                return prompt_actions.promote(self._registry(), order, now_ns, self._run)
            case prompt_actions.Rollback():
                return prompt_actions.roll_back(self._registry(), order, now_ns)
            case _:
                return operator_actions.perform(self._book, name, order, now_ns)

    def _registry(self) -> PromptRegistry:
        return PromptRegistry(self._prompts_dir())

    def _prompts_dir(self) -> Path:
        if self._context.prompts_dir is None:
            raise ConfigurationError("no prompt registry: start the collector with --prompts-dir")
        return self._context.prompts_dir

    def prompts(self) -> list[dict[str, Any]]:
        """Return the prompts in the registry.

        Raises:
            ConfigurationError: If the collector has no registry.
        """
        return prompt_actions.listing(self._prompts_dir())

    def _run(self, run_id: str) -> Mapping[str, Any]:
        client = self._context.connect()
        try:
            return _Reader(client).rows(_HERE / "prompt_run.sql", {"run_id": run_id})[0]
        finally:
            client.close()

    def alerts(self) -> dict[str, Any]:
        """Return the alert book.

        Raises:
            ConfigurationError: If this collector evaluates no alerts.
        """
        if not self._book.exists():
            raise ConfigurationError(
                "this collector evaluates no alerts: with --clickhouse, start one with --slos"
            )
        return listing_json(read_listing(self._book, _MAX_LISTED, time_ns()))

    def corrections(self) -> list[dict[str, Any]]:
        """Return the corrections, including revoked ones."""
        return [
            {
                "id": c.id,
                "slo": c.slo,
                "from": rfc3339(c.from_ns),
                "until": rfc3339(c.until_ns),
                "reason": c.reason,
                "by": c.author,
                "comment": c.comment,
                "revoked_by": c.revoked_by,
            }
            for c in self._all_corrections()
        ]

    def _all_corrections(self) -> Sequence[Correction]:
        if not self._book.exists():
            return ()
        with AlertBook(self._book, create=False) as book:
            return Corrections(book).all()

    def entries(self) -> list[dict[str, Any]]:
        """Return the newest entries of the audit log."""
        audit = Audit(self._context.data_dir / AUDIT_NAME)
        try:
            return [
                {
                    "time": rfc3339(entry.time_ns),
                    "by": entry.author,
                    "token": entry.token,
                    "action": entry.action,
                    "details": dict(entry.details),
                }
                for entry in audit.newest(_MAX_LISTED)
            ]
        finally:
            audit.close()

    def report(self, begin: str, end: str) -> SloReport:
        """Return the SLO report of a time range.

        Raises:
            EvenkeelError: If no SLO file is given, the range is invalid, or the store fails.
        """
        if self._context.slo_file is None:
            raise ConfigurationError("no SLO file: start the collector with --slos to get reports")
        from_ns = parse_time_ns(begin)
        to_ns = min(parse_time_ns(end), time_ns())
        if not 0 < to_ns - from_ns <= _LONGEST_REPORT_NS:
            raise ConfigurationError("a report covers up to 400 days, and `from` is before `to`")
        file = read_slo_file(self._context.slo_file)
        client = self._context.connect()
        try:
            reader = _Reader(client)
            slos = tuple(with_groups(file.slos, reader.rows, to_ns, to_ns - from_ns))
            file = replace(file, slos=slos)
            return measure(reader, file, Span(from_ns, to_ns), self._all_corrections())
        finally:
            client.close()

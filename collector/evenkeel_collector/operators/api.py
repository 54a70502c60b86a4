"""The operators' API on the collector's HTTP port: `/api/…`, JSON, for the dashboard.

Reading takes a token that may query, an action one with the scope `admin`; without an access file
both are open, as everything is then. A token that proves a tenant sees none of it: alerts and SLOs
are of all tenants. An action is a POST of JSON, which no foreign page can make a browser send.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from clickhouse_connect.driver.exceptions import ClickHouseError
from pydantic import ValidationError

from evenkeel.audit import FILE_NAME as AUDIT_NAME
from evenkeel.audit import Audit, AuditEntry, write_down
from evenkeel.errors import ConfigurationError, EvenkeelError, StoreError, first_line
from evenkeel.prompts.registry import PromptRegistry
from evenkeel.slo.file import read_slo_file
from evenkeel.slo.groups import with_groups
from evenkeel.slo.query import Span
from evenkeel.store import read_query
from evenkeel.times import parse_time_ns, rfc3339
from evenkeel_collector.alerts.book import FILE_NAME as BOOK_NAME
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.intake import feedback
from evenkeel_collector.intake.canonical import MalformedError
from evenkeel_collector.intake.intake import RETRY_AFTER_S, Intake
from evenkeel_collector.intake.signals import PROTOBUF, SIGNALS
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError
from evenkeel_collector.operators import actions as operator_actions
from evenkeel_collector.operators import prompts as prompt_actions
from evenkeel_collector.operators.alert_list import listing_json, read_listing
from evenkeel_collector.operators.judgements import JUDGEMENTS, Judge, Review, feedback_of
from evenkeel_collector.ports.access import (
    Access,
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from evenkeel_collector.ports.body import Receive, Response, Scope, read_body, read_headers
from evenkeel_collector.ports.decompress import TooLargeError
from evenkeel_collector.ports.memory_budget import BusyError
from evenkeel_collector.ports.tenant_limits import RateLimitedError
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.slo.corrections import Corrections
from evenkeel_collector.slo.report import measure
from evenkeel_collector.slo.report_text import report_html, report_json, report_markdown

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

_HERE = Path(__file__).parent
PREFIX = "/api/"
MAX_BODY_BYTES = 64 * 1024
_MAX_LISTED = 500
_TRACES = next(signal for signal in SIGNALS if signal.path == "/v1/traces")
_ORDERS: Mapping[str, type[operator_actions.Order]] = {
    **{name: action[0] for name, action in operator_actions.ACTIONS.items()},
    "promote": prompt_actions.Promote,
    "rollback": prompt_actions.Rollback,
    **JUDGEMENTS,
}
_LONGEST_REPORT_NS = 400 * 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class _Reader:
    """Runs queries over a client of the store.

    Raises:
        StoreError: If the store is gone or refuses a query.
    """

    client: Client

    def rows(
        self, query: Path, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        try:
            result = self.client.query(read_query(query), parameters=dict(parameters or {}))
        except (ClickHouseError, OSError) as error:
            raise StoreError(f"the store refuses {query.name}: {first_line(error)}") from error
        return list(result.named_results())


class OperatorApi:
    """Answers `/api/…`.

    Args:
        context: The running collector.
        access: Who may read and act.
        intake: Where judgements go, as all that is stored.
    """

    def __init__(self, context: CollectorContext, access: Access, intake: Intake) -> None:
        self._context = context
        self._access = access
        self._intake = intake
        self._book = context.data_dir / BOOK_NAME

    async def answer(self, scope: Scope, receive: Receive) -> Response:
        """Answer one request."""
        headers = read_headers(scope)
        name = scope["path"].removeprefix(PREFIX)
        try:
            if scope["method"] == "POST":
                return await self._act(name, headers, receive)
            if scope["method"] not in ("GET", "HEAD"):
                return _json({"error": "use GET or POST"}, 405)
            return await self._read(name, headers, scope["query_string"])
        except UnauthenticatedError as error:
            return _json({"error": str(error)}, 401)
        except ForbiddenError as error:
            return _json({"error": str(error)}, 403)
        except TooLargeError as error:
            return _json({"error": str(error)}, 413)
        except MalformedError as error:
            return _json({"error": str(error)}, 400)
        except (LogFullError, LogWriteError, BusyError, RateLimitedError) as error:
            return _json({"error": f"{error}; try again after {RETRY_AFTER_S} s"}, 503)
        except StoreError as error:
            return _json({"error": str(error)}, 503)
        except EvenkeelError as error:
            return _json({"error": str(error)}, 400)

    async def _read(self, name: str, headers: Mapping[str, str], query: bytes) -> Response:
        secret = secret_of(headers)
        tenant = self._access.check(secret, AccessScope.QUERY)
        if name == "me":
            return _json({"tenant": tenant, "may_act": tenant is None and self._may_act(secret)})
        if tenant is not None:
            raise ForbiddenError(f"tenant {tenant!r} may not see what is of all tenants")
        parameters = dict(parse_qsl(query.decode("latin-1")))
        if name == "alerts":
            return _json(await asyncio.to_thread(self._alerts))
        if name == "corrections":
            return _json({"corrections": await asyncio.to_thread(self._corrections)})
        if name == "audit":
            return _json({"entries": await asyncio.to_thread(self._entries)})
        if name == "prompts":
            return _json({"prompts": await asyncio.to_thread(self._prompts)})
        if name == "report":
            return await asyncio.to_thread(self._report, parameters)
        return _json({"error": "nothing is here; docs/guide/collector.md lists what is"}, 404)

    async def _act(self, name: str, headers: Mapping[str, str], receive: Receive) -> Response:
        secret = secret_of(headers)
        if self._access.check(secret, AccessScope.ADMIN) is not None:
            raise ForbiddenError("a tenant's token may not act on what is of all tenants")
        model = _ORDERS.get(name)
        if model is None:
            known = ", ".join(_ORDERS)
            return _json({"error": f"no action is named {name[:100]!r}; known: {known}"}, 404)
        # A form or plain text can be sent by any page a browser has open; JSON cannot.
        if headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return _json({"error": "send application/json"}, 415)
        body = await read_body(receive, MAX_BODY_BYTES)
        try:
            order = model.model_validate_json(body)
        except ValidationError as error:
            first = error.errors(include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ConfigurationError(f"{name}: {where}: {first['msg']}") from error
        if isinstance(order, Judge | Review):
            return _json(await self._judge(name, order, secret))
        return _json(await asyncio.to_thread(self._perform, name, order, secret))

    async def _judge(self, name: str, order: Judge | Review, secret: str | None) -> dict[str, Any]:
        """Store what a person says; its words are redacted on their way, so no audit has them."""
        said = feedback_of(order)
        span_id, body = feedback.to_span(said)
        result = {"feedback_id": span_id}
        kept = {"trace_id": said.trace_id, "label": said.label, "score": said.score}
        details = {**{key: value for key, value in kept.items() if value is not None}, **result}
        await asyncio.to_thread(self._write_down, name, order.by, secret, details)
        await self._intake.take(_TRACES, PROTOBUF, body, None, "http")
        return result

    def _write_down(
        self, name: str, author: str, secret: str | None, details: Mapping[str, Any]
    ) -> None:
        audit = Audit(self._context.data_dir / AUDIT_NAME)
        try:
            audit.add(AuditEntry(time_ns(), author, self._token(secret), name, details))
        finally:
            audit.close()

    def _token(self, secret: str | None) -> str:
        return "" if self._access.is_open else _digest(secret or "")

    def _may_act(self, secret: str | None) -> bool:
        try:
            self._access.check(secret, AccessScope.ADMIN)
        except ForbiddenError:
            return False
        return True

    def _perform(
        self, name: str, order: operator_actions.Order, secret: str | None
    ) -> dict[str, Any]:
        now_ns = time_ns()
        entry = operator_actions.entry_of(name, order, self._token(secret), now_ns)
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
            raise ConfigurationError("the collector has no prompt registry: give --prompts-dir")
        return self._context.prompts_dir

    def _prompts(self) -> list[dict[str, Any]]:
        return prompt_actions.listing(self._prompts_dir())

    def _run(self, run_id: str) -> Mapping[str, Any]:
        client = self._context.connect()
        try:
            return _Reader(client).rows(_HERE / "prompt_run.sql", {"run_id": run_id})[0]
        finally:
            client.close()

    def _alerts(self) -> dict[str, Any]:
        if not self._book.exists():
            raise ConfigurationError("no SLO file is given (--slos): nothing alerts")
        return listing_json(read_listing(self._book, _MAX_LISTED, time_ns()))

    def _corrections(self) -> list[dict[str, Any]]:
        if not self._book.exists():
            return []
        book = AlertBook(self._book, create=False)
        try:
            found = Corrections(book).all()
        finally:
            book.close()
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
            for c in found
        ]

    def _entries(self) -> Sequence[dict[str, Any]]:
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

    def _report(self, parameters: Mapping[str, str]) -> Response:
        if self._context.slo_file is None:
            raise ConfigurationError("no SLO file is given (--slos): there is nothing to report")
        from_ns = parse_time_ns(parameters.get("from", ""))
        to_ns = min(parse_time_ns(parameters.get("to", "")), time_ns())
        if not 0 < to_ns - from_ns <= _LONGEST_REPORT_NS:
            raise ConfigurationError("a report covers up to 400 days, from before to")
        file = read_slo_file(self._context.slo_file)
        corrections: tuple[Any, ...] = ()
        if self._book.exists():
            book = AlertBook(self._book, create=False)
            try:
                corrections = Corrections(book).all()
            finally:
                book.close()
        client = self._context.connect()
        try:
            reader = _Reader(client)
            slos = tuple(with_groups(file.slos, reader.rows, to_ns, to_ns - from_ns))
            report = measure(reader, replace(file, slos=slos), Span(from_ns, to_ns), corrections)
        finally:
            client.close()
        if parameters.get("format") == "markdown":
            text = report_markdown(report).encode()
            return Response(200, text, "text/markdown; charset=utf-8")
        if parameters.get("format") == "html":
            text = report_html(report).encode()
            return Response(200, text, "text/html; charset=utf-8")
        return _json(report_json(report))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def _json(content: Mapping[str, Any], status: int = 200) -> Response:
    return Response(status, json.dumps(content).encode(), "application/json")

"""Requests in the real store, and an evaluator of a file over them."""

import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evenkeel.slo.file import read_slo_file
from evenkeel.slo.model import Treatment
from evenkeel.slo.selection import Filter, SelectOperator, StatusRange, disjoint_ranges
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.evidence import EvidenceBook, EvidenceDesk
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.gathering import EvidenceStore, gather_one
from evenkeel_collector.slo.store import SloStore

S = 10**9


ALERTING = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  interval: 200ms
  scale: 1/300
  receivers:
    - name: on-call
      url: {url}
      allowPrivate: true
---
"""


SLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: {name}, displayName: Support starts fast}}
spec:
  service: support
  indicator: {{metric: {metric}, select: {{{select}}}, aborted: measured}}
  objectives: [{{target: {target}, {value}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""


def slo_text(
    name: str = "chat",
    metric: str = "ttft",
    select: str = "model: support",
    target: str = "0.99",
) -> str:
    value = "" if metric == "availability" else "value: 0.5"
    return SLO.format(name=name, metric=metric, select=select, target=target, value=value)


def insert(client: Any, *rows: Mapping[str, Any]) -> None:
    """Insert requests; `end_ns` is when a request ended, `e2e_s` before that it began."""
    complete = []
    for i, row in enumerate(rows):
        values = {
            "request_id": f"r{i}",
            "trace_id": f"{i:032x}",
            "span_id": f"{i:016x}",
            "service": "support",
            "model": "support",
            "status": "ok",
            "ttft_s": 0.1,
            "tpot_s": 0.01,
            "queue_s": 0.02,
            "prefill_s": 0.08,
            "decode_s": 0.3,
            "e2e_s": 0.4,
            "input_tokens": 40,
            "sample_weight": 1.0,
            "tenant": None,
            "http_status": None,
        } | dict(row)
        end_ns = values.pop("end_ns")
        values["time"] = to_datetime(end_ns - int((values["e2e_s"] or 0) * S))
        complete.append(values)
    columns = list(complete[0])
    client.insert("requests", [[v[c] for c in columns] for v in complete], column_names=columns)


def random_filters(choose: random.Random) -> tuple[Filter, ...]:
    """Return none, one or two conditions on tenants and models."""
    return tuple(
        choose.choice(
            [
                Filter("tenant", SelectOperator.IN, ("a", "b")),
                Filter("tenant", SelectOperator.NOT, ("a",)),
                Filter("tenant", SelectOperator.MATCHES, ("[ac]|",)),
                Filter("model", SelectOperator.NOT_MATCHES, ("sup.*t",)),
                Filter("model", SelectOperator.IN, ("sup", "support.", "other")),
            ]
        )
        for _ in range(choose.choice([0, 0, 1, 2]))
    )


def random_statuses(choose: random.Random) -> tuple[StatusRange, ...]:
    """Return none, or how some HTTP statuses count."""
    if choose.random() < 0.6:
        return ()
    kinds = [choose.choice(list(Treatment)).value for _ in range(3)]
    return disjoint_ranges(
        [
            StatusRange(400, 499, kinds[0]),
            StatusRange(429, 429, kinds[1]),
            StatusRange(100, 299, kinds[2]),
        ]
    )


SLOW = {"ttft_s": 2.0, "queue_s": 1.6, "prefill_s": 0.4, "e2e_s": 2.3, "input_tokens": 900}


def evaluator(
    client: Any, tmp_path: Path, text: str, url: str = "http://127.0.0.1:9/"
) -> Evaluator:
    path = tmp_path / "slos.yaml"
    path.write_text(ALERTING.format(url=url) + text)
    book = AlertBook(tmp_path / "alerts.db")
    desk = DeskWithoutThreads(client, tmp_path / "alerts.db")
    store = SloStore(client)
    return Evaluator(read_slo_file(path), store, book, "http://127.0.0.1:8501", desk=desk)


class DeskWithoutThreads(EvidenceDesk):
    """Has the evidence gathered within the cycle that asks for it."""

    def __init__(self, client: Any, book_path: Path) -> None:
        super().__init__(time.monotonic)
        self._store = EvidenceStore(client, {})
        self._evidence = EvidenceBook(AlertBook(book_path))

    def ask(self, alert_id: str, severity: str, gather: Callable[[Any], Mapping[str, str]]) -> None:
        super().ask(alert_id, severity, gather)
        request = self.next(0)
        if request is not None:
            facts = gather_one(request, self._store)
            self._evidence.add(alert_id, facts, time.time_ns())
            self.hand_in(alert_id, facts)


NOW = 1_795_168_800 * S

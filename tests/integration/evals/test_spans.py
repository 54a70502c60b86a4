"""Results on the wire: what a collector receives, and what happens without one."""

import gzip
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel import spans
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.report.spans import result_spans, send
from evenkeel_evals.scorers.base import Score, make_scorer
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import parse_gates
from tests.fixtures.http_stub import QuietHandler, serving
from tests.unit.evals.finished_run import finish as finish_run


class Receiver(ThreadingHTTPServer):
    daemon_threads = True
    bodies: list[bytes]
    status = 200


class Handler(QuietHandler):
    server: Receiver

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append(gzip.decompress(body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver(("127.0.0.1", 0), Handler)
    server.bodies = []
    with serving(server):
        yield server


def finish(num_pairs: int) -> Outcome:
    gates = parse_gates("accuracy>=-1%")
    scorer = make_scorer("exact", "x")
    pairs = []
    for i in range(num_pairs):
        item = Item(f"i{i}", (Message("user", "?"),), "x", scorer, ("t",), f"c{i}")
        reply = Reply(10, 20, text="x", ttft_s=0.1, e2e_s=0.2, output_tokens=3)
        a, b = (Answer(reply, Score.of(True), f"{i + 1:032x}", f"{s}{i + 1:015x}") for s in "12")
        pairs.append(AnsweredPair(i, item, "A", a, b))
    return finish_run(pairs, gates)


def test_every_answer_and_gate_arrives(receiver: Receiver) -> None:
    endpoint = f"http://127.0.0.1:{receiver.server_port}"
    assert send(finish(300), endpoint) is None
    received = [
        span
        for body in receiver.bodies
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert len(received) == 601
    assert len(receiver.bodies) == 2
    first = received[0]
    assert (first.trace_id.hex(), first.span_id.hex()) == (f"{1:032x}", f"1{1:015x}")
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (10, 20)
    assert {span.name for span in received} == {spans.SPAN_EVALUATION, spans.SPAN_EVALUATION_RUN}


def test_answers_say_which_side_they_are_of() -> None:
    # What docs/metrics.md promises, and eval_slices and eval_changed_items read.
    answers = [s for s in result_spans(finish(3)) if s.name == spans.SPAN_EVALUATION]
    assert [(s.attributes or {})[spans.EVAL_SIDE] for s in answers] == ["A", "B"] * 3


def test_a_missing_collector_is_one_line_at_once() -> None:
    # The exporter of the SDK would try again for a minute.
    started = time.perf_counter()
    problem = send(finish(3), "http://127.0.0.1:9")
    assert problem is not None and problem.startswith(
        "no collector is answering at http://127.0.0.1:9"
    )
    assert "\n" not in problem
    assert time.perf_counter() - started < 45


def test_a_collector_that_refuses_is_named(
    receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.status = 400
    problem = send(finish(3), f"http://127.0.0.1:{receiver.server_port}/v1/traces")
    address = f"http://127.0.0.1:{receiver.server_port}"
    assert problem == f"the collector at {address} did not accept the results (HTTP 400)"
    assert capsys.readouterr().err == ""

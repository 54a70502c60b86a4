"""Measure ledgers of sessions, sessions found without our header, and what sessions cost an insert.

    python bench/sessions.py --trace sessions.jsonl.gz --json build/bench/sessions.json
    python bench/sessions.py --trace sessions.jsonl.gz --sessions 200 --only ledger finding

Replays sessions resampled from recorded ones of agents (github.com/callanjfox/kv-cache-tester,
Apache-2.0, condensed to one line per session); bench/session_replay.py says what is made up.

- ledger: how many ledgers add up to the wall time within 1%; how far each cause is from the truth;
  evictions while a tool ran, named with the tool: precision, recall and F1, also of engines that
  record evictions and of those of which they are inferred. Right is the request with its tool.
- finding: through the server's own reading of headers, its digests of messages and the exporter's
  finder, 200 sessions at a time. A request is right if its found session is mostly of its own true
  session and is the largest of those found of it. A session is right if it was found whole and
  alone. Pairs are of requests of one session; F1 of those found together.
- spans: the same of requests, tools and agents that reach an embedded store as spans
  (bench/session_spans.py says which), by the views `sessions` and `session_turns`.
- store: ledgers in the columns of the view `sessions`, in an embedded store.
- ingest: CPU of the process that inserts, per span of bench/ingest.py with session IDs and one tool
  call in 16 spans, with the views of sessions and without them, in turns.
- collector: CPU of whole collectors per span of the same bodies, this one (or
  `--after`) and `--before`, in turns; the two should differ in nothing else.
"""

import argparse
import io
import json
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.demo_load import save
from bench.ingest import BodySeries, build_body, make_unique, run
from bench.session_replay import HEADERS, Session, generate_all, read_sessions
from bench.session_spans import case_of, read_back, send
from evenkeel.times import to_datetime
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment, open_embedded
from evenkeel_dashboard.sessions.evictions import During, find_evictions
from evenkeel_dashboard.sessions.ledger import account
from evenkeel_dashboard.sessions.work import WorkKind
from evenkeel_runtime.exporter.session_finder import SessionFinder
from evenkeel_runtime.request.conversation import digest
from evenkeel_runtime.request.headers import read_headers
from evenkeel_runtime.wire.caller import TraceParent
from evenkeel_runtime.wire.observation import Observation, pack_tokens

PARTS = ("ledger", "finding", "spans", "store", "ingest", "collector")
AT_ONCE = 200
# A conversation's messages are sent with each turn: longer ones would only take longer to replay.
MAX_FOUND_TURNS = 60
SPANS = 16_384
VIEWS = (
    "requests_to_session_parts", "requests_to_session_traces", "spans_to_session_spans",
)  # fmt: skip


def share(counts: Counter[str], name: str, of: str) -> float:
    """Return one count divided by another."""
    return counts[name] / max(1, counts[of])


def measure_ledgers(sessions: Iterable[Session]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    errors: dict[str, list[float]] = defaultdict(list)
    named: dict[str, Counter[str]] = defaultdict(Counter)
    took_s = 0.0
    for session in sessions:
        began_s = time.perf_counter()
        found = account(session.works)
        assert found is not None
        evictions = find_evictions(found.tree)
        took_s += time.perf_counter() - began_s
        wall_s = max(session.wall_s, 1e-9)
        counts["sessions"] += 1
        counts["works"] += len(session.works)
        counts["adding up"] += abs(sum(found.seconds.values()) - wall_s) <= 0.01 * wall_s
        seen = dict(found.seconds)
        seen["tool"] = found.total("tool.")
        for cause, truth_s in session.seconds.items():
            errors[cause].append(abs(seen.get(cause, 0.0) - truth_s) / wall_s)
        counts["every cause"] += all(
            abs(seen.get(cause, 0.0) - truth_s) <= 0.01 * wall_s
            for cause, truth_s in session.seconds.items()
        )
        during = {e.work.request_id: e.tool for e in evictions if e.during is During.TOOL}
        truth = session.evicted_in_tool
        for engines in ("all", "recorded" if session.says_evictions else "inferred"):
            of = named[engines]
            of["right"] += sum(truth.get(request) == tool for request, tool in during.items())
            of["named"] += len(during)
            of["forced"] += len(truth)
    return {
        "sessions": counts["sessions"],
        "requests_tools_agents": counts["works"],
        "adding_up_within_1_percent": share(counts, "adding up", "sessions"),
        "every_cause_within_1_percent_of_wall": share(counts, "every cause", "sessions"),
        "worst_error_of_wall": {cause: max(each) for cause, each in sorted(errors.items())},
        "evictions": {
            engines: {
                **of,
                "precision": share(of, "right", "named"),
                "recall": share(of, "right", "forced"),
                "f1": 2 * of["right"] / max(1, of["named"] + of["forced"]),
            }
            for engines, of in named.items()
        },
        "us_per_work": took_s / max(1, counts["works"]) * 1e6,
    }


def observe(session: Session, place: int) -> Observation:
    """Return a request as the server hands it over, without our header."""
    turn, number = session.turns[place], session.number
    seen = Observation(
        request_id=turn.work.request_id, model="model", arrival_unix_ns=turn.work.start_ns,
        arrival_ns=turn.work.start_ns, end_ns=turn.work.end_ns,
    )  # fmt: skip
    if session.naming == "header":
        header = HEADERS[number % len(HEADERS)].encode()
        seen.session_id = read_headers([(header, f"id-{number}".encode())]).session_id
    elif session.naming == "trace":
        trace = bytes.fromhex(turn.work.trace_id)
        seen.parent = TraceParent(trace, turn.work.end_ns.to_bytes(8, "big"), 1)
    else:
        body = {"messages": [{"role": role, "content": text} for role, text in turn.messages]}
        seen.message_digests = digest(json.dumps(body).encode())
        seen.prompt = pack_tokens(map(ord, "".join(text for _, text in turn.messages)))
        seen.answer = pack_tokens(map(ord, turn.answer[:16]))
    return seen


def measure_finding(sessions: Sequence[Session]) -> dict[str, Any]:
    finder = SessionFinder()
    found: dict[tuple[int, int], str] = {}
    for first in range(0, len(sessions), AT_ONCE):
        group = sessions[first : first + AT_ONCE]
        places = [(s, place) for s in group for place in range(len(s.turns))]
        # Requests reach the exporter as they end.
        for session, place in sorted(places, key=lambda p: p[0].turns[p[1]].work.end_ns):
            seen = observe(session, place)
            finder.find(seen)
            found[session.number, place] = seen.session_id or f"none-{len(found)}"
    by_naming = {s.number: s.naming for s in sessions}
    return score([(number, name) for (number, _), name in found.items()], by_naming)


def score(found: Iterable[tuple[int, str]], case_of_session: dict[int, str]) -> dict[str, Any]:
    """Judge pieces of work, each of a true session and found in a named one, by case."""
    true_of: dict[str, Counter[int]] = defaultdict(Counter)
    found_of: dict[int, Counter[str]] = defaultdict(Counter)
    for number, name in found:
        true_of[name][number] += 1
        found_of[number][name] += 1
    figures: dict[str, Any] = {}
    for case in ("all", *sorted(set(case_of_session.values()))):
        counts: Counter[str] = Counter()
        for number, names in found_of.items():
            if case not in ("all", case_of_session[number]):
                continue
            name, size = names.most_common(1)[0]
            total = sum(names.values())
            counts["sessions"] += 1
            counts["works"] += total
            owner = true_of[name].most_common(1)[0][0]
            counts["right works"] += size if owner == number else 0
            counts["right sessions"] += len(names) == 1 and len(true_of[name]) == 1
            for piece, num in names.items():
                counts["found pairs"] += num * (num - 1) // 2
                counts["claimed pairs"] += num * (sum(true_of[piece].values()) - 1)
            counts["true pairs"] += total * (total - 1) // 2
        # A found pair is claimed by both of its pieces of work.
        precision = 2 * counts["found pairs"] / max(1, counts["claimed pairs"])
        recall = share(counts, "found pairs", "true pairs")
        figures[case] = {
            "sessions": counts["sessions"],
            "works": counts["works"],
            "works_right": share(counts, "right works", "works"),
            "sessions_right": share(counts, "right sessions", "sessions"),
            "pairs_f1": 2 * precision * recall / max(1e-9, precision + recall),
        }
    return figures


def measure_spans(sessions: Sequence[Session]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder))
        client = storage.connect()
        true_of = send(storage, client, sessions)
        found = read_back(client)
        client.close()
        storage.close()
    # A span in no session is one alone, and wrong unless its session is that.
    named = [(number, found.get(span, f"none {span}")) for span, number in true_of.items()]
    return score(named, {s.number: case_of(s) for s in sessions})


def measure_store(sessions: Sequence[Session]) -> dict[str, Any]:
    """Insert the work of sessions, and compare the view with the truth and with the ledgers."""
    requests, tools = [], []
    for session in sessions:
        name = f"session-{session.number}"
        for work in session.works:
            row = [to_datetime(work.start_ns), "tenant", name]
            if work.kind is WorkKind.REQUEST:
                requests.append([
                    *row, "header", "model", "ok", work.request_id, work.trace_id,
                    work.seconds, work.queue_s, work.prefill_s, work.decode_s, work.recompute_s,
                    1.0,
                ])  # fmt: skip
            else:
                tools.append([*row, False, work.kind.value, work.name, work.seconds, "ok"])
    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder))
        client = storage.connect()
        names = ["time", "tenant", "session_id"]
        client.insert("requests", requests, column_names=[
            *names, "session_source", "model", "status", "request_id", "trace_id", "e2e_s",
            "queue_s", "prefill_s", "decode_s", "recompute_s", "sample_weight",
        ])  # fmt: skip
        client.insert("session_tools", tools, column_names=[
            *names, "is_trace", "kind", "name", "duration_s", "status",
        ])  # fmt: skip
        query = "SELECT session_id, e2e_s, ledger FROM sessions"
        rows = {name: (e2e, ledger) for name, e2e, ledger in client.query(query).result_rows}
        client.close()
        storage.close()
    counts: Counter[str] = Counter()
    for session in sessions:
        e2e_s, ledger = rows[f"session-{session.number}"]
        wall_s = max(session.wall_s, 1e-3)
        counts["sessions"] += 1
        counts["adding up"] += abs(sum(ledger.values()) - wall_s) <= 0.01 * wall_s
        counts["wall"] += abs(e2e_s - wall_s) <= 0.01 * wall_s
        counts["every cause"] += all(
            abs(ledger.get(cause, 0.0) - truth_s) <= 0.01 * wall_s
            for cause, truth_s in session.seconds.items()
        )
    return {
        "sessions": counts["sessions"],
        "adding_up_within_1_percent": share(counts, "adding up", "sessions"),
        "every_cause_within_1_percent_of_wall": share(counts, "every cause", "sessions"),
    }


def with_sessions(body: bytes) -> bytes:
    """Return the spans with a session on each request, and each 16th span a tool's."""
    request = ExportTraceServiceRequest.FromString(body)
    for number, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        if number % 4 == 0:
            span.attributes.add(key="evenkeel.e2e_s").value.double_value = 1.5
            session = span.attributes.add(key="gen_ai.conversation.id")
            session.value.string_value = f"0d9cd1e5-{number // 80:08d}"
            span.attributes.add(key="evenkeel.session.source").value.string_value = "header"
            span.attributes.add(key="evenkeel.parent_span_id").value.string_value = "f" * 16
        elif number % 16 == 1:
            span.name = "execute_tool grep"
            span.attributes.add(key="gen_ai.operation.name").value.string_value = "execute_tool"
    return request.SerializeToString()


def measure_ingest(rounds: int) -> dict[str, Any]:
    body = with_sessions(build_body(SPANS, 1))
    took: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder))
        client = storage.connect()
        for turn in range(2 * rounds + 2):
            has_views = turn % 2 == 0
            if turn:
                for view in VIEWS:
                    client.command(f"{'ATTACH' if has_views else 'DETACH'} TABLE {view}")
            segment = io.BytesIO(encode_segment("bench", time.time_ns(), [make_unique(body)]))
            began_s = time.process_time()
            insert_segment(client, storage.insert_settings, f"{turn}", segment)
            if turn >= 2:  # the first insert of each kind is not like the others
                took[has_views].append((time.process_time() - began_s) / SPANS * 1e6)
        (num,) = client.query("SELECT count() FROM sessions").first_row
        client.close()
        storage.close()
    ratios = [on / off for on, off in zip(took[True], took[False], strict=True)]
    return {
        "rounds": rounds,
        "sessions_stored": num,
        "insert_us_a_span": statistics.median(took[True]),
        "insert_us_a_span_without": statistics.median(took[False]),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def session_bodies(num_spans: int, seed: int) -> bytes:
    """Return spans with sessions, as bench/ingest.py sends them."""
    return with_sessions(build_body(num_spans, seed))


def measure_collector(
    before: Path, after: Path | None, rounds: int, num_spans: int
) -> dict[str, Any]:
    """Compare whole collectors of two checkouts, from the wire to the row."""
    series = BodySeries("/v1/traces", "spans", session_bodies)
    took: dict[Path | None, list[float]] = {before: [], after: []}
    for _ in range(rounds):
        for checkout, each in took.items():
            each.append(run(num_spans, 512, 2, series, checkout).cpu_us_a_span)
    ratios = [now / then for then, now in zip(took[before], took[after], strict=True)]
    return {
        "rounds": rounds,
        "spans": num_spans,
        "cpu_us_a_span": statistics.median(took[after]),
        "cpu_us_a_span_before": statistics.median(took[before]),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, required=True, help="recorded sessions, .jsonl.gz")
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--stored", type=int, default=1_000, help="sessions in the embedded store")
    parser.add_argument("--spans-of", type=int, default=300, help="sessions sent as spans")
    parser.add_argument("--rounds", type=int, default=9, help="inserts with and without the views")
    parser.add_argument("--before", type=Path, help="a checkout without sessions, for `collector`")
    parser.add_argument("--after", type=Path, help="the one to compare it with, if not this one")
    parser.add_argument("--spans", type=int, default=400_000, help="sent to each collector")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    recorded = read_sessions(args.trace)
    figures: dict[str, Any] = {}
    for part in args.only:
        if part == "ledger":
            figures[part] = measure_ledgers(generate_all(recorded, args.sessions))
        elif part == "finding":
            sessions = list(generate_all(recorded, args.sessions, MAX_FOUND_TURNS))
            figures[part] = measure_finding(sessions)
        elif part == "spans":
            sessions = list(generate_all(recorded, args.spans_of, MAX_FOUND_TURNS))
            figures[part] = measure_spans(sessions)
        elif part == "store":
            figures[part] = measure_store(list(generate_all(recorded, args.stored)))
        elif part == "ingest":
            figures[part] = measure_ingest(args.rounds)
        elif args.before is not None:
            figures[part] = measure_collector(args.before, args.after, args.rounds, args.spans)
        else:
            continue
        print(f"{part}: {json.dumps(figures[part], indent=2)}", flush=True)
    save(args.json, {"trace": args.trace.name, **figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())

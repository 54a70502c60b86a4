"""The ledger of each request that a real server stores: sums, causes, rivals, the cache, aborts."""

import json
import threading
import time
import uuid
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from evenkeel import cli
from evenkeel.spans import SPAN_ENGINE_STEPS
from tests.fixtures.collector_process import wait_for
from tests.fixtures.otlp_receiver import ReceivedSpan
from tests.fixtures.served_model import ServedModel, long_answer, waited_for_a_core_s

PREFIX = "evenkeel.ledger."
# About 2,000 tokens of the demo model's vocabulary.
LONG_TEXT = "please help me with order number 123 " * 190
OPEN_METRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
STEPS = "evenkeel.steps."


def chat(client: httpx.Client, text: str, max_tokens: int = 24, **more: object) -> str:
    """Ask, and return the request's id."""
    body = {
        "model": "support",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0,
    } | more
    response = client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    found: str = response.json()["id"]
    return found


def stream(client: httpx.Client, text: str, max_tokens: int = 24) -> str:
    body = {
        "model": "support",
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "stream": True,
    }
    request_id = ""
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                request_id = json.loads(line[6:])["id"]
    return request_id


def why(client: httpx.Client, request_id: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    # The exporter knows a request a moment after its client, which a busy machine draws out.
    while (response := client.get(f"/why/{request_id}")).status_code != 200:
        assert time.monotonic() < deadline, response.text
    found: dict[str, Any] = response.json()
    return found


def answered(client: httpx.Client, request_id: str, headers: dict[str, str]) -> httpx.Response:
    """Return what is said of a request, once the exporter answers: the server waits for it 3 s."""
    deadline = time.monotonic() + 120
    while (found := client.get(f"/why/{request_id}", headers=headers)).status_code == 503:
        assert time.monotonic() < deadline, found.text
    return found


def ledger_of(span: ReceivedSpan) -> dict[str, float]:
    return {
        name.removeprefix(PREFIX): value
        for name, value in span.attributes.items()
        if name.startswith(PREFIX)
    }


def total(ledger: dict[str, float], phase: str) -> float:
    return sum(value for key, value in ledger.items() if key.startswith(f"{phase}."))


def beside(client: httpx.Client, number: int) -> threading.Thread:
    thread = threading.Thread(target=chat, args=(client, f"{uuid.uuid4()} {number} {LONG_TEXT}", 4))
    thread.start()
    return thread


def test_every_stored_request_has_a_ledger_that_sums_to_what_was_measured(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    """Alone, crowded, streamed and not, with prefix hits, several answers and speculation."""
    wanted = {"ttft.prefill.own", "ttft.prefill.others", "decode.decode.own", "ttft.host.input"}
    causes: set[str] = set()
    num_asked = 0
    # On a busy machine, requests may not meet.
    for _ in range(10):
        threads = [beside(client, number) for number in range(2)]
        asked = [stream(client, f"How do I reset password {i}?") for i in range(4)]
        asked += [chat(client, LONG_TEXT, 4), chat(client, LONG_TEXT, 4)]
        asked += [chat(client, "hello", n=2, temperature=1.0)]
        for thread in threads:
            thread.join()
        num_asked += len(asked) + len(threads)
        for span in served_model.wait_for_requests(num_asked, evenkeel__tenant=tenant):
            ledger, seen = ledger_of(span), span.attributes
            assert total(ledger, "ttft") == pytest.approx(seen["evenkeel.ttft_s"], rel=0.02)
            assert total(ledger, "decode") == pytest.approx(seen["evenkeel.decode_s"], rel=0.02)
            assert not [key for key in ledger if key.endswith("unobserved")]
            causes |= set(ledger)
        if wanted <= causes:
            break
    assert wanted <= causes


def test_a_short_request_beside_a_long_prompt_knows_what_it_would_have_been_without(
    served_model: ServedModel, client: httpx.Client
) -> None:
    def ask_beside() -> dict[str, Any]:
        thread = beside(client, 0)
        time.sleep(0.03)
        request_id = chat(client, "Where is my order?", 4)
        thread.join()
        return why(client, request_id)

    # On a busy machine the short one may come before or after the long one's steps.
    found = next(
        answer for answer in (ask_beside() for _ in range(40)) if _has_waited_for_prefill(answer)
    )
    worst = found["without"][0]
    assert worst["prefill_tokens"] > 1500
    assert f"without the concurrent {worst['prefill_tokens']:,}-token prompt" in worst["text"]
    assert 0 < worst["spared_s"] <= found["e2e_s"]
    # Above 1, or before it was tested, a cost model is not used.
    is_tested = found["model_error_ratio"] is not None
    assert found["shared_by"] == ("cost_model" if is_tested else "tokens")
    assert not is_tested or 0 < found["model_error_ratio"] < 1


def test_compiling_a_grammar_is_what_a_request_waits_for(
    served_model: ServedModel, client: httpx.Client
) -> None:
    def answer_as(num_properties: int) -> dict[str, Any]:
        properties = {
            f"{uuid.uuid4()}": {"enum": [f"v{i}_{j}" for j in range(50)]}
            for i in range(num_properties)
        }
        schema = {"type": "object", "properties": properties, "required": list(properties)}
        wanted = {"name": "wanted", "schema": schema}
        response_format = {"type": "json_schema", "json_schema": wanted}
        request_id = chat(client, "Fill the form in.", 2, response_format=response_format)
        return why(client, request_id)

    answer_as(1)  # The first of them also starts the backend that compiles.
    found = answer_as(600)
    ledger = found["ledger"]
    assert ledger["ttft.queue.grammar"] > 0.1
    assert ledger["ttft.queue.grammar"] > 10 * ledger.get("ttft.host.gap", 0.0)
    assert total(ledger, "ttft") == pytest.approx(found["ttft_s"], rel=0.02)


def _has_waited_for_prefill(answer: dict[str, Any]) -> bool:
    rivals = answer["without"]
    return bool(rivals) and rivals[0]["prefill_tokens"] > 1500


def test_the_engines_part_is_what_vllm_itself_measured(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    """The sums above would hold as well if all time were the host's, or unobserved."""
    chat(client, f"{tenant} {LONG_TEXT}", 1)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    ledger, seen = ledger_of(span), span.attributes
    work_s = sum(
        ledger.get(f"ttft.{cause}", 0.0)
        for cause in ("prefill.own", "prefill.others", "decode.others", "host.gap")
    )
    assert work_s == pytest.approx(seen["evenkeel.prefill_s"], rel=0.25, abs=0.01)


def test_why_a_prompt_missed_the_prefix_cache(client: httpx.Client, tenant: str) -> None:
    def story(text: str, **more: object) -> dict[str, Any]:
        found: dict[str, Any] = why(client, chat(client, text, 2, **more))["prefix_cache"]
        return found

    first = story(f"{tenant} {LONG_TEXT} a")
    again = story(f"{tenant} {LONG_TEXT} b")
    salted = story(f"{tenant} {LONG_TEXT} c", cache_salt="other")
    assert (first["hit_tokens"], first["lost_tokens"]) == (0, 0)
    assert first["missed_tokens"] > 1000 and first["cost_s"] > 0
    assert again["miss"] == "none"
    assert again["hit_tokens"] == first["missed_tokens"]
    assert salted["miss"] == "other_salt"
    assert salted["missed_tokens"] == first["missed_tokens"]


def test_a_static_part_that_moves_is_found(client: httpx.Client, tenant: str) -> None:
    days = [f"Dear {tenant}, today is {day}. {LONG_TEXT}" for day in ("monday", "friday")]
    found = [why(client, chat(client, text, 2))["prefix_cache"] for text in days]
    diverged = found[1]["diverged"]
    assert found[1]["miss"] == "diverged"
    assert 4 <= diverged["at_token"] < 60
    assert diverged["static_tokens_behind"] > 1000
    # The text of prompts is shown only where that was switched on.
    assert not {"own_text", "own_tokens", "its_tokens"} & set(diverged)


def test_a_closed_connection_stops_the_engine_within_one_step(
    served_model: ServedModel, tenant: str
) -> None:
    for number, is_streamed in enumerate((True, False)):
        owner = f"{tenant}-{number}"
        with long_answer(served_model, owner, is_streamed):
            before_s = waited_for_a_core_s(served_model.process.pid)
        span = served_model.wait_for_request(evenkeel__tenant=owner)
        waited_s = waited_for_a_core_s(served_model.process.pid) - before_s
        seen, ledger = span.attributes, ledger_of(span)
        assert seen["evenkeel.status"] == "aborted"
        num_steps = seen["evenkeel.cancel.steps"]
        # The step under way may end, and one may be planned before the abort is read; and the
        # engine goes on while the server, which has to tell it, waits for a core.
        step_s = seen["evenkeel.cancel_s"] / max(num_steps, 1)
        assert num_steps <= 1 or num_steps <= 1 + waited_s / step_s
        assert seen["evenkeel.cancel_s"] >= 0
        # Four sequences of at most four accepted drafts and one token.
        assert seen["evenkeel.cancel.tokens"] <= max(num_steps, 1) * 2 * 4 * 5
        assert seen["evenkeel.wasted_tokens"] >= seen["evenkeel.cancel.tokens"]
        assert total(ledger, "ttft") == pytest.approx(seen["evenkeel.ttft_s"], rel=0.02)
        assert total(ledger, "decode") == pytest.approx(seen["evenkeel.decode_s"], rel=0.02)


def test_why_knows_only_recent_requests_and_only_the_tenants_own(
    served_model: ServedModel,
    client: httpx.Client,
    tenant: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    request_id = chat(client, "hello", 2)
    found = why(client, request_id)
    assert found["request_id"] == request_id
    assert total(found["ledger"], "ttft") == pytest.approx(found["ttft_s"], rel=0.02)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)
    assert found["trace_id"] == span.trace_id
    other = answered(client, request_id, {"x-evenkeel-tenant": "somebody"})
    assert other.status_code == 404
    unknown = answered(client, "chatcmpl-nobody", {})
    assert unknown.status_code == 404
    assert len(unknown.text.splitlines()) == 1
    assert cli.main(["why", request_id, "--url", served_model.url]) == 0
    assert f"{request_id}  ok  support" in capsys.readouterr().out

    def is_said_to_be_unknown() -> bool:
        assert cli.main(["why", "chatcmpl-nobody", "--url", served_model.url]) == 3
        return "does not know request chatcmpl-nobody" in capsys.readouterr().err

    wait_for(is_said_to_be_unknown)
    # Whoever names no tenant sees all; a completion is found by the id in its response.
    assert httpx.get(f"{served_model.url}/why/{request_id}").status_code == 200
    body = {"model": "support", "prompt": "hello", "max_tokens": 2}
    completion = client.post("/v1/completions", json=body).json()["id"]
    assert why(client, completion)["request_id"] == f"{completion}-0"


def test_the_metrics_have_the_fields_names_and_lead_to_traces(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    chat(client, "hello", 4)
    span = served_model.wait_for_request(evenkeel__tenant=tenant)

    def is_led_to() -> bool:
        buckets = _families(client).get("evenkeel_runtime_ttft_seconds")
        samples = buckets.samples if buckets is not None else []
        return span.trace_id in {s.exemplar.labels["trace_id"] for s in samples if s.exemplar}

    wait_for(is_led_to)
    wait_for(lambda: bool(_families(client)["batch_completion_time_avg"].samples[0].value))
    response = client.get("/metrics", headers=OPEN_METRICS)
    families = _families(client)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    for name in ("kv_cache_hit_rate", "speculative_draft_acceptance_rate"):
        (sample,) = families[name].samples
        assert 0 <= sample.value <= 1
    assert families["batch_completion_time_avg"].samples[0].value > 0
    assert families["batch_size"].samples[0].value >= 0
    states = {s.labels["state"]: s.value for s in families["evenkeel_engine_kv_blocks"].samples}
    assert 0 <= states["live"] <= states["total"]
    assert 0 < states["resident"] <= states["total"]
    assert "vllm:num_requests_running" in families
    plain = client.get("/metrics")
    assert plain.headers["content-type"].startswith("text/plain")
    assert "kv_cache_hit_rate" in plain.text


def _families(client: httpx.Client) -> dict[str, Any]:
    response = client.get("/metrics", headers=OPEN_METRICS)
    return {f.name: f for f in text_string_to_metric_families(response.text)}


def test_steps_are_stored_with_the_names_of_who_was_in_prefill(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    request_id = chat(client, f"{tenant} {LONG_TEXT}", 8)
    found: list[dict[str, Any]] = []

    def are_all_there() -> bool:
        # A prompt may be computed in several runs, which are sent one after the other.
        found[:] = _runs_of(served_model, request_id)
        return sum(run["prefilling_tokens"] for run in found) > 1500

    wait_for(are_all_there)
    request = served_model.wait_for_request(evenkeel__tenant=tenant)
    for run in found:
        assert request.start_ns <= run["time_ns"] <= request.end_ns


def _runs_of(served: ServedModel, request_id: str) -> list[dict[str, Any]]:
    """The runs of steps in which a request was in prefill."""
    found = []
    for span in served.spans():
        if span.name != SPAN_ENGINE_STEPS or f"{STEPS}prefilling_id" not in span.attributes:
            continue
        columns = {
            name.removeprefix(STEPS): value
            for name, value in span.attributes.items()
            if name.startswith(STEPS)
        }
        named = zip(columns["prefilling_run"], columns["prefilling_id"], strict=True)
        for place, (run, name) in enumerate(named):
            if name == request_id:
                time_ns = span.start_ns + int(columns["start_s"][run] * 1e9)
                tokens = columns["prefilling_tokens"][place]
                found.append({"time_ns": time_ns, "prefilling_tokens": tokens})
    return found


def test_no_record_is_lost(served_model: ServedModel) -> None:
    """Runs last: every request of this file is behind it."""
    assert served_model.metric("evenkeel_runtime_ledgers_total") > 20
    for name in ("ledgers_missing", "ledger_errors", "steps_lost", "step_runs_dropped"):
        assert served_model.metric(f"evenkeel_runtime_{name}_total") == 0, name
    assert served_model.metric("evenkeel_runtime_missing_hooks_total") == 0

"""How an answer of the cache is recorded: it came, and no engine made it."""

from types import SimpleNamespace

from evenkeel import spans
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.request.trace import EngineRun, HttpRequest, observe_run
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.observation import Observation

MS = 1_000_000


def read_engine(run: EngineRun, seen: Observation) -> None:
    seen.input_tokens, seen.output_tokens = 9, 30


def test_a_hit_has_a_ttft_and_nothing_of_an_engine() -> None:
    run = EngineRun(
        request_id="r",
        model="m",
        params=SimpleNamespace(n=1, max_tokens=64, temperature=0.0),
        request=HttpRequest("chat", Caller(tenant="acme")),
        is_streamed=True,
        arrival_ns=1000 * MS,
        arrival_unix_ns=5,
        emission_ns=[1004 * MS],
        emission_tokens=[30],
        finish_reason="stop",
        end_ns=1005 * MS,
        response_cache="exact",
        cache={spans.CACHE_SAVED_TOKENS: 30},
        is_from_cache=True,
    )
    request = FinishedRequest.begin(observe_run(run, 1006 * MS, read_engine))
    request.complete(100)
    assert request.phases.phases == ()
    attributes = request.seen.to_attributes()
    assert attributes["evenkeel.ttft_s"] == 0.004
    assert attributes["evenkeel.e2e_s"] == 0.006
    assert attributes[spans.INPUT_TOKENS] == 9
    assert attributes[spans.RESPONSE_CACHE] == "exact"
    assert attributes[spans.CACHE_SAVED_TOKENS] == 30
    absent = {
        spans.OUTPUT_TOKENS,
        "evenkeel.tpot_s",
        "evenkeel.itl_p50_s",
        "evenkeel.decode_s",
        "evenkeel.stall_s",
    }
    assert absent & set(attributes) == set()


def test_without_a_stream_the_end_of_the_run_is_its_ttft() -> None:
    run = EngineRun(
        request_id="r",
        model="m",
        params=SimpleNamespace(n=1, max_tokens=64, temperature=0.0),
        request=None,
        is_streamed=False,
        arrival_ns=1000 * MS,
        arrival_unix_ns=5,
        end_ns=1003 * MS,
        is_from_cache=True,
        finish_reason="stop",
    )
    request = FinishedRequest.begin(observe_run(run, 1006 * MS, read_engine))
    request.complete(100)
    assert request.seen.ttft_s == 0.003

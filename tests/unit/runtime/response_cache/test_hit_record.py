"""How an answer of the cache is recorded: it came, and no engine made it."""

from types import SimpleNamespace

from evenkeel import spans
from evenkeel_runtime.exporter.record import to_record
from evenkeel_runtime.ledger.phases import find_phases
from evenkeel_runtime.request.trace import EngineFacts, EngineRun, HttpRequest, observe_run
from evenkeel_runtime.wire.caller import Caller

MS = 1_000_000


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
    seen = observe_run(run, EngineFacts(input_tokens=9, output_tokens=30), 1006 * MS)
    assert find_phases(seen) == []
    attributes = to_record(seen, 100).to_attributes()
    assert attributes[spans.TTFT_S] == 0.004
    assert attributes[spans.E2E_S] == 0.006
    assert attributes[spans.INPUT_TOKENS] == 9
    assert attributes[spans.RESPONSE_CACHE] == "exact"
    assert attributes[spans.CACHE_SAVED_TOKENS] == 30
    absent = {spans.OUTPUT_TOKENS, spans.TPOT_S, spans.ITL_P50_S, spans.DECODE_S, spans.STALL_S}
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
    seen = observe_run(run, EngineFacts(input_tokens=9, output_tokens=30), 1006 * MS)
    assert to_record(seen, 100).ttft_s == 0.003

"""Stored requests cost what the price file says for their time, and keep it."""

import csv
import datetime as dt
import json
import random
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.prices.cost import Usage, request_cost
from evenkeel.prices.price_file import EnginePrice, ExchangeRate, ModelPrice, PriceFile
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel.slo.groups import with_groups
from evenkeel.slo.query import Span
from evenkeel.store import read_query
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.track import Track
from evenkeel_collector.store.storage import Storage
from evenkeel_dashboard.pages.cost.model import savings_of
from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    collector_environment,
    post,
    running_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.slo_files import slo_file
from tests.queries import query

READ: dict[str, Any] = {"source": "price list", "read": dt.date(2026, 11, 20)}
MAY, JULY = (dt.datetime(2026, month, 1, tzinfo=dt.UTC) for month in (5, 7))
FILE = PriceFile(
    currency="EUR",
    exchange={"USD": ExchangeRate(rate=0.5, **READ)},
    model=(
        ModelPrice(name="big_%*", input=1, output=1, currency="USD", **READ),
        ModelPrice(
            name="big", input=2, cached_input=0.5, cache_write=2.5, output=8, valid_until=JULY,
            **READ,
        ),
        ModelPrice(name="big", input=4, output=8, valid_from=JULY, **READ),
        ModelPrice(name="it's", input=1, cached_input=1, cache_write=1, output=10, reasoning=2,
                   **READ),
    ),
    engine=(
        EnginePrice(name="own-?", engine_hour=3.6, **READ),
        EnginePrice(name="gpu", gpu_hour=3.6, watts=1000, kwh=3.6, **READ),
        EnginePrice(name="fixed", gpu_hour=3.6, gpus=8, **READ),
        EnginePrice(name="metered", gpu_hour=3.6, kwh=3.6, currency="USD", **READ),
    ),
)  # fmt: skip
MODELS = ("big", "big_%x", "big_yx", "bigger", "it's", "own-1", "own-12", "gpu", "fixed", "metered")
HAS_ENGINE_S = "engine_s" in REQUEST_FIELDS


@pytest.fixture(autouse=True)
def without_prices(storage: Storage, client: Any) -> None:
    storage.prices.use(None)


def insert(client: Any, *rows: Mapping[str, Any]) -> None:
    """Insert requests, and leave their costs to the defaults."""
    usual = {"status": "ok", "sample_weight": 1.0, "time": MAY, "model": "big", "request_id": ""}
    columns = list({column: None for row in rows for column in usual | dict(row)})
    values = [[(usual | dict(row)).get(column) for column in columns] for row in rows]
    client.insert("requests", values, column_names=columns)


def random_usage(choose: random.Random) -> Usage:
    def maybe(*values: Any) -> Any:
        return choose.choice((None, *values))

    return Usage(
        choose.choice(MODELS), maybe(0, 1, 1000), maybe(0, 7, 300), maybe(0, 1, 500, 2000),
        maybe(0, 400), maybe(0, 100, 1000), maybe(0.25, 3.0) if HAS_ENGINE_S else None,
        choose.choice((1, 2, 8)), choose.choice((None, None, None, 0, 7)), maybe(0.0, 80.0, 900.0),
    )  # fmt: skip


def test_the_store_prices_as_the_rule_does(storage: Storage, client: Any) -> None:
    storage.prices.use(FILE)
    choose = random.Random(19)
    cases = [
        (random_usage(choose), choose.choice((MAY, JULY - dt.timedelta(seconds=1), JULY)))
        for _ in range(2000)
    ]
    insert(
        client,
        *(
            {
                "request_id": str(place), "time": at, "model": usage.model,
                "input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens,
                "cached_tokens": usage.cached_tokens,
                "cache_write_tokens": usage.cache_write_tokens,
                "reasoning_tokens": usage.reasoning_tokens,
                "tensor_parallel": usage.num_devices,
                "audio_tokens": usage.audio_tokens,
                "energy_j": usage.energy_j,
                **({"engine_s": usage.engine_s} if HAS_ENGINE_S else {}),
            }
            for place, (usage, at) in enumerate(cases)
        ),
    )  # fmt: skip

    found = dict(client.query("SELECT toUInt32(request_id), cost FROM requests").result_rows)
    wanted = {place: request_cost(FILE, *case) for place, case in enumerate(cases)}
    assert sum(cost is not None for cost in wanted.values()) > 200
    for place, cost in wanted.items():
        assert found[place] == (None if cost is None else pytest.approx(cost)), cases[place]
    currencies = "SELECT DISTINCT currency, isNull(cost) FROM requests ORDER BY 2"
    assert client.query(currencies).result_rows == [("EUR", 0), (None, 1)]


def test_a_cost_that_the_sender_states_is_taken(storage: Storage, client: Any) -> None:
    insert(client, {"given_cost": 2.0, "model": "unknown"})
    storage.prices.use(PriceFile(currency="USD", model=FILE.model[1:3]))
    insert(client, {"given_cost": 3.0, "input_tokens": 10, "output_tokens": 10})

    costs = "SELECT cost, currency FROM requests ORDER BY cost"
    assert client.query(costs).result_rows == [(2.0, "USD"), (3.0, "USD")]


def test_a_stated_cost_is_exchanged_or_has_no_place_in_the_bill(
    storage: Storage, client: Any
) -> None:
    storage.prices.use(FILE)
    insert(client, {"given_cost": 2.0})
    assert client.query("SELECT cost, currency FROM requests").result_rows == [(1.0, "EUR")]
    storage.prices.use(PriceFile(currency="EUR"))
    insert(client, {"given_cost": 5.0})
    assert client.query("SELECT sum(cost), count(cost) FROM requests").first_row == (1.0, 1)
    # Then the file's own price counts, if there is one.
    storage.prices.use(
        PriceFile(currency="EUR", model=(ModelPrice(name="big", input=4, output=8, **READ),))
    )
    insert(client, {"given_cost": 5.0, "input_tokens": 500_000, "output_tokens": 0})
    assert client.query("SELECT sum(cost), count(cost) FROM requests").first_row == (3.0, 2)


def test_costs_stay_when_prices_change(storage: Storage, client: Any) -> None:
    million = {"input_tokens": 1_000_000, "output_tokens": 0}
    insert(client, {**million, "request_id": "before"})
    storage.prices.use(FILE)
    insert(client, {**million, "request_id": "then"})
    dearer = FILE.model[1].model_copy(update={"input": 20})
    assert storage.prices.use(FILE.model_copy(update={"model": (dearer,)}))
    assert not storage.prices.use(FILE.model_copy(update={"model": (dearer,)}))
    insert(client, {**million, "request_id": "now"})
    client.command("OPTIMIZE TABLE requests FINAL")

    costs = "SELECT cost FROM requests ORDER BY cost NULLS FIRST"
    assert client.query(costs).result_rows == [(None,), (2.0,), (20.0,)]
    numbers = "SELECT number, count() FROM prices WHERE kind = 'model' GROUP BY number ORDER BY 1"
    assert client.query(numbers).result_rows == [(1, 4), (2, 1)]


def test_another_currency_is_refused_while_costs_are_stored(storage: Storage, client: Any) -> None:
    storage.prices.use(FILE)
    insert(client, {"input_tokens": 1, "output_tokens": 1})
    with pytest.raises(ConfigurationError, match="the store has costs in EUR, the price file says"):
        storage.prices.use(PriceFile(currency="GBP"))


def test_a_period_is_priced_anew_in_requests_and_rollups(storage: Storage, client: Any) -> None:
    million = {"input_tokens": 1_000_000, "output_tokens": 0}
    hour = dt.timedelta(hours=1)
    insert(client, million, {**million, "time": MAY + hour}, {**million, "time": MAY + hour})
    client.command("INSERT INTO requests_1m (minute, model, cost) VALUES ('2026-04-01', 'big', 7)")
    condition = "time < toDateTime64('2026-05-01 01:00:00', 9, 'UTC')"
    sums = "SELECT sum(cost), sum(num_priced), sum(num_requests) FROM"
    for _ in range(2):
        assert storage.prices.reprice(FILE, condition) == 1
        storage.rollups.recount_costs(condition)
        for table in ("requests_1m", "requests_1h"):
            assert client.query(f"{sums} {table}").first_row == (9.0, 1.0, 3.0)
    pounds = PriceFile(currency="GBP", model=(FILE.model[1],))
    with pytest.raises(ConfigurationError, match="the store has costs in EUR"):
        storage.prices.reprice(pounds, "time > toDateTime64('2026-05-01 01:00:00', 9, 'UTC')")
    assert storage.prices.reprice(pounds, "1") == 3
    storage.rollups.recount_costs("1")
    assert client.query(f"{sums} requests_1h").first_row == (13.0, 3.0, 3.0)
    assert client.query("SELECT DISTINCT currency FROM requests").result_rows == [("GBP",)]


def test_sessions_cost_what_their_requests_do_after_a_period_is_priced_anew(
    storage: Storage, client: Any
) -> None:
    million = {"input_tokens": 1_000_000, "output_tokens": 0, "source": "evenkeel", "trace_id": ""}
    hour = dt.timedelta(hours=1)
    insert(
        client,
        {**million, "session_id": "both", "tenant": "acme"},
        {**million, "session_id": "both", "tenant": "acme", "time": MAY + hour},
        {**million, "session_id": "late", "time": MAY + hour},
        {**million, "trace_id": "t", "source": "openinference"},
        {**million, "session_id": "free", "input_tokens": 0},
        {**million, "session_id": "no price", "model": "nobody's"},
        {**million, "session_id": "partly gone", "request_id": "deleted"},
        {**million, "session_id": "partly gone"},
    )
    client.command("DELETE FROM requests WHERE request_id = 'deleted'")

    def found() -> dict[str, Any]:
        rows = client.query(
            "SELECT session_id, cost, currency, num_requests, start, end, session_source"
            " FROM sessions"
        ).result_rows
        return {name: (cost, currency) for name, cost, currency, *_ in rows} | {
            "rest": sorted((name, *rest) for name, _, _, *rest in rows)
        }

    before = found()
    assert {each[0] for name, each in before.items() if name != "rest"} == {None}
    condition = "time < toDateTime64('2026-05-01 01:00:00', 9, 'UTC')"
    for _ in range(2):
        storage.prices.reprice(FILE, condition)
        storage.rollups.recount_costs(condition)
        assert found() == before | {
            "both": (2.0, "EUR"), "t": (2.0, "EUR"), "free": (0.0, "EUR"),
        }  # fmt: skip
    dearer = FILE.model[1].model_copy(update={"input": 20})
    francs = PriceFile(currency="CHF", model=(dearer,))
    storage.prices.reprice(francs, "1")
    for _ in range(2):
        storage.rollups.recount_costs("1")
        client.command("OPTIMIZE TABLE session_parts FINAL")
        assert found() == before | {
            "both": (40.0, "CHF"), "late": (20.0, "CHF"), "t": (20.0, "CHF"), "free": (0.0, "CHF"),
        }  # fmt: skip


def test_the_rollups_add_up_to_the_requests(storage: Storage, client: Any) -> None:
    storage.prices.use(FILE)
    million = {"input_tokens": 1_000_000, "output_tokens": 0}
    insert(
        client,
        {**million, "sample_weight": 10.0},
        {**million, "status": "aborted", "time": MAY + dt.timedelta(minutes=1)},
        {**million, "status": "error"},
        {**million, "model": "nobody's"},
    )

    sums = "sum(cost), sum(cancelled_cost), sum(failed_cost), sum(num_priced), sum(num_requests)"
    for table in ("requests_1m", "requests_1h"):
        assert client.query(f"SELECT {sums} FROM {table}").first_row == (24.0, 2.0, 2.0, 12.0, 13.0)
    rolled = "requests_rolled(from_ms = 0, to_ms = 4000000000000, step_s = 3600)"
    assert client.query(f"SELECT {sums} FROM {rolled}").first_row == (24.0, 2.0, 2.0, 12.0, 13.0)


def test_exported_tokens_are_those_that_were_reported(storage: Storage, client: Any) -> None:
    some = {"input_tokens": 100, "output_tokens": 10}
    insert(
        client,
        {**some, "route": "all", "cached_tokens": 0},
        {**some, "route": "part", "cached_tokens": 40},
        {**some, "route": "part", "cached_tokens": None},
        {**some, "route": "none", "cached_tokens": None},
    )
    span = {"from_ms": int(MAY.timestamp()) * 1000, "to_ms": int(JULY.timestamp()) * 1000}
    found = client.query(read_query(query("export_costs")), parameters={**span, "per": "day"})
    rows = {row["route"]: row for row in found.named_results()}
    assert {route: row["cached_tokens"] for route, row in rows.items()} == {
        "all": 0, "part": 40, "none": None,
    }  # fmt: skip
    assert rows["part"]["input_tokens"] == 200


def test_cached_tokens_are_worth_the_prices_of_their_hour(storage: Storage, client: Any) -> None:
    noon = MAY + dt.timedelta(hours=12)
    cached: dict[str, Any] = {"cached_input": 0, "output": 0, **READ}
    file = PriceFile(
        model=(
            ModelPrice(name="big", input=1, valid_until=noon, **cached),
            ModelPrice(name="big", input=3, valid_from=noon, **cached),
        )
    )
    storage.prices.use(file)
    million = {"input_tokens": 1_000_000, "output_tokens": 0, "cached_tokens": 1_000_000}
    minute = dt.timedelta(minutes=1)
    insert(client, *({**million, "time": time} for time in (MAY, noon - minute, noon + minute)))
    span = {"from_ms": int(MAY.timestamp()) * 1000, "to_ms": int(JULY.timestamp()) * 1000}
    unfiltered = dict.fromkeys(("model", "tenant", "prompt", "slo_class"), "")
    rows = client.query(read_query(query("cost_models")), parameters={**span, **unfiltered})
    models = list(rows.named_results())
    assert [row["cached_tokens"] for row in models] == [2_000_000, 1_000_000]
    assert savings_of(models, [], file).provider_cache == pytest.approx(1 + 1 + 3)


def test_a_budget_in_money_is_spent_and_burns(
    storage: Storage, client: Any, tmp_path: Path
) -> None:
    storage.prices.use(FILE)
    million = {"input_tokens": 1_000_000, "output_tokens": 0, "tenant": "acme"}
    now = MAY + dt.timedelta(days=2, minutes=1)
    insert(
        client,
        {**million, "time": MAY, "request_id": "a", "sample_weight": 5.0},
        {**million, "time": now - dt.timedelta(minutes=3), "request_id": "b"},
        {**million, "time": now - dt.timedelta(minutes=3), "tenant": "other", "request_id": "c"},
    )
    (definition,) = slo_file(tmp_path, BUDGET).slos
    now_ns = int(now.timestamp()) * 10**9
    store = SloStore(client)
    slos = with_groups([definition], store.read, now_ns)
    assert [slo.name for slo in slos] == ["spend/acme", "spend/other"]

    for slo, spent, burn in ((slos[0], 12.0, 2 / 40 * 720), (slos[1], 2.0, 2 / 40 * 720)):
        track = Track(slo, (), now_ns)
        first = track.first_bucket(now_ns, 0)
        counts = store.counts(track.parts, Span(first * track.width_ns, now_ns + 1))
        track.take(first, now_ns, counts)
        verdict = track.verdict(now_ns)
        assert (verdict.counts.total, verdict.counts.bad) == (40.0, spent)
        assert verdict.budget_left_ratio == pytest.approx(1 - spent / 40)
        hour = verdict.burns[0]
        assert hour.window.long_s == 3600
        assert hour.burn_long == pytest.approx(burn, rel=0.02)
        assert hour.is_burning


@pytest.mark.parametrize(
    ("select", "spent"),
    [
        ("engine: sglang", 2.0),
        ("engine: {in: [sglang, vllm]}", 6.0),
        ("engine: {not: vllm}", 2.0),
    ],
)
def test_a_budget_of_an_engine_is_not_spent_by_others(
    storage: Storage, client: Any, tmp_path: Path, select: str, spent: float
) -> None:
    storage.prices.use(FILE)
    million = {"input_tokens": 1_000_000, "output_tokens": 0, "time": MAY, "tenant": "acme"}
    engines = ("sglang", "vllm", "vllm")
    rows = [{**million, "engine": each, "request_id": str(n)} for n, each in enumerate(engines)]
    insert(client, *rows)
    (slo,) = slo_file(tmp_path, BUDGET.replace("groupBy: [tenant]", f"select: {{{select}}}")).slos
    (part,) = Track(slo, (), 0).parts
    begin_ns = int(MAY.timestamp()) * 10**9
    (counts,) = SloStore(client).counts([part], Span(begin_ns, begin_ns + 60 * 10**9))
    assert sum(counts.bad) == spent


BUDGET = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: spend}
spec:
  indicator: {metric: cost, groupBy: [tenant]}
  objectives: [{value: 40}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""
PRICES = """
[[model]]
name = "gpt-*"
input = {input}
cached_input = 1
output = 10
reasoning = 20
source = "price list"
read = 2026-11-20
"""
SPANS: dict[str, dict[str, Any]] = {
    "ours": {
        "evenkeel.status": "ok", "gen_ai.request.model": "gpt-a", "evenkeel.tenant": "acme",
        "gen_ai.usage.input_tokens": 1_000_000, "gen_ai.usage.output_tokens": 0,
    },
    "openinference": {
        "openinference.span.kind": "LLM", "llm.model_name": "unknown", "llm.cost.total": 0.25,
    },
    "openllmetry": {
        "llm.request.type": "chat", "gen_ai.request.model": "gpt-b", "gen_ai.usage.cost": "0.5",
        "gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.completion_tokens": 5,
    },
    "reasoning": {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-c",
        "llm.token_count.prompt": 1_000_000, "llm.token_count.completion": 1_000_000,
        "llm.token_count.prompt_details.cache_read": 500_000,
        "llm.token_count.completion_details.reasoning": 500_000,
    },
    "sound": {
        "openinference.span.kind": "LLM", "llm.model_name": "gpt-sound",
        "llm.token_count.prompt": 100, "llm.token_count.completion": 100,
        "llm.token_count.prompt_details.audio": 40,
        "llm.token_count.completion_details.audio": 60,
    },
    "nonsense": {
        "llm.request.type": "chat", "gen_ai.request.model": "unknown", "gen_ai.usage.cost": "-1",
    },
}  # fmt: skip
COSTS = "SELECT model, sum(cost), count(cost) FROM requests GROUP BY model ORDER BY model"


def send(collector: CollectorProcess, *names: str) -> None:
    body = b"".join(trace_request(1, SPANS[name]).SerializeToString() for name in names)
    assert post(collector, body, PROTOBUF).status_code == 200


def export(collector: CollectorProcess, *flags: str) -> str:
    begin = f"{dt.datetime.now(dt.UTC) - dt.timedelta(hours=1):%Y-%m-%dT%H:%M}"
    command = [sys.executable, "-m", "evenkeel", "export", "costs", "--from", begin]
    done = subprocess.run(
        [*command, "--store-url", collector.query_url, *flags],
        env=collector_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


def test_a_running_collector_follows_its_price_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES.format(input=2))
    with running_collector(tmp_path / "data", ["--prices", str(path)]) as collector:
        send(collector, *SPANS)
        wait_for(lambda: len(collector.rows(COSTS)) == 5)
        assert collector.rows(COSTS) == [
            ("gpt-a", 2.0, 1), ("gpt-b", 0.5, 1), ("gpt-c", 1 + 0.5 + 5 + 10, 1),
            ("gpt-sound", None, 0), ("unknown", 0.25, 1),
        ]  # fmt: skip
        sound = "SELECT audio_tokens FROM requests WHERE model = 'gpt-sound'"
        assert collector.rows(sound) == [(100,)]
        refused = "SELECT refused_numbers FROM requests WHERE notEmpty(refused_numbers)"
        assert collector.rows(refused) == [({"given_cost": "out_of_range"},)]

        _replace(path, PRICES.format(input=-2))
        wait_for(lambda: _rejected(collector) == 1)
        _replace(path, PRICES.format(input=3))
        wait_for(lambda: collector.rows("SELECT max(number) FROM prices") == [(2,)])
        send(collector, "ours")
        wait_for(lambda: collector.rows(COSTS)[0] == ("gpt-a", 5.0, 2))

        for form in ("csv", "focus", "parquet"):
            out = tmp_path / f"costs.{form}"
            told = json.loads(export(collector, "--format", form, "--out", str(out), "--json"))
            assert told["usage_cost"] == pytest.approx(22.25)
            assert (told["num_requests"], told["num_priced"]) == (7, 5)
        rows = list(csv.DictReader(export(collector, "--format", "focus").splitlines()))
        assert sum(float(row["BilledCost"]) for row in rows) == pytest.approx(22.25)
        (acme,) = (row for row in rows if row["SubAccountId"] == "acme")
        assert (acme["BilledCost"], acme["BillingCurrency"]) == ("5.0", "USD")


def _replace(path: Path, text: str) -> None:
    """Write a file so that no reader sees a part of it."""
    draft = path.with_name("draft")
    draft.write_text(text)
    draft.rename(path)


def _rejected(collector: CollectorProcess) -> float:
    page = httpx.get(f"{collector.http_url}/metrics").text
    (value,) = re.findall(r"^evenkeel_collector_price_files_rejected_total (\S+)$", page, re.M)
    return float(value)

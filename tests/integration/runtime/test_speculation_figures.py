"""Drafted tokens are counted in four places, with one meaning, also for requests that end early."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from tests.fixtures.equipped_server import EquippedServer
from tests.fixtures.served_model import ServedModel

QUESTION = "How do I reset my password? I cannot find the page where that is done."
NUM_ROUNDS = 8
WAIT_S = 240.0
# How a request ends: at its length, by its client after so many lines, or at a stop string, which
# the server finds while the engine goes on.
ENDS: tuple[dict[str, Any], ...] = (
    {},
    {"leaves_after": 3},
    {"stop": ["sign-in", "the"]},
    {"leaves_after": 12, "temperature": 0.8},
    # One answer may have ended then, and others not.
    {"leaves_after": 24, "temperature": 0.8, "n": 3, "stop": ["sign-in", " we"]},
    {"temperature": 0.8},
    {"stop": [" we"], "temperature": 0.7},
)
FIGURES = {
    "vllm": (
        "vllm:spec_decode_num_draft_tokens_total",
        "vllm:spec_decode_num_accepted_tokens_total",
    ),
    "hook": (
        "evenkeel_speculation_drafted_tokens_total",
        "evenkeel_speculation_accepted_tokens_total",
    ),
}


def ask(served: ServedModel, tenant: str, leaves_after: int | None = None, **more: Any) -> None:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 96,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    with httpx.stream(
        "POST",
        f"{served.url}/v1/chat/completions",
        json=body | more,
        headers={"x-evenkeel-tenant": tenant},
        timeout=120,
    ) as response:
        assert response.status_code == 200
        for number, _ in enumerate(response.iter_lines()):
            if leaves_after is not None and number >= leaves_after:
                return


def of_steps(served: ServedModel) -> tuple[float, float]:
    """What the engine's step records say."""
    lines = httpx.get(f"{served.url}/metrics").text.splitlines()
    kinds = [
        sum(
            float(line.split()[-1])
            for line in lines
            if line.startswith("evenkeel_engine_tokens_total{") and f'kind="{kind}"' in line
        )
        for kind in ("drafted", "accepted")
    ]
    return kinds[0], kinds[1]


def read(served: ServedModel) -> dict[str, tuple[float, float]]:
    """Drafted and accepted tokens so far, by who says so."""
    figures = {
        name: (served.metric(drafted), served.metric(accepted))
        for name, (drafted, accepted) in FIGURES.items()
    }
    return figures | {"steps": of_steps(served)}


def of_requests(served: ServedModel, tenant: str, count: int) -> tuple[float, float]:
    """The sums over the requests' own records, as they are stored."""
    spans = [s.attributes for s in served.wait_for_requests(count, evenkeel__tenant=tenant)]
    drafted, accepted = (
        sum(float(s.get(f"evenkeel.{name}_tokens", 0)) for s in spans)
        for name in ("drafted", "accepted")
    )
    return drafted, accepted


def settled(served: ServedModel) -> dict[str, tuple[float, float]]:
    """The figures once nothing has moved for several seconds."""
    deadline = time.monotonic() + WAIT_S
    last, num_same = read(served), 0
    while time.monotonic() < deadline:
        time.sleep(1.0)
        now = read(served)
        num_same = num_same + 1 if now == last else 0
        if num_same == 5:
            return now
        last = now
    raise AssertionError("the figures do not settle")


def test_drafted_tokens_are_the_same_wherever_they_are_counted(equipped: EquippedServer) -> None:
    served = equipped.served
    # What earlier requests left unreported goes out with the next that ends.
    ask(served, "before")
    before = settled(served)
    tenant = "figures"
    jobs = [end for _ in range(NUM_ROUNDS) for end in ENDS]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda end: ask(served, tenant, **end), jobs))
    ask(served, tenant)
    after = settled(served)
    told = {
        name: (after[name][0] - before[name][0], after[name][1] - before[name][1]) for name in after
    }
    told["requests"] = of_requests(served, tenant, len(jobs) + 1)
    assert told["vllm"][0] > 200
    assert len(set(told.values())) == 1, told
    statuses = {
        s.attributes["evenkeel.status"]
        for s in served.wait_for_requests(len(jobs) + 1, evenkeel__tenant=tenant)
    }
    assert statuses == {"ok", "aborted"}

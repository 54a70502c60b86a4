"""The engine client's own part: what may change the weights is noticed."""

from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel_runtime.adapter.engine_client import ObservedEngine
from evenkeel_runtime.control.config import ControlMode
from evenkeel_runtime.control.visit import Visit

HOOK: Any = SimpleNamespace(speculation=None)


class Engine:
    """A client like vLLM's: its calls of the workers all pass one method."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def collective_rpc(self, method: str, kwargs: dict[str, Any] | None = None) -> str:
        self.called.append(method)
        return "done"

    async def update_weights(self, request: object) -> None:
        await self.collective_rpc("update_weights", kwargs={"update_info": request})


@pytest.mark.parametrize(
    ("method", "is_change"),
    [
        ("update_weights", True),
        ("reload_weights", True),
        ("a_method_of_an_extension", True),
        ("get_model_inspection", False),
        ("init_weight_transfer_engine", False),
    ],
)
async def test_a_call_of_the_workers_that_may_change_the_weights(
    method: str, is_change: bool
) -> None:
    changes: list[str] = []
    engine: Any = Engine()
    cache: Any = SimpleNamespace(record_weight_change=lambda: changes.append(method))
    client: Any = ObservedEngine(engine, HOOK, None, cache)
    assert await client.collective_rpc(method) == "done"
    # Before the call, and after it: an answer of the meantime may be of either weights.
    assert changes == [method] * (2 * is_change)
    assert engine.called == [method]


async def test_a_change_through_vllms_own_method() -> None:
    changes: list[int] = []
    engine: Any = Engine()
    cache: Any = SimpleNamespace(record_weight_change=lambda: changes.append(1))
    client: Any = ObservedEngine(engine, HOOK, None, cache)
    await client.update_weights("info")
    assert changes and engine.called == ["update_weights"]


async def test_the_canary_hears_of_a_change_without_a_cache() -> None:
    changes: list[int] = []
    engine: Any = Engine()
    canary = SimpleNamespace(record_weight_change=lambda: changes.append(1))
    hook: Any = SimpleNamespace(speculation=SimpleNamespace(canary=canary))
    client: Any = ObservedEngine(engine, hook)
    await client.update_weights("info")
    assert changes and engine.called == ["update_weights"]


@pytest.mark.parametrize("own", [-1, 0, 1])
def test_switched_off_control_lets_nobody_pass_those_it_let_in_before(own: int) -> None:
    asked: list[dict[str, Any]] = []
    engine: Any = Engine()
    engine.generate = lambda *_, **options: asked.append(options)
    a_year_ms = 365 * 86_400_000
    run = SimpleNamespace(request=None, arrival_ns=a_year_ms * 1_000_000, prompt_size=0)
    hook: Any = SimpleNamespace(
        start_run=lambda *_: run, observe=lambda _, outputs: outputs, speculation=None
    )
    config = SimpleNamespace(mode=ControlMode.OFF)
    control: Any = SimpleNamespace(control=SimpleNamespace(config=config))
    ObservedEngine(engine, hook, control).generate({}, None, "id", priority=own)
    due_s = (a_year_ms - 5_000) / 1000
    before = Visit("chat", due_s, due_s, due_s, "", None)
    (options,) = asked
    # But what a client asks for counts, as it does in vLLM alone.
    assert (options["priority"] < before.priority) == (own < 0)
    assert abs(options["priority"]) < 1 << 62
    # While control acts, it does not, also in a background response after its HTTP request.
    config.mode = ControlMode.ACT
    ObservedEngine(engine, hook, control).generate({}, None, "id", priority=own)
    assert before.priority < asked[-1]["priority"] < before.priority + 10_000
    # Without control, vLLM gets what it would get without us.
    ObservedEngine(engine, hook).generate({}, None, "id", priority=own)
    assert asked[-1] == {"priority": own}

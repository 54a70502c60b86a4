"""The engine client for vLLM's app: vLLM's own, with `generate` and `encode` observed."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TYPE_CHECKING, Any

from evenkeel_runtime.adapter.request_limits import apply_limits
from evenkeel_runtime.control.config import ControlMode
from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.control.visit import order_by_arrival
from evenkeel_runtime.request.hook import RequestHook, enter_engine
from evenkeel_runtime.request.trace import CURRENT_REQUEST, EngineRun

if TYPE_CHECKING:
    from evenkeel_runtime.response_cache.cached_engine import CachedEngine

logger = logging.getLogger(__name__)

# Calls of the workers that leave the weights as they are; any other may change them, since vLLM
# takes extensions of its workers with methods of any name.
_READING_CALLS = ("get_", "is_", "list_", "check_", "init_", "shutdown_", "checkpoint_", "profile")


class ObservedEngine:
    """Wraps an `EngineClient`; everything not observed is passed to the real one.

    Args:
        engine: vLLM's engine client.
        hook: The request hook; the arrival middleware finds it here.
        control: The control hook; the control middleware finds it here.
        cache: The cache hook; None without a response cache.

    Attributes:
        admits_at_engine: Whether chats and completions wait for control here, with known prompts.
        is_stopping: Whether the server was told to stop and is stopping the engine.
    """

    def __init__(
        self,
        engine: Any,
        hook: RequestHook,
        control: ControlService | None = None,
        cache: CachedEngine | None = None,
    ) -> None:
        self._engine = engine
        self.hook = hook
        self.control = control
        self.cache = cache
        self.admits_at_engine = control is not None
        self.is_stopping = False
        changes = [] if cache is None else [cache.record_weight_change]
        if hook.speculation is not None:
            changes.append(hook.speculation.canary.record_weight_change)
        if changes:
            _watch_weights(engine, changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Return the real client's class, because vLLM's RL routes check for `AsyncLLM`."""
        return type(self._engine)

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        """Return the real client's outputs, observed."""
        lora = options.get("lora_request")
        salt = prompt.get("cache_salt") if isinstance(prompt, dict) else None
        lora_name = getattr(lora, "lora_name", None)
        run = self.hook.start_run(request_id, sampling_params, lora_name, salt)
        tokens = prompt.get("prompt_token_ids") if isinstance(prompt, dict) else None
        run.prompt_size = len(tokens or ())
        visit = None if run.request is None else run.request.visit
        if visit is not None and self.control is not None:
            visit.is_streamed = run.is_streamed
            own_salt = f"{lora_name or ''}\n{salt or ''}"
            apply_limits(self.control.control, run, prompt, sampling_params, own_salt)
            options["priority"] = visit.priority
        elif self.control is not None:
            is_off = self.control.control.config.mode is ControlMode.OFF
            own_priority = options.get("priority", 0) if is_off else 0
            options["priority"] = order_by_arrival(own_priority, run.arrival_ns)
        if self.cache is not None:
            # It looks for an answer first, and may find one.
            run.submitted_ns = None
            outputs = self.cache.answer(run, prompt, sampling_params, request_id, options)
        elif visit is not None:
            outputs = self._generate_in_turn(run, prompt, sampling_params, request_id, options)
        else:
            outputs = self._engine.generate(prompt, sampling_params, request_id, **options)
        return self.hook.observe(run, outputs)

    async def _generate_in_turn(
        self, run: EngineRun, prompt: Any, params: Any, request_id: str, options: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """Yield the real client's outputs once control lets the request in."""
        await enter_engine(run, options)
        outputs = self._engine.generate(prompt, params, request_id, **options)
        try:
            async for output in outputs:
                yield output
        finally:
            await outputs.aclose()

    def encode(
        self, prompt: Any, pooling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        """Return the real client's pooling outputs, observed."""
        run = self.hook.start_run(request_id, pooling_params)
        outputs = self._engine.encode(prompt, pooling_params, request_id, **options)
        return self.hook.observe(run, outputs)

    def check_admission(self, *args: Any, **options: Any) -> None:
        """Call the real client, and record why it rejected a request."""
        try:
            self._engine.check_admission(*args, **options)
        except Exception as error:
            request = CURRENT_REQUEST.get()
            if request is not None:
                request.refused_by = type(error).__name__
            raise

    def shutdown(self, timeout: float | None = None) -> None:
        """Stop the real client."""
        self.is_stopping = True
        self._engine.shutdown(timeout=timeout)


def _watch_weights(engine: Any, changes: Sequence[Callable[[], None]]) -> None:
    """Call each of `changes` around each call of the workers that may change the weights."""
    call = engine.collective_rpc

    def record_change() -> None:
        for record in changes:
            record()

    async def observed(method: Any, *args: Any, **options: Any) -> Any:
        if isinstance(method, str) and method.startswith(_READING_CALLS):
            return await call(method, *args, **options)
        logger.info("%s may change the weights: no earlier answer is used again", method)
        record_change()
        try:
            return await call(method, *args, **options)
        finally:
            # An answer of the meantime is of neither.
            record_change()

    engine.collective_rpc = observed

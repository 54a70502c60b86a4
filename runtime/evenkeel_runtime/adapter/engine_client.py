"""The engine client for vLLM's app: vLLM's own, with `generate` and `encode` observed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from evenkeel_runtime.control.service import ControlService
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST

if TYPE_CHECKING:
    from evenkeel_runtime.response_cache.cached_engine import CachedEngine


class ObservedEngine:
    """Wraps an `EngineClient`; everything not observed is passed to the real one.

    Args:
        engine: vLLM's engine client.
        hook: The request hook; the arrival middleware finds it here.
        control: The control hook; the control middleware finds it here.
        cache: The cache hook; None without a response cache.

    Attributes:
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
        self.is_stopping = False

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
        if run.request is not None and run.request.visit is not None:
            visit = run.request.visit
            visit.is_streamed = run.is_streamed
            options["priority"] = visit.priority
        if self.cache is not None:
            outputs = self.cache.answer(run, prompt, sampling_params, request_id, options)
        else:
            outputs = self._engine.generate(prompt, sampling_params, request_id, **options)
        return self.hook.observe(run, outputs)

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

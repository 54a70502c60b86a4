"""Set up the request hook: exporter process, recorder, metrics, observed engine."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from prometheus_client import REGISTRY

from evenkeel.otlp_target import OtlpTarget
from evenkeel.spans import (
    ENGINE_DTYPE,
    ENGINE_KV_CACHE_DTYPE,
    ENGINE_PIPELINE_PARALLEL,
    ENGINE_TENSOR_PARALLEL,
)
from evenkeel_runtime.adapter import vllm as vllm_adapter
from evenkeel_runtime.adapter.answer_marks import read_marks, with_answers
from evenkeel_runtime.adapter.answer_parser import watch_parsers
from evenkeel_runtime.adapter.engine_client import ObservedEngine
from evenkeel_runtime.adapter.engine_gpus import find_gpus
from evenkeel_runtime.compression.compressor import Compressor
from evenkeel_runtime.compression.metrics import CompressionMetrics
from evenkeel_runtime.request.exporter_process import ExporterProcess
from evenkeel_runtime.request.hook import EngineReader, RequestHook
from evenkeel_runtime.request.in_flight import InFlightWatch
from evenkeel_runtime.request.recorder import QueueBound, Recorder
from evenkeel_runtime.request.why import WhyClient
from evenkeel_runtime.serve.control import ControlHook, open_control
from evenkeel_runtime.serve.engine_metrics import EngineMetrics
from evenkeel_runtime.serve.exporter_metrics import TelemetryMetrics
from evenkeel_runtime.serve.in_flight_metrics import InFlightMetrics
from evenkeel_runtime.serve.metric_aliases import MetricAliases
from evenkeel_runtime.serve.own_pages import OWN_PAGES
from evenkeel_runtime.serve.settings import RuntimeSettings
from evenkeel_runtime.serve.speculation import build_server
from evenkeel_runtime.serve.step_channel import STEP_HOOK, StepChannel, join_steps
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.frames import EngineSetup, ExporterConfig
from evenkeel_runtime.wire.in_flight import SharedInFlight
from evenkeel_runtime.wire.snapshot import SharedSnapshot

if TYPE_CHECKING:
    from evenkeel_runtime.compression.settings_file import CompressionPolicy
    from evenkeel_runtime.response_cache.cached_engine import CachedEngine
    from evenkeel_runtime.response_cache.setup import OpenedCache

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Joined:
    """What was switched on in vLLM before its engine started.

    Attributes:
        steps: Where the engine's steps arrive; None if they are not recorded.
        strips_speculation: Whether vLLM counts drafts only for the records.
        control: The control hook; None without a control file.
    """

    steps: StepChannel | None
    strips_speculation: bool
    control: ControlHook | None = None


class Telemetry:
    """The request hook of one server; idle until vLLM's engine runs.

    Args:
        settings: The runtime's settings.
        target: Where spans go.
        args: vLLM's flags; the middleware is added here.
        joined: What was already switched on; by default the step hook, the speculation counts and
            control are switched on here as well.
        cache: The response cache, if there is one.
        compression: The compression policy, if any.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        target: OtlpTarget,
        args: argparse.Namespace,
        joined: Joined | None = None,
        cache: OpenedCache | None = None,
        compression: CompressionPolicy | None = None,
    ) -> None:
        if joined is None:
            joined = _join(settings, args)
        self._control = joined.control
        if self._control is not None and not vllm_adapter.add_gate(args):
            logger.warning(
                "control orders its own queue but not vLLM's; start with "
                "--scheduling-policy priority"
            )
        self._settings = settings
        self._target = replace(target, resource=describe_instance(target.resource))
        self._model = (args.served_model_name or [args.model])[0]
        self._strips_speculation = joined.strips_speculation
        self._recorder: Recorder | None = None
        self._hook: RequestHook | None = None
        self._cache = cache
        self._compression = compression
        self._why: WhyClient | None = None
        self._steps = joined.steps
        self._missing_hooks = () if self._steps is not None else (STEP_HOOK,)
        # The first is innermost: our pages stay behind the user's middleware.
        args.middleware = [OWN_PAGES, *args.middleware, vllm_adapter.MIDDLEWARE]
        self._is_drafting: bool | None = None
        self._watch: InFlightWatch | None = None

    def watch_speculation(self, is_drafting: bool) -> None:
        """Expose the speculation hook's metrics, or, if it is not drafting, that it cannot."""
        self._is_drafting = is_drafting

    def wrap_engine(self, engine: Any) -> ObservedEngine:
        """Start the exporter and return the engine client for vLLM's app.

        The exporter starts after the engine processes, so that none of them inherits its pipe and
        keeps it open.
        """
        settings = self._settings
        setup = vllm_adapter.read_setup(engine)
        marks = read_marks(engine)
        target = replace(self._target, resource={**describe_setup(setup), **self._target.resource})
        counts = SharedCounts.create()
        snapshot = SharedSnapshot.create()
        in_flight = SharedInFlight.create()
        steps = self._steps
        exporter = ExporterProcess(
            ExporterConfig(
                target=target,
                counters_fd=counts.file_descriptor,
                batch_requests=settings.export_batch,
                interval_s=settings.export_interval_s,
                flush_timeout_s=settings.flush_timeout_s,
                max_emissions=settings.max_emissions,
                snapshot_fd=snapshot.file_descriptor,
                in_flight_fd=in_flight.file_descriptor,
                steps_address=None if steps is None else steps.steps_address,
                why_address=None if steps is None else steps.why_address,
                model=self._model,
                setup=setup,
                marks=marks,
                gpus=find_gpus(engine),
            )
        )
        exporter.start()
        bound = QueueBound(settings.queue_requests, settings.queue_bytes)
        recorder = Recorder(exporter, counts, bound)
        recorder.start()
        self._recorder = recorder
        REGISTRY.register(TelemetryMetrics(recorder.read_counts))
        REGISTRY.register(EngineMetrics(snapshot.read, self._missing_hooks))
        REGISTRY.register(MetricAliases(REGISTRY))
        reader = vllm_adapter.make_reader(lambda: engine, self._strips_speculation)
        reader = with_answers(reader, marks)
        if steps is not None:
            decode = vllm_adapter.make_decoder(engine) if settings.explain_text else None
            self._why = WhyClient(steps.why_address, decode)
        hook = RequestHook(recorder, reader, self._model, self._why, settings.record_content)
        self._hook = hook
        self._watch = self._start_watch(hook, reader, in_flight)
        if not watch_parsers():
            logger.warning("tool calls that do not parse are not counted: unsupported vLLM version")
        if self._compression is not None:
            count_tokens = vllm_adapter.make_token_counter(engine)
            hook.compressor = Compressor(self._compression, count_tokens)
            REGISTRY.register(CompressionMetrics(hook.compressor.counts))
        if self._is_drafting is not None:
            hook.speculation = build_server(engine, recorder, self._is_drafting)
        control = None if self._control is None else self._control.start(engine, self._target)
        return ObservedEngine(engine, hook, control, self._wrap_cache(engine, hook))

    def _start_watch(
        self, hook: RequestHook, reader: EngineReader, memory: SharedInFlight
    ) -> InFlightWatch:
        watch = InFlightWatch(
            memory,
            lambda: list(hook.running.values()),
            reader.find_times,
            self._settings.stall_after_s,
            hook.recorder.record_internal_error,
        )
        REGISTRY.register(InFlightMetrics(watch.read))
        watch.start()
        return watch

    def _wrap_cache(self, engine: Any, hook: RequestHook) -> CachedEngine | None:
        if self._cache is None:
            return None
        from evenkeel_runtime.response_cache.cached_engine import CachedEngine
        from evenkeel_runtime.response_cache.metrics import CacheMetrics

        REGISTRY.register(CacheMetrics(self._cache.cache))
        hook.has_cache = True
        cached = CachedEngine(self._cache.cache, hook, engine, file=self._cache.file)
        cached.start()
        return cached

    def close(self) -> None:
        """Send the remaining spans within the flush timeout, and stop the exporter."""
        if self._control is not None:
            self._control.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        # The hook references vLLM's engine, which must end before Python exits.
        hook, self._hook = self._hook, None
        if hook is not None:
            hook.close()
        if self._recorder is not None:
            self._recorder.close(self._settings.flush_timeout_s)
        if self._why is not None:
            self._why.close()
        if self._steps is not None:
            self._steps.close()


def _join(settings: RuntimeSettings, args: argparse.Namespace) -> Joined:
    """Set vLLM's flags for what the settings enable, before vLLM acts on them."""
    steps, strips_speculation = join_steps(args), vllm_adapter.record_speculation(args)
    control = open_control(settings)
    if control is not None:
        vllm_adapter.order_queue(args)
    return Joined(steps, strips_speculation, control)


def describe_setup(setup: EngineSetup) -> dict[str, str]:
    """Return how an engine computes as resource attributes, without what is unknown."""
    values = {
        ENGINE_DTYPE: setup.dtype,
        ENGINE_KV_CACHE_DTYPE: setup.kv_cache_dtype,
        ENGINE_TENSOR_PARALLEL: setup.tensor_parallel,
        ENGINE_PIPELINE_PARALLEL: setup.pipeline_parallel,
    }
    return {name: str(value) for name, value in values.items() if value is not None}


def describe_instance(resource: Mapping[str, str]) -> dict[str, str]:
    """Return the resource with this process's attributes, unless it sets them."""
    own = {
        "service.instance.id": str(uuid4()),
        "host.name": socket.gethostname(),
        "process.pid": str(os.getpid()),
        "telemetry.sdk.language": "python",
    }
    return own | dict(resource)

"""The only file that touches vLLM for serving and for the request hook (read for vLLM 0.32).

It builds vLLM's own server with an observed engine client, and reads vLLM's data on each request.
`probe` runs first: if a vLLM release has moved something, its value is missing from the records, or
requests are served without records, and one warning names what is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import signal
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel_runtime.adapter.engine_client import ObservedEngine
from evenkeel_runtime.adapter.refused_flags import refuse_parsed_flags
from evenkeel_runtime.request.hook import EngineReader
from evenkeel_runtime.request.trace import MAX_KEPT, EngineRun, EngineTimes
from evenkeel_runtime.wire.frames import EngineSetup
from evenkeel_runtime.wire.observation import Observation, pack_tokens

# Seconds allowed for open responses once the engine has stopped.
_GRACE_S = 1
MIDDLEWARE = "evenkeel_runtime.request.arrival.ArrivalMiddleware"
CONTROL_MIDDLEWARE = "evenkeel_runtime.request.control_middleware.ControlMiddleware"
PROMPT_MIDDLEWARE = "evenkeel_runtime.request.prompts.PromptMiddleware"


@dataclass(frozen=True, slots=True)
class Probe:
    """The names that the hook needs and this vLLM lacks.

    Attributes:
        missing_for_hook: Without these, requests are served but not recorded.
        missing_facts: Without these, only the named values are missing from the records.
    """

    missing_for_hook: tuple[str, ...] = ()
    missing_facts: tuple[str, ...] = ()

    @property
    def can_observe(self) -> bool:
        """Whether requests can be recorded at all."""
        return not self.missing_for_hook


Find = Callable[[str, str], Any]


def find_name(module: str, name: str) -> Any:
    """Return `module.name`, or None where this vLLM does not have it."""
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def probe(find: Find = find_name) -> Probe:
    """Check every vLLM name that this file uses.

    Args:
        find: Returns a named attribute of a module, or None.
    """
    entry = "vllm.entrypoints.launchers.api_server.entry"
    client = find("vllm.engine.protocol", "EngineClient")
    params = find("vllm.sampling_params", "SamplingParams")
    completion = find("vllm.outputs", "CompletionOutput")
    output = find("vllm.outputs", "RequestOutput")
    stats = find("vllm.v1.metrics.stats", "RequestStateStats")
    drafts = find("vllm.v1.metrics.stats", "RequestSpecDecodeMetrics")
    processor = find("vllm.v1.engine.output_processor", "OutputProcessor")
    needed = {
        "build_async_engine_client": takes(find(entry, "build_async_engine_client"), "args"),
        "build_and_serve": takes(
            find(entry, "build_and_serve"),
            "engine_client",
            "listen_address",
            "sock",
            "args",
            "uvicorn_kwargs",
        ),
        "setup_server": takes(
            find("vllm.entrypoints.launchers.launcher", "setup_server"), "args", "reuse_port"
        ),
        "EngineClient.generate": takes(
            getattr(client, "generate", None), "prompt", "sampling_params", "request_id"
        ),
        "SamplingParams.output_kind": has_fields(params, "output_kind"),
        "RequestOutputKind.DELTA": hasattr(
            find("vllm.sampling_params", "RequestOutputKind"), "DELTA"
        ),
        "CompletionOutput": has_fields(completion, "index", "token_ids", "finish_reason"),
        "RequestOutput": takes(output, "outputs", "prompt_token_ids"),
    }
    facts = {
        "queue, prefill": takes(output, "metrics")
        and has_fields(stats, "scheduled_ts", "first_token_ts", "last_token_ts"),
        "cached tokens": takes(output, "num_cached_tokens"),
        "drafted and accepted tokens": has_fields(completion, "spec_decode_metrics")
        and has_fields(drafts, "per_step_drafted", "per_step_accepted"),
        "tokens wasted after an abort": has_fields(stats, "num_generation_tokens")
        and takes(processor, "log_stats"),
    }
    return Probe(
        tuple(name for name, is_there in needed.items() if not is_there),
        tuple(name for name, is_there in facts.items() if not is_there),
    )


def takes(function: Any, *names: str) -> bool:
    """Whether `function` exists and has parameters of these names."""
    return callable(function) and set(names) <= set(inspect.signature(function).parameters)


def has_fields(cls: Any, *names: str) -> bool:
    """Whether instances of a dataclass or msgspec struct have fields of these names."""
    return cls is not None and set(names) <= set(getattr(cls, "__annotations__", {}))


def make_reader(find_engine: Callable[[], Any], strips_speculation: bool) -> EngineReader:
    """Return the readers for vLLM's objects.

    Args:
        find_engine: Returns vLLM's engine client.
        strips_speculation: Whether to remove the speculation metrics from the outputs once read:
            they were switched on for the records, and clients did not ask for them.
    """
    from vllm.sampling_params import RequestOutputKind

    streamed = RequestOutputKind.DELTA

    def is_streamed(params: Any) -> bool:
        return bool(getattr(params, "output_kind", None) == streamed)

    def record_output(run: EngineRun, output: Any) -> int:
        run.last_output = output
        completions = output.outputs
        if not isinstance(completions, list):
            return 0  # A pooling output has no tokens.
        if completions:
            run.kept.append(completions[0].token_ids)
            if len(run.kept) == MAX_KEPT:
                run.pack_answer()
        num_tokens = 0
        for completion in completions:
            num_tokens += len(completion.token_ids)
            if completion.finish_reason is not None:
                _record_end(run, completion)
                if strips_speculation:
                    completion.spec_decode_metrics = None
        run.num_final_tokens = num_tokens
        return num_tokens

    def find_times(request_id: str) -> list[list[EngineTimes]]:
        found: dict[str, list[EngineTimes]] = {}
        processor = getattr(find_engine(), "output_processor", None)
        if processor is None:
            return []
        for internal_id in processor.external_req_ids.get(request_id, ()):
            state = processor.request_states.get(internal_id)
            if state is not None and state.stats is not None:
                name = internal_id if state.parent_req is None else state.parent_req.request_id
                found.setdefault(name, []).append(state.stats)
        return list(found.values())

    return EngineReader(is_streamed, record_output, read_engine, find_times, find_beam_search)


def find_beam_search(run: EngineRun) -> str | None:
    """Return the id of the beam search that this run is a step and beam of, if any.

    Each step of each beam is a run `{id}-{step}-beam-{beam}` (callers may choose such ids, too).
    """
    step, is_beam, _ = run.request_id.rpartition("-beam-")
    is_step = is_beam and getattr(run.params, "detokenize", True) is False
    return step.rpartition("-")[0] if is_step else None


def _record_end(run: EngineRun, completion: Any) -> None:
    """Record how one sequence of a run ended, and its speculation counts."""
    if run.finish_reason is None or completion.index == 0:
        run.finish_reason = completion.finish_reason
    metrics = completion.spec_decode_metrics
    if metrics is not None:
        run.drafted_by_step = (run.drafted_by_step or []) + list(metrics.per_step_drafted)
        run.accepted_by_step = (run.accepted_by_step or []) + list(metrics.per_step_accepted)


def read_engine(run: EngineRun, seen: Observation) -> None:
    """Read a finished run from its last output, or from the engine if aborted before one."""
    output = run.last_output
    if output is None:
        times = list(run.engine_times)
        if times:
            seen.output_tokens = sum(t.num_generation_tokens for t in times)
    else:
        metrics = getattr(output, "metrics", None)
        times = [metrics] if metrics is not None else []
        num_tokens = sum(run.emission_tokens) if run.is_streamed else run.num_final_tokens
        generated = sum(t.num_generation_tokens for t in run.engine_times)
        prompt = output.prompt_token_ids
        seen.input_tokens = None if prompt is None else len(prompt)
        seen.output_tokens = max(num_tokens, generated)
        seen.cached_tokens = getattr(output, "num_cached_tokens", None)
        seen.prompt = pack_tokens(prompt or ())
    seen.scheduled_ns = _earliest(t.scheduled_ts for t in times)
    seen.first_token_ns = _earliest(t.first_token_ts for t in times)
    seen.last_token_ns = _latest(t.last_token_ts for t in times)


def make_token_counter(engine: Any) -> Callable[[str], int]:
    """Return a token counter for texts; falls back to a quarter of the characters."""
    tokenizer = getattr(getattr(engine, "renderer", None), "tokenizer", None)
    if tokenizer is None:
        return lambda text: len(text) // 4
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _earliest(seconds: Iterable[float]) -> int | None:
    """Convert vLLM's monotonic seconds to nanoseconds; 0.0 means not reached yet."""
    return min((int(s * 1e9) for s in seconds if s > 0), default=None)


def _latest(seconds: Iterable[float]) -> int | None:
    return max((int(s * 1e9) for s in seconds if s > 0), default=None)


def parse_flags(flags: Sequence[str]) -> argparse.Namespace:
    """Parse vLLM's own server flags, as `vllm serve` would.

    Raises:
        ConfigurationError: If vLLM does not know a flag or rejects its value.
    """
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    class Parser(FlexibleArgumentParser):  # type: ignore[misc]
        def error(self, message: str) -> NoReturn:
            raise ConfigurationError(f"serve: {message}; see `evenkeel serve --vllm-help`")

    parser = make_arg_parser(Parser(prog="evenkeel serve"))
    try:
        args: argparse.Namespace = parser.parse_args(list(flags))
        validate_parsed_serve_args(args)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"serve: {error}") from error
    refuse_parsed_flags(args)
    return args


def computes_on_cpu() -> bool:
    """Whether vLLM runs the model on the CPU."""
    return bool(getattr(find_name("vllm.platforms", "current_platform"), "is_cpu", bool)())


def read_api_keys(args: argparse.Namespace) -> list[str]:
    """Return the API keys that vLLM requires (`--api-key`, else VLLM_API_KEY); [] if none."""
    given = args.api_key or [find_name("vllm.envs", "VLLM_API_KEY")]
    return [key for key in given if key]


def make_decoder(engine: Any) -> Callable[[Sequence[int]], str]:
    """Return a decoder from token ids to text, using the model's tokenizer."""

    def decode(tokens: Sequence[int]) -> str:
        return str(engine.get_tokenizer().decode(list(tokens)))

    return decode


def resolve_prompts(args: argparse.Namespace, folder: Path) -> None:
    """Resolve prompts named in chat requests from a registry.

    Placed before the arrival middleware, which must be outermost, that is, last in the list.
    """
    args.evenkeel_prompts_dir = folder
    args.middleware = [*args.middleware, PROMPT_MIDDLEWARE]


def record_speculation(args: argparse.Namespace) -> bool:
    """Make vLLM count drafts per step if it speculates; return whether this changed a flag."""
    if args.speculative_config is None or args.per_request_spec_decode_metrics != "none":
        return False
    args.per_request_spec_decode_metrics = "detailed"
    return True


def order_queue(args: argparse.Namespace) -> None:
    """Make vLLM's own queue follow control's deadlines; call before the engine starts."""
    args.scheduling_policy = "priority"


def add_gate(args: argparse.Namespace) -> bool:
    """Put control in front of vLLM's app; return whether vLLM's queue follows its deadlines."""
    args.middleware = [*args.middleware, CONTROL_MIDDLEWARE]
    return bool(getattr(args, "scheduling_policy", None) == "priority")


def read_setup(engine: Any) -> EngineSetup:
    """Return how the engine computes, as far as its vLLM says."""
    config = getattr(engine, "vllm_config", None)
    model = getattr(config, "model_config", None)
    cache = getattr(config, "cache_config", None)
    parallel = getattr(config, "parallel_config", None)
    dtype, cache_dtype = getattr(model, "dtype", None), getattr(cache, "cache_dtype", None)
    return EngineSetup(
        dtype=None if dtype is None else str(dtype).removeprefix("torch."),
        kv_cache_dtype=None if cache_dtype is None else str(cache_dtype).removeprefix("torch."),
        tensor_parallel=getattr(parallel, "tensor_parallel_size", None),
        pipeline_parallel=getattr(parallel, "pipeline_parallel_size", None),
    )


async def serve(
    args: argparse.Namespace,
    wrap_engine: Callable[[Any], ObservedEngine],
    when_listening: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    """Serve until a signal arrives, with `wrap_engine(engine)` as the engine of vLLM's app.

    Args:
        args: vLLM's parsed flags.
        wrap_engine: Called once the engine runs; returns the engine for the app.
        when_listening: Runs alongside the server once its port is bound.

    Raises:
        EngineDiedError: If the server stopped because its engine died.
    """
    from vllm.entrypoints.launchers.api_server.entry import (
        build_and_serve,
        build_async_engine_client,
    )
    from vllm.entrypoints.launchers.launcher import setup_server

    # Needed until uvicorn installs its handlers: asyncio's own only marks the task as cancelled,
    # and the engine's start never awaits, so it would run to completion.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt_start)
    address, sock = setup_server(args, reuse_port=False)
    try:
        async with build_async_engine_client(args) as engine:
            wrapped = wrap_engine(engine)
            waiter = asyncio.create_task(when_listening())
            try:
                shutdown = await build_and_serve(
                    wrapped,
                    address,
                    sock,
                    args,
                    # uvicorn would wait forever for answers from the stopped engine.
                    timeout_graceful_shutdown=_GRACE_S,
                )
            finally:
                waiter.cancel()
            has_engine_died = _has_died(engine) and not wrapped.is_stopping
        await shutdown
        if has_engine_died:
            raise EngineDiedError("the engine process died; VLLM_LOGGING_LEVEL=INFO shows its log")
    finally:
        sock.close()


class EngineDiedError(EvenkeelError):
    """The engine process died while serving."""


def _has_died(engine: Any) -> bool:
    """Whether the engine process ended, by itself or because Ctrl-C reached it, too."""
    resources = getattr(getattr(engine, "engine_core", None), "resources", None)
    return bool(getattr(resources, "engine_dead", False))


class StartInterruptedError(BaseException):
    """A signal arrived while the engine was starting.

    Not a KeyboardInterrupt: vLLM's `zmq_socket_ctx` (vllm/utils/network_utils.py) swallows that and
    then waits minutes for an engine whose start was just cancelled.
    """


def _interrupt_start(*_: object) -> NoReturn:
    raise StartInterruptedError


async def serve_unobserved(args: argparse.Namespace) -> None:
    """Serve with vLLM's own function if the hook is not supported."""
    run_server = find_name("vllm.entrypoints.launchers.api_server.entry", "run_server")
    if run_server is None:
        raise ConfigurationError("unsupported vLLM version; install vLLM 0.32")
    await run_server(args)

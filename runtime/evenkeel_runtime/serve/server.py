"""Run the server: do the quick checks first, then start vLLM with the request hook."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from pydantic import ValidationError

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel.http_address import with_port
from evenkeel.log_lines import stderr_handler
from evenkeel.otlp_target import OtlpTarget, is_export_enabled, read_target
from evenkeel.outside_text import drawn_on
from evenkeel.private_files import make_private_folder
from evenkeel.processes import listening_advice
from evenkeel.secret_text import read_secret, warn_of_command_line
from evenkeel.settings import (
    Loaded,
    hand_down,
    load,
    read_environment,
    read_otel,
    write_environment,
)
from evenkeel.settings_flags import read_flags
from evenkeel_runtime.control.config import read_control_file
from evenkeel_runtime.engine.settings import StepSettings
from evenkeel_runtime.serve.model import SPECULATE_AUTO, ModelSource, find_model
from evenkeel_runtime.serve.settings import RuntimeSettings
from evenkeel_runtime.speculation.settings import SpeculationSettings

if TYPE_CHECKING:
    from evenkeel_runtime.adapter.vllm import Probe
    from evenkeel_runtime.compression.settings_file import CompressionPolicy
    from evenkeel_runtime.response_cache.setup import OpenedCache

logger = logging.getLogger(__name__)

_ENGINE_SETTINGS = (SpeculationSettings, StepSettings)
_ONE_CPU_KV_CACHE_GIB = "1"
# Marker in the data folder; a folder that has it is ours.
VLLM_CACHES = "vllm"


@dataclass(frozen=True, slots=True)
class ServePlan:
    """What to serve; None for each part that is switched off."""

    settings: RuntimeSettings
    model: ModelSource
    target: OtlpTarget | None
    flags: tuple[str, ...]
    cache: OpenedCache | None = None
    compression: CompressionPolicy | None = None
    speculates: bool = False


def run_serve(args: argparse.Namespace) -> int:
    """Serve until a signal arrives; return the exit code.

    Raises:
        ConfigurationError: If a flag, the model, the port or the folder is wrong.
    """
    # The progress of a download is drawn there.
    sys.stderr = cast(TextIO, drawn_on(sys.stderr))
    _log_to_stderr()
    if args.vllm_help is not None:
        from evenkeel_runtime.adapter.vllm import parse_flags

        parse_flags([f"--help={args.vllm_help}"])
    loaded = load(RuntimeSettings, read_flags(RuntimeSettings, args))
    engine = [load(cls, read_flags(cls, args)) for cls in _ENGINE_SETTINGS]
    if args.print_config:
        print(loaded.describe())
        for each in engine:
            print(each.describe(each.settings.section))
        return 0
    for each in engine:
        # The engine process reads them again from the inherited environment.
        if "flag" in each.sources.values():
            for name, value in write_environment(each.settings).items():
                hand_down(name, value)
    plan = _make_plan(args, loaded)
    _prepare_environment(plan)
    try:
        return _serve(plan)
    except KeyboardInterrupt:
        return _stopped_early()


def _log_to_stderr() -> None:
    """Log our own lines at INFO and above; vLLM sets up its own logging."""
    own = logging.getLogger("evenkeel_runtime")
    own.addHandler(stderr_handler("evenkeel: %(message)s"))
    own.setLevel(logging.INFO)
    own.propagate = False
    logging.getLogger("uvicorn.error").addFilter(_is_no_cancellation)
    # Other libraries without a handler log errors only.
    logging.basicConfig(level=logging.ERROR, handlers=[stderr_handler(logging.BASIC_FORMAT)])


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """Drop the tracebacks of responses cut off at shutdown: uvicorn logs their number."""
    return not (record.exc_info and isinstance(record.exc_info[1], asyncio.CancelledError))


def _make_plan(args: argparse.Namespace, loaded: Loaded[RuntimeSettings]) -> ServePlan:
    settings = loaded.settings
    word = args.model or args.model_flag
    if word is None:
        raise ConfigurationError("serve: MODEL is missing; try `evenkeel serve demo`")
    otel = read_otel()
    target = read_target(otel, settings.otlp_address()) if is_export_enabled(otel) else None
    if not any(flag.split("=")[0] == "--uds" for flag in args.rest):
        refuse_taken_port(settings.host, settings.port)
    refuse_unwritable_folder(settings.data_dir)
    if settings.control_file is not None:
        read_control_file(settings.control_file)
    model = find_model(word, args.speculate)
    quiet = (
        "--uvicorn-log-level",
        "warning",
        "--disable-uvicorn-access-log",
        "--no-use-tqdm-on-load",
    )
    address = ("--host", settings.host, "--port", str(settings.port))
    flags = ("--model", model.model, *model.flags, *quiet, *address, *args.rest)
    cache, compression = open_cache(settings), read_compression(settings)
    is_auto = args.speculate == SPECULATE_AUTO
    return ServePlan(settings, model, target, flags, cache, compression, is_auto)


def read_compression(settings: RuntimeSettings) -> CompressionPolicy | None:
    """Return the compression policy; None if no prompts are shortened.

    Raises:
        ConfigurationError: If the file is wrong.
    """
    if settings.compression is None:
        return None
    from evenkeel_runtime.compression import settings_file

    return settings_file.read_compression(settings.compression)


def open_cache(settings: RuntimeSettings) -> OpenedCache | None:
    """Return the response cache; None if it is not enabled.

    Raises:
        EvenkeelError: If its file is invalid, or a required package is missing.
    """
    if settings.cache is None:
        return None
    from evenkeel_runtime.response_cache.setup import open_cache

    return open_cache(settings.cache, settings.data_dir)


def refuse_taken_port(host: str, port: int) -> None:
    """Check that the address is free before the model is loaded.

    Raises:
        ConfigurationError: If it is in use, or not an address of this machine.
    """
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(info[0], info[1]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(info[4])
    except OSError as error:
        reason = error.strerror or str(error)
        advice = listening_advice(error, "stop what is using it, or give --port")
        address = with_port(host, port)
        raise ConfigurationError(f"cannot listen on {address}: {reason}; {advice}") from error


def refuse_unwritable_folder(folder: Path) -> None:
    """Create the data folder and check that it is writable.

    Raises:
        ConfigurationError: If it cannot.
    """
    try:
        make_private_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            f"cannot write to the data folder {folder}: {reason}; give --data-dir"
        ) from error


def _prepare_environment(plan: ServePlan) -> None:
    """Set the environment variables that vLLM and the hub read; the user's own values win."""
    defaults = {
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_LOGGING_STREAM": "ext://sys.stderr",
        "VLLM_CPU_KVCACHE_SPACE": _ONE_CPU_KV_CACHE_GIB,
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_CACHE_ROOT": str((plan.settings.data_dir / VLLM_CACHES).resolve()),
        "TOKENIZERS_PARALLELISM": "false",
        # Silence what torch and vLLM log on every start without a GPU, and on every stop.
        "TORCH_LOGS": "-all",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "PYTHONWARNINGS": "ignore::FutureWarning,"
        "ignore::UserWarning:multiprocessing.resource_tracker",
    }
    if plan.model.is_local:
        defaults["HF_HUB_OFFLINE"] = "1"
    for name, value in defaults.items():
        if read_environment(name) is None:
            hand_down(name, value)


def _serve(plan: ServePlan) -> int:
    started_s = time.monotonic()
    logger.info("loading %s", plan.model.model)
    import uvloop

    from evenkeel_runtime.adapter import vllm as vllm_adapter
    from evenkeel_runtime.adapter.small_machine import join_worker
    from evenkeel_runtime.serve.speculation import choose_flags, verify_exactly
    from evenkeel_runtime.serve.telemetry import Telemetry

    is_observed = False
    if plan.target is None:
        logger.warning("recording is off: disabled by OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER")
    else:
        is_observed = is_observable(vllm_adapter.probe())
    drafting: tuple[str, ...] = ()
    if plan.speculates:
        drafting = choose_flags(is_observed)
    args = vllm_adapter.parse_flags((*drafting, *plan.flags))
    is_cpu = vllm_adapter.computes_on_cpu()
    verify_exactly(args, is_cpu)
    args.api_key = read_api_keys(args.api_key, plan.flags)
    join_worker(args, is_cpu)
    vllm_adapter.resolve_prompts(args, plan.settings.prompts_dir)
    telemetry = None
    if is_observed and plan.target is not None:
        telemetry = Telemetry(
            plan.settings, plan.target, args, cache=plan.cache, compression=plan.compression
        )
        if plan.speculates:
            telemetry.watch_speculation(bool(drafting))
    else:
        _warn_of_hooks_that_are_off(plan)
    try:
        if telemetry is None:
            uvloop.run(vllm_adapter.serve_unobserved(args))
        else:
            announce = partial(_announce, args, plan, started_s)
            uvloop.run(vllm_adapter.serve(args, telemetry.wrap_engine, announce))
    except vllm_adapter.StartInterruptedError:
        return _stopped_early()
    except EvenkeelError:
        raise
    except Exception as error:
        logger.debug("vLLM ended", exc_info=True)
        raise ConfigurationError(
            f"vLLM cannot serve {plan.model.model}: {type(error).__name__}: {read_reason(error)}"
        ) from error
    finally:
        if telemetry is not None:
            telemetry.close()
    logger.info("stopped")
    return 0


def read_api_keys(keys: list[str] | None, flags: Sequence[str]) -> list[str] | None:
    """Return vLLM's `--api-key` keys, with `@FILE` read; warn about keys on the command line.

    Args:
        keys: The keys as parsed by vLLM, possibly from its own configuration file.
        flags: The command line.

    Raises:
        ConfigurationError: If a key file cannot be read.
    """
    if not keys:
        return keys
    if any(flag.split("=")[0] in ("--api-key", "--api_key") for flag in flags):
        for key in keys:
            warn_of_command_line("--api-key", key, is_address=False, variable="VLLM_API_KEY")
    return [read_secret(key) for key in keys]


def read_reason(error: Exception) -> str:
    """Return an error's message in one line; pydantic's first line only counts faults."""
    if isinstance(error, ValidationError):
        return "; ".join(" ".join(fault["msg"].split()) for fault in error.errors())
    return next(iter(str(error).strip().splitlines()), "")


def _warn_of_hooks_that_are_off(plan: ServePlan) -> None:
    """Warn about each requested hook that needs the request hook."""
    if plan.target is not None:
        show_missing_hooks()
    if plan.settings.control_file is not None:
        logger.warning("control is off: it needs the request hook")
    if plan.cache is not None:
        logger.warning("the response cache is off: it needs the request hook")
    if plan.compression is not None:
        logger.warning("prompt compression is off: it needs the request hook")


def _stopped_early() -> int:
    logger.info("stopped before the server was ready")
    return 0


def is_observable(found: Probe) -> bool:
    """Whether requests can be recorded with this vLLM; warns once about missing values."""
    if not found.can_observe:
        logger.warning(
            "unsupported vLLM version, requests are served but not recorded: missing=%s",
            ", ".join(found.missing_for_hook),
        )
    elif found.missing_facts:
        logger.warning(
            "this vLLM does not expose every value, records will lack some: missing=%s",
            ", ".join(found.missing_facts),
        )
    return found.can_observe


def show_missing_hooks() -> None:
    """Count on `/metrics` that this vLLM does not support the request hook."""
    from prometheus_client import REGISTRY

    from evenkeel_runtime.serve.engine_metrics import MissingHooks

    REGISTRY.register(MissingHooks(("requests",)))


async def _announce(args: argparse.Namespace, plan: ServePlan, started_s: float) -> None:
    """Log that the server is ready once its address answers."""
    while not await _answers(args):
        await asyncio.sleep(0.05)
    address = args.uds or f"http://{with_port(args.host, args.port)}/v1"
    name = (args.served_model_name or [args.model])[0]
    spans = plan.target.shown_url if plan.target is not None else "nowhere"
    logger.info(
        "ready at %s after %.1f s: model=%s spans=%s",
        address,
        time.monotonic() - started_s,
        name,
        spans,
    )


async def _answers(args: argparse.Namespace) -> bool:
    try:
        if args.uds:
            _, writer = await asyncio.open_unix_connection(args.uds)
        else:
            _, writer = await asyncio.open_connection(args.host, args.port)
    except OSError:
        return False
    writer.close()
    return True

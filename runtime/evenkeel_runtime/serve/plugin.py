"""Add the hooks to an existing vLLM; installing this package is enough (vLLM 0.32).

vLLM calls `register` (entry-point group `vllm.general_plugins`) in each of its processes, before
the server hands its engine to the app and before the engine makes its scheduler. `evenkeel serve`
does all of this itself, so there the plugin does nothing. `OTEL_SDK_DISABLED=true` turns off the
recording of requests and steps. In either case, a process that runs vLLM's CPU kernels tests them
and replaces broken ones. `VLLM_PLUGINS` without `evenkeel` leaves vLLM untouched.
"""

from __future__ import annotations

import argparse
import atexit
import logging
import multiprocessing
import sys
from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar

from evenkeel.errors import EvenkeelError
from evenkeel.settings import load, read_environment, read_otel, take_back

logger = logging.getLogger(__name__)

_ENTRY = "vllm.entrypoints.launchers.api_server.entry"
_PLATFORMS = "vllm.platforms"
_EVENKEEL_SERVE = "evenkeel_runtime.serve.server"
_COMMAND = "vllm.entrypoints.cli.serve"
_ONE_SERVER = "give --api-server-count 1, or run one `vllm serve` per engine behind a load balancer"
# What `vllm serve` runs instead of a server in this process (vLLM 0.32), and the fix.
_ELSEWHERE = {
    "run_multi_api_server": f"vLLM serves from API server processes; {_ONE_SERVER}",
    "run_dp_supervisor": f"vLLM serves from one process per parallel rank; {_ONE_SERVER}",
    "run_headless": "--headless starts no API server; install evenkeel on the API server's host: "
    "its records will lack the steps of the engines here",
}
_OVER_GRPC = "vLLM serves gRPC instead of HTTP; remove --grpc"
_MARK = "_evenkeel"
T = TypeVar("T")


def register() -> None:
    """Install the hooks in this process, once; vLLM is left unchanged if they do not fit."""
    try:
        _join_kernels()
    except Exception as error:
        logger.warning("vLLM's draft verification was not tested: %r", error, exc_info=error)
    try:
        if multiprocessing.parent_process() is not None:
            _join_engine()
            return
        entry = sys.modules.get(_ENTRY)
        # Without the module this is not a server: `vllm bench`, or an engine in a user's script.
        if entry is not None and _EVENKEEL_SERVE not in sys.modules:
            _join_server(entry)
    except Exception as error:
        logger.warning("requests are served but not recorded: %r", error, exc_info=error)


def _join_kernels() -> None:
    """Test the draft verification kernels if this process will run them."""
    if _PLATFORMS in sys.modules:
        from evenkeel_runtime.adapter.verification_kernels import mend_when_registered

        mend_when_registered()


def _join_server(entry: ModuleType) -> None:
    """Give the app an observed engine, and the engine a socket to send its steps to."""
    from evenkeel.otlp_target import is_export_enabled, read_target
    from evenkeel_runtime.adapter.vllm import probe, resolve_prompts
    from evenkeel_runtime.engine.settings import SOCKET_VARIABLE
    from evenkeel_runtime.serve.control import open_control
    from evenkeel_runtime.serve.server import (
        is_observable,
        open_cache,
        read_compression,
        show_missing_hooks,
    )
    from evenkeel_runtime.serve.settings import RuntimeSettings
    from evenkeel_runtime.serve.step_channel import find_obstacle, join_steps
    from evenkeel_runtime.serve.telemetry import Joined, Telemetry

    if hasattr(entry.build_and_serve, _MARK):
        return
    otel = read_otel()
    if not is_export_enabled(otel):
        return
    if not is_observable(probe()):
        show_missing_hooks()
        return
    loaded = load(RuntimeSettings, {})
    settings = loaded.settings
    control = _open("control", lambda: open_control(settings))
    target = read_target(otel, settings.otlp_address())
    # vLLM's flags are not known yet; a custom scheduler is detected later.
    steps = join_steps(argparse.Namespace())
    if steps is not None:
        atexit.register(steps.close)

    def observe(engine: Any, args: argparse.Namespace) -> Any:
        obstacle = find_obstacle(args)
        if obstacle is not None:
            logger.warning("requests are recorded without a ledger: %s", obstacle)
        observed = steps if obstacle is None else None
        # Only if a registry folder is set: vLLM itself ignores a chat's `prompt`.
        if loaded.sources["prompts_dir"] != "default":
            resolve_prompts(args, settings.prompts_dir)
        joined = Joined(observed, strips_speculation=False, control=control)
        cache = _open("the response cache", lambda: open_cache(settings))
        compression = _open("prompt compression", lambda: read_compression(settings))
        telemetry = Telemetry(settings, target, args, joined, cache, compression)
        atexit.register(telemetry.close)
        return telemetry.wrap_engine(engine)

    def give_up() -> None:
        # Engines started from here on use vLLM's own scheduler again.
        if steps is not None:
            steps.close()
            take_back(SOCKET_VARIABLE)
        if control is not None:
            control.close()

    setattr(entry, "build_and_serve", wrap_build(entry.build_and_serve, observe))  # noqa: B010
    command = sys.modules.get(_COMMAND)
    if command is not None:
        watch_command(command, give_up)


def watch_command(command: ModuleType, give_up: Callable[[], None]) -> None:
    """Make `vllm serve` log one warning if it does not serve from this process.

    Args:
        command: vLLM's module for the command.
        give_up: Undoes the preparation for a server in this process.
    """

    def watch(function: Callable[..., Any], find_reason: Callable[..., str | None]) -> Any:
        @wraps(function)
        def watched(*args: Any, **options: Any) -> Any:
            reason = find_reason(*args, **options)
            if reason is not None:
                logger.warning("requests are not recorded here: %s", reason)
                give_up()
            return function(*args, **options)

        return watched

    for name, reason in _ELSEWHERE.items():
        if hasattr(command, name):
            setattr(command, name, watch(getattr(command, name), lambda *_, why=reason, **__: why))
    subcommand = getattr(command, "ServeSubcommand", None)
    if subcommand is not None:
        over_grpc = lambda args: _OVER_GRPC if getattr(args, "grpc", False) else None  # noqa: E731
        subcommand.cmd = staticmethod(watch(subcommand.cmd, over_grpc))


def _open(name: str, open_it: Callable[[], T | None]) -> T | None:
    """Return the requested part; None, with a warning, if its file is invalid."""
    try:
        return open_it()
    except EvenkeelError as error:
        logger.warning("%s is off: %s", name, error)
        return None


def wrap_build(
    build_and_serve: Callable[..., Any], observe: Callable[[Any, argparse.Namespace], Any]
) -> Callable[..., Any]:
    """Return vLLM's `build_and_serve` with an observed engine.

    Args:
        build_and_serve: vLLM's own.
        observe: Returns the engine to serve with, given vLLM's engine and flags.
    """

    @wraps(build_and_serve)
    def build(engine: Any, address: str, sock: Any, args: Any, *more: Any, **options: Any) -> Any:
        try:
            engine = observe(engine, args)
        except Exception as error:
            logger.warning("requests are served but not recorded: %r", error, exc_info=error)
        return build_and_serve(engine, address, sock, args, *more, **options)

    setattr(build, _MARK, True)
    return build


def _join_engine() -> None:
    """Use our scheduler if the user chose none and steps are recorded."""
    from evenkeel_runtime.engine.settings import SOCKET_VARIABLE
    from evenkeel_runtime.serve.step_channel import find_obstacle

    if read_environment(SOCKET_VARIABLE) is None:
        return
    if find_obstacle(argparse.Namespace()) is not None:
        return
    from vllm.config import SchedulerConfig

    own = SchedulerConfig.get_scheduler_cls
    if hasattr(own, _MARK):
        return

    @wraps(own)
    def get_scheduler_cls(config: Any) -> Any:
        if config.scheduler_cls is not None:
            return own(config)
        from evenkeel_runtime.adapter.scheduler import LedgerScheduler

        return LedgerScheduler

    setattr(get_scheduler_cls, _MARK, True)
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls

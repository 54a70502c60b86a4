"""Runs the collector in the foreground for `evenkeel collect` until it is stopped."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import sys
from dataclasses import asdict

import uvloop

from evenkeel.log_lines import stderr_handler
from evenkeel_collector.redaction.settings import RedactionSettings
from evenkeel_collector.serve.service import Addresses, serve
from evenkeel_collector.serve.settings import CollectorSettings

SWITCH_S = 0.0005
# <malloc.h>
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# Below this, blocks come from the heap; so much free memory may stay at the heap's end.
MMAP_BYTES = 8 << 20
TRIM_BYTES = 32 << 20


def run(settings: CollectorSettings, redaction: RedactionSettings, as_json: bool) -> int:
    """Run a collector until it is stopped, and return the exit code.

    Args:
        settings: Its settings.
        redaction: What it removes from spans.
        as_json: Whether to print the addresses as JSON.
    """
    logging.basicConfig(
        level=logging.INFO,
        handlers=[stderr_handler("%(asctime)s %(levelname)s %(name)s %(message)s")],
    )
    # Its start and stop messages duplicate ours, and its warnings are about what clients send: one
    # line for each request that is not HTTP. These are counted.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    keep_freed_memory()
    # The log's writer asks for the interpreter after each fdatasync: in 5 ms, the default, senders
    # would wait longer for a thread than for the disk.
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, redaction, as_json))
    return 0


async def _serve(settings: CollectorSettings, redaction: RedactionSettings, as_json: bool) -> None:
    announce: asyncio.Queue[Addresses] = asyncio.Queue()
    printing = asyncio.create_task(_print_addresses(announce, settings, as_json))
    try:
        await serve(settings, announce, redaction)
    finally:
        printing.cancel()


async def _print_addresses(
    announce: asyncio.Queue[Addresses], settings: CollectorSettings, as_json: bool
) -> None:
    addresses = await announce.get()
    if as_json:
        print(json.dumps(asdict(addresses)), flush=True)
        return
    print(f"OTLP/HTTP  {addresses.http_url}   (/metrics, /healthz, /readyz)")
    print(f"OTLP/gRPC  {addresses.grpc_url}")
    print(f"queries    {addresses.query_url}   (ClickHouse HTTP, read-only)")
    print(f"data       {settings.data_dir.resolve()}", flush=True)


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory; return whether it accepted that. Else nothing changes.

    Bodies of some hundred kilobytes are parsed and written a hundred times per second. glibc
    returns blocks of that size to the kernel as soon as they are freed, and each page of the next
    block is faulted in again, which cost as much CPU as the parsing itself.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, MMAP_BYTES) and mallopt(M_TRIM_THRESHOLD, TRIM_BYTES))

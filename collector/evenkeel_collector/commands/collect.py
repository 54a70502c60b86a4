"""`evenkeel collect`."""

from __future__ import annotations

import argparse
import atexit
import gc

from evenkeel.cli import BLAS_THREADS_VARIABLE, Command
from evenkeel.settings import hand_down, read_environment

GRPC_VERBOSITY = "GRPC_VERBOSITY"

EPILOG = """\
examples:
  evenkeel collect
  evenkeel collect --data-dir /var/lib/evenkeel --slos slos.yaml
  evenkeel collect --clickhouse @/run/secrets/clickhouse  # address and password from a file
  evenkeel collect --scrape http://127.0.0.1:8000

Point any OpenTelemetry SDK at it with the standard variable:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
Query it with any ClickHouse client (read-only):
  curl 'http://127.0.0.1:8123/?query=SELECT+count()+FROM+evenkeel.requests'
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    from evenkeel.settings_flags import add_flags
    from evenkeel_collector.redaction.settings import RedactionSettings
    from evenkeel_collector.serve.settings import CollectorSettings

    parser.epilog = EPILOG
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the effective settings and where each comes from, then exit",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the listening addresses as one JSON line when ready",
    )
    add_flags(parser, CollectorSettings)
    add_flags(parser, RedactionSettings)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel.settings import load
    from evenkeel.settings_flags import read_flags
    from evenkeel_collector.redaction.settings import RedactionSettings
    from evenkeel_collector.serve.settings import CollectorSettings

    loaded = load(CollectorSettings, read_flags(CollectorSettings, args))
    redaction = load(RedactionSettings, read_flags(RedactionSettings, args))
    if args.print_config:
        print(loaded.describe())
        print(redaction.describe("redaction"))
        return 0
    # Before numpy is imported, whatever the user chose: its import starts threads, and writes must
    # be confined before the first thread starts.
    hand_down(BLAS_THREADS_VARIABLE, "1")
    if read_environment(GRPC_VERBOSITY) is None:
        # Otherwise gRPC writes a line whenever a client fails its TLS handshake.
        hand_down(GRPC_VERBOSITY, "ERROR")
    # Importing the service takes seconds, which a wrong setting should not. What it creates stays,
    # so looking for garbage among it is wasted.
    gc.disable()
    try:
        from evenkeel_collector.serve import foreground
    finally:
        gc.enable()
    # At exit Python would search all objects for garbage, for half a second.
    atexit.register(gc.freeze)
    return foreground.run(loaded.settings, redaction.settings, args.json)


COLLECT = Command(
    name="collect",
    summary="receive OTLP, store it, answer queries and evaluate SLOs",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)

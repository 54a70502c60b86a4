"""`evenkeel collect`."""

from __future__ import annotations

import argparse

from evenkeel.cli import BLAS_THREADS_VARIABLE, Command
from evenkeel.settings import hand_down

EPILOG = """\
examples:
  evenkeel collect
  evenkeel collect --data-dir /var/lib/evenkeel --slos slos.yaml
  evenkeel collect --clickhouse @/run/secrets/clickhouse    its address and password in a file
  evenkeel collect --scrape http://127.0.0.1:8000

Send OTLP to it with the standard variable, from any OpenTelemetry SDK:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
Read it with any ClickHouse client, read-only:
  curl 'http://127.0.0.1:8123/?query=SELECT+count()+FROM+evenkeel.requests'
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    from evenkeel.settings_flags import add_flags
    from evenkeel_collector.redaction.settings import RedactionSettings
    from evenkeel_collector.serve.settings import CollectorSettings

    parser.epilog = EPILOG
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings and their source, and exit"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the addresses as one JSON line once ready"
    )
    add_flags(parser, CollectorSettings)
    add_flags(parser, RedactionSettings)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # Whatever the user chose: numpy would start threads as it is imported, and writes are confined
    # before the first one starts.
    hand_down(BLAS_THREADS_VARIABLE, "1")
    # The service brings uvicorn, grpc and the store's client: seconds that --help must not pay.
    from evenkeel_collector.serve import foreground

    return foreground.run(args)


COLLECT = Command(
    name="collect",
    summary="Take in OTLP, store it, answer queries, evaluate SLOs.",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)

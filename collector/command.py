"""`evenkeel collect`."""

from __future__ import annotations

import argparse
from pathlib import Path

from evenkeel.cli import Command

EPILOG = """\
examples:
  evenkeel collect
  evenkeel collect --data-dir /var/lib/evenkeel --slos slos.yaml
  evenkeel collect --clickhouse http://user:password@clickhouse:8123
  evenkeel collect --scrape http://127.0.0.1:8000

Send OTLP to it with the standard variable, from any OpenTelemetry SDK:
  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
Read it with any ClickHouse client, read-only:
  curl 'http://127.0.0.1:8123/?query=SELECT+count()+FROM+evenkeel.requests'
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--http-port", type=int, help="OTLP/HTTP and /metrics (default 4318)")
    parser.add_argument("--grpc-port", type=int, help="OTLP/gRPC (default 4317)")
    parser.add_argument("--query-port", type=int, help="ClickHouse HTTP, read-only (default 8123)")
    parser.add_argument("--data-dir", type=Path, help="log and embedded store (default ./data)")
    parser.add_argument(
        "--clickhouse", metavar="URL", help="store in this ClickHouse server instead of chDB"
    )
    parser.add_argument(
        "--clickhouse-cluster", metavar="NAME", help="make its tables on this cluster"
    )
    parser.add_argument(
        "--scrape",
        metavar="URL",
        action="append",
        help="read this Prometheus endpoint into engine_state; may be given several times",
    )
    parser.add_argument(
        "--access", type=Path, metavar="FILE", help="tokens and limits of tenants (TOML)"
    )
    parser.add_argument("--tls-certificate", type=Path, metavar="FILE", help="PEM, for all ports")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    parser.add_argument(
        "--tls-client-ca", type=Path, metavar="FILE", help="hear only clients with its certificate"
    )
    parser.add_argument("--slos", type=Path, metavar="FILE", help="SLO file to evaluate")
    parser.add_argument(
        "--prompts-dir", type=Path, metavar="DIR", help="prompt registry to promote in"
    )
    parser.add_argument(
        "--dashboard-url", metavar="URL", help="where notifications of alerts link to"
    )
    parser.add_argument(
        "--replay-quarantine",
        action="store_true",
        default=None,
        help="try again to store what the store refused (log/quarantine)",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings and their source, and exit"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the addresses as one JSON line once ready"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # The service brings uvicorn, grpc and the store's client: seconds that --help must not pay.
    from collector import foreground

    return foreground.run(args)


COLLECT = Command(
    name="collect",
    summary="Take in OTLP, store it, answer queries, evaluate SLOs.",
    configure=_configure,
    extra="collector",
)

"""The platform's parts as the demo starts them, and the configuration files it writes."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import with_port
from evenkeel.processes import Part
from evenkeel.synced_text import sync_text

# A 30-day period at this scale is 6 hours, and its 1 h / 5 min page window 30 s / 2.5 s.
WINDOW_SCALE = "1/120"
CONTROL_FILE = "control.toml"
SLO_FILE = "slos.yaml"
PRICE_FILE = "prices.toml"
# Written by `evenkeel cache calibrate golden_datasets/support --data-dir demo/evenkeel_demo`.
LABELS_FILE = "cache-labels.json"
# The default, one request in a thousand, would hardly show up within minutes.
CANARY_RATIO = "0.05"


@dataclass(frozen=True, slots=True)
class Ports:
    """The five ports of the platform, each shifted by `offset`."""

    offset: int = 0

    def as_dict(self) -> dict[str, int]:
        """Return each port by its readable name."""
        standard = {
            "runtime": 8000,
            "collector (OTLP/HTTP)": 4318,
            "collector (OTLP/gRPC)": 4317,
            "query port": 8123,
            "dashboard": 8501,
        }
        return {name: port + self.offset for name, port in standard.items()}

    @property
    def runtime(self) -> int:
        """The OpenAI API."""
        return 8000 + self.offset

    @property
    def otlp_http(self) -> int:
        """OTLP over HTTP, and the collector's readiness."""
        return 4318 + self.offset

    @property
    def otlp_grpc(self) -> int:
        """OTLP over gRPC."""
        return 4317 + self.offset

    @property
    def query(self) -> int:
        """ClickHouse HTTP."""
        return 8123 + self.offset

    @property
    def dashboard(self) -> int:
        """Streamlit."""
        return 8501 + self.offset


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The HTTP addresses at which the parts answer; `query` may contain a password."""

    runtime: str
    collector: str
    query: str
    dashboard: str

    @classmethod
    def on(cls, host: str, ports: Ports) -> Endpoints:
        """Return the addresses of parts that the demo starts itself."""
        numbers = (ports.runtime, ports.otlp_http, ports.query, ports.dashboard)
        return cls(*(f"http://{with_port(host, port)}" for port in numbers))


@dataclass(frozen=True, slots=True)
class DemoLocation:
    """The demo's address, ports, folder, and where its parts answer."""

    host: str
    ports: Ports
    data_dir: Path
    endpoints: Endpoints


def collector(place: DemoLocation, slo_file: Path) -> Part:
    """The collector with its embedded store and the demo's SLOs."""
    ports = place.ports
    return Part(
        name="collector",
        arguments=[
            "collect",
            *("--host", place.host),
            *("--http-port", str(ports.otlp_http)),
            *("--grpc-port", str(ports.otlp_grpc)),
            *("--query-port", str(ports.query)),
            *("--data-dir", str(place.data_dir / "collector")),
            *("--slos", str(slo_file)),
            *("--prices", str(place.data_dir / PRICE_FILE)),
            *("--dashboard-url", place.endpoints.dashboard),
            *("--redaction-content-tenants", "*"),
            # For what only /metrics has, such as the measured speed-up of speculation.
            *("--scrape", place.endpoints.runtime + "/metrics"),
        ],
        ready_url=place.endpoints.collector + "/readyz",
        environment={},
    )


def runtime(place: DemoLocation) -> Part:
    """The runtime with the demo model and all hooks: drafts, cache, control, compression."""
    return Part(
        name="runtime",
        arguments=[
            "serve",
            "demo",
            *("--host", place.host),
            *("--port", str(place.ports.runtime)),
            *("--speculate", "auto"),
            *("--speculation-canary-ratio", CANARY_RATIO),
            *("--control-file", str(place.data_dir / CONTROL_FILE)),
            *("--cache", str(place.data_dir / "cache.toml")),
            *("--compression", str(place.data_dir / "compression.toml")),
            "--record-content",
            *("--data-dir", str(place.data_dir / "runtime")),
            "--enable-prefix-caching",
        ],
        ready_url=place.endpoints.runtime + "/health",
        environment={"OTEL_EXPORTER_OTLP_ENDPOINT": place.endpoints.collector},
    )


def dashboard(place: DemoLocation, slo_file: Path) -> Part:
    """The dashboard over the query port and the collector's API."""
    return Part(
        name="dashboard",
        arguments=[
            "dashboard",
            *("--host", place.host),
            *("--port", str(place.ports.dashboard)),
            *("--query-url", place.endpoints.query),
            *("--collector-url", place.endpoints.collector),
            *("--slos", str(slo_file)),
        ],
        ready_url=place.endpoints.dashboard + "/_stcore/health",
        environment={},
    )


def live_evaluation(place: DemoLocation) -> Part:
    """Live evaluation of a share of the answers; it reads the store, so start it last."""
    return Part(
        name="live evaluation",
        arguments=[
            *("eval", "live", str(place.data_dir / "live.toml")),
            # A folder per run: it would first evaluate every window since an earlier run.
            *("--state", str(place.data_dir / "live" / f"{time.time_ns()}")),
            *("--otlp-endpoint", place.endpoints.collector),
            *("--since", "1s"),
        ],
        ready_url=place.endpoints.collector + "/readyz",
        # Not on the command line: it may contain a password.
        environment={"EVENKEEL_EVAL_STORE_URL": place.endpoints.query},
    )


def write_files(data_dir: Path, receiver_url: str) -> Path:
    """Write the parts' configuration files to the demo's folder; return the SLO file.

    Args:
        data_dir: The demo's folder.
        receiver_url: The demo's webhook receiver.
    """
    for name in ("cache.toml", LABELS_FILE, "compression.toml", "live.toml", PRICE_FILE):
        _write(data_dir, name, {})
    write_control_file(data_dir, "dry-run")
    values = {"RECEIVER_URL": receiver_url, "WINDOW_SCALE": WINDOW_SCALE}
    return _write(data_dir, SLO_FILE, values)


def write_control_file(data_dir: Path, mode: str) -> None:
    """Switch the mode of the runtime's control, which reloads its file within a second."""
    _write(data_dir, CONTROL_FILE, {"MODE": mode})


def _write(data_dir: Path, name: str, values: Mapping[str, str]) -> Path:
    text = (files("evenkeel_demo") / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(key, value)
    path = data_dir / name
    try:
        sync_text(path, text)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from error
    return path


def dataset_dir() -> Path:
    """Return the folder of the golden questions.

    Raises:
        ConfigurationError: If the golden datasets are not installed.
    """
    try:
        path = Path(str(files("golden_datasets"))) / "support"
    except ModuleNotFoundError as error:
        raise ConfigurationError("golden_datasets is not installed with evenkeel") from error
    if not (path / "support.jsonl").is_file():
        raise ConfigurationError(f"{path / 'support.jsonl'} is missing; reinstall evenkeel")
    return path


def system_prompt(side_file: Path) -> str:
    """Return the system prompt of one side of the A/B run."""
    side: Mapping[str, Mapping[str, str]] = tomllib.loads(side_file.read_text(encoding="utf-8"))
    return side["prompt"]["system"]

"""Settings of the demo: `[demo]` in evenkeel.toml, `EVENKEEL_DEMO_…` in the environment."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from evenkeel.http_address import is_http_address
from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Settings
from evenkeel.store import check_url
from evenkeel_demo.parts import Endpoints


class DemoSettings(Settings):
    """Where the parts answer, if they are already running, as with Docker Compose."""

    section: ClassVar[str] = "demo"

    runtime_url: str | None = Field(
        default=None,
        description="a runtime that is already running: the demo starts nothing and only sends "
        "its traffic to these addresses",
    )
    collector_url: str = Field(
        default="http://127.0.0.1:4318", description="that runtime's collector (OTLP over HTTP)"
    )
    store_url: SecretAddress = Field(
        default=SecretAddress("http://127.0.0.1:8123"), description="that collector's store"
    )
    dashboard_url: str = Field(
        default="http://127.0.0.1:8501",
        description="that store's dashboard, for your browser",
    )
    receiver_url: str | None = Field(
        default=None,
        description="address at which the collector reaches the demo's alert receiver; the demo "
        "then listens on its port on all interfaces (default: loopback only)",
    )

    @field_validator("runtime_url", "collector_url", "dashboard_url", "receiver_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        if value is not None and not is_http_address(value):
            raise ValueError("expected an address such as http://127.0.0.1:8000")
        return value

    @field_validator("runtime_url", "collector_url", "dashboard_url")
    @classmethod
    def _without_slash(cls, value: str | None) -> str | None:
        # Paths are added to these; the receiver's is used as it is.
        return None if value is None else value.rstrip("/")

    def endpoints(self) -> Endpoints | None:
        """Return where the running parts answer; None if the demo is to start its own.

        Raises:
            ConfigurationError: If the store's address is not one.
        """
        if self.runtime_url is None:
            return None
        check_url(self.store_url.get_secret_value())
        return Endpoints(
            runtime=self.runtime_url,
            collector=self.collector_url,
            query=self.store_url.get_secret_value(),
            dashboard=self.dashboard_url,
        )

"""Replaces this process with Streamlit running the app, so that signals reach only Streamlit."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from evenkeel.errors import ConfigurationError
from evenkeel.http_address import with_port
from evenkeel.processes import listening_advice
from evenkeel.settings import write_environment
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.toml_file import read_toml
from evenkeel_dashboard.draw.appearance import theme_options
from evenkeel_dashboard.frame.configuration import DashboardSettings, SignIn
from evenkeel_dashboard.frame.user_access import read_users

# Not next to the folder `pages`, because Streamlit would turn each of its files into a page.
APP = Path(__file__).parents[1] / "pages" / "app.py"
HTTP_APP = APP.with_name("http_app.py")


def refuse_taken_port(host: str, port: int) -> None:
    """Check that the dashboard can listen on the port.

    Raises:
        ConfigurationError: If the port is taken, or the host is not an address of this machine.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise ConfigurationError(
            f"the dashboard cannot listen on {with_port(host, port)}: {error.strerror or error}; "
            f"{listening_advice(error, 'choose another with --port')}"
        ) from error


def check_files(settings: DashboardSettings) -> None:
    """Check the files that the settings name.

    Raises:
        ConfigurationError: If a file is missing or wrong, or sign-in requires one that is not set.
    """
    if settings.slos is not None:
        read_slo_file(settings.slos)
    if settings.sign_in is SignIn.OIDC:
        read_users(settings.users)
        _check_oidc_secrets(settings.oidc_secrets)
        if importlib.util.find_spec("authlib") is None:
            raise ModuleNotFoundError("no module authlib", name="authlib")


def _check_oidc_secrets(path: Path | None) -> None:
    flag, how = "--oidc-secrets", "as docs/guide/dashboard.md shows"
    if path is None:
        raise ConfigurationError(f"sign-in with OIDC needs {flag} FILE.toml, {how}")
    if "auth" not in read_toml(path, flag):
        raise ConfigurationError(f"{path} ({flag}) has no [auth] table; write one, {how}")
    if path.suffix != ".toml":
        raise ConfigurationError(f"{path} ({flag}): Streamlit only reads files named *.toml")


def serve(settings: DashboardSettings) -> NoReturn:
    """Replace this process with the Streamlit server; it exits with code 0 on Ctrl-C or SIGTERM.

    Raises:
        ModuleNotFoundError: If Streamlit is not installed.
    """
    for module in ("streamlit", "pandas"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"no module {module}", name=module)
    address = with_port(settings.host, settings.port)
    print(
        f"dashboard on http://{address}, reading {settings.shown_url}; Ctrl-C stops it",
        flush=True,
    )
    environment = {**os.environ, **child_environment(settings)}
    os.execve(sys.executable, [sys.executable, *arguments(settings)], environment)


def child_environment(settings: DashboardSettings) -> dict[str, str]:
    """Return the environment variables that pass these settings to the app process."""
    return write_environment(settings)


def arguments(settings: DashboardSettings) -> list[str]:
    """Return the arguments after the Python interpreter on the command line."""
    options: Mapping[str, str] = {
        "server.address": settings.host,
        "server.port": str(settings.port),
        "server.headless": "true",
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "viewer",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",
        "logger.hideWelcomeMessage": "true",
        **theme_options(),
    }
    if settings.oidc_secrets is not None:
        options = {**options, "secrets.files": str(settings.oidc_secrets.resolve())}
    flags = [f"--{name}={value}" for name, value in options.items()]
    return ["-m", "evenkeel_dashboard.frame.streamlit_process", "run", str(HTTP_APP), *flags]

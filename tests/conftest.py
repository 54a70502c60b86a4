"""What every test shares: golden files, the browser, a collector, and no silent skip in CI."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from evenkeel_collector.alerts.book import AlertBook
    from tests.fixtures.collector_process import CollectorProcess

# How long an example takes is a matter of the machine; `timeout` ends what hangs.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

# httpx gives up after 5 s, too soon on a busy machine. Only tests about waiting say how long.
for wait in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, wait, 120.0)

# `httpx.get()` reads the certificates of all authorities, which takes 20 ms: once is enough.
setattr(default, "create_ssl_context", cache(httpx.create_ssl_context))  # noqa: B010

# An embedded store opens about 500 files, and a process tests several of them.
_NUM_FILES, _MAX_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (max(_NUM_FILES, min(4096, _MAX_FILES)), _MAX_FILES))

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-golden", action="store_true", help="rewrite the golden files")


# Servers that many files share. The files that use one run in the same process.
SHARED = ("served_model", "equipped", "platform")


class SharedServers(LoadFileScheduling):
    """Deals out files; those that use the same server as one."""

    def _split_scope(self, nodeid: str) -> str:
        return _server_of(nodeid.partition("::")[0])


@cache
def _server_of(file: str) -> str:
    words = (ROOT / file).read_text(encoding="utf-8")
    return next((name for name in SHARED if f"{name}: " in words), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SharedServers:
    return SharedServers(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """In CI a skipped test is a failed one: what was not run was not proved."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium; without one, browser tests are skipped (and fail in CI)."""
    from tests.fixtures.browser import NAMES

    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("no chromium on the PATH; install it to run the browser tests")


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """A browser for the tests of one file."""
    from tests.fixtures.browser import running_browser

    with running_browser(chromium) as browser:
        yield browser


@pytest.fixture
def no_internal_error(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test in which a hook caught an error of its own; one that provokes it clears `caplog`.

    The runtime's hooks log such errors with their traceback, and go on.
    """
    yield
    caught = [r for r in caplog.get_records("call") if r.exc_info]
    assert [r.getMessage() for r in caught if r.name.startswith("evenkeel_runtime")] == []


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A real collector with its default settings; modules that need others override it."""
    from tests.fixtures.collector_process import running_collector

    with running_collector(tmp_path_factory.mktemp("collector")) as running:
        yield running


@pytest.fixture
def book(tmp_path: Path) -> Iterator[AlertBook]:
    """An empty alert book."""
    from evenkeel_collector.alerts.book import AlertBook

    book = AlertBook(tmp_path / "alerts.db")
    yield book
    book.close()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)

"""How a collector starts, stops, crashes and comes back."""

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.fixtures.collector_process import (
    collect_command,
    collector_environment,
    copy_new_store,
    running_collector,
    start_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
NUM_KILLS = 8
SPANS_A_REQUEST = 40
NUM_SENDERS = 4


def run_command(data_dir: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        collect_command(data_dir, *flags),
        capture_output=True,
        text=True,
        timeout=300,
        env=collector_environment(),
        check=False,
    )


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


@pytest.mark.parametrize("flag", ["--http-port", "--grpc-port", "--query-port"])
def test_a_taken_port_is_one_line_and_exit_code_2(
    tmp_path: Path, taken_port: int, flag: str
) -> None:
    result = run_command(tmp_path, flag, str(taken_port))
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if " INFO " not in line]
    assert len(lines) == 1
    assert str(taken_port) in lines[0]
    assert flag in lines[0]


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run_command(tmp_path / "file" / "data")
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        f"evenkeel: cannot write to {tmp_path}/file/data (--data-dir): Not a directory"
    ]


def test_a_wrong_setting_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    result = run_command(tmp_path, "--http-port", "70000")
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "http_port" in result.stderr


def test_a_server_that_does_not_answer_is_one_line_without_its_password(tmp_path: Path) -> None:
    result = run_command(tmp_path, "--clickhouse", "http://user:hunter2@127.0.0.1:1")
    assert result.returncode == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("evenkeel: ")]
    assert len(errors) == 1
    assert errors == [
        "evenkeel: no ClickHouse answers at http://127.0.0.1:1: Connection refused; is it running?"
    ]
    assert "hunter2" not in result.stderr + result.stdout
    assert "WARNING" not in result.stderr, "a library's own words"
    printed = run_command(
        tmp_path, "--clickhouse", "http://user:hunter2@127.0.0.1:1", "--print-config"
    )
    assert "hunter2" not in printed.stdout


def test_a_second_collector_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with running_collector(tmp_path):
        result = run_command(tmp_path)
    assert result.returncode == 2
    assert "another collector is using" in result.stderr


def test_a_store_of_another_schema_is_refused(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    program = (
        "import clickhouse_connect, sys\n"
        "client = clickhouse_connect.get_client("
        "interface='chdb', path=sys.argv[1], database='evenkeel')\n"
        "client.command(\"INSERT INTO schema_migrations VALUES (9999, 'later', '', now64(3))\")\n"
    )
    store = str(tmp_path / "store")
    subprocess.run([collect_command(tmp_path)[0], "-c", program, store], check=True)
    result = run_command(tmp_path)
    assert result.returncode == 2
    assert "migration 9999" in result.stderr.splitlines()[-1]


def test_stopping_stores_what_was_acknowledged_a_moment_before(tmp_path: Path) -> None:
    collector = start_collector(tmp_path)
    for _ in range(20):
        body = trace_request(100).SerializeToString()
        httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
    assert collector.stop() == 0
    assert list((tmp_path / "log").iterdir()) == []
    with running_collector(tmp_path) as again:
        assert again.rows("SELECT count() FROM spans") == [(2000,)]


def test_settings_are_printed_with_their_source(tmp_path: Path) -> None:
    result = run_command(tmp_path, "--print-config")
    assert result.returncode == 0
    assert "http_port = 0  # flag" in result.stdout.splitlines()
    assert "host = 127.0.0.1  # default" in result.stdout.splitlines()


def test_a_full_log_answers_503_with_retry_after_and_recovers(tmp_path: Path) -> None:
    config = tmp_path / "evenkeel.toml"
    # Room for one body, until the store has it.
    config.write_text("[collector]\nmax_log_bytes = 40000\n")
    with running_collector(tmp_path) as collector:
        url = f"{collector.http_url}/v1/traces"
        for number in range(100):
            body = trace_request(500, service=str(number)).SerializeToString()
            answer = httpx.post(url, content=body, headers=PROTOBUF)
            if answer.status_code != 200:
                break
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        wait_for(lambda: httpx.post(url, content=body, headers=PROTOBUF).status_code == 200)


def test_a_body_that_no_log_could_hold_is_refused_for_good(tmp_path: Path) -> None:
    (tmp_path / "evenkeel.toml").write_text("[collector]\nmax_log_bytes = 20000\n")
    with running_collector(tmp_path) as collector:
        url = f"{collector.http_url}/v1/traces"
        too_big = trace_request(500).SerializeToString()
        assert httpx.post(url, content=too_big, headers=PROTOBUF).status_code == 413


class Sender(threading.Thread):
    """Sends numbered requests until told to stop; remembers which were acknowledged."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__()
        self.number = number
        self.url = url
        self.sent: set[str] = set()
        self.acknowledged: set[str] = set()
        self.is_stopping = threading.Event()

    def run(self) -> None:
        index = 0
        with httpx.Client(timeout=120) as client:
            while not self.is_stopping.is_set():
                index += 1
                service = f"{self.number}-{index}"
                body = trace_request(
                    SPANS_A_REQUEST,
                    {"evenkeel.status": "ok", "gen_ai.request.model": "m"},
                    service=service,
                ).SerializeToString()
                self.sent.add(service)
                try:
                    answer = client.post(self.url, content=body, headers=PROTOBUF)
                except httpx.HTTPError:
                    return
                if answer.status_code == 200:
                    self.acknowledged.add(service)


def test_nothing_acknowledged_is_lost_or_doubled_over_kills(tmp_path: Path) -> None:
    sent: set[str] = set()
    acknowledged: set[str] = set()
    for kill in range(NUM_KILLS):
        collector = start_collector(tmp_path)
        senders = [
            Sender(kill * NUM_SENDERS + n, f"{collector.http_url}/v1/traces")
            for n in range(NUM_SENDERS)
        ]
        for sender in senders:
            sender.start()
        wait_for(lambda: sum(len(sender.acknowledged) for sender in senders) > 10)  # noqa: B023
        # Moments spread over the cycle of log, seal and insert.
        time.sleep(kill * 0.13)
        collector.kill()
        for sender in senders:
            sender.is_stopping.set()
            sender.join()
            sent |= sender.sent
            acknowledged |= sender.acknowledged

    with running_collector(tmp_path) as collector:
        wait_for(lambda: not any((tmp_path / "log").iterdir()))
        spans = dict(collector.rows("SELECT ServiceName, count() FROM spans GROUP BY 1"))
        requests = dict(collector.rows("SELECT service, count() FROM requests GROUP BY 1"))
        minutes = dict(
            collector.rows("SELECT service, sum(num_requests) FROM requests_1m GROUP BY 1")
        )
        hours = dict(
            collector.rows("SELECT service, sum(num_requests) FROM requests_1h GROUP BY 1")
        )
    assert acknowledged - set(spans) == set()
    assert set(spans) - sent == set()
    wrong = {name: count for name, count in spans.items() if count != SPANS_A_REQUEST}
    assert wrong == {}
    assert requests == spans
    assert minutes == spans
    assert hours == spans

"""A short server outage only delays the run; a long one pauses it."""

import argparse
import asyncio
import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from evenkeel.cli import main
from evenkeel.errors import CannotMeasureError
from evenkeel_evals.ask.client import Call, Reply
from evenkeel_evals.ask.retries import MOST_BREAKS, PatientClient, resume_command
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.commands.eval import EVAL
from tests.fixtures.collector_process import wait_for
from tests.fixtures.eval_setup import write_dataset
from tests.fixtures.python_process import run_python
from tests.unit.evals.ask.flaky_server import FlakyServer

NUM_ITEMS = 12


@pytest.fixture
def server() -> Iterator[FlakyServer]:
    with FlakyServer() as running:
        yield running


def call(server: FlakyServer) -> Call:
    side = Side("s", server.url, "m", "support", "2", None, {"max_tokens": 5})
    return Call(side, [{"role": "user", "content": "hello"}], "a" * 32, "b" * 16, "r-A", None)


async def ask(
    server: FlakyServer, said: list[str], retry_s: float = 30.0, timeout_s: float = 120.0
) -> Reply:
    async with PatientClient(1, timeout_s, None, retry_s, said.append) as client:
        return await client.ask(call(server))


async def test_a_server_that_comes_back_is_waited_for_and_the_wait_is_in_no_latency(
    server: FlakyServer,
) -> None:
    said: list[str] = []

    def tell(line: str) -> None:
        if not said:
            # Not before it was missed, however busy the machine is.
            asyncio.get_running_loop().call_later(1.0, server.come_back)
        said.append(line)

    async with PatientClient(1, 120.0, None, 30.0, tell) as client:
        assert (await client.ask(call(server))).num_retries == 0
        await asyncio.to_thread(server.go_away)
        start = time.monotonic()
        reply = await client.ask(call(server))
        waited_s = time.monotonic() - start
    assert (reply.text, reply.error) == ("hello", None)
    assert reply.num_retries >= 1
    assert waited_s > 0.9
    assert reply.e2e_s is not None and waited_s - reply.e2e_s > 0.9
    assert waited_s - (reply.end_ns - reply.start_ns) / 1e9 > 0.9
    assert "is not answering (ConnectError" in said[0] or "is not answering (Remote" in said[0]
    assert "retrying for up to 30 s" in said[0]
    assert "is answering again after" in said[-1]
    assert len(said) == 2


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_honoured(server: FlakyServer, status: int) -> None:
    server.refusals = [(status, {"Retry-After": "1"})]
    said: list[str] = []
    start = time.monotonic()
    reply = await ask(server, said)
    waited_s = time.monotonic() - start
    assert waited_s > 0.99
    assert (reply.text, reply.num_retries) == ("hello", 1)
    assert reply.e2e_s is not None and waited_s - reply.e2e_s > 0.99
    assert f"HTTP {status}: busy" in said[0]


async def test_what_retry_after_asks_for_is_capped_by_the_patience(server: FlakyServer) -> None:
    server.refusals = [(503, {"Retry-After": "9999"})] * 2
    start = time.monotonic()
    with pytest.raises(CannotMeasureError, match=r"paused: http.* has not answered for .*503"):
        await ask(server, [], retry_s=0.3)
    assert 0.29 < time.monotonic() - start < 120.0
    assert server.num_requests == 2


async def test_a_server_that_stays_away_pauses_the_run(server: FlakyServer) -> None:
    server.go_away()
    with pytest.raises(CannotMeasureError, match=r"paused: .* \(ConnectError"):
        await ask(server, [], retry_s=0.5)
    with pytest.raises(CannotMeasureError, match="paused"):
        await ask(server, [], retry_s=0.0)


async def test_an_answer_that_was_under_way_does_not_end_the_outage(server: FlakyServer) -> None:
    said: list[str] = []
    server.delay_s = 0.5
    async with PatientClient(2, 120.0, None, 30.0, said.append) as client:
        slow = asyncio.create_task(client.ask(call(server)))
        await asyncio.to_thread(wait_for, lambda: server.num_requests == 1)
        # Until the slow one is answered, however long its thread is kept waiting.
        server.refusals = [(503, {"Retry-After": "1"})] * 99
        refused = asyncio.create_task(client.ask(call(server)))
        assert (await slow).text == "hello"
        assert [line for line in said if "again after" in line] == []
        await asyncio.to_thread(wait_for, lambda: bool(said))
        server.refuse_no_more()
        assert (await refused).num_retries >= 1
    assert "is answering again after" in said[-1]


@pytest.mark.parametrize("status", [400, 404, 500, 502])
async def test_other_errors_are_the_sides_own(server: FlakyServer, status: int) -> None:
    server.refusals = [(status, {"Retry-After": "1"})]
    said: list[str] = []
    reply = await ask(server, said)
    assert (reply.error, reply.num_retries) == (f"HTTP {status}: busy", 0)
    assert (server.num_requests, said) == (1, [])


async def test_a_time_out_is_the_sides_own(server: FlakyServer) -> None:
    server.hold()
    reply = await ask(server, [], timeout_s=3.0)
    assert reply.error is not None and "within 3 s" in reply.error
    assert server.num_requests == 1


async def test_a_question_that_breaks_every_connection_is_the_sides_own(
    server: FlakyServer,
) -> None:
    server.refusals = [None]
    assert (await ask(server, [])).text == "hello", "once may be a server that was restarted"
    server.refusals = [None] * 9
    reply = await ask(server, [])
    assert reply.text is None and reply.error is not None
    assert server.num_requests == 2 + MOST_BREAKS


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "echo", NUM_ITEMS)
    return tmp_path / "echo"


def arguments(server: FlakyServer, dataset: Path, *flags: str) -> list[str]:
    return [
        *("eval", "run", str(dataset), "--baseline", str(dataset / "a.toml")),
        *("--candidate", str(dataset / "b.toml"), "--gate", "accuracy>=-20%", "--json"),
        *("--url", server.url, "--otlp-endpoint", "none", "--warmup", "0", "--concurrency", "2"),
        *("--report", str(dataset.parent / "report"), "--allow-inconclusive", *flags),
    ]


def everything() -> set[str]:
    return {f"{side}|say {i}" for side in "ab" for i in range(NUM_ITEMS)}


def test_a_server_that_is_gone_in_the_midst_of_a_run_costs_nothing(
    server: FlakyServer, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outage_s = 3.0

    def leave(number: int) -> None:
        if number == 9:
            server.hold()
            threading.Thread(target=server.go_away).start()
            threading.Timer(outage_s, server.come_back).start()

    server.delay_s, server.on_answer = 0.02, leave
    assert main(arguments(server, dataset), [EVAL]) == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert record["num_interruptions"] == 0
    assert record["candidate"]["e2e_s"]["p99"] < outage_s, "no wait is in a latency"
    assert "retrying for up to" in said.err and "is answering again after" in said.err
    assert set(server.answered) == everything()


def test_a_run_that_pauses_says_with_which_command_it_goes_on(
    server: FlakyServer, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(number: int) -> None:
        if number == 9:
            server.hold()
            threading.Thread(target=server.go_away).start()

    server.delay_s, server.on_answer = 0.02, leave
    flags = ("--retry-s", "0.4", "--fresh", "--api-key", "s3cret")
    assert main(arguments(server, dataset, *flags), [EVAL]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    line = said.err.splitlines()[-1]
    assert (
        line.startswith("evenkeel: paused: ") and " of 24 answers are saved; resume with: " in line
    )
    assert "s3cret" not in line
    command = shlex.split(line.partition("resume with: ")[2])
    assert command[0] == "evenkeel" and "--fresh" not in command
    before = Counter(server.answered)
    server.on_answer = lambda number: None
    server.come_back()
    assert main(command[1:], [EVAL]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert record["num_interruptions"] == 1
    assert set(server.answered) == everything()
    # Calls in flight may have been answered without being read: at most two.
    again = sum(server.answered.values()) - len(everything())
    assert again <= 2 and sum(before.values()) >= 9


def test_a_run_whose_key_is_refused_goes_on_with_the_right_one(
    server: FlakyServer, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The models are listed for everyone, as by many gateways; or the key ends after a while.
    server.refusals = [*[False] * 9, *[(401, {})] * 99]
    assert main(arguments(server, dataset), [EVAL]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "HTTP 401" in line and "EVENKEEL_EVAL_API_KEY" in line
    assert " of 24 answers are saved; resume with: " in line
    server.refusals = []
    assert main(arguments(server, dataset, "--api-key", "s3cret"), [EVAL]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["num_pairs"], record["num_unmeasured"]) == (NUM_ITEMS, 0)
    assert set(server.answered) == everything()
    # The call in flight beside the refused one may have been answered without being read.
    assert server.answered.total() <= 25


def test_without_a_report_nothing_is_promised(
    server: FlakyServer, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # From the first answer on, with no thread that could come too late.
    server.on_answer = lambda number: server.refusals.extend([(503, {})] * 1000)
    given = arguments(server, dataset, "--retry-s", "0.1")
    where = given.index("--report")
    del given[where : where + 2]
    assert main(given, [EVAL]) == 3
    line = capsys.readouterr().err.splitlines()[-1]
    assert "nothing is saved without --report; start over with: evenkeel eval run" in line


def test_a_warm_cache_is_filled_again_after_a_wait(
    server: FlakyServer, dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.refusals = [False, (429, {})]
    flags = ("--cache", "warm", "--concurrency", "1")
    assert main(arguments(server, dataset, *flags), [EVAL]) == 0
    # One refusal of a measured call adds that call and a second warming of the cache.
    assert server.num_requests == 2 * 2 * NUM_ITEMS + 3
    capsys.readouterr()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["eval", "run", "d", "--fresh"], "evenkeel eval run d"),
        (["eval", "run", "my data", "--fre"], "evenkeel eval run 'my data'"),
        (["eval", "--api-key", "s3"], "evenkeel eval --api-key '***'"),
        (["eval", "--api-k=s3"], "evenkeel eval '--api-k=***'"),
        (["eval", "--judge", "s3.toml"], "evenkeel eval --judge s3.toml"),
        (["eval", "--otlp-endpoint", "http://u:p@h:1"], "evenkeel eval --otlp-endpoint http://h:1"),
    ],
)
def test_the_command_that_goes_on_has_no_secrets(argv: list[str], expected: str) -> None:
    given = argparse.Namespace(argv=argv, api_key="s3", otlp_endpoint="http://u:p@h:1")
    assert resume_command(given) == expected


def test_a_secret_in_a_file_stays_as_it_was_given() -> None:
    given = argparse.Namespace(argv=["eval", "--api-key", "@key"], api_key="@key")
    assert resume_command(given) == "evenkeel eval --api-key @key"


def test_ctrl_c_says_how_to_go_on(server: FlakyServer, dataset: Path) -> None:
    server.on_answer = lambda number: server.hold() if number == 5 else None
    process = subprocess.Popen(
        [sys.executable, "-m", "evenkeel", *arguments(server, dataset)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell ignores it for background processes, and so would this process.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    try:
        give_up = time.monotonic() + 600.0
        while sum(server.answered.values()) < 5:
            assert time.monotonic() < give_up and process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=600.0)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (130, ""), err
    line = err.splitlines()[-1]
    assert line.startswith("evenkeel: stopped; ") and "of 24 answers are saved; resume" in line
    assert "Traceback" not in err
    server.go_away()
    server.come_back()
    done = run_python(
        "-m", "evenkeel", *shlex.split(line.partition("resume with: ")[2])[1:], check=True
    )
    assert json.loads(done.stdout)["num_interruptions"] == 1

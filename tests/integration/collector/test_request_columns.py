"""A field added to the list of request fields gets its column at start, and is filled."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import evenkeel
from tests.checkout import ROOT
from tests.fixtures.clickhouse_server import clickhouse_server
from tests.fixtures.collector_process import collector_environment
from tests.fixtures.python_process import run_python
from tests.fixtures.served_model import free_port

PLACE = "    temperature: Annotated"
# The first of the two edits; the second is the value that STORE gives the record.
NEW_FIELDS = """
    num_retries: Annotated[int | None, InStore("attempts before this one")] = None
    region: Annotated[str | None, InStore("where the client is", "client.region")] = None
    upload_s: Annotated[float | None, InStore("s, first byte → last byte")] = None
    chunk_tokens: Annotated[list[int], InStore("tokens per chunk")] = []
"""
VALUES = {"num_retries": 2, "region": "eu", "upload_s": 0.25, "chunk_tokens": [3, 4]}
# Opens a store, inserts a request twice with one token, and prints the answer to a query.
STORE = """
import io, json, sys, time
from pathlib import Path
from evenkeel.request_record import RequestRecord
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment, open_embedded, open_server
from tests.fixtures.otlp_payload import trace_request

place, request_id, values, *statements = sys.argv[1:]
storage = open_server(place) if place.startswith("http") else open_embedded(Path(place))
client = storage.connect()
if request_id:
    record = RequestRecord(request_id=request_id, model="m", **json.loads(values))
    body = trace_request(1, record.to_attributes()).SerializeToString()
    for _ in range(2):
        segment = io.BytesIO(encode_segment("test", time.time_ns(), [body]))
        insert_segment(client, storage.insert_settings, request_id, segment)
for statement in statements:
    if statement.startswith("ALTER"):
        client.command(statement)
    else:
        print(json.dumps(client.query(statement).result_rows))
"""
TABLES = "SELECT name, create_table_query FROM system.tables WHERE database = 'evenkeel' ORDER BY 1"
ROWS = (
    "SELECT request_id, num_retries, region, upload_s, chunk_tokens, mapKeys(refused_numbers)"
    " FROM requests ORDER BY request_id"
)
NUM_COUNTED = "SELECT sum(num_requests) FROM requests_1m"
NOT_MEASURED = [None, None, None, [], []]


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the import path of a version whose list has four more fields."""
    folder = tmp_path_factory.mktemp("newer")
    package = Path(evenkeel.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    fields = folder / package.name / "request_record.py"
    text = fields.read_text(encoding="utf-8")
    assert text.count(PLACE) == 1
    fields.write_text(text.replace(PLACE, NEW_FIELDS + PLACE), encoding="utf-8")
    return f"{folder}:{ROOT}"


def run_store(
    place: str,
    *statements: str,
    path: str = str(ROOT),
    request_id: str = "",
    values: dict[str, Any] | None = None,
) -> list[Any]:
    """Run STORE under a version of the code and return its answers."""
    environment = {**collector_environment(), "PYTHONPATH": path}
    words = (place, request_id, json.dumps(values or {}), *statements)
    done = run_python("-c", STORE, *words, env=environment, cwd=ROOT.parent)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(params=["embedded", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return where a store may be made: a folder, or a server's address."""
    if request.param == "embedded":
        yield str(tmp_path / "store")
    else:
        with clickhouse_server(free_port(), tmp_path / "server") as server:
            yield server.url


def test_a_new_field_takes_its_line_and_its_value(place: str, newer: str) -> None:
    run_store(place, request_id="before")
    _, made = run_store(place, ROWS, TABLES, path=newer, request_id="filled", values=VALUES)
    refused = {"num_retries": 2.5, "upload_s": -1.0, "chunk_tokens": [1, -1]}
    rows, tables, counted = run_store(
        place, ROWS, TABLES, NUM_COUNTED, path=newer, request_id="refused", values=refused
    )
    assert rows == [
        ["before", *NOT_MEASURED],
        ["filled", 2, "eu", 0.25, [3, 4], []],
        ["refused", None, None, None, [], ["num_retries", "upload_s", "chunk_tokens"]],
    ]
    assert counted == [[3.0]]
    assert tables == made, "a store that has every column was changed"


def test_the_older_version_opens_it_as_it_is(tmp_path: Path, newer: str) -> None:
    place = str(tmp_path / "store")
    (made,) = run_store(place, TABLES, path=newer, request_id="filled", values=VALUES)
    rows, tables = run_store(place, ROWS, TABLES, request_id="older")
    assert rows == [["filled", 2, "eu", 0.25, [3, 4], []], ["older", *NOT_MEASURED]]
    assert tables == made


def test_a_column_that_was_dropped_comes_back(tmp_path: Path) -> None:
    place = str(tmp_path / "store")
    run_store(place, "ALTER TABLE requests DROP COLUMN max_tokens", request_id="before")
    rows = "SELECT request_id, max_tokens FROM requests ORDER BY 1"
    (found,) = run_store(place, rows, request_id="filled", values={"max_tokens": 7})
    assert found == [["before", None], ["filled", 7]]

"""The thread that stores segments, over the real embedded store."""

from pathlib import Path

from tests.fixtures.collector_process import ROOT, collector_environment, copy_new_store
from tests.fixtures.python_process import run_python

CLOSE_UNDER_AN_INSERT = """
import sys, threading, time
from pathlib import Path
from evenkeel_collector.store import inserter as module
from evenkeel_collector.store.inserter import Inserter
from evenkeel_collector.telemetry.metrics import SelfMetrics
from evenkeel_collector.store.storage import open_embedded
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from tests.fixtures.otlp_payload import trace_request

# The insert in hand may take long on a busy machine.
module.IN_HAND_S = 120.0
folder = Path(sys.argv[1])
storage = open_embedded(folder / "store")
log = WriteAheadLog(folder / "log", "node")
log.append(trace_request(7).SerializeToString(), 7).result()
log.close()
with storage.gate.closed():
    inserter = Inserter(log, storage, SelfMetrics())
    while "inserting" not in {
        frame.f_code.co_name for frame in frames(sys._current_frames()[inserter._thread.ident])
    }:
        time.sleep(0.01)
    opened = threading.Event()
    closing = threading.Thread(target=lambda: print(inserter.close(0.0), opened.is_set()))
    closing.start()
    # Long enough for a close that does not wait.
    closing.join(0.5)
    opened.set()
closing.join()
client = storage.connect()
print(client.query("SELECT count() FROM spans").first_row[0])
client.close()
storage.close()
"""

FRAMES = """
def frames(frame):
    while frame is not None:
        yield frame
        frame = frame.f_back
"""


def test_closing_waits_for_the_insert_in_hand(tmp_path: Path) -> None:
    copy_new_store(tmp_path / "store")
    done = run_python(
        "-c", FRAMES + CLOSE_UNDER_AN_INSERT, str(tmp_path), env=collector_environment(), cwd=ROOT
    )
    assert done.stdout.split() == ["True", "True", "7"], done.stderr[-2000:]


TOO_LARGE = """
import dataclasses, sys, time
from pathlib import Path
from evenkeel_collector.store.inserter import Inserter
from evenkeel_collector.telemetry.metrics import SelfMetrics
from evenkeel_collector.store.storage import open_embedded
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from tests.fixtures.otlp_payload import trace_request

folder = Path(sys.argv[1])
storage = open_embedded(folder / "store")
settings = {**storage.insert_settings, "max_memory_usage": str(int(sys.argv[2]) << 20)}
log = WriteAheadLog(folder / "log", "node")
for _ in range(2):
    attributes = {"evenkeel.status": "ok", "gen_ai.request.model": "m" * 100}
    log.append(trace_request(30_000, attributes).SerializeToString(), 30_000).result()
log.close()
storage = dataclasses.replace(storage, insert_settings=settings)
inserter = Inserter(log, storage, SelfMetrics(), max_memory_failures=2)
print(inserter.close(240.0))
client = storage.connect()
print(client.query("SELECT uniqExact(SpanId) FROM spans").first_row)
print(client.query("SELECT count(), uniqExact(span_id) FROM requests").first_row)
client.close()
storage.close()
"""


def test_a_segment_that_is_too_large_for_the_stores_memory_is_stored_in_parts(
    tmp_path: Path,
) -> None:
    copy_new_store(tmp_path / "store")
    done = run_python("-c", TOO_LARGE, str(tmp_path), "64", env=collector_environment(), cwd=ROOT)
    assert "stored a part of a segment" in done.stderr, done.stderr[-2000:]
    assert done.stdout.splitlines() == ["True", "(60000,)", "(60000, 60000)"]

"""A confined process that tries to write as whoever found a hole in it would; prints what it could.

python write_intruder.py INSIDE OUTSIDE
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from evenkeel_collector.serve.settings import CollectorSettings
from evenkeel_collector.serve.write_fence import confine

inside, outside = Path(sys.argv[1]), Path(sys.argv[2])
data, victim = inside / "data", outside / "victim"
confine(CollectorSettings(data_dir=data, prompts_dir=inside / "prompts"))

import chdb  # noqa: E402 - it starts threads

session = chdb.connect(str(data / "store"))
tried: dict[str, str] = {}


def attempt(name: str, act: Callable[[], object]) -> None:
    """Write down whether it could be done."""
    try:
        act()
        tried[name] = "done"
    except Exception as error:
        tried[name] = type(error).__name__


def run(*command: str) -> None:
    """Run a program."""
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def rename_over() -> None:
    """Put a file of ours in the place of another's."""
    (data / "a").touch()
    (data / "a").rename(victim)


def write_through_link() -> None:
    """Write another's file under a name of ours."""
    (data / "link").symlink_to(victim)
    (data / "link").write_text("x")


def move_inside() -> None:
    """Move a file from one folder of ours to another, as the store does."""
    (data / "folder").mkdir()
    (data / "b").write_text("x")
    (data / "b").rename(data / "folder" / "b")


def fill_table() -> None:
    """Let the engine write its own files."""
    session.query("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
    session.query("INSERT INTO t VALUES (1)")


schema = f"SETTINGS output_format_schema = '{victim}'"
attempt("create", (outside / "new").touch)
attempt("overwrite", lambda: victim.write_text("x"))
attempt("append", lambda: victim.open("a"))
attempt("truncate", lambda: os.truncate(victim, 0))
attempt("remove", victim.unlink)
attempt("rename over", rename_over)
attempt("link", lambda: os.link(victim, data / "linked"))
attempt("through a link", write_through_link)
attempt("folder", (outside / "folder").mkdir)
attempt("everybody's temporary folder", Path("/tmp/evenkeel-hostile").touch)
attempt("child", lambda: run("touch", str(outside / "child")))
thread = threading.Thread(target=attempt, args=("thread", (outside / "thread").touch))
thread.start()
thread.join()
attempt("outfile", lambda: session.query(f"SELECT 1 INTO OUTFILE '{victim}' TRUNCATE FORMAT CSV"))
attempt("schema", lambda: session.query(f"SELECT 1 AS a FORMAT Protobuf {schema}"))
attempt("in data", (data / "c").touch)
attempt("in prompts", (inside / "prompts" / "deep").mkdir)
attempt("move inside", move_inside)
attempt("temporary", tempfile.TemporaryFile)
attempt("table", fill_table)
attempt("thrown away", lambda: run("sh", "-c", "echo x > /dev/null"))
attempt("read", victim.read_text)
session.close()
print(json.dumps(tried))

"""Each query lies with the module that reads it, or where all who read it find it."""

import re
from collections import defaultdict
from pathlib import Path

from bench.dashboard_queries import name_of
from evenkeel.store import QUERIES, read_query
from tests.queries import PARTS, ROOT, query

FRAME = ROOT / "dashboard" / "evenkeel_dashboard" / "frame" / "queries"
# How a module names the folder of a query that is not its own.
ELSEWHERE = {
    "QUERIES": ROOT / "evenkeel" / "queries",
    "reading.SHARED": FRAME,
    "_SLO": ROOT / "collector" / "evenkeel_collector" / "slo",
}
NAMED = re.compile(r'([\w.]+) / f?"([\w{}]+\.sql)"')
# The tables, and the statements that fill them: no queries.
NO_QUERY = re.compile(
    r"schema|rollup(_hour)?\.sql|slo_judged(_sessions)?\.sql|spans_to_requests\.sql|_of_others\.sql"
)


def readers() -> dict[Path, set[Path]]:
    """Return the modules that read each query."""
    found: dict[Path, set[Path]] = defaultdict(set)
    for module in (path for part in PARTS for path in (ROOT / part).rglob("*.py")):
        for folder, name in NAMED.findall(module.read_text(encoding="utf-8")):
            here = ELSEWHERE.get(folder, module.parent)
            files = list(here.glob(re.sub(r"{\w+}", "*", name)))
            assert files, f"{module} reads {name}, which is not in {here}"
            for file in files:
                found[file].add(module)
    return found


def test_every_query_lies_where_it_is_read() -> None:
    read = readers()
    there = {path for part in PARTS for path in (ROOT / part).rglob("*.sql")}
    assert {path for path in there if not NO_QUERY.search(str(path))} == read.keys()
    for file, modules in read.items():
        parts = {module.relative_to(ROOT).parts[0] for module in modules}
        folders = {module.parent for module in modules}
        if file.parent == QUERIES:
            assert len(parts) > 1 or parts == {"evenkeel"}, file
        elif file.parent == FRAME:
            assert len(folders) > 1 or folders == {FRAME.parent}, file
        else:
            assert file.parent in folders, file


def test_no_two_queries_have_one_name() -> None:
    names = [file.stem for file in readers()]
    assert len(names) == len(set(names))


def test_a_body_tells_which_query_of_the_dashboard_it_holds() -> None:
    for name in ("health", "slo_now", "request_contents"):
        assert name_of(read_query(query(name)).encode()) == name
    assert name_of(b"SELECT 1") == ""

"""No query joins two tables of a cluster shard by shard, which the engine refuses.

Those that are templates, or need parameters that fit together, are not planned here.
"""

import json
from pathlib import Path

from tests.fixtures.collector_process import collector_environment
from tests.fixtures.new_store import open_new_store
from tests.fixtures.python_process import run_python
from tests.queries import PARTS, ROOT

# Two shards at which nobody answers: what the engine plans fails there, what it refuses before.
CLUSTER = """<clickhouse><remote_servers><prod>
<shard><replica><host>127.0.0.1</host><port>1</port></replica></shard>
<shard><replica><host>127.0.0.2</host><port>1</port></replica></shard>
</prod></remote_servers></clickhouse>"""
PLAN = r"""
import json, re, sys
import chdb

folder = sys.argv[1]
tables, views, files = json.load(sys.stdin)
store = chdb.connect(f"{folder}/cluster?config-file={folder}/cluster.xml")
store.query("CREATE DATABASE evenkeel")
store.query("USE evenkeel")
for name, columns in tables.items():
    store.query(
        f"CREATE TABLE `{name}` ({columns})"
        f" ENGINE = Distributed('prod', evenkeel, `{name}_local`, rand())"
    )
while views:
    missing = []
    for view in views:
        try:
            store.query(view)
        except Exception:
            missing.append(view)
    assert len(missing) < len(views), missing
    views = missing

VALUES = {"from_ms": "0", "to_ms": "100000", "from_ns": "0", "to_ns": "1000000000000"}
KINDS = (
    ("Identifier", "time"), ("Array", "CAST('[]', '{kind}')"), ("Map", "CAST('{{}}', '{kind}')"),
    ("DateTime", "now()"), ("Date", "today()"), ("String", "''"), ("LowCardinality", "''"),
    ("", "1"),
)

def value(match):
    name, kind = match.groups()
    text = next(text for beginning, text in KINDS if kind.startswith(beginning))
    return VALUES.get(name) or text.format(kind=kind)

planned, refused = 0, []
for file in files:
    query = re.sub(r"\{(\w+):\s*([\w(), ]+?)\}", value, open(file, encoding="utf-8").read())
    try:
        store.query(query)
        planned += 1
    except Exception as error:
        planned += "All connection tries failed" in str(error)
        if "Double-distributed" in str(error):
            refused.append(file)
print(json.dumps([planned, refused]))
"""


def test_no_query_is_refused(tmp_path: Path) -> None:
    storage = open_new_store(tmp_path / "store")
    client = storage.connect()
    columns = client.query(
        "SELECT table, arrayStringConcat(groupArray(concat('`', name, '` ', type)), ', ')"
        " FROM system.columns WHERE database = 'evenkeel' AND table IN (SELECT name"
        " FROM system.tables WHERE database = 'evenkeel' AND engine LIKE '%MergeTree')"
        " GROUP BY table"
    ).result_rows
    views = client.query(
        "SELECT create_table_query FROM system.tables"
        " WHERE database = 'evenkeel' AND engine = 'View'"
    ).result_rows
    client.close()
    storage.close()
    files = [
        str(path)
        for part in PARTS
        for path in (ROOT / part).rglob("*.sql")
        if "schema" not in path.parts
    ]
    (tmp_path / "cluster.xml").write_text(CLUSTER)
    given = json.dumps([dict(columns), [view for (view,) in views], files])
    done = run_python("-c", PLAN, str(tmp_path), input=given, env=collector_environment())
    assert done.returncode == 0, done.stderr[-2000:]
    planned, refused = json.loads(done.stdout)
    assert refused == []
    assert planned > 110

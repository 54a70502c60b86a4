"""Hostile queries, put together at random, and what the engine's own parser finds in them.

Run as a program it parses: a process can have one store open.
"""

import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tests.checkout import ROOT

# Where a query can stand; each {} takes another fragment, §S a list of settings, §F a format.
STATEMENTS = (
    "SELECT {e} FROM {t} §S", "SELECT {e} FROM {t} §F", "SELECT {e}", "WITH x AS ({q}) SELECT {e}",
    "WITH {e} AS y SELECT y, * FROM {t} WHERE {e}", "{q} UNION ALL {q}", "({q}) INTERSECT {q}",
    "EXPLAIN {q}", "EXPLAIN indexes = 1 {q}", "EXPLAIN AST {q}", "DESCRIBE TABLE ({q})",
    "DESCRIBE TABLE {t}", "SHOW TABLES LIKE 'x' §S", "SHOW SETTINGS LIKE {s}", "EXISTS TABLE t",
    "{q} INTO OUTFILE {s}", "{q} INTO OUTFILE {s} §F", "{q}; {q}", "SET §s", "DROP TABLE t",
    "SELECT {e} FROM t GROUP BY {e} WITH TOTALS HAVING {e} ORDER BY {e} LIMIT {e} BY {e} §S",
    "SELECT {e} FROM t WINDOW w AS (PARTITION BY {e} ORDER BY {e}) §S", "FROM {t} SELECT {e}",
    "SELECT {e} FROM t LIMIT ({q}) OFFSET 1 §S", "SELECT {e} §S §F", "SELECT {e} §F §S",
    "{q} PARALLEL WITH {q}", "INSERT INTO t {q}", "SELECT {e} FROM t ARRAY JOIN ({q}) AS b",
)  # fmt: skip
QUERIES = (
    "SELECT {e} §S", "SELECT {e}", "SELECT * FROM {t} §S", "SELECT {e} FROM {t}",
    "(SELECT {e} §S)", "SELECT {e} UNION ALL SELECT {e} §S",
)  # fmt: skip
TABLES = (
    "({q})", "t", "system.one", "numbers(3)", "view({q})", "numbers(1, SETTINGS §s)", "`t`",
    "t AS `SETTINGS`", "t AS `FORMAT`", "file({s})", "`file`({s})", "url({s}, SETTINGS §s)",
    "t JOIN ({q}) AS j ON {e}", "t, ({q}) AS j", "remote({s}, system.one)", "executable({s}, TSV)",
    "s3({s})", "{{t:Identifier}}", "merge('a', {s})", "t FINAL", "\"t\"", "values('a Int8', 1)",
)  # fmt: skip
EXPRESSIONS = (
    "1", "a", "{s}", "{s}", "({q})", "x IN ({q})", "EXISTS({q})", "1 + {e}", "- -1", "a - -{e}",
    "[{e}, {e}]", "({e}, 1).1", "a[{e}]", "a.b", "a::String", "x -> {e}", "arrayMap(file, [{s}])",
    "file({s})", "`file`({s})", "FILE({s})", "* APPLY(file)", "* EXCEPT (`SETTINGS`)",
    "* REPLACE ({e} AS a)", "COLUMNS({s}) APPLY(x -> {e})", "1 AS `SETTINGS`", "`FORMAT`",
    "count() OVER (ORDER BY {e})", "CASE WHEN {e} THEN 1 END", "INTERVAL 1 DAY", "{{p:String}}",
    "\"SETTINGS\"", "`a b`", "`a\\`b`", "a ? 1 : {e}", "0x1F", "1_000", "b'0101'", "x'4142'",
    "NULL", "DATE '2020-01-01'", "aiGenerate({s})", "`readonly`", "`INTO` + `OUTFILE`", "1e-3",
    "a || {e}", "NOT {e}", "a BETWEEN 1 AND {e}", "quantile(0.5)({e})", "a <=> {e}", "``",
)  # fmt: skip
STRINGS = (
    "'x'", "'it''s'", r"'it\'s'", r"'\\'", "'-- '", "'/*'", "' SETTINGS readonly = 0'",
    "$tag$ ' SETTINGS a = 1 $tag$", "$$x$$", "'\n'", "'’'", "'/tmp/evenkeel-hostile'",
)  # fmt: skip
SETTINGS = (
    "readonly = 0", "max_threads = 1", "a.b = 1", "allow_ddl", "`readonly` = 0", "a.b.c = 'x'",
    "\"readonly\" = 0", "output_format_schema = {s}", "max_memory_usage = DEFAULT", "profile = {s}",
    "param_x = 1", "x = [1, 2]", "x = {{}}", "additional_table_filters = {{'a': 'b'}}", "x = -1",
    "`a b` = 1", "x = (1, 'SETTINGS')",
)  # fmt: skip
FORMATS = (
    "JSON", "CSV", "Protobuf", "`Protobuf`", "Template", "MySQLWire", "Null", "json", "Native",
)  # fmt: skip
# What may stand between two tokens, as the engine cuts them.
SPACES = (
    *[" "] * 12, "\n", "\t", "\r\n", "/**/", "/* ' */", "/* /* */ */", "-- '\n", "# x\n", "#! x\n",
    "/*`*/", "\u00a0", "\u3000", "\u200b", "\x0b",
)  # fmt: skip
# What the engine takes for a quote, a minus, or not at all.
LOOKALIKES = (("'", "\u2019"), ('"', "\u201c"), ("-", "\u2212"), ("=", "=="), ("SELECT", "sElEcT"))
MAX_DEPTH = 3
_PLACE = re.compile(r"\{\{|\}\}|\{([eqts])\}|§S|§s|§F")
_LISTS = {"e": EXPRESSIONS, "q": QUERIES, "t": TABLES, "s": STRINGS}


def hostile_queries(seed: int, count: int) -> list[str]:
    """Return queries; most of them are ones that the engine can parse."""
    chance = random.Random(seed)
    return [_mutated(chance, _filled(chance, chance.choice(STATEMENTS), 0)) for _ in range(count)]


def _filled(chance: random.Random, text: str, depth: int) -> str:
    def fill(match: re.Match[str]) -> str:
        match match[0]:
            case "{{" | "}}":
                return match[0][0]
            case "§S":
                return "SETTINGS " + _settings(chance, depth) if chance.random() < 0.4 else ""
            case "§s":
                return _settings(chance, depth)
            case "§F":
                return "FORMAT " + chance.choice(FORMATS)
        choices = _LISTS[match[1]]
        # The first ones of each list end the recursion.
        limit = len(choices) if depth < MAX_DEPTH else 1
        return _filled(chance, chance.choice(choices[:limit]), depth + 1)

    return _PLACE.sub(fill, text)


def _settings(chance: random.Random, depth: int) -> str:
    chosen = chance.sample(SETTINGS, chance.choice([1, 1, 2, 3]))
    return ", ".join(_filled(chance, setting, depth + 1) for setting in chosen)


def _mutated(chance: random.Random, sql: str) -> str:
    if chance.random() < 0.5:
        sql = re.sub(" ", lambda _: chance.choice(SPACES), sql)
    if chance.random() < 0.15:
        old, new = chance.choice(LOOKALIKES)
        sql = sql.replace(old, new)
    if chance.random() < 0.2:
        words = sql.split(" ")
        at = chance.randrange(len(words))
        words[at : at + 1] = chance.choice([[], [words[at]] * 2, [chance.choice(words)]])
        sql = " ".join(words)
    return sql


@dataclass(frozen=True, slots=True)
class Parsed:
    """What became of one query.

    Attributes:
        formatted: As the engine writes it; None if it cannot be parsed, or not be run.
        refusal: What the guard says of that; None if it may run.
        found: What the engine's parser finds in it that may not run.
    """

    formatted: str | None
    refusal: str | None
    found: tuple[str, ...]


def parse_all(queries: Sequence[str]) -> list[Parsed]:
    """Return what the guard and the engine make of each query, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.hostile.query_fragments"],
        input=json.dumps(list(queries)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [Parsed(**{**each, "found": tuple(each["found"])}) for each in json.loads(done.stdout)]


def _nodes(node: Any, is_explain: bool = False) -> Iterator[tuple[dict[str, Any], bool]]:
    """Yield each node of a tree, and whether it is the list of settings of an EXPLAIN itself."""
    if isinstance(node, dict):
        yield node, is_explain
        for key, value in node.items():
            is_own = node.get("type") == "ExplainQuery" and key == "settings"
            yield from _nodes(value, is_own)
    elif isinstance(node, list):
        for value in node:
            yield from _nodes(value)


def _found(tree: Any, denied: frozenset[str]) -> Iterator[str]:
    from evenkeel_collector.query.names import FORMATS as ALLOWED_FORMATS
    from evenkeel_collector.query.names import FUNCTIONS

    for node, is_explain in _nodes(tree):
        kind = node.get("type")
        if kind == "SetQuery" and not is_explain:
            yield from (f"setting {change['name']}" for change in node.get("changes", ()))
            yield "settings"
        if "out_file" in node:
            yield "out_file"
        if "format_ast" in node and node["format_ast"]["name"].lower() not in ALLOWED_FORMATS:
            yield f"format {node['format_ast']['name']}"
        name = str(node.get("func_name" if kind == "ColumnsApplyTransformer" else "name", ""))
        if kind in ("Function", "ColumnsApplyTransformer") and name.lower() in FUNCTIONS:
            yield f"function {name}"
        table_function = node.get("table_function")
        if table_function and table_function.get("name", "").lower() in denied:
            yield f"table function {table_function['name']}"
        if kind not in (None, "") and re.fullmatch(
            r"(Insert|Drop|Create|Alter|Set|Use)Query", kind
        ):
            if kind != "SetQuery":
                yield kind


def _main(queries: list[str]) -> None:
    import chdb

    from evenkeel_collector.query.engine import _escape
    from evenkeel_collector.query.guard import Guard, QueryRefusedError

    with tempfile.TemporaryDirectory() as folder:
        session = chdb.connect(folder)

        def ask(statement: str, **parameters: str) -> str | None:
            try:
                given = {name: _escape(value) for name, value in parameters.items()}
                answer = session.query(statement, "RawBLOB", params=given)
                return bytes(answer.bytes() or b"").decode("utf-8", "surrogateescape")
            except RuntimeError:
                return None

        names = ask("SELECT arrayStringConcat(groupArray(name), ' ') FROM system.table_functions")
        guard = Guard.of_engine((names or "").split())
        found = []
        for sql in queries:
            formatted = ask("SELECT formatQuerySingleLine({sql:String})", sql=sql)
            if not formatted:
                found.append(Parsed(None, None, ()))
                continue
            try:
                guard.check(formatted)
                refusal = None
            except QueryRefusedError as error:
                refusal = str(error)
            tree = ask("SELECT parseQueryToJSON({sql:String})", sql=formatted)
            seen = list(_found(json.loads(tree), guard.denied_table_functions)) if tree else []
            # It knows statements that the other does not; of an EXPLAIN it counts one list more.
            lines = (ask("EXPLAIN AST " + formatted) or "").split("\n")
            num_sets = sum(line.strip() == "Set" for line in lines)
            if not tree and num_sets:
                seen.append("settings")
            found.append(Parsed(formatted, refusal, tuple(seen)))
        session.close()
    json.dump([asdict(each) for each in found], sys.stdout)


if __name__ == "__main__":
    _main(json.load(sys.stdin))

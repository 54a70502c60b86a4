"""Decides whether a query may run on the query port, which only reads the store.

The engine itself refuses writes, DDL, settings and most table functions (`readonly = 1`, set on
each query's session). This module refuses what remains: reading files with the function `file`,
writing them with INTO OUTFILE, calls to services, settings of subqueries, formats that need a
schema, KILL, and several statements in one.

The checks never use the text that the client sent, where comments, heredocs and quoting can hide
things, but the output of the engine's own parser (`formatQuerySingleLine`). That output is also
what runs, so the tokens here only have to match the engine's. The formatter prints few kinds of
tokens; a text with any other is refused (docs/decisions/0193).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from evenkeel_collector.query.names import (
    FORMATS,
    FUNCTION_PREFIX,
    FUNCTIONS,
    TABLE_FUNCTIONS,
    TENANT_FORMATS,
    TENANT_FUNCTIONS,
    TENANT_PREFIX,
    TENANT_TABLE_FUNCTIONS,
    TENANT_WORDS,
)

READONLY_CODE = 164
# First words of allowed statements; all others write, or change the session.
STATEMENTS = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN"})
# Access paths, row counts and the list of tables would reveal other tenants' data.
TENANT_STATEMENTS = frozenset({"SELECT", "WITH", "DESCRIBE", "DESC", "EXISTS"})

# Only what the engine's formatter prints: no comments, heredocs or other quotes.
TOKEN = re.compile(
    r"(?P<string>'(?:[^'\\]|\\.)*')"
    r"|(?P<quoted>`(?:[^`\\]|\\[bfnrt0\\`])*`)"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>[0-9][A-Za-z0-9_.]*)"
    r"|(?P<space> +)"
    r"|(?P<comment>--|/\*)"
    r"|(?P<sign>[()\[\]{}.,:=<>!+\-*/%|^?])",
    re.DOTALL,
)
# Only queries may be explained: the engine prepares other statements to explain them.
_EXPLAIN = re.compile(
    r"EXPLAIN( AST| SYNTAX| QUERY TREE| PLAN| PIPELINE| ESTIMATE)?"
    r"( \w+ = \w+(, \w+ = \w+)*)? \(*(SELECT|WITH) "
)
# Pairs of words that join several statements, or write the result to a file.
_PAIRS = {
    ("INTO", "OUTFILE"): "INTO OUTFILE is refused: the query port writes no files",
    ("PARALLEL", "WITH"): "PARALLEL WITH is refused: send one statement at a time",
}
_IDENTIFIER_PARAMETER = re.compile(r"\{\s*(\w+)\s*:\s*Identifier\s*\}", re.IGNORECASE)
_PARAMETER = re.compile(r"\{(\w+):")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SETTINGS_LIST = "SELECT name, value, readonly FROM system.settings"


class QueryRefusedError(Exception):
    """The query port refuses this query."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules for statements, based on the engine's list of table functions."""

    denied_table_functions: frozenset[str]
    statements: frozenset[str] = STATEMENTS
    formats: frozenset[str] = FORMATS
    # Names that would reveal other tenants' rows, in lower case.
    revealing: frozenset[str] = frozenset()

    @classmethod
    def of_engine(cls, table_functions: Iterable[str]) -> Guard:
        """Return the rules for an engine with these table functions; others are denied."""
        names = {name.lower() for name in table_functions}
        return cls(frozenset(names - TABLE_FUNCTIONS))

    def for_tenant(self, virtual_columns: Iterable[str]) -> Guard:
        """Return the rules for a reader restricted to one tenant's rows.

        Args:
            virtual_columns: Columns that the engine adds to every table, such as `_part_offset`.
        """
        revealing = {*TENANT_FUNCTIONS, *TENANT_TABLE_FUNCTIONS, *virtual_columns}
        return Guard(
            self.denied_table_functions,
            TENANT_STATEMENTS,
            TENANT_FORMATS,
            frozenset(name.lower() for name in {*revealing, *TENANT_WORDS}),
        )

    def check(self, formatted: str) -> None:
        """Check that a statement, as formatted by the engine, may run.

        Raises:
            QueryRefusedError: If it could write or leave the store, or is not a query.
        """
        tokens = list(_tokens(formatted))
        first = tokens[0].text.upper() if tokens else ""
        if first not in self.statements:
            raise QueryRefusedError(f"the query port only reads: {first or 'this'} is refused")
        if first == "EXPLAIN" and not _EXPLAIN.match(formatted):
            raise QueryRefusedError("the query port only reads: EXPLAIN works on SELECT only")
        for token, second in zip(tokens, [*tokens[1:], _END], strict=True):
            if token.is_name:
                self._check_name(token.text)
            if second.text == "(" and token.text.lower() in self.denied_table_functions:
                raise QueryRefusedError(
                    f"{token.text!r} is refused: this function leaves the store"
                )
            pair = _PAIRS.get((token.text.upper(), second.text.upper()))
            if pair is not None:
                raise QueryRefusedError(pair)
            # The engine checks the settings of the statement, but not those of a subquery. The
            # formatter prints the keyword this way, and also a name that looks like it.
            if token.text == "SETTINGS":
                raise QueryRefusedError(
                    "SETTINGS is refused: pass settings as parameters of the request"
                )
            if token.text == "FORMAT" and second.is_name:
                self.check_format(second.text)

    def check_format(self, name: str) -> None:
        """Check that a result may have this format.

        Raises:
            QueryRefusedError: If the format is not allowed, or unknown.
        """
        if name.lower() not in self.formats:
            raise QueryRefusedError(f"the format {name[:40]!r} is not allowed here")

    def check_identifiers(self, formatted: str, parameters: Mapping[str, str]) -> None:
        """Check that the names that `{name:Identifier}` puts into a statement are harmless.

        Raises:
            QueryRefusedError: If one names a function outside the store, or is not a plain name.
        """
        for name in identifier_parameters(formatted):
            value = parameters.get(name, "")
            if not _PLAIN_NAME.fullmatch(value):
                raise QueryRefusedError(f"parameter {name!r} is refused: it is not a plain name")
            self._check_name(value)

    def _check_name(self, name: str) -> None:
        # A quoted name may contain the dots of a qualified one.
        for part in {name, *name.split(".")}:
            if part.lower() in FUNCTIONS or FUNCTION_PREFIX.fullmatch(part):
                raise QueryRefusedError(f"{part!r} is refused: this function leaves the store")
            is_fitted = bool(self.revealing) and TENANT_PREFIX.match(part)
            if part.lower() in self.revealing or is_fitted:
                raise QueryRefusedError(f"{part!r} is refused: it could reveal other tenants' rows")


def is_settings_list(formatted: str) -> bool:
    """Whether this is the query for settings that clients send when they connect."""
    return formatted == _SETTINGS_LIST or formatted.startswith(f"{_SETTINGS_LIST} LIMIT ")


def result_format(formatted: str, default: str) -> str:
    """Return the format named by FORMAT in a checked statement, or the default."""
    match = re.search(r" FORMAT (\w+)$", formatted)
    return match[1] if match else default


def identifier_parameters(formatted: str) -> set[str]:
    """Return the parameters whose values are identifiers: `{name:Identifier}`."""
    return set(_IDENTIFIER_PARAMETER.findall(formatted))


def parameters_of(formatted: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return only the parameters that the statement uses."""
    return {name: given[name] for name in _PARAMETER.findall(formatted) if name in given}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool


_END = _Token("", False)


def _tokens(formatted: str) -> Iterator[_Token]:
    """Yield names, keywords and punctuation; strings are opaque.

    Raises:
        QueryRefusedError: At anything that the engine's formatter never prints.
    """
    position = 0
    while position < len(formatted):
        match = TOKEN.match(formatted, position)
        if match is None or match.lastgroup == "comment":
            seen = formatted[position : position + 20]
            raise QueryRefusedError(f"the query is refused at {seen!r}: rewrite that part")
        position = match.end()
        if match.lastgroup == "quoted":
            yield _Token(unescape(match[0][1:-1]), True)
        elif match.lastgroup == "string":
            yield _Token("''", False)
        elif match.lastgroup != "space":
            yield _Token(match[0], match.lastgroup == "word")


def unescape(quoted: str) -> str:
    """Return the name without quotes and escapes."""
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)

"""Decides whether a query may run on the query port: it may read the store, and nothing else.

The engine itself refuses writes, DDL, settings and most table functions (`readonly = 1`, set on
each query's own session). What that leaves open is refused here: reading files through the function
`file`, writing them with INTO OUTFILE, calls to services, KILL, and several statements in one.

Nothing is decided on the text that the client sent, which has comments, heredocs and quoting to
hide in, but on what the engine's own parser makes of it (`formatQuerySingleLine`): one statement,
identifiers bare or in backticks, strings in single quotes. That text is also what is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

READONLY_CODE = 164
# The first word of what may run; anything else writes, or changes the session.
STATEMENTS = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXISTS", "EXPLAIN"})
# Table functions that make their rows out of their arguments, or read the store's own tables.
TABLE_FUNCTIONS = frozenset({
    "format", "generate_series", "generaterandom", "generateseries", "merge", "null", "numbers",
    "numbers_mt", "primes", "sqlstandardvalues", "values", "view", "viewifpermitted", "zeros",
    "zeros_mt",
})  # fmt: skip
# Scalar functions that leave the store. A function's bare name is enough to call it
# (`arrayMap(file, …)`, `* APPLY file`), so these words are refused wherever they stand.
FUNCTIONS = frozenset({"file", "catboostevaluate"})
# What a reader of one tenant's rows may say: how rows are found, how many there are and what else
# is in the store would tell of others.
TENANT_STATEMENTS = frozenset({"SELECT", "WITH", "DESCRIBE", "DESC", "EXISTS"})
# Reads tables whose filters the engine then does not apply.
TENANT_DENIED_TABLE_FUNCTIONS = frozenset({"merge"})
# PREWHERE is evaluated before a tenant's filter: an error in it would tell of other rows.
TENANT_DENIED_WORDS = frozenset({"PREWHERE", "EXPLAIN"})
FUNCTION_PREFIX = re.compile(r"ai[A-Z]\w*|AI[A-Z][a-z]\w*")

_TOKEN = re.compile(
    r"(?P<string>'(?:[^'\\]|\\.)*')"
    r"|(?P<quoted>`(?:[^`\\]|\\.)*`)"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_IDENTIFIER_PARAMETER = re.compile(r"\{\s*(\w+)\s*:\s*Identifier\s*\}", re.IGNORECASE)
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_SETTINGS_LIST = "SELECT name, value, readonly FROM system.settings"


class RefusedError(Exception):
    """The query port does not run this."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The rules, with the engine's own list of table functions."""

    denied_table_functions: frozenset[str]
    statements: frozenset[str] = STATEMENTS
    denied_words: frozenset[str] = frozenset()

    @classmethod
    def of_engine(cls, table_functions: Iterator[str]) -> Guard:
        """Return the rules for an engine with these table functions; unknown ones are denied."""
        names = {name.lower() for name in table_functions}
        return cls(frozenset(names - TABLE_FUNCTIONS))

    def for_tenant(self) -> Guard:
        """Return the rules for who may see the rows of one tenant alone."""
        return Guard(
            self.denied_table_functions | TENANT_DENIED_TABLE_FUNCTIONS,
            TENANT_STATEMENTS,
            TENANT_DENIED_WORDS,
        )

    def check(self, formatted: str) -> None:
        """Return if a statement, as the engine formats it, may run.

        Raises:
            RefusedError: If it could write, leave the store, or is not a query.
        """
        tokens = list(_tokens(formatted))
        first = tokens[0].text.upper() if tokens else ""
        if first not in self.statements:
            raise RefusedError(f"the query port only reads: {first or 'this'} is refused")
        for token, second, third in zip(
            tokens, [*tokens[1:], _END], [*tokens[2:], _END, _END], strict=False
        ):
            if token.is_name and _is_denied_function(token.text):
                raise RefusedError(f"{token.text!r} is refused: this function leaves the store")
            if second.text == "(" and token.text.lower() in self.denied_table_functions:
                raise RefusedError(f"{token.text!r} is refused: this function leaves the store")
            if token.is_name and token.text.upper() in self.denied_words:
                raise RefusedError(f"{token.text!r} is refused: it tells of rows of other tenants")
            if (token.text.upper(), second.text.upper()) == ("INTO", "OUTFILE"):
                raise RefusedError("INTO OUTFILE is refused: the query port writes no files")
            # The engine checks the settings of the statement, but not those of a subquery.
            if token.text == "SETTINGS" and second.is_name and third.text == "=":
                raise RefusedError(
                    "SETTINGS is refused: give settings as parameters of the request"
                )

    def check_identifiers(self, formatted: str, parameters: Mapping[str, str]) -> None:
        """Return if the names that `{name:Identifier}` puts into a statement are harmless.

        Raises:
            RefusedError: If one names a function outside the store, or is not a plain name.
        """
        for name in _IDENTIFIER_PARAMETER.findall(formatted):
            value = parameters.get(name, "")
            if not _PLAIN_NAME.fullmatch(value):
                raise RefusedError(f"parameter {name!r} is refused: it is not a plain name")
            if any(self._is_denied(part) for part in value.split(".")):
                raise RefusedError(f"{value!r} is refused: this function leaves the store")

    def _is_denied(self, name: str) -> bool:
        is_word = name.upper() in self.denied_words or name.lower() in TENANT_DENIED_TABLE_FUNCTIONS
        return _is_denied_function(name) or (is_word and bool(self.denied_words))


def is_settings_list(formatted: str) -> bool:
    """Whether this is the list of settings that clients ask for when they connect."""
    return formatted == _SETTINGS_LIST or formatted.startswith(f"{_SETTINGS_LIST} LIMIT ")


def result_format(formatted: str, default: str) -> str:
    """Return the format that a statement asks for with FORMAT, or the default."""
    match = re.search(r" FORMAT (\w+)(?: SETTINGS [^']*)?$", formatted)
    return match[1] if match else default


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_name: bool


_END = _Token("", False)


def _tokens(formatted: str) -> Iterator[_Token]:
    """Yield names, keywords and punctuation; strings are opaque."""
    for match in _TOKEN.finditer(formatted):
        if match.lastgroup == "quoted":
            yield _Token(_unescape(match[0][1:-1]), True)
        elif match.lastgroup == "string":
            yield _Token("''", False)
        elif match.lastgroup != "space":
            yield _Token(match[0], match.lastgroup == "word")


def _unescape(quoted: str) -> str:
    return re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)


def _is_denied_function(name: str) -> bool:
    return name.lower() in FUNCTIONS or FUNCTION_PREFIX.fullmatch(name) is not None

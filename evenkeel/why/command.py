"""`evenkeel why ID`: why one request took as long as it did, and what would help."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

from evenkeel.cli import Command
from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.secret_text import address_argument

if TYPE_CHECKING:
    import httpx

    from evenkeel.why.explanation import RequestWhy

EXAMPLE = """\
examples:
  evenkeel why chatcmpl-…                                # from the store
  evenkeel why chatcmpl-… --url http://127.0.0.1:8000    # from the runtime that served it
  evenkeel why 4f2a… --json                              # by trace id, for a script
  evenkeel why 4390755b7409                              # by the end of its id, as tables show it
exit codes: 0 explained, 2 bad usage, 3 not found, or the runtime or store does not
  respond
"""
_TIMEOUT_S = 10.0
_MAX_WIDTH = 100
_STORE_URL = "http://127.0.0.1:8123"


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", metavar="ID", help="request ID or trace ID, or the last characters of one"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--url",
        type=address_argument,
        metavar="URL",
        help="ask a running runtime, which remembers its last 4,096 requests by their full "
        "request ID; @FILE reads the address from a file",
    )
    source.add_argument(
        "--store-url",
        type=address_argument,
        default=_STORE_URL,
        metavar="URL",
        help="store address, or @FILE to read it from a file (default %(default)s)",
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="with --url: the server's API key; @FILE reads it from a file",
    )
    parser.add_argument("--json", action="store_true", help="print the explanation as JSON")
    parser.epilog = EXAMPLE
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from evenkeel.why.explanation import tell

    if args.api_key is not None and args.url is None:
        raise ConfigurationError("--api-key needs --url: the store has no key")
    found = _ask_runtime(args) if args.url is not None else _read_store(args)
    if args.json:
        json.dump(found.to_json(), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return 0
    width = shutil.get_terminal_size((_MAX_WIDTH, 24)).columns
    print("\n".join(tell(found, min(width, _MAX_WIDTH))))
    return 0


def _ask_runtime(args: argparse.Namespace) -> RequestWhy:
    from urllib.parse import quote

    import httpx

    from evenkeel.http_address import check_http_address
    from evenkeel.secret_text import (
        hide_password,
        make_authorization,
        read_secret,
        warn_of_command_line,
    )
    from evenkeel.why.explanation import from_runtime

    check_http_address("--url", args.url, "http://127.0.0.1:8000")
    key = None
    if args.api_key is not None:
        warn_of_command_line("--api-key", args.api_key, is_address=False)
        key = read_secret(args.api_key)
    headers = make_authorization(key)
    url = f"{args.url.rstrip('/')}/why/{quote(args.id, safe='')}"
    shown = hide_password(url)
    try:
        answer = httpx.get(url, headers=headers, timeout=_TIMEOUT_S)
    except httpx.HTTPError as error:
        raise CannotMeasureError(
            f"no runtime answers at {hide_password(args.url)}: {error}; "
            "is `evenkeel serve` running?"
        ) from error
    if answer.status_code == 404:
        raise CannotMeasureError(
            f"the runtime does not know request {args.id}: it remembers its last 4,096 requests "
            "by their full request ID. Leave out --url to search the store"
        )
    if answer.status_code != 200:
        raise CannotMeasureError(f"{shown} answered {answer.status_code}: {_reason(answer)}")
    try:
        return from_runtime(answer.json())
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise CannotMeasureError(
            f"{shown} did not answer as a runtime does; is --url the address of `evenkeel serve`?"
        ) from error


def _reason(answer: httpx.Response) -> str:
    """Return in a line why a request was refused: a problem document's detail, else the text."""
    try:
        said = str(answer.json()["detail"])
    except (ValueError, RecursionError, LookupError, TypeError):
        said = answer.text
    return " ".join(said.split())[:160]


def _read_store(args: argparse.Namespace) -> RequestWhy:
    from evenkeel.store import QUERIES, Store
    from evenkeel.why.explanation import from_store, id_tail

    store = Store(args.store_url)
    try:
        rows: list[dict[str, Any]] = store.rows(QUERIES / "request_why.sql", {"id": args.id})
        if not rows and (tail := id_tail(args.id)):
            for named in store.rows(QUERIES / "request_by_tail.sql", {"tail": tail}):
                rows = store.rows(QUERIES / "request_why.sql", {"id": named["request_id"]})
    finally:
        store.close()
    if not rows:
        raise CannotMeasureError(
            f"no request or trace {args.id} is stored; requests are stored when they end"
        )
    return from_store(rows[0])


WHY = Command("why", "explain why one request took as long as it did", _configure)

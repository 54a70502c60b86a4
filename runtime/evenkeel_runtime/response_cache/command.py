"""`evenkeel cache`: delete answers from a running server's response cache, collect evidence."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

from evenkeel.cli import Command
from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.http_address import check_http_address
from evenkeel.known_names import suggestion
from evenkeel.secret_text import address_argument, hide_password, make_authorization
from evenkeel.settings import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR

_EXAMPLES = """\
examples:
  evenkeel cache flush --route faq
  evenkeel cache flush --prompt support@3         # one version; `support`: all of them
  evenkeel cache flush --knowledge docs@2026-11-24
  evenkeel cache flush --tenant acme --subject ann
  evenkeel cache flush --url http://10.0.0.7:8000 --api-key @key --all
  evenkeel cache calibrate golden_datasets/support            # from the dataset's labels
  evenkeel cache calibrate golden_datasets/support --ask support --url http://127.0.0.1:8000

Exit codes: 0 done, 2 wrong flag, address, key or dataset, 3 the server did not answer.
"""
_KEY_VARIABLE = "VLLM_API_KEY"
_TIMEOUT_S = 60.0
_URL = "http://127.0.0.1:8000"
_SELECTIONS = ("route", "prompt", "knowledge", "tenant")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    flush = verbs.add_parser(
        "flush", help="delete the answers of a route, prompt or source, or all"
    )
    which = flush.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--route", help="a route, or `*` for the routes that `*` covers in the cache file"
    )
    which.add_argument("--prompt", metavar="NAME[@VERSION]", help="a prompt, or one version")
    which.add_argument("--knowledge", metavar="NAME[@VERSION]", help="a source, or one version")
    which.add_argument("--tenant", help="a tenant; '' for requests without one")
    which.add_argument("--all", action="store_true", help="every answer")
    flush.add_argument("--subject", help="with --tenant: only the answers of this end user")
    flush.add_argument(
        "--url",
        type=address_argument,
        default=_URL,
        help="the server, or @FILE to read its address from a file (default %(default)s); call it "
        "once for each runtime that caches in its own memory",
    )
    flush.add_argument(
        "--api-key", metavar="KEY", help=f"the server's API key, or @FILE (also {_KEY_VARIABLE})"
    )
    flush.add_argument("--json", action="store_true", help="print JSON")
    flush.set_defaults(run=_run_flush)
    _configure_calibrate(
        verbs.add_parser(
            "calibrate",
            help="collect evidence on near hits from a dataset; the server reads it at its next "
            "start",
        )
    )


def _configure_calibrate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="a dataset folder")
    parser.add_argument(
        "--data-dir",
        type=Path,
        help=f"the server's data folder (default ${DATA_DIR_VARIABLE}, else {DEFAULT_DATA_DIR})",
    )
    parser.add_argument(
        "--ask",
        metavar="MODEL",
        help="compare this model's answers on a running server (started with --cache) instead of "
        "the dataset's references; the evidence then counts only for that model's weights",
    )
    parser.add_argument(
        "--url",
        type=address_argument,
        default=_URL,
        help="the server, or @FILE to read its address from a file (default %(default)s)",
    )
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"the server's API key, or @FILE (also {_KEY_VARIABLE})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run_calibrate)


def _run_flush(args: argparse.Namespace) -> int:
    if args.subject is not None and args.tenant is None:
        raise ConfigurationError("--subject needs --tenant")
    query = {name: value for name in _SELECTIONS if (value := getattr(args, name)) is not None}
    if args.subject is not None:
        query["subject"] = args.subject
    if args.all:
        query["all"] = "true"
    url, key = args.url.rstrip("/"), _read_key(args.api_key)
    deleted = _delete(url, query, key)
    if args.json:
        print(json.dumps({"deleted": deleted}))
    else:
        noun = "answer" if deleted == 1 else "answers"
        print(f"{deleted} {noun} deleted{_find_mistake(url, key, query) if not deleted else ''}")
    return 0


def _find_mistake(url: str, key: str | None, query: dict[str, str]) -> str:
    """Return what ends the message that nothing was deleted; "" if no name was given."""
    if "all" in query:
        return ""
    if "route" in query:
        # It only explains what is done: that the server does not answer this is no failure.
        with contextlib.suppress(CannotMeasureError, ConfigurationError):
            routes = _call("GET", url, key).get("modes")
            if isinstance(routes, dict) and query["route"] not in routes:
                hint = suggestion(query["route"], routes)
                return f": the cache file has no route {query['route']!r}; {hint}".rstrip("; ")
    names = " and ".join(f"{kind} {name!r}" for kind, name in query.items())
    return f": none is stored for {names}"


def _run_calibrate(args: argparse.Namespace) -> int:
    import asyncio

    import msgspec

    from evenkeel.embedding import hash_model
    from evenkeel.private_files import replace_private
    from evenkeel.settings import read_environment
    from evenkeel_runtime.response_cache.calibrate import ask_model, calibrate, read_dataset
    from evenkeel_runtime.response_cache.evidence_file import LABELS_FILE
    from evenkeel_runtime.response_cache.setup import load_index

    known = read_dataset(args.dataset)
    answers = {text: answer for text, answer in known.items() if answer is not None}
    if args.ask is None and not answers:
        raise ConfigurationError(
            f"{args.dataset}: no reference is an answer that others can be compared with; "
            "--ask MODEL compares a model's own answers"
        )
    encoder = load_index()
    model = None
    if args.ask is not None:
        url, key = args.url.rstrip("/"), _read_key(args.api_key)
        model = _find_model(url, key)
        answers = ask_model(list(known), url, args.ask, key)
        if not answers:
            shown = hide_password(url)
            raise CannotMeasureError(
                f"{shown}: {args.ask} completed no answer, or the cache gave them all; is the "
                "model's name right, and the route `eval` off in the cache file?"
            )
    num_unlabelled = len(known) - len(answers)
    done = asyncio.run(calibrate(answers, encoder, hash_model(), model))
    folder = args.data_dir or read_environment(DATA_DIR_VARIABLE) or DEFAULT_DATA_DIR
    path = Path(folder) / LABELS_FILE
    try:
        replace_private(path, msgspec.json.encode(done.labels))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    num_wrong = sum(pair.is_wrong for pair in done.labels.pairs)
    if args.json:
        found = {"file": str(path), "texts": done.asked, "pairs": len(done.labels.pairs)}
        counts = {"wrong": num_wrong, "unlabelled": num_unlabelled}
        print(json.dumps(found | counts | {"bypassed": dict(done.bypassed)}))
    else:
        print(
            f"{len(done.labels.pairs)} near hits among {done.asked} texts, {num_wrong} with "
            f"another answer; {done.bypassed.total()} texts may not be cached, {num_unlabelled} "
            "have no answer to compare\n"
            f"wrote {path}; a server with this data folder uses it from its next start"
        )
    return 0


def _find_model(url: str, key: str | None) -> str:
    """Return what identifies the weights behind a server; labels of its answers are for no others.

    Raises:
        ConfigurationError: If it does not say.
        CannotMeasureError: If it does not answer.
    """
    model = _call("GET", url, key).get("model")
    if not isinstance(model, str):
        raise ConfigurationError(
            f"{hide_password(url)}: its cache keeps no evidence, so it does not say which weights "
            "answer; start it with a cache file in which a route compares meanings"
        )
    return model


def _read_key(flag: str | None) -> str | None:
    from evenkeel.secret_text import read_secret, warn_of_command_line
    from evenkeel.settings import read_environment

    if flag is not None:
        warn_of_command_line("--api-key", flag, is_address=False, variable=_KEY_VARIABLE)
    key = flag if flag is not None else read_environment(_KEY_VARIABLE)
    return None if key is None else read_secret(key)


def _delete(url: str, query: dict[str, str], key: str | None) -> int:
    deleted = _call("DELETE", url, key, query).get("deleted")
    if not isinstance(deleted, int):
        raise CannotMeasureError(f"{hide_password(url)} did not say how many answers it deleted")
    return deleted


def _call(
    method: str, url: str, key: str | None, query: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return what a server's page of its cache says.

    Raises:
        ConfigurationError: If the address, the key or the query is wrong, or there is no cache.
        CannotMeasureError: If the server does not answer, or fails.
    """
    import httpx

    check_http_address("--url", url, "http://127.0.0.1:8000")
    shown = hide_password(url)
    headers = make_authorization(key)
    try:
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            address = f"{url}/v1/evenkeel/cache"
            answer = client.request(method, address, params=query, headers=headers)
    except httpx.HTTPError as error:
        what = str(error) or type(error).__name__
        raise CannotMeasureError(f"{shown} did not answer: {what}; is the server up?") from error
    said = _read(answer)
    detail = said.get("detail", answer.reason_phrase)
    if answer.is_client_error:
        raise ConfigurationError(f"{shown}: {detail}"[:500])
    if not answer.is_success or not said:
        raise CannotMeasureError(f"{shown}: {detail} (status {answer.status_code})"[:500])
    return said


def _read(answer: Any) -> dict[str, Any]:
    try:
        said = answer.json()
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


CACHE = Command(
    name="cache",
    summary="delete a server's cached answers, or collect evidence for near hits",
    configure=_configure,
    extra="cache",
)

"""`evenkeel prompts`: manages prompt versions and which of them is in production."""

from __future__ import annotations

import argparse
import difflib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from evenkeel.audit import FILE_NAME as AUDIT_NAME
from evenkeel.audit import user_name, write_down
from evenkeel.cli import Command
from evenkeel.errors import CannotMeasureError, ConfigurationError, first_line
from evenkeel.http_address import check_http_address
from evenkeel.prompts.freeze import read_freezes
from evenkeel.prompts.promotion import LabelMove, Promotion, Reversal, promote, roll_back
from evenkeel.prompts.registry import DRAFT, LABELS, PromptRegistry, PromptVersion
from evenkeel.secret_text import address_argument, hide_password
from evenkeel.settings import COLLECTOR_MARKER, find_collector_folder
from evenkeel.times import minute_text
from evenkeel_evals.commands.arguments import at_least

EPILOG = """\
examples:
  evenkeel prompts list
  evenkeel prompts diff support@production support@draft
  evenkeel eval run golden_datasets/support --report build/eval \\
      --baseline production.toml --candidate draft.toml    # [prompt] ref = "support@draft"
  evenkeel prompts promote support --report build/eval
  evenkeel prompts rollback support
  evenkeel prompts suggest --report build/eval --dataset golden_datasets/support

exit codes: 0 done, 1 the run regressed, 2 bad usage or configuration, 3 the run was inconclusive
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, run: Any) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=summary, description=summary)
        made.add_argument(
            "--prompts-dir", type=Path, default=Path("prompts"), metavar="DIR",
            help="prompt registry (default: prompts)",
        )  # fmt: skip
        made.set_defaults(run=run)
        return made

    listed = verb("list", "list every prompt with its versions and labels", _list)
    listed.add_argument(
        "--url",
        type=address_argument,
        help="vLLM server that counts the tokens of each version, or @FILE to read its address "
        "from a file",
    )
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    show = verb("show", "show the text and history of a prompt", _show)
    show.add_argument("prompt", help="name, name@label, name@version or name@draft")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    diff = verb(
        "diff", "show what changed between two versions; exits 0 even if they differ", _diff
    )
    diff.add_argument("old", help="such as support@production")
    diff.add_argument("new", help="such as support@draft")
    forward = verb("promote", "point a label at another version that passed a run", _promote)
    forward.add_argument("prompt", help="name (its draft), name@version or name@label")
    forward.add_argument("--to", choices=LABELS, default=LABELS[0], help="default: %(default)s")
    how = forward.add_mutually_exclusive_group()
    how.add_argument("--report", type=Path, metavar="DIR", help="report of the run it passed")
    how.add_argument(
        "--force", metavar="REASON", help="promote without a run; the reason is recorded"
    )
    suggest = verb("suggest", "suggest what to change, from the worst slices of a run", _suggest)
    suggest.add_argument(
        "--report", type=Path, required=True, metavar="DIR", help="report of the run"
    )
    suggest.add_argument(
        "--dataset", type=Path, required=True, metavar="DIR", help="dataset of the run"
    )
    suggest.add_argument(
        "--limit",
        type=at_least(1),
        default=3,
        metavar="N",
        help="number of slices to look at (default: 3)",
    )
    suggest.add_argument("--json", action="store_true", help="print one JSON object")
    back = verb("rollback", "point a label back at its previous version", _rollback)
    back.add_argument("prompt", metavar="NAME", help="name of the prompt")
    back.add_argument(
        "--label", choices=LABELS, default=LABELS[0], help="label to move (default: production)"
    )
    back.add_argument("--reason", default="", help="why; recorded in the history")
    for moving in (forward, back):
        moving.add_argument("--by", default="", help="who is doing it (default: your user name)")
        moving.add_argument(
            "--data-dir",
            type=Path,
            metavar="DIR",
            help="the collector's data folder, for its audit log (also EVENKEEL_DATA_DIR)",
        )


def _list(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    records = [_describe(registry, name, args.url) for name in registry.names()]
    if args.json:
        print(json.dumps({"prompts": records}))
        return 0
    if not records:
        print(f"no prompts in {args.prompts_dir}; a draft is a file such as support.toml")
    for freeze in read_freezes(args.prompts_dir):
        print(f"{freeze.prompt or 'every prompt'}: promotion frozen by SLO {freeze.slo}")
    for record in records:
        print(record["name"])
        for version in record["versions"]:
            tokens = version["num_tokens"]
            cost = f"{tokens:,} tokens" if tokens is not None else "tokens: no data"
            size = f"{version['num_characters']:,} characters"
            print(
                f"  {version['version']}  {size}, {cost}  {', '.join(version['labels'])}".rstrip()
            )
    return 0


def _describe(registry: PromptRegistry, name: str, url: str | None) -> dict[str, Any]:
    labels_of: dict[str, list[str]] = {version: [] for version in registry.versions(name)}
    for label, version in registry.labels(name).items():
        labels_of.setdefault(version, []).append(label)
    texts = {version: registry.resolve(f"{name}@{version}").system for version in labels_of}
    if (draft := _draft(registry, name)) is not None:
        labels_of.setdefault(draft.version, []).append(DRAFT)
        texts[draft.version] = draft.system
    return {
        "name": name,
        "versions": [
            {
                "version": version,
                "labels": labels,
                "num_characters": len(texts[version]),
                "num_tokens": None if url is None else _count_tokens(url, texts[version]),
            }
            for version, labels in labels_of.items()
        ],
    }


def _draft(registry: PromptRegistry, name: str) -> PromptVersion | None:
    try:
        return registry.draft(name)
    except ConfigurationError:
        return None


def _count_tokens(url: str, text: str) -> int:
    """Return the tokens a version adds to each request, as counted by vLLM's `/tokenize`."""
    import httpx

    check_http_address("--url", url, "http://127.0.0.1:8000")
    try:
        response = httpx.post(
            f"{url.rstrip('/').removesuffix('/v1')}/tokenize",
            json={"prompt": text, "add_special_tokens": False},
            timeout=10.0,
            trust_env=False,
        )
        response.raise_for_status()
        return int(response.json()["count"])
    except (httpx.HTTPError, ValueError, RecursionError, KeyError, TypeError) as error:
        problem = f"{hide_password(url)} does not count tokens: {hide_password(first_line(error))}"
        raise CannotMeasureError(problem) from error


def _show(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    prompt = registry.resolve(args.prompt)
    history = registry.history(prompt.name)
    if args.json:
        moves = [
            {"time_s": m.time_s, "label": m.label, "version": m.version, "reason": m.reason}
            for m in history
        ]
        record = {"name": prompt.name, "version": prompt.version, "system": prompt.system}
        print(json.dumps({**record, "labels": registry.labels(prompt.name), "history": moves}))
        return 0
    print(f"{prompt.label}\n\n{prompt.system}")
    if history:
        print("\nhistory:")
    for move in history:
        when = minute_text(move.time_s * 10**9)
        print(f"  {when} UTC  {move.label} = {move.version}  {move.reason}")
    return 0


def _diff(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    old, new = registry.resolve(args.old), registry.resolve(args.new)
    lines = difflib.unified_diff(
        old.system.splitlines(), new.system.splitlines(), old.label, new.label, lineterm=""
    )
    text = "\n".join(lines)
    print(text or f"{old.label} and {new.label} have the same text")
    return 0


def _promote(args: argparse.Namespace) -> int:
    from evenkeel_evals.report.manifest import read_judged_run

    if args.report is None and args.force is None:
        raise ConfigurationError(
            "give --report DIR, the report of a run that it passed, or --force REASON"
        )
    registry = PromptRegistry(args.prompts_dir)
    reference = args.prompt if "@" in args.prompt else f"{args.prompt}@{DRAFT}"
    prompt = registry.resolve(reference)
    if args.force is not None and not args.force.strip():
        raise ConfigurationError("--force needs a reason, such as --force 'hotfix for #12'")
    run = None if args.report is None else read_judged_run(args.report)
    wanted = Promotion(prompt, args.to, args.by or user_name(), run, args.force or "")
    now_ns = time.time_ns()
    move = _written_down(args, wanted, lambda: promote(registry, wanted, now_ns), now_ns)
    if move.before == move.version:
        print(f"{prompt.name}@{args.to} is {prompt.version} already")
    else:
        before = f", was {move.before}" if move.before else ""
        print(f"{prompt.name}@{args.to} is {prompt.version}{before}: {move.why}")
    return 0


def _written_down(
    args: argparse.Namespace,
    wanted: Promotion | Reversal,
    do: Callable[[], LabelMove],
    now_ns: int,
) -> LabelMove:
    """Move a label and write the same audit record as the collector's operators' API."""
    folder, is_named = find_collector_folder(args.data_dir)
    if is_named and not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is not a collector's folder, which the audit log needs (--data-dir)"
        )
    if not is_named and not (folder / COLLECTOR_MARKER).is_file():
        print(
            f"evenkeel: no collector's folder at {folder} (--data-dir): this move is recorded "
            "in the prompt's history, but in no audit log",
            file=sys.stderr,
        )
        return do()
    moved: list[LabelMove] = []

    def act() -> dict[str, Any]:
        moved.append(do())
        return moved[0].to_record()

    write_down(folder / AUDIT_NAME, wanted.to_entry(now_ns), act)
    return moved[0]


def _suggest(args: argparse.Namespace) -> int:
    from evenkeel_evals.commands.compare import pair_up, read_side
    from evenkeel_evals.dataset.dataset import load_dataset
    from evenkeel_evals.production.suggestions import describe, suggest

    dataset = load_dataset(args.dataset)
    baseline, candidate = (read_side(args.report, role) for role in ("baseline", "candidate"))
    if candidate.dataset_hash != dataset.content_hash:
        raise ConfigurationError(f"{args.report} used other items than {args.dataset} has now")
    pairs = pair_up(dataset.items, baseline, candidate)
    prompts = (baseline.side.system, candidate.side.system)
    suggestions = suggest(pairs, prompts, args.limit)
    if args.json:
        record = {"prompt": candidate.side.prompt_label, "run_id": candidate.run_id}
        print(json.dumps({**record, "suggestions": [s.to_record() for s in suggestions]}))
        return 0
    print(f"{candidate.side.prompt_label}, run {candidate.run_id}:")
    for suggestion in suggestions:
        print("\n".join(describe(suggestion)))
    if not suggestions:
        print("no slice has enough wrong answers to suggest anything")
    return 0


def _rollback(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    wanted = Reversal(args.prompt, args.label, args.by or user_name(), args.reason)
    now_ns = time.time_ns()
    move = _written_down(args, wanted, lambda: roll_back(registry, wanted, now_ns), now_ns)
    print(f"{args.prompt}@{args.label} is {move.version} again (was {move.before})")
    return 0


PROMPTS = Command(
    "prompts", "list, compare, promote and roll back versions of prompts", _configure, "evals"
)

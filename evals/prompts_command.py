"""`evenkeel prompts`: versions of prompts, and which of them is in production."""

from __future__ import annotations

import argparse
import difflib
import json
import time
from pathlib import Path
from typing import Any

from evenkeel.cli import Command
from evenkeel.errors import CannotMeasureError, ConfigurationError, RegressionError
from evenkeel.prompt_freeze import read_freezes
from evenkeel.prompts import DRAFT, LABELS, Move, PromptRegistry, PromptVersion

EPILOG = """\
examples:
  evenkeel prompts list
  evenkeel prompts diff support@production support@draft
  evenkeel eval run golden_datasets/support --report build/eval \\
      --baseline production.toml --candidate draft.toml    # [prompt] ref = "support@draft"
  evenkeel prompts promote support --report build/eval
  evenkeel prompts rollback support
  evenkeel prompts suggest --report build/eval --dataset golden_datasets/support

exit codes: 0 done, 1 the report did not pass, 2 bad usage or configuration, 3 it could not tell
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, run: Any) -> argparse.ArgumentParser:
        made = verbs.add_parser(name, help=summary, description=summary)
        made.add_argument("--prompts-dir", type=Path, default=Path("prompts"), metavar="DIR")
        made.set_defaults(run=run)
        return made

    listed = verb("list", "every prompt with its versions and labels", _list)
    listed.add_argument("--url", help="a vLLM server that counts the tokens of each version")
    listed.add_argument("--json", action="store_true", help="print one JSON object")
    show = verb("show", "the text and history of a prompt", _show)
    show.add_argument("prompt", help="name, name@label, name@version or name@draft")
    show.add_argument("--json", action="store_true", help="print one JSON object")
    diff = verb("diff", "what changed from one version to another; exit 0 either way", _diff)
    diff.add_argument("old", help="such as support@production")
    diff.add_argument("new", help="such as support@draft")
    promote = verb("promote", "let a label mean another version, after a passing run", _promote)
    promote.add_argument("prompt", help="name (its draft), name@version or name@label")
    promote.add_argument("--to", choices=LABELS, default=LABELS[0], help="default: %(default)s")
    how = promote.add_mutually_exclusive_group(required=True)
    how.add_argument("--report", type=Path, metavar="DIR", help="of the run that it passed")
    how.add_argument("--force", metavar="REASON", help="without a run; the reason is kept")
    suggest = verb("suggest", "what to change, from the worst slices of a run", _suggest)
    suggest.add_argument("--report", type=Path, required=True, metavar="DIR", help="of the run")
    suggest.add_argument("--dataset", type=Path, required=True, metavar="DIR", help="its dataset")
    suggest.add_argument("--limit", type=int, default=3, metavar="N", help="slices (default: 3)")
    suggest.add_argument("--json", action="store_true", help="print one JSON object")
    rollback = verb("rollback", "let a label mean what it meant before", _rollback)
    rollback.add_argument("prompt", metavar="NAME")
    rollback.add_argument("--label", choices=LABELS, default=LABELS[0])
    rollback.add_argument("--reason", default="rolled back", help="kept in the history")


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
    """Return the tokens that a version costs each request, as vLLM's `/tokenize` counts them."""
    import httpx

    try:
        response = httpx.post(
            f"{url.rstrip('/').removesuffix('/v1')}/tokenize",
            json={"prompt": text, "add_special_tokens": False},
            timeout=10.0,
            trust_env=False,
        )
        response.raise_for_status()
        return int(response.json()["count"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        what = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CannotMeasureError(f"{url} does not count tokens: {what}") from error


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
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(move.time_s))
        print(f"  {when}  {move.label} = {move.version}  {move.reason}")
    return 0


def _diff(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    old, new = registry.resolve(args.old), registry.resolve(args.new)
    lines = difflib.unified_diff(
        old.system.splitlines(), new.system.splitlines(), old.label, new.label, lineterm=""
    )
    text = "\n".join(lines)
    print(text or f"{old.label} and {new.label} are the same text")
    return 0


def _promote(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    reference = args.prompt if "@" in args.prompt else f"{args.prompt}@{DRAFT}"
    prompt = registry.resolve(reference)
    current = registry.labels(prompt.name).get(args.to)
    if current == prompt.version:
        print(f"{prompt.name}@{args.to} is {prompt.version} already")
        return 0
    run_id = None
    if args.report is not None:
        registry.check_not_frozen(prompt.name)
        baseline = None if current is None else registry.resolve(f"{prompt.name}@{current}")
        run_id = _check_report(args.report, prompt, baseline)
        reason = f"passed run {run_id}"
    else:
        if not args.force.strip():
            raise ConfigurationError("--force needs a reason, such as --force 'hotfix for #12'")
        reason = f"forced: {args.force.strip()}"
    registry.keep(prompt)
    registry.move(prompt.name, Move(int(time.time()), args.to, prompt.version, reason, run_id))
    before = f", was {current}" if current else ""
    print(f"{prompt.name}@{args.to} is {prompt.version}{before}: {reason}")
    return 0


def _check_report(folder: Path, prompt: PromptVersion, baseline: PromptVersion | None) -> str:
    """Return the id of a run in which this text, as candidate, passed against the one in use.

    Raises:
        ConfigurationError: If the folder holds no report, or one of other texts.
        RegressionError: If the run did not pass.
        CannotMeasureError: If the run could not tell.
    """
    from evals.manifest import hash_of

    try:
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        run_id, code, headline = run["run_id"], run["exit_code"], run["headline"]
        hashes = {role: entry["content_hash"] for role, entry in manifest["prompts"].items()}
        is_same_run = manifest["run_id"] == run_id
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{folder} holds no report of `evenkeel eval run`") from error
    if not is_same_run:
        raise ConfigurationError(f"{folder}: run.json and manifest.json are of different runs")
    if hashes.get("candidate") != hash_of(prompt.system):
        raise ConfigurationError(f"run {run_id} had another text than {prompt.label} as candidate")
    if baseline is not None and hashes.get("baseline") != hash_of(baseline.system):
        raise ConfigurationError(
            f"run {run_id} did not compare with {baseline.label}, which is in use"
        )
    if code == 1:
        raise RegressionError(f"run {run_id} did not pass: {headline}")
    if code != 0 or run["verdict"] not in ("better", "no worse"):
        # --allow-inconclusive lets a pipeline go on; it does not make a proof of it.
        raise CannotMeasureError(f"run {run_id} could not tell: {headline}")
    return str(run_id)


def _suggest(args: argparse.Namespace) -> int:
    from evals.compare_command import pair_up, read_side
    from evals.dataset import load_dataset
    from evals.suggestions import describe, suggest

    dataset = load_dataset(args.dataset)
    baseline, candidate = (read_side(args.report, role) for role in ("baseline", "candidate"))
    if candidate.dataset_hash != dataset.content_hash:
        raise ConfigurationError(f"{args.report} asked other items than {args.dataset} holds now")
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
        print("no slice has enough wrong answers to say anything")
    return 0


def _rollback(args: argparse.Namespace) -> int:
    registry = PromptRegistry(args.prompts_dir)
    current = registry.labels(args.prompt).get(args.label)
    previous = registry.previous(args.prompt, args.label)
    if current is None or previous is None:
        raise ConfigurationError(f"{args.prompt}@{args.label} has nothing to go back to")
    registry.resolve(f"{args.prompt}@{previous}")
    registry.move(
        args.prompt,
        Move(int(time.time()), args.label, previous, args.reason, None, is_rollback=True),
    )
    print(f"{args.prompt}@{args.label} is {previous} again, was {current}")
    return 0


PROMPTS = Command("prompts", "versions of prompts, and which is in production", _configure, "evals")

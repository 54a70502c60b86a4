"""`evenkeel store`: backup, restore and export of the embedded store, replay of the quarantine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError

if TYPE_CHECKING:
    from evenkeel_collector.log.quarantine import Replayed

EPILOG = """\
examples:
  evenkeel store backup /backup/evenkeel.tar --data-dir /var/lib/evenkeel
  evenkeel store restore /backup/evenkeel.tar --data-dir /var/lib/evenkeel-again
  evenkeel store export parquet /backup/parquet --table requests --table spans
  evenkeel store replay-quarantine --data-dir /var/lib/evenkeel

The collector must not run on the folder meanwhile. A ClickHouse server has its own BACKUP.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    backup = commands.add_parser(
        "backup", help="write the folder into one file, checksums included"
    )
    backup.add_argument("file", type=Path, metavar="FILE")
    restore = commands.add_parser("restore", help="check such a file, and make a folder of it")
    restore.add_argument("file", type=Path, metavar="FILE")
    export = commands.add_parser("export", help="write tables as files that other tools read")
    export.add_argument("format", choices=["parquet"])
    export.add_argument("folder", type=Path, metavar="FOLDER")
    export.add_argument("--table", action="append", help="only this one; may be given again")
    replay = commands.add_parser(
        "replay-quarantine",
        help="put what the store refused, and what can be read of damaged segments, back into the "
        "log; the next start stores it",
    )
    for each in (backup, restore, export, replay):
        each.add_argument("--data-dir", type=Path, help="the collector's folder (default ./data)")
        each.add_argument("--json", action="store_true", help="print one JSON object")
        each.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # The store's client takes time to import that --help must not pay.
    from evenkeel.settings import load
    from evenkeel_collector.serve.settings import CollectorSettings
    from evenkeel_collector.store.backup import back_up, restore
    from evenkeel_collector.store.export import export_parquet

    data_dir = load(CollectorSettings, {"data_dir": args.data_dir}).settings.data_dir
    if args.action == "backup":
        done = asdict(back_up(data_dir, args.file))
    elif args.action == "restore":
        done = asdict(restore(args.file, data_dir))
    elif args.action == "replay-quarantine":
        done = asdict(_replay(data_dir))
    else:
        done = asdict(export_parquet(data_dir, args.folder, args.table))
    if args.json:
        print(json.dumps(done))
    else:
        print(", ".join(f"{name} {value}" for name, value in done.items()))
    return 0


def _replay(data_dir: Path) -> Replayed:
    from evenkeel_collector.log.quarantine import replay_quarantine
    from evenkeel_collector.store.data_folder import ID_FILE, hold

    if not (data_dir / ID_FILE).exists():
        raise ConfigurationError(f"{data_dir} (--data-dir) is no collector's folder")
    folder = hold(data_dir)
    try:
        return replay_quarantine(folder.log)
    except OSError as error:
        raise ConfigurationError(f"cannot replay {folder.log}/quarantine: {error}") from error
    finally:
        folder.release()


STORE = Command(
    name="store",
    summary="Back up, restore and export the embedded store; replay its quarantine.",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)

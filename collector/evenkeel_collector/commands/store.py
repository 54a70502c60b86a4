"""`evenkeel store`: backup, restore and export of the embedded store, replay of the quarantine."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError, first_line

if TYPE_CHECKING:
    from evenkeel_collector.log.quarantine import Replayed

EPILOG = """\
examples:
  evenkeel store backup /backup/evenkeel.tar --data-dir /var/lib/evenkeel
  evenkeel store restore /backup/evenkeel.tar --data-dir /var/lib/evenkeel-again
  evenkeel store export parquet /backup/parquet --table requests --table spans
  evenkeel store replay-quarantine --data-dir /var/lib/evenkeel

Stop the collector first. For a ClickHouse server, use its own BACKUP statement.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    backup = commands.add_parser("backup", help="write the data folder to one file with checksums")
    backup.add_argument("file", type=Path, metavar="FILE", help="file to write")
    restore = commands.add_parser("restore", help="verify a backup and restore it to a new folder")
    restore.add_argument("file", type=Path, metavar="FILE", help="backup to read")
    export = commands.add_parser("export", help="export tables as Parquet or other files")
    export.add_argument("format", choices=["parquet"], help="file format")
    export.add_argument("folder", type=Path, metavar="FOLDER", help="folder to write to")
    export.add_argument("--table", action="append", help="export only this table (repeatable)")
    replay = commands.add_parser(
        "replay-quarantine",
        help="move rejected rows and the readable part of damaged segments back into the log; the "
        "next start stores them",
    )
    for each in (backup, restore, export, replay):
        each.add_argument(
            "--data-dir", type=Path, help="the collector's data folder (default ./data)"
        )
        each.add_argument("--json", action="store_true", help="print one JSON object")
        each.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    # The store's client is slow to import; --help should not wait for it.
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
        raise ConfigurationError(f"{data_dir} (--data-dir) is not a collector's data folder")
    folder = hold(data_dir)
    try:
        return replay_quarantine(folder.log)
    except OSError as error:
        reason = first_line(error, folder=folder.log / "quarantine")
        raise ConfigurationError(f"cannot replay {folder.log}/quarantine: {reason}") from error
    finally:
        folder.release()


STORE = Command(
    name="store",
    summary="back up, restore and export the embedded store, and replay its quarantine",
    configure=_configure,
    extra="collector",
    keeps_private=True,
)

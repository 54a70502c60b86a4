"""What the step hook sent, read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import zmq

from evenkeel_runtime.wire.steps import Batch, Note, decode_batch


@dataclass(slots=True)
class Records:
    """What arrived at the other end of the hook's socket."""

    socket: zmq.Socket[bytes]

    def read(self) -> list[Batch]:
        batches = []
        while self.socket.poll(200):
            batches.append(decode_batch(self.socket.recv()))
        return batches


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything recorded: notes, and steps as dictionaries with their `requests`."""

    notes: list[Note]
    steps: list[dict[str, Any]]


def everything(batches: list[Batch]) -> Seen:
    notes: list[Note] = []
    steps: list[dict[str, Any]] = []
    for batch in batches:
        notes += batch.notes
        at = 0
        for row in batch.steps:
            step: dict[str, Any] = dict(zip(batch.steps.dtype.names, row.tolist(), strict=True))
            own = batch.entries[at : at + step["num_entries"]]
            at += step["num_entries"]
            names = own.dtype.names
            step["requests"] = [dict(zip(names, entry.tolist(), strict=True)) for entry in own]
            steps.append(step)
    return Seen(notes, steps)

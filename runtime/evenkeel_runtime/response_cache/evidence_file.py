"""Keep the evidence on near hits over restarts, and load labelled evidence.

Owner-only files in the data folder: one per model, written by the runtime, and LABELS_FILE, written
by `evenkeel cache calibrate`. Evidence that was collected with another embedding model, other
classes, other ladders or for other weights is discarded, and the reason is logged. Labels in
another file, named by the cache's file, must be readable (setup.py).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from evenkeel.private_files import replace_private
from evenkeel_runtime.response_cache.hit_class import CLASSES_VERSION, KINDS
from evenkeel_runtime.response_cache.serve_control import Counted, Counts, ServeControl
from evenkeel_runtime.response_cache.settings_file import RoutePolicy

logger = logging.getLogger(__name__)

# `evenkeel cache calibrate` finds no pairs below this cosine (calibrate.py: the default policy).
_LABELLED_FROM = RoutePolicy().draft_similarity

# Written by earlier versions, by servers of any model.
EARLIER_FILE = "cache-evidence.json"
LABELS_FILE = "cache-labels.json"
WEIGHTS_CHANGED = "the weights changed while serving"
_MOST_BYTES = 64 * 1024 * 1024
# They are counted on the server's event loop when a route is first asked.
MOST_LABELS = 100_000


class Collected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What evidence was collected with; it applies to nothing else.

    Attributes:
        embedder: Hash of the embedding model.
        classes: Version of the definition of the classes.
        model: The served weights; None for labels, which do not depend on them.
    """

    embedder: str
    classes: int = CLASSES_VERSION
    model: str | None = None


class LabelledPair(msgspec.Struct, frozen=True, array_like=True):
    """The class of a near hit, and whether its answer was wrong."""

    kind: str
    similarity: float
    lead: float
    is_wrong: bool


class Labels(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Labelled near hits."""

    collected: Collected
    pairs: tuple[LabelledPair, ...]

    def count(self, policy: RoutePolicy) -> Counts:
        """Return the verdicts by class of a route; none for classes that reach below all labels."""
        found: dict[tuple[str, float, float], Counted] = {}
        steps = [s for s in policy.similarities if s >= _LABELLED_FROM]
        for kind in KINDS:
            hits = np.array(
                [(p.similarity, p.lead, p.is_wrong) for p in self.pairs if p.kind == kind]
            ).reshape(-1, 3)
            for similarity in steps:
                for lead in policy.leads:
                    is_covered = (hits[:, 0] >= similarity) & (hits[:, 1] >= lead)
                    wrong = hits[is_covered, 2]
                    found[kind, similarity, lead] = Counted(len(wrong), int(wrong.sum()))
        return found


class _SavedClass(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    similarity: float
    lead: float
    seen: int
    wrong: int
    labelled: int
    labelled_wrong: int


class _SavedRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    similarities: tuple[float, ...]
    leads: tuple[float, ...]
    classes: tuple[_SavedClass, ...]
    # Hash of the labels that its counts hold.
    labels: str | None = None


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    collected: Collected
    # Written by earlier versions: one for all routes.
    labels: str | None
    routes: dict[str, _SavedRoute]


_T = TypeVar("_T", Labels, _Saved)


class EvidenceFile:
    """The evidence of one model in a data folder, which servers of other models may share.

    Args:
        folder: The data folder.
        embedder: Hash of the embedding model.
        model: Identifies the served weights.
        labels: The file of labels; None is LABELS_FILE in the folder.

    Attributes:
        name: Of the file; stays if the weights change while serving.
        model: The served weights.
        discarded: Why evidence was discarded, by file.
    """

    def __init__(self, folder: Path, embedder: str, model: str, labels: Path | None = None) -> None:
        self._folder = folder
        labels = labels or folder / LABELS_FILE
        self._collected = Collected(embedder, CLASSES_VERSION, model)
        self.name = name_file(model)
        self.model = model
        self.discarded: dict[str, str] = {}
        self._labels = self._read(labels, Labels)
        self._labels_id = None if self._labels is None else _hash(labels)
        self._saved = self._read(folder / self.name, _Saved) or self._take_over()

    def start_over(self, model: str) -> None:
        """Forget the evidence of other weights; the labels do not depend on them."""
        self.model = model
        self._collected = msgspec.structs.replace(self._collected, model=model)
        self._saved = None
        self.discarded[self.name] = WEIGHTS_CHANGED

    def open_control(self, policy: RoutePolicy) -> ServeControl:
        """Return the evidence of a route, with that of earlier runs and labels that apply to it."""
        labelled = dict(self.count_labels(policy))
        route = None if self._saved is None else self._saved.routes.get(policy.route)
        if self._saved is None or route is None:
            return ServeControl(policy, labelled)
        if (route.similarities, route.leads) != (policy.similarities, policy.leads):
            self._discard(self.name, f"route {policy.route} has other similarities or leads")
            return ServeControl(policy, labelled)
        counted, has_labels = {}, (route.labels or self._saved.labels) == self._labels_id
        for item in route.classes:
            key = item.kind, item.similarity, item.lead
            traffic_wrong = item.wrong - item.labelled_wrong
            counted[key] = Counted(item.seen - item.labelled, traffic_wrong)
            if has_labels and item.similarity >= _LABELLED_FROM:
                # Kinds that were given up have lost their labels, too.
                labelled[key] = Counted(item.labelled, item.labelled_wrong)
        return ServeControl(policy, labelled, counted)

    def count_labels(self, policy: RoutePolicy) -> Counts:
        """Return the labelled verdicts by class of a route."""
        return {} if self._labels is None else self._labels.count(policy)

    def encode(self, controls: Mapping[str, ServeControl]) -> bytes:
        """Return the content of the evidence file."""
        routes = {}
        if self._saved is not None:
            for name, saved in self._saved.routes.items():
                labels = saved.labels or self._saved.labels
                routes[name] = msgspec.structs.replace(saved, labels=labels)
        for route, control in controls.items():
            classes = tuple(
                _SavedClass(*item.key, item.seen, item.wrong, item.labelled, item.labelled_wrong)
                for item in control.classes
            )
            routes[route] = _SavedRoute(
                control.similarities, control.leads, classes, self._labels_id
            )
        return msgspec.json.encode(_Saved(self._collected, None, routes))

    def write(self, data: bytes) -> None:
        """Replace the evidence file.

        Raises:
            OSError: If it cannot be written.
        """
        replace_private(self._folder / self.name, data)

    def _take_over(self) -> _Saved | None:
        """Return the evidence that an earlier version has left of this model, under its name."""
        earlier, path = self._folder / EARLIER_FILE, self._folder / self.name
        saved = None if path.exists() else self._read(earlier, _Saved)
        if saved is not None:
            # In a folder that cannot be written to, it is read again.
            with suppress(OSError):
                earlier.replace(path)
        return saved

    def _read(self, path: Path, kind: type[_T]) -> _T | None:
        name = path.name
        try:
            found = _decode(path, kind)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._discard(name, str(error))
            return None
        here, there = self._collected, found.collected
        if name == EARLIER_FILE and there.model != here.model:
            # Perhaps another server's.
            return None
        if there.embedder != here.embedder or there.classes != here.classes:
            self._discard(name, "collected with another embedding model or other classes")
            return None
        if there.model not in (here.model, None):
            self._discard(name, f"collected for the model {there.model}, not {here.model}")
            return None
        return found

    def _discard(self, name: str, reason: str) -> None:
        self.discarded[name] = reason
        logger.warning("evidence of the response cache discarded: %s: %s", name, reason)


def name_file(model: str) -> str:
    """Return the name of the file with the evidence of a model."""
    digest = hashlib.sha256(model.encode("utf-8", "surrogatepass")).hexdigest()
    return f"cache-evidence-{digest[:16]}.json"


def check_labels(path: Path) -> None:
    """Check a file of labels.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it holds no labels, or some that cannot be.
    """
    _decode(path, Labels)


def _decode(path: Path, kind: type[_T]) -> _T:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"larger than {_MOST_BYTES} bytes")
    found = msgspec.json.decode(path.read_bytes(), type=kind)
    _check(found)
    return found


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _check(found: Labels | _Saved) -> None:
    """Raise ValueError for counts that cannot be."""
    if isinstance(found, Labels):
        if len(found.pairs) > MOST_LABELS:
            raise ValueError(f"more than {MOST_LABELS} pairs")
        for pair in found.pairs:
            if pair.kind not in KINDS:
                raise ValueError(f"a pair has the unknown kind {pair.kind!r:.80}")
            if not (-1.01 <= pair.similarity <= 1.01 and -2.02 <= pair.lead <= 2.02):
                raise ValueError("a pair has an impossible cosine or lead")
        return
    for route in found.routes.values():
        for item in route.classes:
            traffic, traffic_wrong = item.seen - item.labelled, item.wrong - item.labelled_wrong
            is_sound = 0 <= item.labelled_wrong <= item.labelled and 0 <= traffic_wrong <= traffic
            if item.kind not in KINDS or not is_sound:
                raise ValueError(f"a class of kind {item.kind!r} has impossible counts")

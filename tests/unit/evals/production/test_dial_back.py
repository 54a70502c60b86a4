"""Proven quality drops are dialled back once, and only with --act."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.production.dial_back import Dialled, Dials
from evenkeel_evals.production.dial_targets import FolderLabels
from evenkeel_evals.production.live import LiveRun, LiveWindow, Row
from evenkeel_evals.production.live_config import LiveConfig, load_config

FILE = """
name = "one"
[[scorer]]
name = "pii"
"""
PROMPT = """
[[dial_back]]
gate = "pii>=90%"
prompt = "support"
"""
CACHE = """
[[dial_back]]
gate = "pii >= 90.5 %"
cache_route = "faq"
url = "http://runtime:8000"
"""
SECOND = 1_000_000_000


class Place:
    """A live evaluation with a prompt registry of three versions, oldest first."""

    def __init__(self, folder: Path, dial_backs: str) -> None:
        self.folder = folder
        path = folder / "live.toml"
        path.write_text(FILE + dial_backs)
        self.config: LiveConfig = load_config(path)
        self.registry = PromptRegistry(folder / "prompts")
        self.versions = [digest(text) for text in ("one", "two", "three")]
        for text in ("one", "two", "three"):
            prompt = PromptVersion("support", digest(text), text)
            self.registry.keep(prompt)
            self.registry.move("support", Move(1, "production", prompt.version, "passed", "r"))
        self.shadowed: list[tuple[str, str, str | None]] = []
        self.is_runtime_away = False

    def look(
        self, windows: Sequence[LiveWindow] = (), acts: bool = True, now_s: int = 100
    ) -> list[Dialled | str]:
        """Restart from the journal, evaluate windows, and look after each."""

        def shadow(url: str, route: str, key: str | None) -> str:
            if self.is_runtime_away:
                raise CannotMeasureError(f"{url} does not answer")
            self.shadowed.append((url, route, key))
            return "serve"

        with Journal(self.folder / "live.jsonl") as journal:
            live = LiveRun(self.config, journal)
            labels = FolderLabels(self.folder / "prompts")
            dials = Dials(self.config, live, labels, "key", acts, shadow, lambda: now_s * SECOND)
            found = list(dials.look())
            for window in windows:
                live.keep(window)
                found += dials.look()
            return found

    @property
    def production(self) -> str:
        return self.registry.labels("support")["production"]


def window(
    second: int,
    num_wrong: int,
    version: str | None = None,
    route: str = "faq",
    cache: str = "exact",
) -> LiveWindow:
    """Return a window with 40 answers, some of them wrong."""
    rows = [
        Row(
            *("a" * 32, "b" * 16, "c" * 16, "-", 0.5, "pii"),
            *(float(i >= num_wrong), "right" if i >= num_wrong else "wrong", None, 1.0),
            *("m", None, "support", version, route, cache),
        )
        for i in range(40)
    ]
    return LiveWindow(second * SECOND, (second + 1) * SECOND, 80, 40, {}, 0, 1.0, rows)


def test_without_being_told_to_act_it_only_says_so_once(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT)
    windows = [window(n, 30, place.versions[2]) for n in range(3)]
    (said,) = place.look(windows, acts=False)
    assert isinstance(said, Dialled) and said.is_dry_run and said.to is None
    assert said.describe().startswith(
        f"dial back: would roll support@production back from {place.versions[2]} (dry run"
    )
    assert "pii>=90% does not hold, pii: 25.0% right" in said.describe()
    assert place.look(acts=False) == []
    assert place.production == place.versions[2]


def test_a_dry_run_does_not_keep_it_from_acting_later(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT)
    place.look([window(0, 30, place.versions[2])], acts=False)
    (done,) = place.look()
    assert isinstance(done, Dialled) and (done.is_dry_run, done.to) == (False, place.versions[1])
    assert place.production == place.versions[1]


def test_a_label_goes_back_once_and_its_history_says_why(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT)
    (done,) = place.look([window(n, 30, place.versions[2]) for n in range(4)])
    assert isinstance(done, Dialled)
    assert (done.target, done.subject) == ("support@production", place.versions[2])
    assert place.look([window(n, 30, place.versions[2]) for n in range(101, 104)]) == []
    last = place.registry.history("support")[-1]
    assert (last.version, last.is_rollback) == (place.versions[1], True)
    assert last.reason.startswith("pii>=90% does not hold in production: pii: 25.0% right")
    assert last.reason.endswith("(evenkeel eval live one)")
    assert len(place.registry.history("support")) == 4


def test_what_it_was_set_back_to_stays_even_if_it_is_bad(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT)
    place.look([window(0, 30, place.versions[2])])
    bad = [window(n, 30, place.versions[1]) for n in range(101, 104)]
    (said,) = place.look(bad, now_s=200)
    assert isinstance(said, str) and "unchanged; needs a manual decision" in said
    assert place.look(bad, now_s=300) == []
    assert place.production == place.versions[1]


def test_a_second_gate_does_not_set_back_what_the_first_restored(tmp_path: Path) -> None:
    other = PROMPT.replace("pii>=90%", "refusal>=90%")
    scorer = '[[scorer]]\nname = "refusal"\nreference = false\n'
    place = Place(tmp_path, scorer + PROMPT + other)
    (done,) = place.look([window(0, 30, place.versions[2])])
    assert isinstance(done, Dialled) and done.to == place.versions[1]
    bad = [window(n, 30, place.versions[1]) for n in range(101, 104)]
    bad = [replace(w, rows=[replace(row, scorer="refusal") for row in w.rows]) for w in bad]
    (said,) = place.look(bad, now_s=200)
    assert isinstance(said, str)
    assert "does not hold refusal>=90% either: unchanged; needs a manual decision" in said
    assert place.look(bad, now_s=300) == []
    assert place.production == place.versions[1]


def test_a_later_version_may_be_set_back_again(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT)
    place.look([window(0, 30, place.versions[2])])
    later = PromptVersion("support", digest("four"), "four")
    place.registry.keep(later)
    place.registry.move("support", Move(150, "production", later.version, "passed", "r"))
    (done,) = place.look([window(160, 30, later.version)], now_s=200)
    assert isinstance(done, Dialled) and done.to == place.versions[1] == place.production


@pytest.mark.parametrize(
    "windows",
    [
        pytest.param([], id="nothing seen"),
        pytest.param([window(0, 2, digest("three"))], id="good enough"),
        pytest.param([window(0, 4, digest("three"))], id="as good as the gate"),
        pytest.param([window(0, 30, digest("two"))], id="another version"),
        pytest.param([window(0, 30, None)], id="no version"),
    ],
)
def test_nothing_is_set_back_without_evidence_against_it(
    tmp_path: Path, windows: list[LiveWindow]
) -> None:
    place = Place(tmp_path, PROMPT)
    assert place.look(windows) == []
    assert place.production == place.versions[2]


def test_a_cache_that_serves_bad_answers_is_put_into_shadow_once(tmp_path: Path) -> None:
    place = Place(tmp_path, CACHE)
    others = [
        window(0, 30, route="chat"),
        window(1, 30, cache="miss"),
        window(2, 30, cache="draft"),
    ]
    assert place.look(others) == []
    found = place.look([window(n, 30) for n in range(3, 6)])
    assert [isinstance(d, Dialled) and d.to for d in found] == ["shadow"]
    assert place.shadowed == [("http://runtime:8000", "faq", "key")]
    # Requests from before or during the dial-back are not a second drop.
    assert place.look([window(99, 40), window(100, 2)]) == []
    again = place.look([window(n, 30) for n in range(300, 303)], now_s=400)
    assert len(again) == 1 and len(place.shadowed) == 2


def test_what_cannot_be_reached_is_tried_again(tmp_path: Path) -> None:
    place = Place(tmp_path, CACHE.replace("//runtime", "//me:hunter2@runtime"))
    place.is_runtime_away = True
    said = place.look([window(0, 30)])
    assert str(said[0]).startswith(
        "dial back: the cache of route faq at http://runtime:8000 could not be rolled back: "
    )
    place.is_runtime_away = False
    (done,) = place.look()
    assert isinstance(done, Dialled) and place.shadowed


def test_a_label_with_nothing_before_it_is_said_to_have_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path, PROMPT.replace("support", "other"))
    version = PromptVersion("other", digest("only"), "only")
    place.registry.keep(version)
    place.registry.move("other", Move(1, "production", version.version, "passed", "r"))
    rows = window(0, 30, version.version)
    renamed = LiveWindow(
        *(rows.from_ns, rows.to_ns, 80, 40, {}, 0, 1.0),
        [Row(**{**_fields(row), "prompt_name": "other"}) for row in rows.rows],
    )
    (said,) = place.look([renamed])
    assert (
        isinstance(said, str) and "other@production has no earlier version to roll back to" in said
    )


def _fields(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in Row.__dataclass_fields__}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        pytest.param('gate = "pii<=90%"\nprompt = "support"', "expected one such as", id="gate"),
        pytest.param('gate = "pii>=0%"\nprompt = "support"', "more than 0%", id="0%"),
        pytest.param('gate = "pii>=100%"\nprompt = "support"', "less than 100%", id="100%"),
        pytest.param('gate = "bleu>=9%"\nprompt = "support"', "no scorer 'bleu'", id="scorer"),
        pytest.param('gate = "pii>=90%"', "exactly one of prompt and cache_route", id="nothing"),
        pytest.param(
            'gate = "pii>=90%"\ncache_route = "faq"', "must be given together", id="no url"
        ),
        pytest.param(
            'gate = "pii>=90%"\nprompt = "a"\ncache_route = "f"\nurl = "http://h"',
            "exactly one",
            id="both",
        ),
        pytest.param('gate = "pii>=90%"\nprompt = "../a"', "prompt", id="a path"),
        pytest.param('gate = "pii>=90%"\nprompt = "a"\nlabel = "x"', "label", id="label"),
        pytest.param('gate = "pii>=90%"\nprompt = "a"\nmore = 1', "more", id="unknown key"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, table: str, message: str) -> None:
    path = tmp_path / "live.toml"
    path.write_text(f"{FILE}[[dial_back]]\n{table}\n")
    with pytest.raises(ConfigurationError, match=message):
        load_config(path)

"""Silences, inhibitions, maintenance and repetition together, against a model of a few lines."""

import tempfile
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import time
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.slo.matchers import parse_matchers
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.silence import Silence
from tests.unit.collector.alerts.test_alertmanager_cases import ALONE, S, Timeline

ALERTS = {
    "cause-a": {"team": "a", "kind": "cause"},
    "cause-b": {"team": "b", "kind": "cause"},
    "effect-a": {"team": "a", "kind": "effect"},
    "effect-b": {"team": "b", "kind": "effect"},
}
INHIBIT = InhibitRule(parse_matchers("kind=cause"), parse_matchers("kind=effect"), ("team",))
# Thursdays from one to two; 1 January 1970 was one.
HOUR = Maintenance(
    parse_matchers("team=b"), (MuteTime((3,), time(1), time(2), ZoneInfo("UTC")),), "weekly"
)
REPEAT_S = 600


@dataclass
class Model:
    """What one receiver is told, worked out from the rules as docs/guide/alerts.md has them."""

    firing: frozenset[str] = frozenset()
    told_s: dict[str, int] = field(default_factory=dict)
    silences: list[tuple[str, int, int]] = field(default_factory=list)

    def at(self, now_s: int, firing: frozenset[str]) -> list[tuple[str, str]]:
        told = []
        causes = {name for name in self.firing | firing if name.startswith("cause")}
        for name in sorted(ALERTS):
            team = name[-1]
            is_quiet = (
                any(of == team and begin <= now_s < end for of, begin, end in self.silences)
                or (team == "b" and 3600 <= now_s < 7200)
                or (name.startswith("effect") and f"cause-{team}" in causes)
            )
            if name not in firing:
                if self.told_s.pop(name, None) is not None:
                    told.append((name, "resolved"))
            elif not is_quiet:
                last_s = self.told_s.get(name)
                if last_s is None or now_s - last_s >= REPEAT_S:
                    told.append((name, "firing"))
                    self.told_s[name] = now_s
        self.firing = firing
        return told


STEP = st.tuples(
    st.integers(1, 1500),
    st.frozensets(st.sampled_from(sorted(ALERTS))),
    st.one_of(
        st.none(), st.tuples(st.sampled_from("ab"), st.integers(0, 900), st.integers(1, 3000))
    ),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(STEP, max_size=25), st.integers(0, 3000))
def test_one_receiver_is_told_what_the_rules_say(
    steps: list[tuple[int, frozenset[str], tuple[str, int, int] | None]], begin_s: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book = AlertBook(Path(folder) / "alerts.db")
        line = Timeline(book, changed(ALONE, repeat_s=Fraction(REPEAT_S)))
        line.engine.set_inhibitions([INHIBIT], [HOUR])
        model, now_s = Model(), begin_s + 1
        for number, (later_s, firing, silence) in enumerate(steps):
            now_s += later_s
            if silence is not None:
                team, in_s, for_s = silence
                begin, end = now_s + in_s, now_s + in_s + for_s
                matchers = parse_matchers(f"team={team}")
                book.add_silence(Silence(f"s{number}", "", begin * S, end * S, "", matchers))
                model.silences.append((team, begin, end))
            told = line.at(now_s, {name: ALERTS[name] for name in firing})
            assert told.get("default", []) == model.at(now_s, firing), (now_s, steps)
        book.close()

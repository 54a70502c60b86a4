"""Routes, inhibitions and maintenance of an SLO file; the tree is Alertmanager's own case."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import SloFile
from evenkeel.slo.receiver import AlertGrouping

NAMES = ("def", "A", "testing", "productionA", "productionB", "BC")
TREE = """\
  route:
    receiver: def
    routes:
      - matchers: [owner="team-A"]
        receiver: A
        routes:
          - {matchers: ['env="testing"'], receiver: testing, group_by: ['...']}
          - {matchers: ['env="production"'], receiver: productionA, group_wait: 1m, continue: true}
          - matchers: ['env=~"produ.*"', 'job=~".*"']
            receiver: productionB
            group_by: [job]
            group_wait: 30s
            group_interval: 5m
            repeat_interval: 1h
      - {matchers: ['owner=~"team-(B|C)"'], receiver: BC, group_by: [foo, bar], group_wait: 2m}
      - matchers: [group_by="role"]
        group_by: [role]
        routes:
          - matchers: ['env="testing"']
            receiver: testing
            routes: [{matchers: ['wait="long"'], group_wait: 2m}]
"""
SLO = """\
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  indicator: {metric: availability}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def read(folder: Path, alerting: str) -> SloFile:
    listed = "".join(f"    - {{name: {name}, url: 'http://h/'}}\n" for name in NAMES)
    path = folder / "slos.yaml"
    head = "apiVersion: evenkeel/v1\nkind: Alerting\nspec:\n  receivers:\n"
    path.write_text(f"{head}{listed}{alerting}{SLO}")
    return read_slo_file(path)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({}, ["def"]),
        ({"owner": "team-A"}, ["A"]),
        ({"owner": "team-A", "env": "unset"}, ["A"]),
        ({"owner": "team-C"}, ["BC"]),
        ({"owner": "team-CC"}, ["def"]),
        ({"owner": "team-A", "env": "testing"}, ["testing"]),
        ({"owner": "team-A", "env": "production"}, ["productionA", "productionB"]),
        ({"owner": "team-A", "env": "produce"}, ["productionB"]),
        ({"group_by": "role"}, ["def [by role, wait 30s, interval 5m]"]),
        (
            {"env": "testing", "group_by": "role"},
            ["testing [by role, wait 30s, interval 5m]"],
        ),
        (
            {"env": "testing", "group_by": "role", "wait": "long"},
            ["testing [by role, wait 2m, interval 5m]"],
        ),
    ],
)
def test_an_alert_goes_where_alertmanager_sends_it(
    tmp_path: Path, labels: dict[str, str], told: list[str]
) -> None:
    file = read(tmp_path, TREE)
    assert sorted(r.name for r in file.receivers if r.wants("page", labels)) == told


def test_routes_give_receivers_their_options(tmp_path: Path) -> None:
    by_name = {receiver.name: receiver for receiver in read(tmp_path, TREE).receivers}
    assert by_name["productionB"].group == AlertGrouping(("job",), Fraction(30), Fraction(300))
    assert by_name["productionB"].repeat_s == 3600
    assert by_name["testing"].group is None
    assert by_name["testing [by role, wait 2m, interval 5m]"].base == "testing"


def test_without_a_tree_every_receiver_is_told(tmp_path: Path) -> None:
    assert all(r.wants("page", {}) for r in read(tmp_path, "").receivers)


def test_intervals_mute_a_route_and_are_not_inherited(tmp_path: Path) -> None:
    text = """\
  timeIntervals:
    - {name: thursday, times: [{days: [thu], from: '00:00', until: '00:00', timeZone: UTC}]}
  route:
    receiver: def
    mute_time_intervals: [thursday]
    routes:
      - {matchers: [a=b], receiver: A}
      - {matchers: [a=c], receiver: BC, active_time_intervals: [thursday]}
"""
    by_name = {receiver.name: receiver for receiver in read(tmp_path, text).receivers}
    day_ns = 86_400 * 10**9
    muted = {
        name: [by_name[name].is_muted(day * day_ns) for day in (0, 1)]
        for name in ("def", "A", "BC")
    }
    assert muted == {"def": [True, False], "A": [False, False], "BC": [False, True]}


def test_send_resolved_in_both_spellings(tmp_path: Path) -> None:
    for key in ("send_resolved", "sendResolved"):
        file = read(tmp_path, f"    - {{name: q, url: 'http://h/', {key}: false}}\n")
        assert [r.name for r in file.receivers if not r.sends_resolved] == ["q"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("  route: {receiver: nope}\n", "no receiver 'nope'"),
        ("  route: {routes: []}\n", "receiver is missing"),
        ("  route: {receiver: A, matchers: [a=b]}\n", "root"),
        ("  route: {receiver: A, routes: [{matchers: ['a=~(']}]}\n", "not a valid RE2 pattern"),
        ("  route: {receiver: A, mute_time_intervals: [x]}\n", "timeIntervals has no 'x'"),
        ("  route: {receiver: A, unknown: 1}\n", "unknown"),
        ("  inhibit: [{}]\n", "source is missing"),
        ("  inhibit: [{source_matchers: [a=b]}]\n", "target_matchers is missing"),
        ("  maintenance: [{matchers: ['a=~.*'], times: []}]\n", "at least one matcher"),
        ("  maintenance: [{matchers: [a=b], times: []}]\n", "times is empty"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        read(tmp_path, text)


def test_a_tree_is_bounded_in_depth(tmp_path: Path) -> None:
    tree = "{receiver: A}"
    for _ in range(20):
        tree = f"{{receiver: A, routes: [{tree}]}}"
    with pytest.raises(ConfigurationError, match="20 deep"):
        read(tmp_path, f"  route: {tree}\n")

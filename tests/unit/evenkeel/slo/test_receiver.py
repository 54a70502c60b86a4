"""Mute times, routing, and how receivers are read."""

from datetime import datetime, time
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.routing import by_severity
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType, Secret
from tests.fixtures.slo_files import slo_file

BERLIN = ZoneInfo("Europe/Berlin")
WEEKEND_NIGHTS = MuteTime((5, 6), time(22), time(6), BERLIN)
OFFICE = MuteTime((0, 1, 2, 3, 4), time(9), time(17, 30), BERLIN)


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()) * 10**9


@pytest.mark.parametrize(
    ("mute", "moment", "holds"),
    [
        pytest.param(WEEKEND_NIGHTS, "2026-11-21T22:00", True, id="Saturday night begins"),
        pytest.param(WEEKEND_NIGHTS, "2026-11-22T05:59", True, id="and lasts into Sunday"),
        pytest.param(WEEKEND_NIGHTS, "2026-11-23T05:59", True, id="Sunday's into Monday"),
        pytest.param(WEEKEND_NIGHTS, "2026-11-21T05:59", False, id="Friday's night is not muted"),
        pytest.param(WEEKEND_NIGHTS, "2026-11-22T06:00", False, id="the end is not included"),
        pytest.param(OFFICE, "2026-11-20T09:00", True, id="a Friday morning"),
        pytest.param(OFFICE, "2026-11-20T17:30", False, id="after work"),
        pytest.param(OFFICE, "2026-11-21T12:00", False, id="a Saturday"),
        pytest.param(OFFICE, "2026-07-17T09:00", True, id="local time in summer too"),
    ],
)
def test_when_a_mute_time_holds(mute: MuteTime, moment: str, holds: bool) -> None:
    assert mute.holds(ns(moment)) is holds


FILE = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  inhibit: [{source: page, target: ticket}]
  receivers:
    - RECEIVER
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  indicator: {metric: availability}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def read(tmp_path: Path, receiver: str) -> Receiver:
    file = slo_file(tmp_path, FILE.replace("RECEIVER", receiver))
    assert file.inhibitions == (by_severity(Severity.PAGE, Severity.TICKET),)
    return file.receivers[0]


def test_a_receiver_with_everything(tmp_path: Path) -> None:
    text = (
        "{name: pd, type: pagerduty, secrets: [{env: PD_KEY}, {file: /run/key}], severities: [page]"
        ", repeat: 4h, muteTimes: [{days: [sat], from: '22:00', until: '06:00', timeZone: UTC}]}"
    )
    receiver = read(tmp_path, text)
    assert receiver.url == "https://events.pagerduty.com"
    assert receiver.secrets == (Secret("PD_KEY"), Secret(file=Path("/run/key")))
    assert (receiver.wants("page", {}), receiver.wants("ticket", {})) == (True, False)
    assert (receiver.repeat_s, receiver.allow_private) == (4 * 3600, False)
    assert receiver.mute_times == (MuteTime((5,), time(22), time(6), ZoneInfo("UTC")),)


def test_an_address_that_is_a_secret(tmp_path: Path) -> None:
    receiver = read(tmp_path, "{name: chat, type: slack, urlFrom: {env: SLACK_URL}}")
    assert (receiver.type, receiver.url_secret) == (ReceiverType.SLACK, Secret("SLACK_URL"))


@pytest.mark.parametrize(
    "address",
    [
        "root",
        "ann@x.test",
        "Ann Köln <ann@x.test>",
        '"Smith, Bob" <bob@x.test>',
        "a@x.test, b@y",
        "ann@x.test <ann@x.test>",
        "team: a@x.test, b@x.test;",
        "=?utf-8?q?Smith=2C_Bob?= <bob@x.test>",
    ],
)
def test_addresses_of_mail(tmp_path: Path, address: str) -> None:
    text = f"{{name: a, type: email, url: 'smtp://x', from: '{address}', to: ['{address}']}}"
    receiver = read(tmp_path, text)
    assert (receiver.sender, receiver.recipients) == (address, (address,))


def test_a_group_has_usual_times(tmp_path: Path) -> None:
    receiver = read(tmp_path, "{name: a, url: 'https://x', group: {by: [slo, service]}}")
    assert receiver.group == AlertGrouping(("slo", "service"), Fraction(30), Fraction(300))
    labels = receiver.group.labels_of({"slo": "chat", "severity": "page"})
    assert labels == {"service": "", "slo": "chat"}
    other = read(
        tmp_path, "{name: a, url: 'https://x', group: {by: [slo], wait: 1s, interval: 1m}}"
    )
    assert other.group == AlertGrouping(("slo",), Fraction(1), Fraction(60))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{name: 'ops [eu]', url: 'https://x'}", "name 'ops [eu]' contains ' ['"),
        ("{name: a, url: 'https://x', group: {by: []}}", "each once"),
        ("{name: a, url: 'https://x', group: {by: [slo, slo]}}", "each once"),
        (
            "{name: a, type: pagerduty, secrets: [{env: A}], group: {by: [slo]}}",
            "does its own grouping",
        ),
        ("{name: a, type: apprise, url: nonsense}", "an address that Apprise supports"),
        ("{name: a, type: pagerduty}", "needs secrets: [{env: VARIABLE}] or [{file: PATH}]"),
        ("{name: a, type: generic, url: 'https://x', secrets: [abc]}", "{env: VARIABLE} or"),
        ("{name: a, type: slack, urlFrom: $SLACK}", "{env: VARIABLE} or {file: PATH}"),
        ("{name: a, type: slack}", "slack needs url, or urlFrom: {env: VARIABLE}"),
        ("{name: a, type: email, url: 'smtp://x'}", "email needs from and to"),
        ("{name: a, type: email, url: 'https://x', from: a, to: [b]}", "smtp://HOST:PORT"),
        ("{name: a, type: email, url: 'smtp://[', from: a, to: [b]}", "smtp://HOST:PORT"),
        ("{name: a, type: email, url: 'smtp://x', from: a, to: []}", "email needs from and to"),
        (
            "{name: a, type: email, url: 'smtp://ann:key@x', from: a, to: [b]}",
            "the password belongs in secrets",
        ),
        (
            "{name: a, type: email, url: 'smtp://x', from: a, to: ['Smith, Bob <bob@x.test>']}",
            "an address such as ann@example.com",
        ),
        *(
            (
                f"{{name: a, type: email, url: 'smtp://x', from: a, to: ['{address}']}}",
                "an address such as ann@example.com",
            )
            for address in ("Bob bob@x.test", "ann@x.test <bob@x.test>", "bob@x..test")
        ),
        (
            '{name: a, type: email, url: "smtp://x", from: a, to: ["a@x.test\\nBcc: eve@x.test"]}',
            "an address such as ann@example.com",
        ),
        (
            "{name: a, type: email, url: 'smtp://x', from: 'a@x.test b@x.test', to: [b]}",
            "an address such as ann@example.com",
        ),
        ("{name: a, url: 'https://x', urlFrom: {env: X}}", "url or urlFrom, not both"),
        ("{name: a, url: 'https://x', secrets: [{env: A, file: b}]}", "never the text itself"),
        (
            "{name: a, url: 'https://x', muteTimes: [{from: 5, until: '6:00', timeZone: UTC}]}",
            "a quoted local time",
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"slos\.yaml:\d+\)") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)


def test_a_secret_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENKEEL_TEST_KEY", "x")
    key, address = Secret("EVENKEEL_TEST_KEY"), Secret(file=tmp_path / "address")
    receiver = Receiver("r", "", url_secret=address, secrets=(key,))
    assert "address cannot be read" in (receiver.lack() or "")
    (tmp_path / "address").write_text("https://example.com")
    assert receiver.lack() is None
    monkeypatch.delenv("EVENKEEL_TEST_KEY")
    assert receiver.lack() == "the secret EVENKEEL_TEST_KEY is empty or not set"

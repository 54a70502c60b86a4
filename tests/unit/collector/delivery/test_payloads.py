"""What each kind of receiver is sent, and that secrets are only in what is sent."""

import base64
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from evenkeel.errors import ConfigurationError
from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType, Secret
from evenkeel_collector.alerts.groups import group_notification
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.delivery.alertmanager import alertmanager_message
from evenkeel_collector.delivery.email import make_email
from evenkeel_collector.delivery.payloads import Posting, make_posting
from evenkeel_collector.delivery.slack import slack_message
from evenkeel_collector.delivery.text import text_of, title_of

NOW_NS = 1_795_168_800 * 10**9
BY_SERVICE = AlertGrouping(("service",))
LABELS = {"alertname": "SloBudgetBurn", "slo": "chat", "severity": "page", "service": "chat"}
NOTES = {
    "summary": "Chat starts fast: the error budget burns 20 times too fast",
    "description": "20% of <requests> & more",
    "top_cause": "queue: 1.6 s",
    "dashboard": "http://dash/",
    "exemplars": "r1 (ok 2.00 s) http://dash/request?a=1&at=2\nr2 (error)",
}


def notification(status: str = "firing") -> Notification:
    ends_ns = None if status == "firing" else NOW_NS
    return Notification(
        notification_id=f"abc123-{status}",
        receiver="r",
        alert_id="abc123",
        fingerprint="f",
        alerts=(NotifiedAlert(LABELS, NOTES, NOW_NS, ends_ns),),
        dashboard_url="http://dash/",
        created_ns=NOW_NS,
    )


def secret(tmp_path: Path, text: str, name: str = "key") -> Secret:
    path = tmp_path / name
    path.write_text(text + "\n")
    return Secret(file=path)


def send(receiver: Receiver, status: str = "firing") -> tuple[Posting, Any]:
    posting = make_posting(receiver, notification(status), NOW_NS)
    return posting, json.loads(posting.body)


def test_a_webhook_gets_what_alertmanager_posts() -> None:
    receiver = Receiver("r", "https://example.com/hook?x=1")
    posting, body = send(receiver)
    assert (posting.url, posting.headers) == ("https://example.com/hook?x=1", {})
    assert body == alertmanager_message(receiver, notification())


def test_every_secret_signs_so_that_keys_can_be_changed(tmp_path: Path) -> None:
    keys = ["whsec_" + base64.b64encode(text).decode() for text in (b"new" * 8, b"old" * 8)]
    secrets = tuple(secret(tmp_path, key, f"key{i}") for i, key in enumerate(keys))
    receiver = Receiver("r", "https://example.com/", ReceiverType.GENERIC, secrets=secrets)
    posting = make_posting(receiver, notification(), time.time_ns())
    headers = {"webhook-id": "abc123-firing", **posting.headers}
    for key in keys:
        message = Webhook(key).verify(posting.body, headers)
        assert message["type"] == "alert.firing"
        assert message["data"]["alert_id"] == "abc123"
    with pytest.raises(WebhookVerificationError):
        Webhook(keys[0]).verify(posting.body + " ", headers)
    assert not any(key in posting.body + str(posting.headers) for key in keys)


def test_a_key_that_is_none_is_named_and_not_shown(tmp_path: Path) -> None:
    bad = secret(tmp_path, "whsec_!")
    receiver = Receiver("r", "https://example.com/", ReceiverType.GENERIC, secrets=(bad,))
    with pytest.raises(
        ConfigurationError, match="a secret of receiver 'r' is not base64"
    ) as caught:
        make_posting(receiver, notification(), NOW_NS)
    assert "whsec_!" not in str(caught.value)
    missing = Receiver("r", "", ReceiverType.SLACK, url_secret=Secret(variable="EVENKEEL_NO_SUCH"))
    with pytest.raises(ConfigurationError, match="EVENKEEL_NO_SUCH is empty or not set"):
        make_posting(missing, notification(), NOW_NS)


def test_slack_gets_blocks_with_the_evidence(tmp_path: Path) -> None:
    address = secret(tmp_path, "https://hooks.slack.com/services/T/B/X")
    posting, body = send(Receiver("r", "", ReceiverType.SLACK, url_secret=address))
    assert posting.url == "https://hooks.slack.com/services/T/B/X"
    kinds = [block["type"] for block in body["blocks"]]
    assert kinds == ["header", "section", "section", "section", "actions"]
    exemplars = body["blocks"][3]["text"]["text"]
    assert exemplars == "*exemplars*\n<http://dash/request?a=1&amp;at=2|r1> (ok 2.00 s)\nr2 (error)"
    assert body["blocks"][0]["text"]["text"].startswith("Page: Chat starts fast")
    assert body["blocks"][1]["text"]["text"] == "20% of &lt;requests&gt; &amp; more"
    _, over = send(Receiver("r", "https://hooks.slack.com/x", ReceiverType.SLACK), "resolved")
    assert over["text"].startswith("Resolved: ")


def test_pagerduty_resolves_what_it_triggered(tmp_path: Path) -> None:
    key = secret(tmp_path, "R" * 32)
    receiver = Receiver("r", "https://events.pagerduty.com", ReceiverType.PAGERDUTY, secrets=(key,))
    posting, trigger = send(receiver)
    assert posting.url == "https://events.pagerduty.com/v2/enqueue"
    assert (trigger["event_action"], trigger["routing_key"]) == ("trigger", "R" * 32)
    assert trigger["payload"]["severity"] == "critical"
    assert trigger["payload"]["source"] == "chat"
    _, resolve = send(receiver, "resolved")
    assert (resolve["event_action"], "payload" in resolve) == ("resolve", False)
    assert resolve["dedup_key"] == trigger["dedup_key"] == "abc123"


def test_opsgenie_closes_what_it_opened(tmp_path: Path) -> None:
    key = secret(tmp_path, "genie")
    receiver = Receiver("r", "https://api.opsgenie.com/", ReceiverType.OPSGENIE, secrets=(key,))
    posting, body = send(receiver)
    assert posting.url == "https://api.opsgenie.com/v2/alerts"
    assert posting.headers == {"Authorization": "GenieKey genie"}
    assert (body["alias"], body["priority"]) == ("abc123", "P1")
    posting, _ = send(receiver, "resolved")
    assert posting.url == ("https://api.opsgenie.com/v2/alerts/abc123/close?identifierType=alias")


def test_alertmanager_gets_its_own_api() -> None:
    receiver = Receiver("r", "http://alertmanager:9093", ReceiverType.ALERTMANAGER)
    posting, (firing,) = send(receiver)
    assert posting.url == "http://alertmanager:9093/api/v2/alerts"
    assert firing["labels"] == LABELS
    # It calls an alert resolved at its end, and a ticket may stay open for months.
    assert firing["endsAt"] > "2027-11-01"
    _, (over,) = send(receiver, "resolved")
    assert over["endsAt"] == "2026-11-20T10:00:00.000Z"


def test_an_alert_that_ended_before_its_start_is_one_that_alertmanager_takes() -> None:
    """The clock was set back while it fired, and its SLO left the file: it would stay open."""
    receiver = Receiver("r", "http://alertmanager:9093", ReceiverType.ALERTMANAGER)
    alert = NotifiedAlert(LABELS, NOTES, NOW_NS, NOW_NS - 7200 * 10**9)
    over = replace(notification("resolved"), alerts=(alert,))
    (entry,) = json.loads(make_posting(receiver, over, NOW_NS).body)
    assert entry["startsAt"] == entry["endsAt"] == "2026-11-20T08:00:00.000Z"


def of_group(num_firing: int, num_over: int) -> Notification:
    alerts = []
    for i in range(num_firing + num_over):
        ends_ns = None if i < num_firing else NOW_NS
        notes = NOTES | {"summary": f"SLO {i} burns"}
        labels = LABELS | {"slo": f"slo-{i}"}
        alerts.append(NotifiedAlert(labels, notes, NOW_NS, ends_ns))
    return replace(
        group_notification("r", {"service": "chat"}, alerts),
        notification_id="group0123-abc-firing",
        alert_id="group0123",
        dashboard_url="http://dash/",
        created_ns=NOW_NS,
    )


def test_slack_lists_the_alerts_of_a_group() -> None:
    receiver = Receiver("r", "https://hooks.slack.com/x", ReceiverType.SLACK, group=BY_SERVICE)
    body = json.loads(make_posting(receiver, of_group(2, 1), NOW_NS).body)
    assert body["text"] == "2 firing, 1 resolved: service=chat"
    texts = [block["text"]["text"] for block in body["blocks"][1:]]
    assert texts[0] == (
        "*page firing*: SLO 0 burns\n*top cause*\nqueue: 1.6 s\n<http://dash/|Show it>"
    )
    assert texts[2] == "*resolved*: SLO 2 burns\n<http://dash/|Show it>"
    many = json.loads(make_posting(receiver, of_group(60, 0), NOW_NS).body)
    assert len(many["blocks"]) <= 50
    assert many["blocks"][-1]["text"]["text"] == "and 20 more"


SLACK_NOTES = [
    ("a mention", {"summary": "<!channel> 5 < 6 & <@U1>"}),
    ("nothing", {"summary": "", "description": "", "top_cause": "", "dashboard": ""}),
    ("long texts", {name: "&<x>" * 5000 for name in [*NOTES, "silence", "bad_requests"]}),
    ("a long link", NOTES | {"dashboard": "http://dash/?" + "x" * 3000}),
    ("long links", NOTES | {"exemplars": f"r1 (ok) http://dash/{'x' * 2000}\n" * 3}),
]


@pytest.mark.parametrize(
    "notes", [case[1] for case in SLACK_NOTES], ids=[case[0] for case in SLACK_NOTES]
)
@pytest.mark.parametrize("num_alerts", [1, 3])
def test_slack_refuses_no_message_for_its_limits(notes: dict[str, str], num_alerts: int) -> None:
    """It answers 400 to a text that is empty or too long, and nobody is paged."""
    receiver = Receiver("r", "https://hooks.slack.com/x", ReceiverType.SLACK)
    alerts = (NotifiedAlert(LABELS, notes, NOW_NS),) * num_alerts
    found = replace(notification(), alerts=alerts)
    body = json.loads(make_posting(receiver, found, NOW_NS).body)
    texts = [(body["text"], 3000)]
    for block in body["blocks"]:
        texts += [(field["text"], 2000) for field in block.get("fields", [])]
        texts += [(element["url"], 3000) for element in block.get("elements", [])]
        if block["type"] == "header":
            assert 0 < len(block["text"]["text"]) <= 150
        elif "text" in block:
            texts.append((block["text"]["text"], 3000))
    for text, limit in texts:
        assert 0 < len(text) <= limit
        # Neither a mention nor part of an escaped character or of a link.
        assert not re.search(r"<(?!https?://[^<>|]*\|[^<>]*>)|&(?!(amp|lt|gt);)", text)


BURNED = "Chat starts fast: the error budget burned 20 times too fast"


def test_a_resolved_alert_is_of_the_past_for_every_receiver() -> None:
    """A reader of "burns 20 times too fast" looks for an incident that is over."""
    over = notification("resolved")
    receivers = {
        kind: Receiver("r", "https://example.com/", kind)
        for kind in (ReceiverType.WEBHOOK, ReceiverType.SLACK, ReceiverType.ALERTMANAGER)
    }
    for receiver in receivers.values():
        body = make_posting(receiver, over, NOW_NS).body
        assert BURNED in body and "burns" not in body
    assert title_of(over) == f"Resolved: {BURNED}"
    assert f"summary: {BURNED}" in text_of(over) and "burns" not in text_of(over)
    assert "burns 20 times" in text_of(notification()), "it still fires"


def test_in_a_group_only_what_has_ended_is_of_the_past() -> None:
    alerts = [NotifiedAlert(LABELS, NOTES, NOW_NS, ends_ns) for ends_ns in (None, NOW_NS)]
    found = group_notification("r", {"service": "chat"}, alerts)
    body = alertmanager_message(Receiver("r", "https://example.com/"), found)
    said = [alert["annotations"]["summary"] for alert in body["alerts"]]
    assert said == [NOTES["summary"], BURNED]
    assert "summary" not in body["commonAnnotations"]
    assert body["commonAnnotations"]["top_cause"] == NOTES["top_cause"]
    lines = str(slack_message("2 alerts", found)["blocks"])
    assert f"*resolved*: {BURNED}" in lines and f"*page firing*: {NOTES['summary']}" in lines


def test_a_signed_group_says_what_it_is(tmp_path: Path) -> None:
    key = secret(tmp_path, "whsec_" + base64.b64encode(b"key" * 8).decode())
    receiver = Receiver(
        "r", "https://example.com/", ReceiverType.GENERIC, secrets=(key,), group=BY_SERVICE
    )
    body = json.loads(make_posting(receiver, of_group(1, 1), NOW_NS).body)
    assert (body["type"], body["data"]["group_id"]) == ("alert_group.firing", "group0123")
    assert body["data"]["groupLabels"] == {"service": "chat"}
    assert [alert["status"] for alert in body["data"]["alerts"]] == ["firing", "resolved"]


def test_mail_tells_all_of_a_group() -> None:
    receiver = Receiver("r", "smtp://x", ReceiverType.EMAIL, sender="a@x", recipients=("b@x",))
    message = make_email(receiver, of_group(1, 1))
    assert message["Subject"] == "1 firing, 1 resolved: service=chat"
    assert message["References"] == "<group0123@evenkeel>"
    # Relays add none, and a message without one is taken for spam.
    assert message["Date"] == "Fri, 20 Nov 2026 10:00:00 +0000"
    text = message.get_content()
    assert "summary: SLO 0 burns" in text
    assert "slo=slo-1" in text

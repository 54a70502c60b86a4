"""Decides which receivers get a notification of an alert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from evenkeel.slo.receiver import Receiver, place_of
from evenkeel_collector.alerts.alert import Alert

# The alert about a failing receiver; it is sent to all other receivers.
DELIVERY_ALERT = "SloDeliveryFailing"


def find_recipients(
    alert: Alert,
    labels: Mapping[str, str],
    receivers: Sequence[Receiver],
    told: Set[str] | None = None,
) -> list[Receiver]:
    """Return the receivers of an alert; of its end also those that only got the firing.

    The file may have changed since: an incident that the firing opened must not stay open.

    Args:
        alert: The alert.
        labels: Its labels, with its SLO and severity.
        receivers: Those in the file.
        told: The names of the receivers of its firing, if this is about its end.
    """
    found = [r for r in receivers if _is_notified(r, alert, labels, receivers)]
    if told is None:
        return found
    # Of receivers that have other options by now.
    elsewhere = {place_of(name) for name in told - {r.name for r in receivers}}
    for receiver in receivers:
        place = place_of(receiver.name)
        is_reached = any(place_of(r.name) == place for r in found)
        # An alert leaves a group by its end only.
        is_in_group = receiver.name in told and receiver.group is not None
        was_told = receiver.name in told or place in elsewhere
        if receiver not in found and (is_in_group or (was_told and not is_reached)):
            found.append(receiver)
    return found


def _is_notified(
    receiver: Receiver, alert: Alert, labels: Mapping[str, str], receivers: Sequence[Receiver]
) -> bool:
    if alert.details.labels.get("alertname") != DELIVERY_ALERT:
        return receiver.wants(alert.severity, labels)
    # Send it once per other receiver, regardless of that receiver's filters.
    about = next((r for r in receivers if r.name == alert.details.labels.get("receiver")), None)
    place = receiver.base or receiver.name
    first = next(r for r in receivers if (r.base or r.name) == place)
    return receiver is first and (about is None or (about.base or about.name) != place)

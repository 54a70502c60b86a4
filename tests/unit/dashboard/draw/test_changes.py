"""Table rows of changes."""

from urllib.parse import parse_qs, urlsplit

from evenkeel_dashboard.draw.changes import change_cells
from evenkeel_dashboard.frame.selection import Selection

MINUTE_MS = 60_000


def test_a_new_server_is_named_by_its_service_and_a_new_prompt_can_be_compared() -> None:
    changes = [
        {"kind": "prompt", "name": "support@2", "before": "1", "first_ms": MINUTE_MS},
        {"kind": "server", "name": "chat@i-2", "before": "i-1", "first_ms": 2 * MINUTE_MS},
    ]
    server, prompt = change_cells(changes, [], {})
    assert [cell.text for cell in server[1:4]] == ["another instance of chat", "i-1", "i-2"]
    assert [cell.text for cell in prompt[1:4]] == ["prompt support", "1", "2"]
    assert prompt[4].href and not server[4].href


def test_a_change_is_compared_around_its_time_not_in_the_range_of_the_page() -> None:
    week_ago_ms = 1_795_168_800_000
    new = {"kind": "prompt", "name": "support@2", "before": "1", "first_ms": week_ago_ms}
    ((*_, link),) = change_cells([new], [], {"range": "5m", "tenant": "acme"})
    params = {name: value for name, (value,) in parse_qs(urlsplit(link.href).query).items()}
    found = Selection.from_params(params)
    assert (found.from_ms, found.to_ms) == (week_ago_ms - 3_600_000, week_ago_ms + 3_600_000)
    assert (params["a"], params["b"], params["tenant"]) == ("support@1", "support@2", "acme")


def test_a_control_action_has_its_values_in_words_and_why() -> None:
    said = {"lever": "prefill_chunk", "before": "1", "after": "0.25", "is_dry_run": "true"}
    said["reason"] = "chat: 4 of its requests over 1 s in 10 s, burn 14.3"
    attributes = {f"evenkeel.control.{name}": value for name, value in said.items()}
    row = {"time_ms": MINUTE_MS, "name": "evenkeel.control", "attributes": attributes}
    ((_, what, before, after, why),) = change_cells([], [row], {})
    assert what.text == "control: prompt tokens per step"
    assert (before.text, after.text) == ("100%", "25%")
    assert why.text == f"{said['reason']} (dry run)"

"""Table rows of changes."""

from evenkeel_dashboard.draw.changes import change_cells

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

"""Keeps the provider's id of an answer when the answer itself is removed.

OpenInference gives the id only within the answer, `output.value`. It tells that a client's record
and the server's, or another instrumentation's, are of one call (store/calls.py).
"""

from __future__ import annotations

from typing import Any

import re2

ANSWER = "output.value"
ANSWER_ID = "llm.response.id"
# Of OpenAI's and Anthropic's APIs, also as LangChain writes an answer. Quotes within an answer's
# text are escaped there, so it cannot be taken for an id.
_ID = re2.compile(r'"id": ?"((?:chatcmpl-|cmpl-|resp_|msg_)[A-Za-z0-9_-]{1,100})"')


def keep_id(answer: Any) -> bool:
    """Make an answer's attribute one of its id; False if it has none."""
    found = _ID.search(answer.value.string_value)
    if found is None:
        return False
    answer.key, answer.value.string_value = ANSWER_ID, str(found.group(1))
    return True

"""Calls of the Anthropic SDK: a message, a streamed one, a tool, an error.

python anthropic_calls.py openllmetry|openinference
"""

from __future__ import annotations

import sys

import setup_otel
from anthropic import Anthropic

MODEL = "claude-sonnet-4-5"
TOOL = {
    "name": "get_weather",
    "description": "the weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def main() -> None:
    """Run the calls."""
    setup_otel.export()
    if sys.argv[1] == "openllmetry":
        from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor
    else:
        from openinference.instrumentation.anthropic import AnthropicInstrumentor
    AnthropicInstrumentor().instrument()
    client = Anthropic(max_retries=0)
    asked = [{"role": "user", "content": "How long does a delivery take?"}]
    client.messages.create(model=MODEL, max_tokens=20, messages=asked)
    with client.messages.stream(model=MODEL, max_tokens=20, messages=asked) as stream:
        print(len(list(stream.text_stream)), "texts")
    events = client.messages.create(model=MODEL, max_tokens=20, messages=asked, stream=True)
    print(len(list(events)), "events")
    client.messages.create(model=MODEL, max_tokens=20, messages=asked, tools=[TOOL])
    try:
        client.messages.create(model="broken", max_tokens=20, messages=asked)
    except Exception as error:
        print("error:", error)


if __name__ == "__main__":
    main()

"""Calls of the OpenAI SDK: chat, streamed chat, a tool, Responses, an error.

python openai_calls.py otel|openllmetry|traceloop|openinference [MODEL]
"""

from __future__ import annotations

import os
import sys

from openai import OpenAI

KIND = sys.argv[1]
MODEL = sys.argv[2] if len(sys.argv) > 2 else "gpt-5.5"
QUESTION = "How long does a delivery take?"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def instrument() -> None:
    """Start what the first argument names."""
    if KIND == "traceloop":
        from traceloop.sdk import Traceloop

        Traceloop.init(
            app_name="app",
            api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
            disable_batch=True,
        )
        return
    import setup_otel

    setup_otel.export()
    if KIND == "otel":
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    elif KIND == "openllmetry":
        from opentelemetry.instrumentation.openai import OpenAIInstrumentor
    else:
        from openinference.instrumentation.openai import OpenAIInstrumentor
    OpenAIInstrumentor().instrument()
    if os.environ.get("WITH_HTTPX"):
        from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor

        HTTPXClientInstrumentor().instrument()


def ask(client: OpenAI) -> None:
    """Make each kind of call once."""
    asked = [{"role": "user", "content": QUESTION}]
    client.chat.completions.create(model=MODEL, messages=asked, max_tokens=20)
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=asked,
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
    )
    print(len(list(chunks)), "chunks")
    if os.environ.get("ONLY_CHAT"):
        return
    client.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL])
    client.responses.create(model=MODEL, input=QUESTION)
    print(len(list(client.responses.create(model=MODEL, input=QUESTION, stream=True))), "events")
    client.embeddings.create(model="text-embedding-3-small", input=QUESTION)
    try:
        client.chat.completions.create(model="broken", messages=asked)
    except Exception as error:
        print("error:", error)


def main() -> None:
    """Run the calls, each in a trace of its own."""
    instrument()
    ask(OpenAI(max_retries=0))


if __name__ == "__main__":
    main()

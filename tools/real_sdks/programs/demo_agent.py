"""An agent of Pydantic AI that must call a tool, even with a model that only follows a grammar.

evenkeel serve demo --enable-auto-tool-choice --tool-call-parser hermes
OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=none python demo_agent.py
"""

from __future__ import annotations

import os
from typing import Literal

import setup_otel
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.usage import UsageLimits


class Weather(BaseModel):
    """The answer."""

    sky: Literal["rain", "sun"]


def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


def main() -> None:
    """Ask five times; whether the tool is called first is the model's choice."""
    setup_otel.export()
    Agent.instrument_all()
    agent = Agent(
        f"openai-chat:{os.environ.get('MODEL', 'support')}",
        name="guide",
        tools=[get_weather],
        output_type=Weather,
        model_settings={"max_tokens": 300, "temperature": 1.0, "parallel_tool_calls": False},
    )
    for _ in range(5):
        try:
            limits = UsageLimits(request_limit=4)
            print(agent.run_sync("Is there rain in Paris?", usage_limits=limits).output)
        except Exception as error:
            print("error:", str(error)[:300])


if __name__ == "__main__":
    main()

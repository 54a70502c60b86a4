"""An agent of openai-agents that calls a tool, traced by OpenInference or by logfire.

python openai_agents_agent.py openinference|logfire [chat|responses]
"""

from __future__ import annotations

import os
import sys

from agents import (
    Agent,
    Runner,
    function_tool,
    set_default_openai_api,
    trace,
)


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


def main() -> None:
    """Ask once, in a group."""
    if sys.argv[1] == "logfire":
        import logfire

        logfire.configure(send_to_logfire=False, service_name="app", console=False)
        logfire.instrument_openai_agents()
    else:
        import setup_otel
        from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

        setup_otel.export()
        OpenAIAgentsInstrumentor().instrument()
    set_default_openai_api("responses" if sys.argv[2:] == ["responses"] else "chat_completions")
    model = os.environ.get("MODEL", "gpt-5.5")
    agent = Agent(name="guide", model=model, tools=[get_weather])
    with trace("weather", group_id="thread-1"):
        print(Runner.run_sync(agent, "What is the weather in Paris?").final_output)


if __name__ == "__main__":
    main()

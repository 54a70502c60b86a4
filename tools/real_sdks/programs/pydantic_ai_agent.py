"""An agent of pydantic-ai that calls a tool, traced by logfire or by pydantic-ai's own spans.

python pydantic_ai_agent.py logfire|own [chat|responses]
"""

from __future__ import annotations

import os
import sys

from pydantic_ai import Agent

MODEL = os.environ.get("MODEL", "gpt-5.5")


def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


def main() -> None:
    """Ask once."""
    if sys.argv[1] == "logfire":
        import logfire

        logfire.configure(send_to_logfire=False, service_name="app", console=False)
        logfire.instrument_pydantic_ai()
    else:
        import setup_otel

        setup_otel.export()
        Agent.instrument_all()
    prefix = "openai-responses" if sys.argv[2:] == ["responses"] else "openai-chat"
    agent = Agent(f"{prefix}:{MODEL}", name="guide", tools=[get_weather])
    print(agent.run_sync("What is the weather in Paris?").output)


if __name__ == "__main__":
    main()

"""An agent of LangChain and LangGraph that calls a tool, in a session that its thread names.

python langgraph_agent.py openinference|openllmetry
"""

from __future__ import annotations

import os
import sys

import setup_otel
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It rains in {city}."


def main() -> None:
    """Ask twice in one thread."""
    setup_otel.export()
    if sys.argv[1] == "openinference":
        from openinference.instrumentation.langchain import LangChainInstrumentor
    else:
        from opentelemetry.instrumentation.langchain import (
            LangchainInstrumentor as LangChainInstrumentor,
        )
    LangChainInstrumentor().instrument()
    model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5.5"), stream_usage=True)
    agent = create_agent(model, tools=[get_weather], name="guide")
    config = {"configurable": {"thread_id": "thread-1"}, "metadata": {"session_id": "thread-1"}}
    for _ in range(2):
        asked = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
        print(agent.invoke(asked, config)["messages"][-1].content)


if __name__ == "__main__":
    main()

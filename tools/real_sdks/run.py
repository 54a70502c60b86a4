"""Runs a real SDK or agent in a scratch environment, against a stub, and shows what it sends.

    python tools/real_sdks/run.py --list
    python tools/real_sdks/run.py pydantic-ai --otlp http://127.0.0.1:4318

Installs from PyPI or npm into build/real_sdks/. Without --otlp, what it sends is only written down,
in build/real_sdks/NAME.jsonl; tools/real_sdks/fixture.py makes a fixture of it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import recorder
import stub

HERE = Path(__file__).parent
FOLDER = Path("build/real_sdks")
EXPORTER = "opentelemetry-exporter-otlp"


@dataclass(frozen=True)
class Program:
    """What to install, and what to run with it."""

    packages: tuple[str, ...]
    command: tuple[str, ...]
    is_npm: bool = False


PROGRAMS = {
    "openai-otel": Program(
        ("openai==3.57.0", "httpx", "opentelemetry-instrumentation-openai-v2==2.4b0",
         "opentelemetry-util-genai==1.0b0", EXPORTER),
        ("openai_calls.py", "otel"),
    ),
    "openai-openllmetry": Program(
        ("openai==3.57.0", "opentelemetry-instrumentation-openai==0.62.4", EXPORTER),
        ("openai_calls.py", "openllmetry"),
    ),
    "openai-openinference": Program(
        ("openai==3.57.0", "openinference-instrumentation-openai==0.1.66", EXPORTER),
        ("openai_calls.py", "openinference"),
    ),
    "anthropic-openllmetry": Program(
        ("anthropic==2.13.0", "opentelemetry-instrumentation-anthropic==0.62.4", EXPORTER),
        ("anthropic_calls.py", "openllmetry"),
    ),
    "anthropic-openinference": Program(
        ("anthropic==2.13.0", "openinference-instrumentation-anthropic==3.1.0", EXPORTER),
        ("anthropic_calls.py", "openinference"),
    ),
    "pydantic-ai": Program(
        ("pydantic-ai-slim[openai]==2.68.0", EXPORTER), ("pydantic_ai_agent.py", "own")
    ),
    "logfire": Program(
        ("pydantic-ai-slim[openai,logfire]==2.68.0", EXPORTER),
        ("pydantic_ai_agent.py", "logfire", "responses"),
    ),
    "langgraph-openinference": Program(
        ("langchain==1.5.2", "langgraph==1.2.24", "langchain-openai==1.7.4",
         "openinference-instrumentation-langchain==0.1.80", EXPORTER),
        ("langgraph_agent.py", "openinference"),
    ),
    "langgraph-openllmetry": Program(
        ("langchain==1.5.2", "langgraph==1.2.24", "langchain-openai==1.7.4",
         "opentelemetry-instrumentation-langchain==0.62.4", EXPORTER),
        ("langgraph_agent.py", "openllmetry"),
    ),
    "openai-agents": Program(
        ("openai-agents==0.24.0", "openinference-instrumentation-openai-agents==2.6.0", EXPORTER),
        ("openai_agents_agent.py", "openinference"),
    ),
    "claude-code": Program(("@anthropic-ai/claude-code@2.1.197",), ("claude",), is_npm=True),
    "codex": Program(("@openai/codex@0.169.0",), ("codex",), is_npm=True),
}  # fmt: skip

CODEX = """
model = "gpt-5.5"
model_provider = "stub"
sandbox_mode = "danger-full-access"
approval_policy = "never"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.stub]
name = "stub"
base_url = "{stub}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
[otel]
exporter = {{ otlp-http = {{ endpoint = "{otlp}/v1/logs", protocol = "binary" }} }}
"""


def prepare(name: str, program: Program) -> Path:
    """Return the folder in which a program's packages are installed."""
    folder = FOLDER.resolve() / name
    if program.is_npm:
        if not (folder / "node_modules").is_dir():
            subprocess.run(["npm", "install", "--prefix", folder, *program.packages], check=True)
    elif not (folder / "bin" / "pip").is_file():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", *program.packages], check=True)
    return folder


def command_of(folder: Path, program: Program, stub_url: str, otlp_url: str) -> list[str]:
    """Return the command to run."""
    if not program.is_npm:
        script, *arguments = program.command
        return [str(folder / "bin" / "python"), str(HERE / "programs" / script), *arguments]
    if program.command == ("codex",):
        (folder / "config.toml").write_text(CODEX.format(stub=stub_url, otlp=otlp_url))
        binary = folder / "node_modules" / ".bin" / "codex"
        return [str(binary), "exec", "--skip-git-repo-check", "say hello"]
    # Its package's own start script may be off in npm's settings: the binary works without.
    binary = next(folder.glob("node_modules/@anthropic-ai/claude-code-*/claude"))
    return [str(binary), "-p", "say hello", "--allowedTools", "Bash(echo:*)"]


def environment(folder: Path, stub_url: str, otlp_url: str) -> dict[str, str]:
    """Return the variables of a program: no key of anybody, and nothing of this process's."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CODEX_HOME": str(folder),
        "OPENAI_BASE_URL": f"{stub_url}/v1",
        "OPENAI_API_KEY": "stub",
        "ANTHROPIC_BASE_URL": stub_url,
        "ANTHROPIC_API_KEY": "stub",
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp_url,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": "app",
        "OTEL_LOGS_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "otlp",
        "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "TRACELOOP_TELEMETRY": "false",
    }


def serve(server: ThreadingHTTPServer) -> str:
    """Serve in a thread and return the URL."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def main() -> int:
    """Run one program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?", choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--list", action="store_true", help="print the names and versions")
    parser.add_argument("--otlp", default="", metavar="URL", help="a collector to pass all on to")
    given = parser.parse_args()
    if given.list or given.name is None:
        for name, program in PROGRAMS.items():
            print(f"{name:24} {' '.join(program.packages)}")
        return 0
    program = PROGRAMS[given.name]
    folder = prepare(given.name, program)
    recorded = FOLDER / f"{given.name}.jsonl"
    recorded.unlink(missing_ok=True)
    stub_url = serve(ThreadingHTTPServer(("127.0.0.1", 0), stub.Handler))
    otlp_url = serve(recorder.Recorder(0, recorded, given.otlp))
    ended = subprocess.run(
        command_of(folder, program, stub_url, otlp_url),
        env=environment(folder, stub_url, otlp_url),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )
    time.sleep(1)
    lines = recorded.read_text().splitlines() if recorded.is_file() else []
    for path, num in Counter(line.split('"')[3] for line in lines).items():
        print(f"{num} requests to {path}, in {recorded}")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())

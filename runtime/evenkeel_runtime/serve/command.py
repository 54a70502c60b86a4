"""`evenkeel serve`: vLLM's OpenAI server, with every request recorded."""

from __future__ import annotations

import argparse

from evenkeel.cli import Command
from evenkeel_runtime.adapter.refused_flags import refuse_flags

_EPILOG = """\
examples:
  evenkeel serve demo                                 # the bundled demo model
  evenkeel serve ./my-model --max-model-len 4096      # any folder or Hugging Face name
  evenkeel serve demo --speculate none --port 8001
  evenkeel serve demo --cache cache.toml              # response cache (docs/guide/cache.md)
  evenkeel serve ./my-model --speculate auto          # drafts whenever they pay off

MODEL comes first. All flags of vLLM's own server are accepted after it and passed on:
`evenkeel serve --vllm-help` lists them. Spans go to --otlp-endpoint, else where the standard
OTEL_EXPORTER_OTLP_* variables say, else to http://127.0.0.1:4318.
Stop with Ctrl-C. Exit codes: 0 stopped, 2 wrong flag, model, port or folder.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    from evenkeel.settings_flags import add_flags
    from evenkeel_runtime.engine.settings import StepSettings
    from evenkeel_runtime.serve.settings import RuntimeSettings
    from evenkeel_runtime.speculation.settings import SpeculationSettings

    # Abbreviations of our flags would shadow vLLM's flags.
    parser.allow_abbrev = False
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL", nargs="?", help="folder, hub name, or `demo`")
    parser.add_argument("--model", dest="model_flag", metavar="MODEL", help=argparse.SUPPRESS)
    parser.add_argument(
        "--speculate",
        choices=("auto", "draft", "none"),
        help="auto: draft from past answers and the prompt, as long as it pays "
        "off; draft: use the demo model's draft model (the default for demo)",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="show the effective settings and exit"
    )
    parser.add_argument(
        "--vllm-help",
        nargs="?",
        const="all",
        metavar="GROUP",
        help="show vLLM's own flags and exit",
    )
    for settings in (RuntimeSettings, SpeculationSettings, StepSettings):
        add_flags(parser, settings)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    refuse_flags(args.rest, speculates=args.speculate == "auto")
    from evenkeel_runtime.serve.server import run_serve

    return run_serve(args)


SERVE = Command(
    name="serve",
    summary="serve a model on vLLM's OpenAI server, with every request recorded",
    configure=_configure,
    extra="runtime-cpu",
    passes_unknown_flags=True,
    keeps_private=True,
)

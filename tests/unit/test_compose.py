"""docker-compose.yml against the Compose schema, and its commands against our own parsers."""

import json
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft201909Validator

from evenkeel.cli import build_parser, find_commands
from tests.checkout import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = {name: s for name, s in COMPOSE["services"].items() if "build" in s}


def test_it_matches_the_compose_schema() -> None:
    # Only the schema file of this distribution is used (docs/decisions/0003-compose-schema.md).
    schema = Path(
        str(distribution("docker-compose").locate_file("compose/config/compose_spec.json"))
    )
    Draft201909Validator(json.loads(schema.read_text())).validate(COMPOSE)


@pytest.mark.parametrize("service", OURS)
def test_each_command_is_one_we_have(service: str) -> None:
    parser = build_parser(find_commands())
    args, rest = parser.parse_known_args(OURS[service]["command"])
    assert args.command in {"collect", "serve", "dashboard", "demo"}
    passes_on = args.command == "serve"
    assert passes_on or rest == []


@pytest.mark.parametrize("service", OURS)
def test_each_image_is_a_target_of_the_dockerfile(service: str) -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert f" AS {OURS[service]['build']['target']}\n" in dockerfile


def test_only_loopback_is_published() -> None:
    ports = [port for s in COMPOSE["services"].values() for port in s.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)

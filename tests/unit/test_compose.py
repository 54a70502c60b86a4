"""docker-compose.yml against the Compose schema, and its commands against our own parsers."""

import json
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

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


def test_the_page_names_every_file_of_the_demo() -> None:
    page = (ROOT / "docs" / "guide" / "operations.md").read_text(encoding="utf-8")
    words = [
        word for name, s in OURS.items() if name not in ("files", "demo") for word in s["command"]
    ]
    flags = {word.partition("=")[0] for word in words if "=/demo/" in word}
    assert flags
    assert [flag for flag in flags if f"`{flag}`" not in page] == []


def test_only_loopback_is_published() -> None:
    ports = [port for s in COMPOSE["services"].values() for port in s.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


SERVICES = COMPOSE["services"]
DEPLOY = ROOT / "deploy"


def test_monitoring_and_gpu_start_only_when_asked_for() -> None:
    profiles = {name: s["profiles"] for name, s in SERVICES.items() if "profiles" in s}
    assert profiles == {
        "prometheus": ["monitoring"], "grafana": ["monitoring"], "dcgm-exporter": ["gpu"],
    }  # fmt: skip


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - OURS.keys()))
def test_images_of_others_have_a_tag_of_one_version(service: str) -> None:
    assert re.fullmatch(r"[\w./-]+:v?\d+\.\d[\w.-]*", SERVICES[service]["image"])


def test_what_is_mounted_from_the_checkout_is_there() -> None:
    volumes = [v for s in SERVICES.values() for v in s.get("volumes", ())]
    mounted = [v.split(":") for v in volumes if v.startswith("./")]
    assert len(mounted) == 4
    assert all((ROOT / source).exists() and mode == "ro" for source, _, mode in mounted)


def test_prometheus_scrapes_ports_that_services_have() -> None:
    file = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    targets = {t for job in file["scrape_configs"] for c in job.get("static_configs", ())
               for t in c["targets"]}  # fmt: skip
    assert targets == {"runtime:8000", "collector:4318", "127.0.0.1:9090"}
    assert "--allowed-hosts=collector" in SERVICES["collector"]["command"]
    assert all((DEPLOY / "prometheus" / name).exists() for name in file["rule_files"])
    (names,) = [job["dns_sd_configs"] for job in file["scrape_configs"] if "dns_sd_configs" in job]
    assert names[0]["names"][0] in SERVICES


def test_grafana_reads_the_services_with_an_account_that_only_reads() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    sources = yaml.safe_load((folder / "datasources" / "evenkeel.yaml").read_text())["datasources"]
    by_type = {source["type"]: source for source in sources}
    assert by_type["prometheus"]["url"] == "http://prometheus:9090"
    clickhouse = by_type["grafana-clickhouse-datasource"]
    assert clickhouse["jsonData"]["host"] in SERVICES
    variable = clickhouse["secureJsonData"]["password"].strip("${}")
    account = ElementTree.parse(DEPLOY / "clickhouse" / "grafana.xml").getroot()
    user = account.find(f"users/{clickhouse['jsonData']['username']}")
    assert user is not None
    assert user.find("password").get("from_env") == variable  # type: ignore[union-attr]
    assert (
        SERVICES["clickhouse"]["environment"][variable]
        == (SERVICES["grafana"]["environment"][variable])
    )
    assert [query.text for query in user.iter("query")] == ["GRANT SELECT ON evenkeel.*"]
    assert account.findtext(f"profiles/{user.findtext('profile')}/readonly") == "2"


def test_grafana_provides_the_folder_of_boards() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards" / "evenkeel.yaml").read_text())["providers"]
    assert (
        f"./deploy/grafana/boards:{provider['options']['path']}:ro"
        in (SERVICES["grafana"]["volumes"])
    )
    home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (DEPLOY / "grafana" / "boards" / home.name).exists()

"""The Dockerfile and docker-compose.yml: locked, layered, complete, healthy, bounded."""

import importlib.util
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel.settings import find_settings
from evenkeel_demo.parts import DemoLocation, Endpoints, Ports, runtime, write_files
from tests.checkout import ROOT
from tools.reference import settings_classes

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: s for name, s in SERVICES.items() if "build" in s}
TARGETS = sorted({s["build"]["target"] for s in OURS.values()})
# They play the story and end; the others serve for as long as they can.
ENDING = {"files", "demo"}
PARTS = ("runtime", "collector", "dashboard", "evals", "demo")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@dataclass(frozen=True, slots=True)
class Instruction:
    word: str
    text: str

    @property
    def sources(self) -> list[str]:
        """What a COPY copies from the checkout; nothing of what is from another stage."""
        words = [word for word in self.text.split() if not word.startswith("--chown")]
        is_own = self.word == "COPY" and not self.text.startswith("--from")
        return words[:-1] if is_own else []


def read_stages() -> dict[str, list[Instruction]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    stages: dict[str, list[Instruction]] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "FROM":
            name = rest.split(" AS ")[1]
            stages[name] = list(stages.get(rest.split(" AS ")[0], ()))
        else:
            stages[name].append(Instruction(word, rest.strip()))
    return stages


STAGES = read_stages()


def part_locks() -> Any:
    spec = importlib.util.spec_from_file_location("part_locks", ROOT / "tools" / "part_locks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("part", ["collector", "dashboard"])
def test_each_parts_lock_is_current(part: str) -> None:
    found = (ROOT / f"requirements-{part}.lock").read_text(encoding="utf-8")
    assert found == part_locks().part_lock(part), "run: python tools/part_locks.py"


def test_the_small_images_have_no_torch() -> None:
    for part in ("collector", "dashboard"):
        lock = (ROOT / f"requirements-{part}.lock").read_text()
        assert not re.search(r"^(torch|vllm|transformers)", lock, re.MULTILINE)


@pytest.mark.parametrize("target", TARGETS)
def test_dependencies_are_locked_and_come_before_the_sources(target: str) -> None:
    stage = STAGES[target]
    installs = [i for i, step in enumerate(stage) if "pip install" in step.text]
    assert len(installs) == 2, "the lock, then the wheel"
    assert all("--no-deps" in stage[i].text for i in installs)
    before = [source for step in stage[: installs[0]] for source in step.sources]
    lock = {"runtime": "cpu"}.get(target, target)
    assert before == [f"requirements-{lock}.lock"]
    assert before[0] in stage[installs[0]].text
    wheel = next(i for i, step in enumerate(stage) if step.text.startswith("--from=wheel"))
    assert installs[0] < wheel < installs[1]


def test_the_wheel_is_made_of_all_packages_by_the_locked_builder() -> None:
    sources = [source for step in STAGES["wheel"] for source in step.sources]
    assert {"evenkeel", "golden_datasets", *PARTS} <= set(sources)
    assert {"pyproject.toml", PYPROJECT["project"]["readme"]} <= set(sources)
    steps = [step.text for step in STAGES["wheel"] if step.word == "RUN"]
    assert any("--no-build-isolation" in step for step in steps)
    named = re.search(r"\^\(([^)]*)\)==", " ".join(steps))
    assert named is not None
    locked = (ROOT / "requirements-cpu.lock").read_text()
    reached = part_locks()._reach([part_locks().Requirement("hatchling")])
    assert set(named[1].split("|")) == reached
    assert all(re.search(rf"^{name}==", locked, re.MULTILINE) for name in reached)


def test_what_is_copied_is_not_ignored() -> None:
    ignored = set((ROOT / ".dockerignore").read_text().split())
    copied = {source for stage in STAGES.values() for step in stage for source in step.sources}
    assert copied & ignored == set()
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize("target", TARGETS)
def test_each_image_asks_for_its_health_and_runs_as_nobody_special(target: str) -> None:
    words = [step.word for step in STAGES[target]]
    assert words.count("HEALTHCHECK") == 1
    assert words.count("USER") == 1
    assert any("--mode 0700" in step.text and "/data" in step.text for step in STAGES[target])


@pytest.mark.parametrize("service", OURS)
def test_files_that_a_command_names_are_in_its_image(service: str) -> None:
    target = OURS[service]["build"]["target"]
    copied = {source for step in STAGES[target] for source in step.sources}
    named = {
        value
        for flag in OURS[service]["command"]
        if (value := flag.partition("=")[2])
        and not flag.startswith("--allowed-hosts=")  # a name, not a folder
        and (ROOT / value).exists()
    }
    # The runtime finds prompts by default, where no flag names them.
    needed = named | ({"prompts"} if target in ("runtime", "collector") else set())
    assert needed <= copied


def test_the_dashboard_knows_the_collector_and_the_slos() -> None:
    command = SERVICES["dashboard"]["command"]
    assert "--collector-url=http://collector:4318" in command
    assert "--slos=/demo/slos.yaml" in command


def test_the_runtime_has_every_hook_that_the_demo_has(tmp_path: Path) -> None:
    place = DemoLocation("127.0.0.1", Ports(), Path("/demo"), Endpoints.on("127.0.0.1", Ports()))
    alone = {"--host", "--port", "--data-dir"}
    names = {a for a in runtime(place).arguments if a.startswith("--")} - alone
    in_compose = {flag.partition("=")[0] for flag in SERVICES["runtime"]["command"]}
    assert names <= in_compose
    write_files(tmp_path, "http://demo:9095/")
    shared = {
        Path(value).name
        for service in OURS.values()
        for flag in service["command"]
        if (value := flag.partition("=")[2]).startswith("/demo/")
    }
    assert shared <= {path.name for path in tmp_path.iterdir()}
    assert "http://demo:9095/" in (tmp_path / "slos.yaml").read_text()


@pytest.mark.parametrize("service", OURS)
def test_who_reads_the_files_waits_until_they_are_written(service: str) -> None:
    described, waits, found = SERVICES[service], [service], set()
    if not any(volume.startswith("demo:/demo") for volume in described.get("volumes", ())):
        return
    while waits:
        name = waits.pop()
        found.add(name)
        waits.extend(set(SERVICES[name].get("depends_on", {})) - found)
    assert "files" in found


@pytest.mark.parametrize("service", sorted(SERVICES.keys() - ENDING))
def test_each_service_restarts_is_bounded_and_is_asked_for_its_health(service: str) -> None:
    described = SERVICES[service]
    assert described["restart"] == "unless-stopped"
    assert {"cpus", "memory"} <= set(described["deploy"]["resources"]["limits"])
    check = described["healthcheck"]
    assert {"interval", "timeout", "retries"} <= set(check)
    # Ours are asked as their image says.
    assert ("test" in check) == (service not in OURS)


@pytest.mark.parametrize("service", OURS)
def test_no_password_is_on_a_command_line(service: str) -> None:
    assert not any("PASSWORD" in flag or "@" in flag for flag in OURS[service]["command"])


@pytest.mark.parametrize("service", OURS)
def test_each_variable_is_a_setting(service: str) -> None:
    known = {s.variable for cls in settings_classes().values() for s in find_settings(cls)}
    ours = {v for v in OURS[service].get("environment", {}) if v.startswith("EVENKEEL_")}
    assert ours <= known

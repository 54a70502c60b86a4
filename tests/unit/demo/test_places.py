"""Where the demo's parts answer, and where it keeps its files."""

from pathlib import Path

import pytest

from evenkeel import cli
from evenkeel.embedding import hash_model
from evenkeel_demo.parts import DemoLocation, Endpoints, Ports, live_evaluation, write_files
from evenkeel_demo.settings import DemoSettings
from evenkeel_demo.stage import port_of
from evenkeel_runtime.response_cache.evidence_file import EvidenceFile
from evenkeel_runtime.response_cache.settings_file import read_policy
from tests.fixtures.file_limit import files_of_at_most

LOCATION = DemoLocation("127.0.0.1", Ports(), Path("/demo"), Endpoints.on("127.0.0.1", Ports()))


def test_the_live_evaluation_of_a_run_knows_nothing_of_an_earlier_one() -> None:
    states = set()
    for _ in range(2):
        arguments = live_evaluation(LOCATION).arguments
        states.add(arguments[arguments.index("--state") + 1])
    assert len(states) == 2


def test_the_files_get_a_folder_for_themselves(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "demo"
    assert cli.main(["demo", "--write-files", "--data-dir", str(folder)]) == 0
    assert (folder / "slos.yaml").is_file()
    assert folder.stat().st_mode & 0o077 == 0


def test_a_full_disk_is_said_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with files_of_at_most(512):
        assert cli.main(["demo", "--write-files", "--data-dir", str(tmp_path)]) == 2
    said = f"evenkeel: {tmp_path / 'cache.toml'} cannot be written: File too large\n"
    assert capsys.readouterr().err == said


def test_the_cache_begins_with_labels_that_apply_to_it(tmp_path: Path) -> None:
    write_files(tmp_path, "http://127.0.0.1:1/")
    policy = read_policy(tmp_path / "cache.toml")
    assert policy.labels is not None
    file = EvidenceFile(tmp_path, hash_model(), "demo", tmp_path / policy.labels)
    assert file.discarded == {}, "write the labels anew (parts.LABELS_FILE)"
    control = file.open_control(policy.find_route("popular"))
    assert min(item.bound for item in control.classes) < control.limit
    assert not control.served, "verdicts on traffic come first"


def test_running_parts_need_the_folder_that_they_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--runtime-url", "http://127.0.0.1:1", "--data-dir", str(tmp_path / "typo")]
    assert cli.main(["demo", *flags]) == 2
    assert "typo cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "typo").exists()


@pytest.mark.parametrize(
    "flag",
    ["--runtime-url", "--collector-url", "--dashboard-url", "--receiver-url", "--store-url"],
)
@pytest.mark.parametrize(
    "url", ["nowhere", "localhost:8000", "ftp://a", "http://", "http://[a", "http://a:99999"]
)
def test_what_is_no_address_is_bad_usage(
    flag: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--runtime-url", "http://127.0.0.1:1", "--data-dir", str(tmp_path), flag, url]
    assert cli.main(["demo", *flags]) == 2
    err = capsys.readouterr().err
    assert "expected" in err and err.count("\n") == 1


def test_paths_are_added_to_addresses_with_one_slash() -> None:
    settings = DemoSettings(
        runtime_url="http://a:8000/", collector_url="http://b/", dashboard_url="http://c//",
        receiver_url="http://demo/hook/",
    )  # fmt: skip
    endpoints = settings.endpoints()
    assert endpoints is not None
    assert (endpoints.runtime, endpoints.collector) == ("http://a:8000", "http://b")
    assert endpoints.dashboard == "http://c"
    assert settings.receiver_url == "http://demo/hook/"


@pytest.mark.parametrize(
    ("url", "port"), [("http://demo:9095/", 9095), ("http://demo/", 80), ("https://demo/", 443)]
)
def test_the_receiver_listens_where_the_collector_sends(url: str, port: int) -> None:
    assert port_of(url) == port

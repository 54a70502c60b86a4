"""The boards as Grafana gets them: what every panel says, where it lies, where it leads."""

import json
import re
from importlib.resources import files
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel_collector.boards.catalogue import BOARDS
from evenkeel_collector.boards.grafana_json import board_json
from evenkeel_collector.slo.formats.prometheus import prometheus_rules
from evenkeel_dashboard.pages import PAGES
from evenkeel_demo.parts import SLO_FILE
from tests.checkout import ROOT
from tests.fixtures.board_queries import URL, panels_of, rendered
from tests.fixtures.slo_files import slo_file

DEPLOY = ROOT / "deploy"
UIDS = [board.uid for board in BOARDS]


@pytest.mark.parametrize("board", BOARDS, ids=UIDS)
def test_the_committed_board_is_current(board: Any, request: pytest.FixtureRequest) -> None:
    path = DEPLOY / "grafana" / "boards" / f"{board.uid}.json"
    if request.config.getoption("--rewrite-golden"):
        path.write_text(board_json(board, URL), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == board_json(board, URL), "run `make golden`"


def test_no_other_board_is_committed() -> None:
    assert sorted(p.stem for p in (DEPLOY / "grafana" / "boards").iterdir()) == sorted(UIDS)


def objectives_of_compose() -> str:
    """What its collector evaluates, in whole windows: seconds are too short for a scrape."""
    text = (files("evenkeel_demo") / SLO_FILE).read_text(encoding="utf-8")
    return text.replace("WINDOW_SCALE", "1").replace("RECEIVER_URL", "http://demo:9095/")


def test_the_committed_rules_are_current(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path = DEPLOY / "prometheus" / "slo.rules.yml"
    file = slo_file(tmp_path, objectives_of_compose())
    rules = prometheus_rules(file.slos, rules=file.rules)
    if request.config.getoption("--rewrite-golden"):
        path.write_text(rules, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == rules, "run `make golden`"


@pytest.mark.parametrize("uid", UIDS)
def test_every_panel_says_what_it_shows(uid: str) -> None:
    for panel in panels_of(rendered()[uid]):
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"] == "no data"
        named = "displayName" in panel["fieldConfig"]["defaults"]
        first = panel["targets"][0].get("expr", "").replace("by (le)", "")
        several = len(panel["targets"]) > 1 or "by (" in first
        legends = [target.get("legendFormat") for target in panel["targets"]]
        assert named or not several or all(legends) or "rawSql" in panel["targets"][0]
        assert len(set(legends)) == len(legends) or named, "each series has a name of its own"


@pytest.mark.parametrize("uid", UIDS)
def test_panels_do_not_overlap(uid: str) -> None:
    cells: list[tuple[str, set[tuple[int, int]]]] = []
    for panel in rendered()[uid]["panels"]:
        at = {"x": 0, "y": 0} | panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        columns, lines = range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])
        cells.append((panel["title"], {(x, y) for x in columns for y in lines}))
    for (title, one), (other, two) in combinations(cells, 2):
        assert not one & two, f"{title} lies on {other}"


@pytest.mark.parametrize("uid", UIDS)
def test_every_query_reads_a_source_chosen_by_a_menu(uid: str) -> None:
    board = rendered()[uid]
    menus = {menu["name"]: menu for menu in board["templating"]["list"]}
    chosen = {f"${{{name}}}": menu["query"] for name, menu in menus.items()}
    for panel in panels_of(board):
        for source in (panel["datasource"], *(t["datasource"] for t in panel["targets"])):
            assert chosen[source["uid"]] == source["type"]
    text = json.dumps([panel["targets"] for panel in panels_of(board)])
    used = set(re.findall(r"\$\{?([a-z]+)\b(?!_)", text)) - {"__"}
    assert used - {"prometheus", "clickhouse"} <= menus.keys()
    assert menus.keys() <= used, "a menu that changes nothing"


@pytest.mark.parametrize("uid", UIDS)
def test_links_lead_to_pages_of_the_dashboard(uid: str) -> None:
    paths = {page.path for page in PAGES}
    links = set(re.findall(rf'"{URL}/([^"?]*)', json.dumps(rendered()[uid])))
    assert links and links <= paths
    assert "/evenkeel" not in links


def test_the_provisioned_sources_are_those_of_the_boards() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    file = yaml.safe_load((folder / "datasources" / "evenkeel.yaml").read_text())
    provided = {source["type"] for source in file["datasources"]}
    assert provided == {source.plugin for board in BOARDS for source in board.sources}

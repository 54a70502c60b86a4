"""Evidence outlives a restart, and is discarded with a reason where it does not apply."""

import json
import random
import stat
from pathlib import Path

import msgspec
import pytest

from evenkeel.embedding import hash_model
from evenkeel.private_files import replace_private
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.evidence_file import (
    EARLIER_FILE,
    LABELS_FILE,
    Collected,
    EvidenceFile,
    LabelledPair,
    Labels,
    name_file,
)
from evenkeel_runtime.response_cache.hit_class import KINDS, KNOWN_WORDS, HitClass
from evenkeel_runtime.response_cache.route_evidence import Controls
from evenkeel_runtime.response_cache.serve_control import Evidence, ServeControl
from evenkeel_runtime.response_cache.settings_file import RoutePolicy
from tests.fixtures.manual_clock import ManualClock

POLICY = RoutePolicy(route="faq")
MODEL, EMBEDDER = "demo|None|bfloat16|None", "abc"
EVIDENCE_FILE = name_file(MODEL)
SURE = HitClass(KNOWN_WORDS, 0.9, 0.4)


def open_file(folder: Path, embedder: str = EMBEDDER, model: str = MODEL) -> EvidenceFile:
    return EvidenceFile(folder, embedder, model)


def write(folder: Path, control: ServeControl) -> None:
    file = open_file(folder)
    file.write(file.encode({control_route(control): control}))


def control_route(control: ServeControl) -> str:
    return control._policy.route


def trusted() -> ServeControl:
    control = ServeControl(POLICY)
    for _ in range(600):
        control.record(SURE, is_wrong=False)
    assert control.may_serve(SURE)
    return control


def label(folder: Path, num_right: int, num_wrong: int = 0, embedder: str = EMBEDDER) -> None:
    pairs = [LabelledPair(KNOWN_WORDS, 0.9, 0.4, n < num_wrong) for n in range(num_right)]
    labels = Labels(Collected(embedder), tuple(pairs))
    replace_private(folder / LABELS_FILE, msgspec.json.encode(labels))


@pytest.mark.parametrize("seed", range(5))
def test_any_evidence_comes_back_as_it_was(seed: int, tmp_path: Path) -> None:
    order = random.Random(seed)
    control = ServeControl(POLICY)
    for _ in range(2000):
        hit = HitClass(order.choice(KINDS), order.random(), order.random())
        control.record(hit, order.random() < 0.01)
    write(tmp_path, control)
    again = open_file(tmp_path).open_control(POLICY)
    counted = [(c.key, c.seen, c.wrong, c.bound) for c in control.classes]
    assert [(c.key, c.seen, c.wrong, c.bound) for c in again.classes] == counted


def test_what_was_served_is_served_after_a_restart_and_each_hit_replayed_at_first(
    tmp_path: Path,
) -> None:
    write(tmp_path, trusted())
    again = open_file(tmp_path).open_control(POLICY)
    assert again.may_serve(SURE)
    assert again.verdict_ratio(KNOWN_WORDS) == 1.0


def test_the_file_is_private_and_others_routes_stay_in_it(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    assert stat.S_IMODE((tmp_path / EVIDENCE_FILE).stat().st_mode) == 0o600
    write(tmp_path, ServeControl(RoutePolicy(route="other")))
    assert set(json.loads((tmp_path / EVIDENCE_FILE).read_text())["routes"]) == {"faq", "other"}


def test_evidence_is_saved_also_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = ManualClock(1_800_000_000.0)
    controls = Controls(CacheCounts(), AuditLog(None), clock)
    controls.data_dir = tmp_path
    controls.load(MODEL)
    controls.record(POLICY, SURE, False, None)
    clock.now_s -= 3600
    controls.record(POLICY, SURE, False, None)
    again = EvidenceFile(tmp_path, hash_model(), MODEL).open_control(POLICY)
    assert again.evidence[KNOWN_WORDS][0].seen == 2


def test_evidence_with_another_embedding_model_is_discarded(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    file = open_file(tmp_path, "other")
    assert "another embedding model" in file.discarded[EVIDENCE_FILE]
    assert not file.open_control(POLICY).may_serve(SURE)


def test_servers_of_several_models_keep_their_evidence_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    file = open_file(tmp_path, model="other")
    assert not file.open_control(POLICY).may_serve(SURE)
    file.write(file.encode({"faq": ServeControl(POLICY)}))
    again = open_file(tmp_path)
    assert again.open_control(POLICY).may_serve(SURE)
    assert file.discarded == again.discarded == {}


def test_evidence_of_an_earlier_version_is_taken_over_by_its_model_only(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    (tmp_path / EVIDENCE_FILE).rename(tmp_path / EARLIER_FILE)
    other = open_file(tmp_path, model="other")
    assert not other.open_control(POLICY).may_serve(SURE)
    other.write(other.encode({"faq": ServeControl(POLICY)}))
    for _ in range(2):
        assert open_file(tmp_path).open_control(POLICY).may_serve(SURE)
    assert {path.name for path in tmp_path.iterdir()} == {EVIDENCE_FILE, name_file("other")}


def test_what_is_found_of_an_earlier_version_replaces_no_newer_evidence(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    (tmp_path / EVIDENCE_FILE).rename(tmp_path / EARLIER_FILE)
    file = open_file(tmp_path)
    (tmp_path / EVIDENCE_FILE).rename(tmp_path / EARLIER_FILE)
    file.write(file.encode({"faq": ServeControl(POLICY)}))
    assert not open_file(tmp_path).open_control(POLICY).may_serve(SURE)


def test_weights_that_change_while_serving_leave_only_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label(tmp_path, 7, embedder=hash_model())
    controls = Controls(CacheCounts(), AuditLog(None), ManualClock())
    controls.data_dir = tmp_path
    controls.load(MODEL)
    for _ in range(600):
        controls.record(POLICY, SURE, False, None)
    controls.save()
    assert controls.find(POLICY).may_serve(SURE)
    # Trainers change weights in many small calls: each reads no file.
    monkeypatch.setattr("evenkeel_runtime.response_cache.route_evidence.EvidenceFile", None)
    for number in range(2):
        controls.start_over(f"{MODEL}|{number}")
        control = controls.find(POLICY)
        assert not control.may_serve(SURE)
        assert max(counted.seen for counted in control.classes) == 7
    assert controls.file is not None
    assert controls.file.discarded == {EVIDENCE_FILE: "the weights changed while serving"}
    # A restart has the first weights again.
    assert EvidenceFile(tmp_path, hash_model(), MODEL).open_control(POLICY).may_serve(SURE)
    controls.save()
    assert EVIDENCE_FILE in EvidenceFile(tmp_path, hash_model(), MODEL).discarded


def test_evidence_of_other_ladders_is_discarded(tmp_path: Path) -> None:
    write(tmp_path, trusted())
    file = open_file(tmp_path)
    other = POLICY.model_copy(update={"similarities": (0.55, 0.8)})
    assert not file.open_control(other).may_serve(SURE)
    assert "other similarities" in file.discarded[EVIDENCE_FILE]


def corrupt(text: str) -> dict[str, str]:
    whole = json.loads(text)
    seen = whole["routes"]["faq"]["classes"][0]
    kind = [["no kind", *seen[1:]]]
    wrong = [[*seen[:4], seen[3] + 1, 0, 0]]
    return {
        "cut off": text[:-20],
        "empty": "",
        "another shape": json.dumps({"routes": []}),
        "unknown kind": json.dumps(
            whole | {"routes": {"faq": whole["routes"]["faq"] | {"classes": kind}}}
        ),
        "impossible": json.dumps(
            whole | {"routes": {"faq": whole["routes"]["faq"] | {"classes": wrong}}}
        ),
        "unknown key": json.dumps(whole | {"more": 1}),
    }


@pytest.mark.parametrize(
    "how", ["cut off", "empty", "another shape", "unknown kind", "impossible", "unknown key"]
)
def test_a_corrupt_file_is_discarded_and_replaced(how: str, tmp_path: Path) -> None:
    write(tmp_path, trusted())
    path = tmp_path / EVIDENCE_FILE
    path.write_text(corrupt(path.read_text())[how])
    file = open_file(tmp_path)
    assert EVIDENCE_FILE in file.discarded
    assert not file.open_control(POLICY).may_serve(SURE)
    file.write(file.encode({"faq": trusted()}))
    assert open_file(tmp_path).open_control(POLICY).may_serve(SURE)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        pytest.param([["no kind", 0.9, 0.4, False]], "unknown kind", id="a kind there is not"),
        pytest.param([[KNOWN_WORDS, 9.0, 0.4, False]], "impossible cosine", id="a cosine of 9"),
        pytest.param([[KNOWN_WORDS, 0.9, 1e300, False]], "impossible", id="a lead of 1e300"),
        pytest.param([[KNOWN_WORDS, "0.9", 0.4, False]], "Expected `float`", id="a text"),
        pytest.param([[KNOWN_WORDS, 0.9, 0.4, 1]], "Expected `bool`", id="1 for true"),
        pytest.param([[KNOWN_WORDS, 0.9]], "length", id="too few values"),
        pytest.param({"pairs": 1}, "Expected `array`", id="another shape"),
        pytest.param([[KNOWN_WORDS, 0.9, 0.4, False]] * 100_001, "more than", id="too many"),
    ],
)
def test_labels_that_cannot_be_are_discarded_with_the_reason(
    pairs: object, reason: str, tmp_path: Path
) -> None:
    collected = msgspec.to_builtins(Collected(EMBEDDER))
    (tmp_path / LABELS_FILE).write_text(json.dumps({"collected": collected, "pairs": pairs}))
    file = open_file(tmp_path)
    assert reason in file.discarded[LABELS_FILE]
    assert all(not item.seen for item in file.open_control(POLICY).classes)


def test_labels_count_for_the_classes_that_cover_them() -> None:
    order = random.Random(5)
    pairs = [
        LabelledPair(order.choice(KINDS), order.random(), order.random() / 3, order.random() < 0.2)
        for _ in range(3000)
    ]
    counted = Labels(Collected(EMBEDDER), tuple(pairs)).count(POLICY)
    assert len(counted) > len(KINDS)
    for (kind, similarity, lead), found in counted.items():
        item = Evidence(kind, similarity, lead, alpha=0.5)
        wrong = [p.is_wrong for p in pairs if item.covers(HitClass(p.kind, p.similarity, p.lead))]
        assert (found.seen, found.wrong) == (len(wrong), sum(wrong))


def test_labels_count_beside_traffic_and_serve_once_there_is_some(tmp_path: Path) -> None:
    label(tmp_path, 800)
    control = open_file(tmp_path).open_control(POLICY)
    assert control.evidence[KNOWN_WORDS][0].bound < POLICY.wrong_hit_limit
    assert not control.may_serve(SURE)
    for _ in range(20):
        control.record(SURE, is_wrong=False)
    assert control.may_serve(SURE)
    write(tmp_path, control)
    again = open_file(tmp_path).open_control(POLICY)
    assert again.may_serve(SURE)
    assert again.evidence[KNOWN_WORDS][0].labelled == 800
    assert again.evidence[KNOWN_WORDS][0].seen == 820


@pytest.mark.parametrize(
    "change", [{"wrong_hit_limit": 0.1}, {"alpha": 0.01}, {"similarities": (0.55, 0.8)}]
)
def test_labels_outlast_other_terms_in_the_file(change: dict[str, object], tmp_path: Path) -> None:
    label(tmp_path, 800)
    file = open_file(tmp_path)
    control = file.open_control(POLICY)
    for _ in range(20):
        control.record(SURE, is_wrong=False)
    assert control.may_serve(SURE)
    control.configure(POLICY.model_copy(update=change), file.count_labels)
    known = control.evidence[KNOWN_WORDS][0]
    assert (known.seen, known.labelled) == (800, 800)
    assert not control.may_serve(SURE)
    for _ in range(20):
        control.record(SURE, is_wrong=False)
    assert control.may_serve(SURE)


def test_labels_of_a_kind_that_was_given_up_do_not_return_with_other_terms(tmp_path: Path) -> None:
    label(tmp_path, 800)
    file = open_file(tmp_path)
    control = file.open_control(POLICY)
    for _ in range(20):
        control.record(SURE, is_wrong=False)
    for _ in range(10):
        control.record(SURE, is_wrong=True)
    assert not control.evidence[KNOWN_WORDS][0].labelled
    control.configure(POLICY.model_copy(update={"wrong_hit_limit": 0.1}), file.count_labels)
    assert not any(item.seen for item in control.classes)


def test_labels_of_a_kind_that_was_given_up_stay_away_until_there_are_new_ones(
    tmp_path: Path,
) -> None:
    label(tmp_path, 800)
    control = open_file(tmp_path).open_control(POLICY)
    for _ in range(20):
        control.record(SURE, is_wrong=False)
    changes = [control.record(SURE, is_wrong=True) for _ in range(10)]
    assert "risen" in [change.reason for change in changes if change is not None]
    write(tmp_path, control)
    assert open_file(tmp_path).open_control(POLICY).evidence[KNOWN_WORDS][0].labelled == 0
    label(tmp_path, 900)
    assert open_file(tmp_path).open_control(POLICY).evidence[KNOWN_WORDS][0].labelled == 900


def test_labels_that_were_withdrawn_stay_away_when_another_route_is_saved(tmp_path: Path) -> None:
    label(tmp_path, 800)
    control = open_file(tmp_path).open_control(POLICY)
    control.record(SURE, is_wrong=False)
    write(tmp_path, control)
    (tmp_path / LABELS_FILE).unlink()
    write(tmp_path, ServeControl(RoutePolicy(route="other")))
    found = open_file(tmp_path).open_control(POLICY).evidence[KNOWN_WORDS][0]
    assert (found.labelled, found.seen) == (0, 1)


def test_the_labels_of_a_file_of_an_earlier_version_still_count(tmp_path: Path) -> None:
    label(tmp_path, 800)
    write(tmp_path, open_file(tmp_path).open_control(POLICY))
    whole = json.loads((tmp_path / EVIDENCE_FILE).read_text())
    whole["labels"] = whole["routes"]["faq"].pop("labels")
    (tmp_path / EVIDENCE_FILE).write_text(json.dumps(whole))
    write(tmp_path, ServeControl(RoutePolicy(route="other")))
    assert open_file(tmp_path).open_control(POLICY).evidence[KNOWN_WORDS][0].labelled == 800


def test_labels_certify_no_cosine_below_those_they_were_collected_at(tmp_path: Path) -> None:
    label(tmp_path, 800)
    policy = POLICY.model_copy(update={"similarities": (0.2, 0.5), "draft_similarity": 0.2})
    control = open_file(tmp_path).open_control(policy)
    labelled = {item.similarity: item.labelled for item in control.evidence[KNOWN_WORDS]}
    assert labelled == {0.2: 0, 0.5: 800}


def test_labels_made_with_another_embedding_model_are_discarded(tmp_path: Path) -> None:
    label(tmp_path, 800, embedder="other")
    file = open_file(tmp_path)
    assert LABELS_FILE in file.discarded
    assert file.open_control(POLICY).evidence[KNOWN_WORDS][0].seen == 0

"""Notes of parts that are not there are taken back; all others stay as they are."""

from pathlib import Path

from evenkeel_collector.store.unfinished_inserts import forget_unfinished_inserts

ADDED = ("20261122_1_1_0", "20261122_2_2_0", "20261123_3_3_0", "all_7_7_0")


def table(tmp_path: Path, parts: list[str], log: str) -> Path:
    folder = tmp_path / "store" / "abc" / "abc-1"
    for name in parts:
        (folder / name).mkdir(parents=True)
    logs = folder / "deduplication_logs"
    logs.mkdir(parents=True)
    (logs / "deduplication_log_9.txt").write_text("1\tall_1_1_0\told\n2\tall_1_1_0\told\n")
    newest = logs / "deduplication_log_10.txt"
    newest.write_text(log)
    return newest


def test_a_part_that_is_there_or_merged_keeps_its_note(tmp_path: Path) -> None:
    log = "".join(f"1\t{part}\tblock{i}\n" for i, part in enumerate(ADDED))
    parts = ["20261122_1_2_1", "20261123_3_3_0_8", "all_7_9_2", "tmp_insert_all_1_1_0"]
    newest = table(tmp_path, parts, log)
    assert forget_unfinished_inserts(tmp_path) == 0
    assert newest.read_text() == log


def test_a_part_that_is_not_there_loses_its_note_once(tmp_path: Path) -> None:
    log = "".join(f"1\t{part}\tblock{i}\n" for i, part in enumerate(ADDED))
    # The same numbers in another partition, and a folder that was not named yet.
    parts = ["20261122_1_1_0", "20261124_3_3_0", "all_7_7_0", "tmp_insert_20261122_2_2_0"]
    newest = table(tmp_path, parts, log)
    assert forget_unfinished_inserts(tmp_path) == 2
    taken_back = "2\t20261122_2_2_0\tblock1\n2\t20261123_3_3_0\tblock2\n"
    assert newest.read_text() == log + taken_back
    assert forget_unfinished_inserts(tmp_path) == 0


def test_a_torn_note_is_cut_off(tmp_path: Path) -> None:
    newest = table(tmp_path, ["all_1_1_0"], "1\tall_1_1_0\tblock\n1\tall_2_")
    assert forget_unfinished_inserts(tmp_path) == 0
    assert newest.read_text() == "1\tall_1_1_0\tblock\n"


def test_a_damaged_note_is_passed_over_and_the_others_count(tmp_path: Path) -> None:
    log = "1\tall_5_5_0\tgone\n" + "\0" * 40 + "\n1\tall_\n1\tall_2_2_0\tthere\n"
    newest = table(tmp_path, ["all_2_2_0"], log)
    assert forget_unfinished_inserts(tmp_path) == 1
    assert newest.read_text() == log + "2\tall_5_5_0\tgone\n"


def test_a_store_that_is_not_there_yet_has_none(tmp_path: Path) -> None:
    assert forget_unfinished_inserts(tmp_path / "store") == 0

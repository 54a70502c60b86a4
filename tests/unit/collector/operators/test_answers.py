"""What the models of the API's answers declare is what is answered: no field more, none less."""

from pathlib import Path

from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.operators.answers import PromptsAnswer, ReportAnswer
from evenkeel_collector.operators.prompts import listing
from evenkeel_collector.slo.corrections import Correction, CorrectionReason
from evenkeel_collector.slo.report import Firing, SloReport, SloResult
from evenkeel_collector.slo.report_text import report_json
from tests.checkout import ROOT


def test_a_report_has_every_field_of_its_model() -> None:
    slo = read_slo_file(ROOT / "slos.yaml").slos[0]
    why = Correction("c1", "", 0, 60, CorrectionReason.INCIDENT, "ann", "a switch", 70)
    firings = (Firing("page", 5, None, None), Firing("ticket", 5, 9, "queue"))
    days = {"2026-10-31": Counts(100.0, 1.5)}
    report = report_json(
        SloReport(0, 100, (SloResult(slo, Counts(100.0, 1.5), days, firings, (why,)),
                           SloResult(slo, Counts(0.0, 0.0), {})))
    )  # fmt: skip
    assert ReportAnswer.model_validate(report).model_dump(by_alias=True) == report


def test_a_prompt_has_every_field_of_its_model(tmp_path: Path) -> None:
    registry = PromptRegistry(tmp_path)
    registry.keep(PromptVersion("support", digest("old"), "old"))
    registry.move("support", Move(1, "production", digest("old"), "the first", None))
    (tmp_path / "support.toml").write_text('system = "new"')
    found = {"prompts": listing(tmp_path)}
    assert PromptsAnswer.model_validate(found).model_dump(by_alias=True) == found

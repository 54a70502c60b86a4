"""SLO files: what is read, and that every mistake names value, file and line."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import DEFAULT_RULES, Severity
from evenkeel.slo.file.anomalies import default_anomalies
from evenkeel.slo.file.slo_file import WITHOUT_FILE, read_slo_file
from evenkeel.slo.model import Metric, Treatment
from tests.checkout import ROOT

GOOD = """\
apiVersion: evenkeel/v1
kind: Alerting
spec:
  interval: 2s
  scale: 1/60
  receivers:
    - name: on-call
      url: https://alerts.example.com/hook
---
apiVersion: openslo/v1
kind: SLO
metadata:
  name: chat-ttft
  displayName: Chat starts fast
  labels:
    team: chat
spec:
  description: What users wait for.
  service: chat
  budgetingMethod: Occurrences
  indicator:
    metric: ttft
    select:
      model: support
      prompt_version: 2
    aborted: measured
  objectives:
    - op: lte
      value: 0.5
      target: 0.995
  timeWindow:
    - duration: 30d
      isRolling: true
  alerting:
    for: 1m
    minBad: 3
    windows:
      - severity: page
        budget: 2/100
        long: 1h
        short: 5m
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "slos.yaml"
    path.write_text(text)
    return path


RULE = """
---
apiVersion: evenkeel/v1
kind: Rule
metadata: {name: silent}
spec:
  absence: {after: 15m}
  for: 1m
"""


@pytest.mark.parametrize("zero", ["0", "0s", "0m", "0.0h", "'0'"])
def test_an_alert_may_wait_for_no_time(tmp_path: Path, zero: str) -> None:
    """0 is the documented default of `for` and `keepFiringFor`."""
    text = (GOOD + RULE).replace("for: 1m", f"for: {zero}\n    keepFiringFor: {zero}", 1)
    text = text.replace("for: 1m", f"for: {zero}\n  keepFiringFor: {zero}")
    file = read_slo_file(write(tmp_path, text))
    (slo,), (rule,) = file.slos, file.rules
    assert (slo.pending_s, slo.keep_firing_s) == (0, 0)
    assert (rule.pending_s, rule.keep_firing_s) == (0, 0)


@pytest.mark.parametrize("line", ["for: 0x", "for: -1m", "for: [0]", "noData: 0", "short: 0m"])
def test_a_duration_is_no_other_zero(tmp_path: Path, line: str) -> None:
    old = "short: 5m" if line.startswith("short") else "for: 1m"
    with pytest.raises(ConfigurationError, match="expected"):
        read_slo_file(write(tmp_path, GOOD.replace(old, line)))


def test_every_key_is_read(tmp_path: Path) -> None:
    file = read_slo_file(write(tmp_path, GOOD))
    (slo,) = file.slos
    assert (file.interval_s, file.receivers[0].name) == (2.0, "on-call")
    assert (slo.name, slo.title, slo.target) == ("chat-ttft", "Chat starts fast", Fraction("0.995"))
    assert slo.labels == {"team": "chat", "service": "chat"}
    assert (slo.indicator.metric, slo.indicator.threshold_s) == (Metric.TTFT, 0.5)
    assert slo.indicator.select == {"model": "support", "prompt_version": "2"}
    assert slo.indicator.aborted is Treatment.MEASURED
    assert slo.indicator.error is slo.indicator.shed is Treatment.BAD
    assert slo.scaled_period_s == 12 * 3600
    (window,) = slo.windows
    assert (window.severity, window.long_s, window.short_s) == (Severity.PAGE, 60, 5)
    assert window.factor == Fraction("14.4")
    assert (slo.pending_s, slo.keep_firing_s, slo.min_bad) == (60, 0, 3)


def test_the_example_of_the_repository_is_valid() -> None:
    file = read_slo_file(ROOT / "slos.yaml")
    assert [slo.indicator.metric for slo in file.slos] == [Metric.TTFT, Metric.AVAILABILITY]
    assert all(slo.rules == DEFAULT_RULES and slo.scale == 1 for slo in file.slos)


@pytest.mark.parametrize(
    ("metric", "value", "is_unlikely"),
    [
        ("ttft", "500", True),
        ("tpot", "50", True),
        ("e2e", "30000", True),
        ("ttft", "30", False),
        ("e2e", "600", False),
        ("session_e2e", "3600", False),
    ],
)
def test_a_limit_that_looks_like_milliseconds_is_noted(
    tmp_path: Path, metric: str, value: str, is_unlikely: bool
) -> None:
    text = GOOD.replace("metric: ttft", f"metric: {metric}").replace(
        "      prompt_version: 2\n", ""
    )
    text = text.replace("value: 0.5", f"value: {value}")
    (notes,) = [read_slo_file(write(tmp_path, text)).notes]
    wanted = f"value is {value} seconds; for milliseconds write {float(value) / 1000:g} ("
    assert [wanted in note for note in notes] == [True] * is_unlikely


MISTAKES = [
    (
        "a percentage for a target",
        ("target: 0.995", "target: 99.5"),
        "SLO 'chat-ttft': target is 99.5, expected a fraction such as 0.995 (slos.yaml:30)",
    ),
    (
        "a target of one",
        ("target: 0.995", "target: 1"),
        "SLO 'chat-ttft': target is 1, expected a fraction such as 0.995 (slos.yaml:30)",
    ),
    (
        "an unknown key",
        ("service: chat", "servise: chat"),
        "SLO 'chat-ttft': servise is not a key of spec; known: description, service, "
        "budgetingMethod, indicator, indicatorRef, objectives, timeWindows, timeWindow, "
        "alertPolicies, alerting, budgetPolicy (slos.yaml:19)",
    ),
    (
        "a repeated key",
        ("metric: ttft", "metric: ttft\n    metric: tpot"),
        "SLO 'chat-ttft': metric appears twice (slos.yaml:23)",
    ),
    (
        "an unknown metric",
        ("metric: ttft", "metric: tftt"),
        "SLO 'chat-ttft': metric is 'tftt', expected ttft or tpot or itl or stall or e2e or "
        "availability or acceptance or cache_hit or eval_pass or session_e2e or session_turns "
        "or session_success or feedback or cost (slos.yaml:22)",
    ),
    (
        "no threshold",
        ("      value: 0.5\n", ""),
        "SLO 'chat-ttft': ttft needs objectives[0].value, in seconds (slos.yaml:22)",
    ),
    (
        "a threshold in milliseconds",
        ("value: 0.5", "value: 500ms"),
        "SLO 'chat-ttft': value is '500ms', expected seconds such as 0.5 (slos.yaml:29)",
    ),
    (
        "availability with a threshold",
        ("metric: ttft", "metric: availability"),
        "SLO 'chat-ttft': availability takes no value: it is already a ratio (slos.yaml:29)",
    ),
    (
        "a missing target",
        ("      target: 0.995\n", ""),
        "SLO 'chat-ttft': target is missing from objectives[0] (slos.yaml:28)",
    ),
    (
        "a calendar window without a zone",
        ("isRolling: true", "isRolling: false"),
        "SLO 'chat-ttft': a period that is not rolling needs calendar.timeZone (slos.yaml:33)",
    ),
    (
        "a period that is no duration",
        ("duration: 30d", "duration: 30"),
        "SLO 'chat-ttft': duration is 30, expected a duration such as 30d, 1h, 5m, 90s or 250ms "
        "(slos.yaml:32)",
    ),
    (
        "a short window longer than the long one",
        ("short: 5m", "short: 2h"),
        "SLO 'chat-ttft': short is '2h', expected at most the long window, 1h (slos.yaml:41)",
    ),
    (
        "half an event",
        ("minBad: 3", "minBad: 0.5"),
        "SLO 'chat-ttft': minBad is 0.5, expected a whole number of at least 1 (slos.yaml:36)",
    ),
    (
        "an unknown selector",
        ("      model: support", "      modell: support"),
        "SLO 'chat-ttft': modell is not a key of select; known: model, tenant, slo_class, route, "
        "prompt_name, prompt_version, engine (slos.yaml:24)",
    ),
    (
        "an empty selector",
        ("      model: support", "      model: ''"),
        "SLO 'chat-ttft': model is '', expected text (slos.yaml:24)",
    ),
    (
        "a reserved label",
        ("team: chat", "severity: high"),
        "SLO 'chat-ttft': label 'severity' is set by evenkeel (slos.yaml:16)",
    ),
    (
        "a label without a name",
        ("team: chat", "'': chat"),
        "SLO 'chat-ttft': a key must be a word (slos.yaml:16)",
    ),
    (
        "windows below a second",
        ("scale: 1/60", "scale: 1/720"),
        "SLO 'chat-ttft': with scale 1/720 the shortest window is 0.416667 s, less than a second "
        "(slos.yaml:18)",
    ),
    (
        "a scale above one",
        ("scale: 1/60", "scale: 60"),
        "scale is 60, expected above 0 and at most 1, such as 1/60 (slos.yaml:5)",
    ),
    (
        "a name with spaces",
        ("name: chat-ttft", "name: Chat TTFT"),
        "document 2: name is 'Chat TTFT', expected letters, digits, dashes, dots and underscores, "
        "253 at most (slos.yaml:13)",
    ),
    (
        "an address without a scheme",
        ("https://alerts.example.com/hook", "alerts.example.com"),
        "url is 'alerts.example.com', expected an http or https address with a host (slos.yaml:8)",
    ),
    (
        "a file address",
        ("https://alerts.example.com/hook", "file:///etc/passwd"),
        "url is 'file:///etc/passwd', expected an http or https address with a host (slos.yaml:8)",
    ),
    (
        "an address with an impossible port",
        ("https://alerts.example.com/hook", "http://host:99999/"),
        "url is 'http://host:99999/', expected an http or https address with a host (slos.yaml:8)",
    ),
    (
        "an unknown kind",
        ("kind: SLO", "kind: Slo"),
        "document 2: kind is 'Slo', expected SLO or SLI or Service or DataSource or AlertPolicy or "
        "AlertCondition or AlertNotificationTarget or Alerting or Rule (slos.yaml:11)",
    ),
    (
        "another version",
        ("openslo/v1\n", "openslo/v2\n"),
        "document 2: apiVersion is 'openslo/v2', expected openslo/v1 or openslo/v1alpha "
        "(slos.yaml:10)",
    ),
    (
        "broken YAML",
        ("metadata:\n", "metadata: [\n"),
        "slos.yaml is not YAML: ",
    ),
    (
        "a tab",
        ("    metric: ttft", "\tmetric: ttft"),
        "slos.yaml is not YAML: found character '\\t' that cannot start any token: "
        "indent with spaces (slos.yaml:22)",
    ),
    (
        "a key indented too far",
        ("      value: 0.5", "        value: 0.5"),
        "slos.yaml is not YAML: mapping values are not allowed here: "
        "check the indentation here and above (slos.yaml:29)",
    ),
    (
        "a key indented too little",
        ("      value: 0.5", "     value: 0.5"),
        "slos.yaml is not YAML: expected <block end>, but found '<block mapping start>': "
        "check the indentation here and above (slos.yaml:29)",
    ),
    (
        "two documents without a line between them",
        ("---\n", ""),
        "apiVersion appears twice: a line --- separates documents (slos.yaml:9)",
    ),
    (
        "a fraction for a percentage",
        ("target: 0.995", "targetPercent: 0.995"),
        "SLO 'chat-ttft': targetPercent is 0.995, expected a percentage such as 99.5 "
        "(slos.yaml:30)",
    ),
    (
        "an expression that is none",
        ("      model: support", "      model: {matches: '('}"),
        "SLO 'chat-ttft': model=~\"(\": not a valid RE2 pattern: missing ): ( (slos.yaml:24)",
    ),
    (
        "a list where a mapping belongs",
        ("    select:\n      model: support\n      prompt_version: 2", "    select: [support]"),
        "SLO 'chat-ttft': select is a list, expected a mapping (slos.yaml:23)",
    ),
]


@pytest.mark.parametrize(
    ("change", "message"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_a_mistake_is_one_line_with_value_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], message: str
) -> None:
    assert GOOD.count(change[0]) == 1 or change[0] == "metadata:\n", change
    write(tmp_path, GOOD.replace(*change))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        read_slo_file(Path("slos.yaml"))
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no document of kind SLO, Rule or Alerting"),
        ("---\n---\n", "has no document of kind SLO, Rule or Alerting"),
        ("[1, 2]", "the document is 1, expected a mapping"),
        (GOOD + "---\n" + GOOD.split("---\n")[1], "SLO 'chat-ttft': .* has this name.*:\\d+"),
        (GOOD + "---\n" + GOOD.split("---\n")[0], "a second document of kind Alerting"),
        ("a: &x [*x]", "nested too deeply"),
        ("\x00", "not YAML"),
    ],
    ids=["empty", "empty documents", "a list", "same name", "two Alerting", "a loop", "a NUL"],
)
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_slo_file(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_receivers_alone_are_a_file_with_the_default_rules(tmp_path: Path) -> None:
    file = read_slo_file(write(tmp_path, GOOD.split("---\n")[0]))
    assert (file.slos, bool(file.receivers)) == ((), True)
    assert file.all_rules == default_anomalies()


def test_without_a_file_the_default_rules_are_in_force() -> None:
    file = read_slo_file(WITHOUT_FILE)
    assert (file.slos, file.receivers, file.interval_s) == ((), (), 30)
    assert file.all_rules == default_anomalies()


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_slo_file(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="is not UTF-8: byte 0xff at 0"):
        read_slo_file(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", b"# evenkeel\n\nWhy was this request slow: who pays?\n"),
        ("picture.png", b"\x89PNG\r\n"),
        ("compose.yml", b"services:\n  collector:\n    image: evenkeel\n"),
    ],
)
def test_a_file_of_another_kind_is_refused_in_one_line(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"{name} is not an SLO file; expected") as caught:
        read_slo_file(path)
    assert "\n" not in str(caught.value)

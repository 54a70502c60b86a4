"""Sorts the documents of an SLO file by kind: ours, OpenSLO's, and those only preserved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.objective import OUR_SOURCE
from evenkeel.slo.yaml_source import Section, Value, read_documents

OPENSLO_VERSIONS = ("openslo/v1", "openslo/v1alpha")
OUR_VERSION = "evenkeel/v1"
# Where an exported file keeps our own documents: an annotation of a document of kind Service.
DOCUMENTS_ANNOTATION = "evenkeel/documents"
_KEPT_KINDS = (
    "Service",
    "DataSource",
    "AlertPolicy",
    "AlertCondition",
    "AlertNotificationTarget",
)
# JSON is YAML.
_YAML_SUFFIXES = (".yaml", ".yml", ".json")
# A document with none of these keys is no SLO document, of ours or of another tool.
_MARKS = ("apiVersion", "kind", "version", "items")
_METRICS = ("ratioMetric", "ratioMetrics", "thresholdMetric")
_IN_OUR_WORDS = ("metric", "all", "composite")


@dataclass(slots=True)
class Documents:
    """The documents of a file by kind; `slis` and `sources` by name."""

    slos: list[Section] = field(default_factory=list)
    rules: list[Section] = field(default_factory=list)
    alerting: Section | None = None
    slis: dict[str, Value] = field(default_factory=dict)
    sources: dict[str, Value] = field(default_factory=dict)
    kept: list[Value] = field(default_factory=list)
    own: list[Value] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def sorted_documents(path: Path) -> Documents:
    """Return the documents of a file; list items count as documents.

    Raises:
        ConfigurationError: If the file is not YAML, or has a document of another kind or version.
    """
    documents = Documents()
    found = list(_flattened(_read_yaml(path)))
    for number, document in enumerate(found, 1):
        version = document.at("apiVersion")
        # Ours are named after their kind, and there is only one Alerting.
        if len(found) > 1 and (version is None or version.node.value != OUR_VERSION):
            document.subject = f"document {number}"
        _sort(document, documents)
    num_policies = sum(kept.at("kind") is not None for kept in documents.kept if _is_unused(kept))
    if num_policies:
        documents.notes.append(
            f"{path}: {num_policies} documents of kinds {', '.join(_KEPT_KINDS[1:])} are "
            f"preserved but ignored: alerts are derived from each objective (spec.alerting)"
        )
    return documents


def _read_yaml(path: Path) -> list[Value]:
    """Return the documents of a file; one that is not YAML by its name gets a plain refusal."""
    try:
        found = read_documents(path)
    except ConfigurationError as error:
        if path.suffix.lower() in _YAML_SUFFIXES or not path.is_file():
            raise
        raise _not_an_slo_file(path) from error
    if found and not any(d.is_list or d.at(key) for d in found for key in _MARKS):
        raise _not_an_slo_file(path)
    return found


def _not_an_slo_file(path: Path) -> ConfigurationError:
    return ConfigurationError(
        f"{path} is not an SLO file; expected YAML documents with apiVersion and kind "
        "(docs/guide/slo.md)"
    )


def _is_unused(document: Value) -> bool:
    kind = document.at("kind")
    return kind is not None and kind.text() != "Service"


def _flattened(values: list[Value]) -> Iterator[Value]:
    for value in values:
        items = value.at("items")
        if value.is_list:
            yield from (Value(e.node, e.path, "the document") for e in value.items())
        elif items is not None and items.is_list:
            yield from (Value(e.node, e.path, "the document") for e in items.items())
        else:
            yield value


def _sort(document: Value, documents: Documents) -> None:
    _refuse_others(document)
    section = document.section()
    version, kind = section.required("apiVersion"), section.required("kind")
    match kind.choice("SLO", "SLI", *_KEPT_KINDS, "Alerting", "Rule"):
        case "SLO":
            version.choice(*OPENSLO_VERSIONS)
            documents.slos.append(section)
        case "SLI":
            version.choice(*OPENSLO_VERSIONS)
            documents.slis[_name(document)] = section.required("spec")
            documents.kept.append(document)
        case "Rule":
            version.choice(OUR_VERSION)
            documents.rules.append(section)
            documents.own.append(document)
        case "Alerting":
            version.choice(OUR_VERSION)
            if documents.alerting is not None:
                raise kind.complaint("the file has a second document of kind Alerting")
            documents.alerting = section
            documents.own.append(document)
        case other:
            version.choice(*OPENSLO_VERSIONS)
            own = document.at("metadata", "annotations", DOCUMENTS_ANNOTATION)
            if own is not None:
                for inner in own.embedded():
                    _sort(inner, documents)
                return
            if other == "DataSource":
                documents.sources[_name(document)] = document
            documents.kept.append(document)


def _refuse_others(document: Value) -> None:
    """Raise an error that names the file's tool and the command that imports it."""
    version = document.at("apiVersion") or document.at("version")
    for start, tool in (("sloth.", "Sloth"), ("prometheus/", "Sloth"), ("pyrra.", "Pyrra")):
        if version is not None and version.text().startswith(start):
            raise version.complaint(
                f"a document of {tool}: evenkeel slo import {document.path} converts it to an "
                f"evenkeel SLO file"
            )


def _name(document: Value) -> str:
    return document.section().required("metadata").section().required("name").text()


def why_foreign(spec: Value, documents: Documents) -> str | None:
    """Return why an SLO's indicators cannot be evaluated from our store; None if they can."""
    holders = [spec]
    objectives = spec.at("objectives")
    if objectives is not None and objectives.is_list:
        holders += objectives.items()
    for holder in holders:
        reason = _why_foreign(holder, documents)
        if reason is not None:
            return reason
    return None


def _why_foreign(holder: Value, documents: Documents) -> str | None:
    reference, indicator = holder.at("indicatorRef"), holder.at("indicator")
    if reference is not None:
        indicator = documents.slis.get(reference.text())
        if indicator is None:
            return str(reference.complaint(f"its SLI {reference.text()!r} is not in the file"))
    if indicator is None:
        indicator = holder
    if any(indicator.at(word) is not None for word in _IN_OUR_WORDS):
        return None
    metrics = indicator.at("spec") or indicator
    for kind in _METRICS:
        metric = metrics.at(kind)
        if metric is None:
            continue
        parts = [p for p in (metric.at(n) for n in ("good", "bad", "total", "raw")) if p]
        for part in parts or [metric]:
            reason = _why_foreign_source(part, documents)
            if reason is not None:
                return reason
    if holder.at("op") is not None and holder.at("value") is not None:
        op = holder.at("op")
        if op is not None and op.text() in ("gt", "gte"):
            return str(op.complaint(f"op {op.text()} counts slow requests as good"))
    return None


def _why_foreign_source(part: Value, documents: Documents) -> str | None:
    source = part.at("metricSource") or part
    reference = source.at("metricSourceRef")
    kind = source.at("type") if part.at("metricSource") else part.at("source")
    if kind is None and reference is not None:
        found = documents.sources.get(reference.text())
        if found is None:
            return str(
                reference.complaint(f"its metric source {reference.text()!r} is not in the file")
            )
        kind = found.at("spec", "type")
    if kind is None:
        return str(part.complaint("its metric source has no type"))
    if kind.text() == OUR_SOURCE:
        return None
    return str(kind.complaint(f"its metric source is {kind.text()!r}, which evenkeel cannot query"))


def no_documents(path: Path) -> ConfigurationError:
    """Return the error for a file with nothing to evaluate."""
    return ConfigurationError(f"{path} has no document of kind SLO, Rule or Alerting")

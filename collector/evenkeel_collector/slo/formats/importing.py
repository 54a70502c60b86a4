"""Converts Sloth and Pyrra files to OpenSLO v1 documents.

Their indicators are Prometheus queries. Those over vLLM's own histograms are equivalent to our
metrics and become ours; all others are preserved but not evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from evenkeel.slo.budget_policy import OWN_LABELS
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.yaml_source import Value, read_documents
from evenkeel_collector.slo.formats.openslo import dump_documents, openslo_file

# What each vLLM histogram measures; docs/metrics.md defines ours the same way.
_VLLM_METRICS = {
    "vllm:time_to_first_token_seconds": "ttft",
    "vllm:e2e_request_latency_seconds": "e2e",
    "vllm:request_time_per_output_token_seconds": "tpot",
}
_SERIES = re.compile(r"([a-zA-Z_:][\w:]*?)_(?:bucket|count)\{([^{}]*)\}")
_MATCHER = re.compile(r'\s*(\w+)\s*=\s*"([^"\\]*)"\s*')
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_.-]+")


def imported_file(path: Path) -> tuple[str, tuple[str, ...], int]:
    """Return the SLO file's text, notes on what is unused, and the number of unevaluated SLOs.

    Raises:
        ConfigurationError: If the file is not from OpenSLO, Sloth or Pyrra, or is invalid.
    """
    values = read_documents(path)
    parts = [part for value in values for part in _parts(value)]
    found = [(part, list(_converted(part))) for part in parts]
    documents = [document for _, converted in found for document in converted]
    if not documents:
        file = read_slo_file(path)
        return openslo_file(file), file.notes, len(file.foreign)
    for value, converted in found:
        if not converted:
            raise value.complaint("not from the same tool as the others: use one file per tool")
    renamed = list(_told_apart(documents))
    notes = tuple(
        f"not evaluated: SLO {document['metadata']['name']!r}: its Prometheus query is preserved, "
        f"but evenkeel cannot run it ({path})"
        for document in documents
        if "metric" not in document["spec"]["indicator"]
    )
    dropped = [note for document in documents for note in _without_our_labels(document)]
    return dump_documents(documents), (*renamed, *dropped, *notes), len(notes)


def _without_our_labels(document: dict[str, Any]) -> Iterator[str]:
    """Remove labels that every alert sets itself from a document; yield a note for each."""
    metadata = document["metadata"]
    labels: dict[str, str] = metadata.get("labels", {})
    for name in [name for name in labels if name in OWN_LABELS]:
        value = labels.pop(name)
        # The service is stated elsewhere in the document.
        if name != "service" or value != document["spec"].get("service", value):
            yield (
                f"SLO {metadata['name']!r}: label {name}={value!r} was dropped: "
                f"alerts set their own {name}"
            )
    if not labels:
        metadata.pop("labels", None)


def _told_apart(documents: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Number SLOs that share a name; yield a note for each."""
    taken: set[str] = set()
    for document in documents:
        metadata = document["metadata"]
        wanted, number = metadata["name"], 2
        while metadata["name"] in taken:
            metadata["name"], number = f"{wanted[:248]}-{number}", number + 1
        taken.add(metadata["name"])
        if metadata["name"] != wanted:
            yield f"an earlier SLO is named {wanted!r}: this one is now {metadata['name']!r}"


def _version(value: Value) -> str:
    version = value.at("apiVersion") or value.at("version")
    return "" if version is None else version.text()


def _parts(value: Value) -> Iterator[Value]:
    """Yield the documents of a list, possibly a Kubernetes one, or the document itself."""
    items = value.at("items")
    if value.is_list or (items is not None and _version(value) in ("v1", "")):
        for item in (items or value).items():
            yield from _parts(item)
    else:
        yield value


def _converted(value: Value) -> Iterator[dict[str, Any]]:
    written = _version(value)
    if written == "prometheus/v1":
        yield from _sloth(value)
    elif written.startswith("sloth.slok.dev/"):
        kind = value.at("kind")
        if kind is not None:
            kind.choice("PrometheusServiceLevel")
        yield from _sloth(value.section().required("spec"))
    elif written.startswith("pyrra.dev/"):
        yield _pyrra(value)


def _sloth(spec: Value) -> Iterator[dict[str, Any]]:
    section = spec.section()
    service, labels = section.required("service").text(), section.optional("labels")
    for element in section.required("slos").items():
        slo = element.section()
        name = slo.required("name").text()
        element.subject = f"SLO {name!r}"
        target = _percent(slo.required("objective"))
        sli, alerting = slo.required("sli"), slo.optional("alerting")
        description, own = slo.optional("description"), slo.optional("labels")
        kept = {"sloth.slok.dev/sli": sli.plain()}
        if alerting is not None:
            kept["sloth.slok.dev/alerting"] = alerting.plain()
        plugins = slo.optional("plugins") or section.optional("slo_plugins")
        if plugins is not None:
            kept["sloth.slok.dev/plugins"] = plugins.plain()
        error = sli.at("events", "error_query") or sli.at("events", "errorQuery")
        total = sli.at("events", "total_query") or sli.at("events", "totalQuery")
        raw = sli.at("raw", "error_ratio_query") or sli.at("raw", "errorRatioQuery")
        if error is not None and total is not None:
            metric = {
                "ratioMetric": {"counter": True, "bad": _query(error), "total": _query(total)}
            }
        elif raw is not None:
            metric = {"ratioMetric": {"counter": False, "rawType": "failure", "raw": _query(raw)}}
        elif sli.at("plugin") is not None:
            metric = {"ratioMetric": {"raw": _source("sloth-plugin", sli.plain()["plugin"])}}
        else:
            raise sli.complaint("sli needs one of events, raw and plugin")
        all_labels = {
            **(labels.text_by_key() if labels is not None else {}),
            **(own.text_by_key() if own is not None else {}),
        }
        yield _document(
            name=_as_name(f"{service}-{name}"),
            title=name,
            service=service,
            labels=all_labels,
            annotations=kept,
            indicator={"metadata": {"name": _as_name(name)}, "spec": metric},
            target=target,
            period="30d",
            description=None if description is None else description.plain(),
        )


def _pyrra(value: Value) -> dict[str, Any]:
    metadata, spec_value = value.section().required("metadata"), value.section().required("spec")
    name = metadata.section().required("name").text()
    spec_value.subject = f"SLO {name!r}"
    spec = spec_value.section()
    indicator = spec.required("indicator")
    labels = metadata.at("labels")
    written = {} if labels is None else labels.text_by_key()
    objective: dict[str, Any] = {}
    ours = _ours(indicator)
    if ours is not None:
        found, limit = ours
        objective = {"op": "lte", "value": limit}
    else:
        found = {"metadata": {"name": _as_name(name)}, "spec": _pyrra_metric(indicator)}
    kept = {"pyrra.dev/indicator": indicator.plain()}
    namespace, alerting = metadata.at("namespace"), spec.optional("alerting")
    if alerting is not None:
        kept["pyrra.dev/alerting"] = alerting.plain()
    if namespace is not None:
        kept["pyrra.dev/namespace"] = namespace.text()
    description = spec.optional("description")
    document = _document(
        name=_as_name(name),
        title=name,
        service=None,
        labels={k.removeprefix("pyrra.dev/"): v for k, v in written.items()},
        annotations=kept,
        indicator=found,
        target=_percent(spec.required("target")),
        period=spec.required("window").text(),
        description=None if description is None else description.plain(),
    )
    document["spec"]["objectives"][0] |= objective
    return document


def _ours(indicator: Value) -> tuple[dict[str, Any], float] | None:
    """Return our indicator and limit for a latency over a vLLM histogram, else None."""
    good = indicator.at("latency", "success", "metric")
    total = indicator.at("latency", "total", "metric")
    if good is None or total is None:
        return None
    parsed, of_total = _series(good.text()), _series(total.text())
    if parsed is None or of_total is None or parsed[0] != of_total[0]:
        return None
    matchers = dict(parsed[1])
    limit = matchers.pop("le", "")
    if (
        matchers != of_total[1]
        or set(matchers) - {"model_name"}
        or "grouping" in (indicator.plain()["latency"])
    ):
        return None
    metric = _VLLM_METRICS.get(parsed[0])
    try:
        seconds = float(limit)
    except ValueError:
        return None
    if metric is None or not 0 < seconds < 1e6:
        return None
    select = {"select": {"model": matchers["model_name"]}} if matchers else {}
    return {"metric": metric, **select}, seconds


def _series(text: str) -> tuple[str, dict[str, str]] | None:
    match = _SERIES.fullmatch(text.strip())
    if match is None:
        return None
    matchers = [_MATCHER.fullmatch(part) for part in match[2].split(",") if part.strip()]
    if any(matcher is None for matcher in matchers):
        return None
    return match[1], {m[1]: m[2] for m in matchers if m is not None}


def _pyrra_metric(indicator: Value) -> dict[str, Any]:
    for kind in ("ratio", "latency", "latencyNative", "bool_gauge"):
        part = indicator.at(kind)
        if part is None:
            continue
        metric: dict[str, Any] = {"counter": kind != "bool_gauge"}
        for theirs, name in (("errors", "bad"), ("success", "good"), ("total", "total")):
            query = part.at(theirs, "metric")
            if query is not None:
                metric[name] = _query(query)
        if len(metric) == 1:
            metric["raw"] = _source("Prometheus", part.plain())
        return {"ratioMetric": metric}
    raise indicator.complaint("indicator needs one of ratio, latency, latencyNative and bool_gauge")


def _query(value: Value) -> dict[str, Any]:
    return _source("Prometheus", {"query": value.text()})


def _source(kind: str, spec: object) -> dict[str, Any]:
    return {"metricSource": {"type": kind, "spec": spec}}


def _percent(value: Value) -> Fraction:
    return value.number("a percentage such as 99.9", lambda n: 0 < n < 100) / 100


def _as_name(text: str) -> str:
    """Return a valid name: characters not allowed become dashes."""
    return _NOT_A_NAME.sub("-", text).strip("-_.")[:253] or "slo"


def _document(
    *,
    name: str,
    title: str,
    service: str | None,
    labels: Mapping[str, str],
    annotations: Mapping[str, object],
    indicator: Mapping[str, Any],
    target: Fraction,
    period: str,
    description: object,
) -> dict[str, Any]:
    return {
        "apiVersion": "openslo/v1",
        "kind": "SLO",
        "metadata": {
            "name": name,
            "displayName": title,
            **({"labels": dict(labels)} if labels else {}),
            # Annotations are text: the original, as JSON.
            "annotations": {key: json.dumps(kept) for key, kept in annotations.items()},
        },
        "spec": {
            **({"description": description} if description else {}),
            **({"service": service} if service else {}),
            "indicator": indicator,
            "timeWindow": [{"duration": period, "isRolling": True}],
            "budgetingMethod": "Occurrences",
            "objectives": [{"target": float(target)}],
        },
    }

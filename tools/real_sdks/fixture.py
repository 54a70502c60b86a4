"""Makes a fixture of recorded requests: OTLP/JSON without what names a machine or a person.

    python tools/real_sdks/fixture.py recorded.jsonl "Claude Code 2.1.197" > fixture.json

Metrics and attributes of more than 400 characters are left out, but for an answer's id; ids of
users and installations, and paths, are replaced.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/logs": ExportLogsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
MAX_CHARS = 400
LEFT_OUT = re.compile(
    r"^(host\.|os|process\.|code\.|thread\.|telemetry\.|service\.instance\.id|user\.(account|email)"
    r"|organization\.id|auth\.|busy_ns|idle_ns|exception\.stacktrace|logfire\.json_schema)"
)
USER = re.compile(r"^user\.id$|installation_id$")
ANSWER = re.compile(r'"id": ?"(chatcmpl-|resp_|msg_)[^"]+"')
PATH = re.compile(r"/(?:tmp|home|root|work|usr)/[^\s\"',:]*")


def plain(attributes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return attributes that name no machine or person and are short."""
    kept = []
    for pair in attributes:
        if LEFT_OUT.search(pair["key"]):
            continue
        if len(json.dumps(pair)) > MAX_CHARS:
            answer = ANSWER.search(pair["value"].get("stringValue", ""))
            if pair["key"] != "output.value" or answer is None:
                continue
            pair = {"key": pair["key"], "value": {"stringValue": "{" + answer.group() + "}"}}
        if USER.search(pair["key"]):
            pair = {"key": pair["key"], "value": {"stringValue": "somebody"}}
        kept.append(json.loads(PATH.sub("/path", json.dumps(pair))))
    return kept


def scrub(node: Any) -> Any:
    """Return a part of a request with all its attributes made plain."""
    if isinstance(node, list):
        return [scrub(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {
        key: plain(value) if key == "attributes" else scrub(value) for key, value in node.items()
    }


def requests_in(path: Path) -> list[dict[str, Any]]:
    """Return the recorded requests that have log records or spans, as OTLP/JSON."""
    found = []
    for line in path.read_text().splitlines():
        recorded = json.loads(line)
        if recorded["path"] not in REQUESTS:
            continue
        body = recorded.get("body")
        if body is None:
            message = REQUESTS[recorded["path"]]()
            message.ParseFromString(base64.b64decode(recorded["protobuf"]))
            body = MessageToDict(message)
            of_ids(body)
        found.append(
            {
                "path": recorded["path"],
                "content_type": recorded["content_type"],
                "body": scrub(body),
            }
        )
    return found


def of_ids(node: Any) -> None:
    """Rewrite ids from protobuf's base64 to OTLP/JSON's hex, in place."""
    if isinstance(node, list):
        for each in node:
            of_ids(each)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key in ("traceId", "spanId", "parentSpanId"):
                node[key] = base64.b64decode(value).hex()
            else:
                of_ids(value)


def main() -> None:
    """Print the fixture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recorded", type=Path)
    parser.add_argument("version", help="who sent it: names and versions")
    parser.add_argument("--only", help="leave out requests to other paths")
    given = parser.parse_args()
    requests = [
        request for request in requests_in(given.recorded) if given.only in (None, request["path"])
    ]
    print(json.dumps({"sent_by": given.version, "requests": requests}, separators=(",", ":")))


if __name__ == "__main__":
    main()

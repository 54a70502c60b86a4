"""`evenkeel slo templates`: SLOs and rules to start from."""

from __future__ import annotations

import argparse
import json


def add_templates(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb to the parser."""
    templates = verbs.add_parser("templates", help="list SLO and rule templates, or print one")
    templates.add_argument("--show", metavar="NAME", help="print this template")
    templates.add_argument("--json", action="store_true", help="print JSON")
    templates.set_defaults(run=_run_templates)


def _run_templates(args: argparse.Namespace) -> int:
    from evenkeel_collector.slo.templates import find_template, read_templates

    if args.show is not None:
        template = find_template(args.show)
        if args.json:
            print(json.dumps({"name": template.name, "text": template.text}))
        else:
            print(f"# {template.purpose}\n{template.text}", end="")
        return 0
    templates = list(read_templates().values())
    if args.json:
        rows = [{"name": t.name, "for": t.purpose} for t in templates]
        print(json.dumps({"templates": rows}))
        return 0
    width = max(len(t.name) for t in templates)
    for template in templates:
        print(f"{template.name:{width}}  {template.purpose}")
    print("evenkeel slo templates --show NAME prints one")
    return 0

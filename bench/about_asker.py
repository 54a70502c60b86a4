"""What the response cache takes for a question about its asker, against labels written by hand.

    python bench/about_asker.py --json build/about_asker.json

Labels: tests/fixtures/about_asker.toml. Also the share of our dataset's rewordings that bypass the
cache for it. The rules were improved on these labels: on questions that they were not written for,
expect to miss some.
"""

import argparse
import sys
import tomllib
from pathlib import Path

from bench.report import write_report
from evenkeel_runtime.response_cache.private_text import PrivateText
from golden_datasets.support.rewordings import read_rewordings

LABELS = Path(__file__).parents[1] / "tests" / "fixtures" / "about_asker.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="PATH", default=Path("build/about_asker.json"))
    args = parser.parse_args()
    labels = tomllib.loads(LABELS.read_text(encoding="utf-8"))
    is_about_asker = PrivateText().is_about_asker
    found = [text for text in labels["depends"] if is_about_asker(text)]
    needless = [text for text in labels["general"] if is_about_asker(text)]
    wordings = [text for question in read_rewordings() for text in question.wordings]
    report = {
        "depends": len(labels["depends"]),
        "general": len(labels["general"]),
        "missed": len(labels["depends"]) - len(found),
        "needless": needless,
        "precision": len(found) / (len(found) + len(needless)),
        "recall": len(found) / len(labels["depends"]),
        "rewordings": len(wordings),
        "rewordings_bypassed": sum(map(is_about_asker, wordings)),
    }
    print(
        f"{report['missed']} of {report['depends']} missed, {len(needless)} of "
        f"{report['general']} needlessly: precision {report['precision']:.1%}, recall "
        f"{report['recall']:.1%}; {report['rewordings_bypassed']} of {report['rewordings']} "
        "rewordings bypass the cache"
    )
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

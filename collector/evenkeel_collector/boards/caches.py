"""What is saved: prefix cache, response cache, speculation, compression."""

from __future__ import annotations

from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, PanelKind, Prom
from evenkeel_collector.boards.overview import ACCEPTANCE, HIT_RATIO
from evenkeel_collector.boards.promql import MODELS, SERVERS, Fleet

_FLEET = Fleet(SERVERS)
_CACHE = "evenkeel_cache_"
_DRAFTS = "evenkeel_speculation_"
_SERVED = 'outcome=~"exact|near"'

_PREFIX = BoardRow(
    "Prefix cache",
    (
        Panel(
            "Hit ratio",
            "Prompt tokens found in the cache.",
            (
                Prom(HIT_RATIO, "in the interval"),
                Prom(
                    _FLEET.highest("kv_cache_hit_rate", by="instance"), "{{instance}}, last 1,000"
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Requests by reason for a miss",
            "`none` found all that could be found. The reasons are explained on the evenkeel"
            " dashboard's Cache page.",
            (Prom(_FLEET.rate("evenkeel_runtime_prefix_requests_total", by="miss"), "{{miss}}"),),
            "reqps",
            PanelKind.STACKED,
        ),
        Panel(
            "Tokens missed",
            "Prompt tokens that had to be computed although a better prompt or cache would have"
            " had them.",
            (
                Prom(
                    _FLEET.rate("evenkeel_runtime_prefix_missed_tokens_total", by="miss"),
                    "{{miss}}",
                ),
            ),
            "cps",
            PanelKind.STACKED,
        ),
    ),
)

_RESPONSES = BoardRow(
    "Response cache",
    (
        Panel(
            "Requests by outcome",
            "`exact` and `near` were served from the cache, `draft` was verified by the model.",
            (Prom(_FLEET.rate(f"{_CACHE}requests_total", by="outcome"), "{{outcome}}"),),
            "reqps",
            PanelKind.STACKED,
        ),
        Panel(
            "Served",
            "Share of all requests that were answered from the cache.",
            (
                Prom(
                    f"({_FLEET.rate(f'{_CACHE}requests_total', _SERVED)} or vector(0))"
                    f" / ({_FLEET.rate(f'{_CACHE}requests_total')} > 0)",
                    "served",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Bound on wrong near hits",
            "Highest upper bound by route, and the limit it must stay below to be served.",
            (
                Prom(_FLEET.highest(f"{_CACHE}wrong_hit_bound", by="route"), "{{route}}"),
                Prom(_FLEET.highest(f"{_CACHE}wrong_hit_limit", by="route"), "{{route}}, limit"),
            ),
            "percentunit",
        ),
        Panel(
            "Generation time saved",
            "Seconds of generation saved, per second.",
            (Prom(_FLEET.rate(f"{_CACHE}saved_seconds_total", by="layer"), "{{layer}}"),),
            "s",
        ),
        Panel(
            "Verdicts",
            "Comparisons of cached answers with the model's own.",
            (
                Prom(
                    _FLEET.rate(f"{_CACHE}verdicts_total", by="layer, verdict"),
                    "{{layer}} {{verdict}}",
                ),
            ),
            "ops",
        ),
        Panel(
            "Lookup time",
            "Mean time of a lookup, embedding included; every request pays it.",
            (
                Prom(
                    f"{_FLEET.rate(f'{_CACHE}lookup_seconds_total')}"
                    f" / ({_FLEET.rate(f'{_CACHE}requests_total')} > 0)",
                    "mean",
                ),
            ),
            "s",
        ),
        Panel(
            "Bypassed, by reason",
            "Requests that were not looked up.",
            (Prom(_FLEET.rate(f"{_CACHE}bypasses_total", by="reason"), "{{reason}}"),),
            "reqps",
        ),
        Panel(
            "Refused by guards",
            "Near hits that a guard rejected.",
            (Prom(_FLEET.rate(f"{_CACHE}guard_refusals_total", by="guard"), "{{guard}}"),),
            "ops",
        ),
        Panel(
            "Failures",
            "The model answered instead.",
            (Prom(_FLEET.rate(f"{_CACHE}errors_total", by="kind"), "{{kind}}"),),
            "ops",
        ),
    ),
)

_SPECULATION = BoardRow(
    "Speculation",
    (
        Panel(
            "Acceptance rate",
            "Accepted / drafted tokens.",
            (
                Prom(ACCEPTANCE, "all"),
                Prom(
                    f"{_FLEET.rate(f'{_DRAFTS}accepted_tokens_total', by='source')}"
                    f" / ({_FLEET.rate(f'{_DRAFTS}drafted_tokens_total', by='source')} > 0)",
                    "{{source}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Acceptance length",
            "1 + accepted tokens / steps that verified a draft.",
            (
                Prom(
                    f"1 + {_FLEET.rate(f'{_DRAFTS}accepted_tokens_total')}"
                    f" / ({_FLEET.rate(f'{_DRAFTS}verify_steps_total')} > 0)",
                    "tokens per step",
                ),
            ),
        ),
        Panel(
            "Speed-up on the holdout",
            "Decoding speed with drafts over without; the bounds are those of its confidence"
            " interval. Below 1 drafts cost more than they save.",
            (
                Prom(
                    f'avg by (bound) ({_DRAFTS}speedup_ratio{{{_FLEET.selector}, batch="all"}})',
                    "{{bound}}",
                ),
            ),
        ),
        Panel(
            "Drafted tokens",
            "By source.",
            (Prom(_FLEET.rate(f"{_DRAFTS}drafted_tokens_total", by="source"), "{{source}}"),),
            "cps",
            PanelKind.STACKED,
        ),
        Panel(
            "Canaries",
            "Greedy answers regenerated without drafts; a mismatch is a bug or a numeric tie.",
            (Prom(_FLEET.rate(f"{_DRAFTS}canary_total", by="result"), "{{result}}"),),
            "ops",
        ),
        Panel(
            "Evidence against exactness",
            "Evidence (log10) that sampled tokens deviate from the model; drafts stop at 6.",
            (Prom(_FLEET.highest(f"{_DRAFTS}sampled_evidence", by="instance"), "{{instance}}"),),
        ),
    ),
)

_COMPRESSION = BoardRow(
    "Compression and memory",
    (
        Panel(
            "Long histories by verdict",
            "What became of histories long enough to be shortened.",
            (
                Prom(
                    _FLEET.rate("evenkeel_compression_requests_total", by="verdict"), "{{verdict}}"
                ),
            ),
            "reqps",
        ),
        Panel(
            "Tokens not sent",
            "Tokens of histories left out of prompts.",
            (Prom(_FLEET.rate("evenkeel_compression_saved_tokens_total"), "saved"),),
            "cps",
        ),
        Panel(
            "Memory of past answers",
            "Memory of the answers that drafts are retrieved from.",
            (Prom(_FLEET.total(f"{_DRAFTS}store_bytes", by="instance"), "{{instance}}"),),
            "bytes",
        ),
    ),
)

CACHES = Board(
    "evenkeel-caches",
    "evenkeel: caches and speculation",
    "For the engineer who asks whether caching and drafting pay, and whether they are safe.",
    "cache",
    (SERVERS, MODELS),
    (_PREFIX, _RESPONSES, _SPECULATION, _COMPRESSION),
)

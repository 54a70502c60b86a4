"""Detect texts that must not be cached: personal data, and questions about the asker."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from evenkeel.privacy.cpu_budget import OverBudgetError
from evenkeel.privacy.text_redactor import OVER_BUDGET, RedactionTally, built_in

# Data that a shop, bank or help desk keeps per customer.
_OWN_THINGS = (
    "order orders parcel parcels package packages delivery shipment refund refunds return returns "
    "balance bill bills invoice invoices statement payment payments transfer booking bookings "
    "flight reservation appointment appointments ticket tickets claim points salary address number "
    "usage contract case history cart basket claims deductible results loan visa"
)
_REFERENCE = re.compile(
    r"\b(?:order|parcel|package|invoice|booking|ticket|case|claim|customer|account|tracking|ref)"
    r"(?:\s+(?:number|no\.?|id|code))?\s*[:#]?\s*#?[A-Z]{0,4}-?\d{3,}\b",
    re.IGNORECASE,
)
# Patterns try each start and end in a run of punctuation: a long one would take them minutes.
_LONG_RUN = re.compile(r"\W{9,}")
_OWN = "|".join(_OWN_THINGS.split())
# How far apart two words of a phrase may be, in one line. A pattern with this gap is anchored at
# the start of the text; from each place in it, the gap would take seconds: see `_are_near`.
_MAX_GAP = 200
# Lines in which the asker occurs, which take the longest, are judged up to this size; with more of
# them, a request is taken for one about its asker.
MOST_ASKER_CHARS = 16 * 1024
_SOME = rf".{{0,{_MAX_GAP}}}"
_MY = r"(?:my|mine|our|ours)\b"
_I = r"(?:i|we)\b"
_START = r"^\W*(?:(?:hi|hello|hey|please|so|and|but|help)\b\W*){0,8}"
# "Tell me", "send me a link", "if I order now": whom to answer, not what about.
_ADDRESSED = re.compile(
    r"\b(?:tell|explain\s+to|explain|help|let|advise|connect|cost)\s+(?:me|us)\b"
    r"|(?P<wish>\b(?:show|give|send|get)\s+(?:me|us)\b)"
    r"|\b(?:if|once|unless)\s+(?:i|we)\s+"
    r"(?!(?:am|was|have|had|owe|need|can|still|will|qualify)\b)\w+",
    re.IGNORECASE,
)
# Unless it is one of these that they wish: "show me my last invoice".
_WISHED = re.compile(rf"\b(?:{_OWN}|code)\b", re.IGNORECASE)
# Without any of these words, a question is the same whoever asks.
_ASKER = re.compile(
    rf"\b(?:i|me|myself|we|us|{_MY}|here|nearby|i['’]\w+|we['’]\w+)\b", re.IGNORECASE
)
# A line with neither of these is not judged.
_CLUE = re.compile(rf"\d{{3}}|{_ASKER.pattern}", re.IGNORECASE)
# Asks how something is done: "how do I track my order".
_HOW_TO = re.compile(
    r"(?:^|[,;:.!?]|\b(?:and|so|but|please)\b)\W*(?:(?:hi|hello|hey|please|so|and|but|help)\b\W*){0,8}"
    r"(?:(?:can|could|would)\s+you\s+)?(?:(?:tell|explain|show)\W+)?(?:me\W+|us\W+)?"
    r"(?:how\s+(?:do|can|could|should|to|would|may)\b|what\s+now\b|what\s+if\b"
    r"|what\s+(?:do|can|should|must)\s+(?:i|we)\s+do\b|what\s+happens\s+(?:if|when)\b"
    r"|(?:where|which\s+page)(?:\s+in\s+the\s+\w+)?\s+(?:do|can|should|could)\s+(?:i|we)\s+"
    r"(?!sit|live|leave|go|work|stand|board|fly|meet|have|park|stay|get\s+off|transfer|start)\w+"
    r"|when\s+can\s+(?:i|we)\s+(?:reach|call|contact|visit)\b)",
    re.IGNORECASE,
)
# Not even then: "how do I know how much I owe", "how do I get home from here".
_HOW_MUCH = re.compile(r"\bhow\s+(?:much|many|long)\b(?!\s+is\b)", re.IGNORECASE)
_I_OR_WE = re.compile(rf"\b{_I}", re.IGNORECASE)
_HOW_TO_STATE = re.compile(
    r"\b(?:near|about|from)\s+(?:me|us|here)\b"
    rf"|\b(?:where\s+{_I}\s+live|here|nearby)\b|\bhow\s+(?:do|can)\s+{_I}\s+(?:stand|owe|do)\b"
    r"|\bknow\s+(?:which|what|whether|if|when|where)\b"
    r"|\b(?:owe|ordered|cancell?ed|charged|billed|paid|bought|booked|received)\b",
    re.IGNORECASE,
)
# May one, must one; a wish; a loss or fault that is dealt with in the same way for all.
_FOR_ALL = re.compile(
    _START
    + "(?:"
    + "|".join(
        (
            rf"(?:can|could|may|should|must|shall)\s+{_I}\s+(?!afford|meet|see|expect|retire|claim|take\b"
            r"|(?:get|have)\s+(?:an?\s+|the\s+|any\s+|my\s+)?(?:update|news|status|date|result|answer))",
            rf"am\s+i\s+allowed\b|(?:what\s+)?do\s+{_I}\s+(?:have|need)\s+to\b",
            r"is\s+(?:it|there)\s+(?:possible|safe|ok|okay|allowed|a\s+way)\b",
            rf"(?:is|are|do|does)\s+(?:there|you)\b{_SOME}\b{_I}\s+(?:can|could|may|should)\b",
            rf"how\s+(?:many\s+days|long)\s+do\s+{_I}\s+have\s+to\b",
            rf"{_I}\s+(?:really\s+|just\s+)?(?:want|need|wish|(?:would|['’]d)\s+(?:like|love)|request)\b",
            r"i['’]d\s+(?:like|love|rather)\b|we['’]d\s+like\b|i['’]m\s+looking\s+for\b",
            rf"{_I}\s+(?:can['’]?t|cannot)\s+(?:use|find|access|get\s+past)\b",
            rf"{_I}\s+(?:have|got)\s+(?:a|no)\s+(?:new|old|different|access)\b",
            rf"{_I}\s+(?:just\s+)?(?:forgot|lost|deleted|(?:have|no\s+longer|can['’]?t|cannot|don['’]t|do\s+not)"
            r"\s+(?:forgotten|lost|remember|know|recall|like|have|want))\b",
            rf"{_MY}\s+(?:\w+\s+){{1,2}}(?:(?:does|do|did|will|is|has)\s+not|(?:does|do|is|wo|has)n['’]t"
            r"|is|keeps|stopped|broke|was)\s+(?:\w+\s+)?(?:work|working|start|connect|turn|load|open"
            r"|broken|black|lost|gone|stolen|dead|stuck|frozen|accepted|refused|invalid|dirty)\b",
        )
    )
    + ")",
    re.IGNORECASE,
)
# But not of what only the asker's records, place or past say.
_KNOW = re.compile(r"\b(?:know|see|hear|check|find\s+out|tell|learn|understand)\b", re.IGNORECASE)
_WHAT = re.compile(
    rf"\b(?:whether|when|where|why|what|which|who|how\s+(?:much|many|long)|if|{_MY})",
    re.IGNORECASE,
)
_STATE = re.compile(
    "|".join(
        (
            rf"\b(?:status|state|progress|rest|balance)\s+of\s+{_MY}|\bwhere\s+{_I}\s+live\b",
            r"\b(?:still|already|again|yesterday|tomorrow|tonight|here|nearby)\b|\bago\b",
            r"\b(?:near|around|close\s+to|about|for)\s+(?:me|us)\b",
            rf"\b(?:in|at|to|for|from|on)\s+{_MY}\s+(?:\w+\s+)?"
            r"(?:area|city|town|country|region|street|zip|house|home|address|place|age|size|case)\b",
            rf"\bwith\s+{_MY}\s+(?:passport|visa|income|degree|condition)\b",
            r"\b(?:when|if|whether|which)\s+my\b"
            r"|\b(?:i|we|you)\s+(?!need)(?:\w+ed|sent|chose|bought|paid|took|made|told|signed)\b",
            r"\bwhy\b|\bcharged\b|\bbilled\b|\bowe\b|\beligible\b|\bqualify\b",
            r"\bshould\s+(?:i|we)\s+take\b",
        )
    ),
    re.IGNORECASE,
)


class PrivateText:
    """Judges texts.

    Args:
        user_words: Additional nouns that after "my" make a question about its asker.
    """

    def __init__(self, user_words: Iterable[str] = ()) -> None:
        nouns = "|".join(map(re.escape, [*_OWN_THINGS.split(), *user_words]))
        self._rules = built_in(broad=True)
        own = rf"{_MY}(?:\s+\w+)?\s+(?:{nouns})\b"
        self._own = re.compile(rf"\b{own}", re.IGNORECASE)
        # "Where is my order? What can I do if it is late?"
        self._asks_own = re.compile(
            r"(?:\b(?:what|where|when|how|which)(?:['’]s|\s+(?:is|are|was|were|will|did|does|has))"
            rf"|(?:^|[,;:.!?]|\band\b)\s*(?:is|are|was|has|have|did|does|will))\s+{own}",
            re.IGNORECASE,
        )

    def find_personal(self, text: str) -> str | None:
        """Return the rule that finds secret or personal data in a text; None if none does.

        Broad rules count, too: a false positive costs a cache hit, a false negative leaks data. A
        text that takes too long to scan also counts as private.
        """
        encoded, tally = text.encode("utf-8", "replace"), RedactionTally()
        try:
            tally.budget.begin(len(encoded))
            findings = self._rules.find(encoded, tally)
        except OverBudgetError:
            return OVER_BUDGET
        return findings[0].rule.name if findings else None

    def is_any_about_asker(self, lines: Iterable[str]) -> bool:
        """Whether `is_about_asker` holds for a line, or the lines with the asker are too long."""
        num_chars = 0
        for line in lines:
            if not _CLUE.search(line):
                continue
            if _ASKER.search(line):
                num_chars += len(line)
            if num_chars > MOST_ASKER_CHARS or self.is_about_asker(line):
                return True
        return False

    def is_about_asker(self, text: str) -> bool:
        """Whether the answer depends on the asker: "where is my order", "order 31245".

        A question in which the asker occurs depends on them, unless it is of a form that is the
        same for all: "how do I reset my password", "can I pay by card", "I lost my phone".
        """
        text = _LONG_RUN.sub(lambda run: run[0][:4] + run[0][-4:], text)
        if _REFERENCE.search(text):
            return True
        if not _ASKER.search(text) or not _ASKER.search(_drop_address(text)):
            return False
        if _HOW_TO.search(text):
            return bool(
                _HOW_TO_STATE.search(text)
                or _are_near(_HOW_MUCH, _I_OR_WE, text)
                or self._asks_own.search(text)
            )
        if not _FOR_ALL.search(text):
            return True
        return bool(_STATE.search(text) or _are_near(_KNOW, _WHAT, text) or self._own.search(text))


def _drop_address(text: str) -> str:
    """Return a text without what says whom to answer."""
    wished: list[int] | None = None

    def drop(match: re.Match[str]) -> str:
        nonlocal wished
        if match["wish"] is None:
            return ""
        if wished is None:
            wished = _find_starts(_WISHED, text)
        return match[0] if _is_near(match.end(), wished, text) else ""

    return _ADDRESSED.sub(drop, text)


def _are_near(first: re.Pattern[str], second: re.Pattern[str], text: str) -> bool:
    """Whether a match of `second` begins in the line and near the end of one of `first`.

    As a pattern with a gap says it, but in a time that grows with the text, not with the gap.
    """
    ends = [match.end() for match in first.finditer(text)]
    starts = _find_starts(second, text) if ends else []
    return any(_is_near(end, starts, text) for end in ends)


def _find_starts(pattern: re.Pattern[str], text: str) -> list[int]:
    return [match.start() for match in pattern.finditer(text)]


def _is_near(end: int, starts: Sequence[int], text: str) -> bool:
    """Whether one of the places, which are in order, is in the line after `end`, and near it."""
    next_one = bisect_left(starts, end)
    if next_one == len(starts) or starts[next_one] - end > _MAX_GAP:
        return False
    return "\n" not in text[end : starts[next_one]]

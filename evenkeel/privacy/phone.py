"""Distinguishes phone numbers from dates, IDs and counts, using every country's numbering plan.

The plans are those of `phonenumbers` (docs/decisions/0071-phone-numbers.md); its own text
search takes milliseconds, so candidates are found here and only looked up there. A number with +
needs a length that its country uses. A national form needs a number that one of the rule's regions
has assigned, written as that region writes it; after a word such as "phone" any grouping is
accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import phonenumbers
from phonenumbers import NumberParseException, PhoneNumberFormat, ValidationResult

from evenkeel.errors import ConfigurationError
from evenkeel.privacy.cpu_budget import CpuBudget

NUM_CONTEXT_BYTES = 32
# Budget cost of one lookup in the plans.
UNITS = 8
INTERNATIONAL_DIGITS = range(9, 16)  # E.164 allows 15 with the country's code
NATIONAL_DIGITS = range(9, 13)
MIN_GROUP = 2
NAMED = re.compile(
    rb"(?i)(?:phone|mobile|cell|call|tel|fax|whatsapp|sms|dial|ring|text)\b[^0-9\n]{0,20}\Z"
)
DATE = re.compile(
    rb"(?:19|20)[0-9]{2}([-./])[01]?[0-9]\1[0-3]?[0-9]|[0-3]?[0-9]([-./])[0-3]?[0-9]\2(?:19|20)[0-9]{2}"
)
GROUP = re.compile(rb"[0-9]+")
JOINED_BEFORE = re.compile(rb"[A-Za-z0-9_#]\Z|[A-Za-z0-9_][-./]\Z")
JOINED_BEHIND = re.compile(rb"[A-Za-z0-9_%]|[-/:.][A-Za-z0-9_]")
TRUNK_PREFIX = b"0"
NORTH_AMERICAN = [3, 3, 4]


class PhoneCheck:
    """Yields the phone number within a run of digits and separators.

    Raises:
        ConfigurationError: If a region is not an ISO 3166-1 code that has a numbering plan.
    """

    def __init__(self, regions: Sequence[str]) -> None:
        for region in regions:
            if region not in phonenumbers.SUPPORTED_REGIONS:
                raise ConfigurationError(
                    f"rule 'phone': region {region!r} has no numbering plan; "
                    "use two-letter codes such as 'US'"
                )
        self._uses_trunk = {
            region: phonenumbers.ndd_prefix_for_region(region, True) == TRUNK_PREFIX.decode()
            for region in regions
        }

    def __call__(
        self, text: bytes, start: int, end: int, budget: CpuBudget
    ) -> Iterator[tuple[int, int]]:
        """Yield (start, end) of the first number within the run, or nothing."""
        before = text[max(0, start - NUM_CONTEXT_BYTES) : start]
        # After letters the run is the rest of a code: BE71 0961 2345 6768.
        if JOINED_BEFORE.search(before) or DATE.match(text, start, end):
            return
        budget.spend(UNITS)
        groups = [match.span() for match in GROUP.finditer(text, start, end)]
        is_named = NAMED.search(before) is not None
        for index, (first, _) in enumerate(groups):
            # A count may precede the number, a time or an extension may follow it.
            if index == 0:
                begin, is_start = start, True
            else:
                begin = first - 1 if text[first - 1 : first] == b"(" else first
                is_start = begin < first or text[first : first + 1] == TRUNK_PREFIX
            length = self._longest(text, begin, end, groups[index:], is_named) if is_start else 0
            if length:
                yield begin, begin + length
                return

    def _longest(
        self,
        text: bytes,
        begin: int,
        end: int,
        groups: Sequence[tuple[int, int]],
        is_named: bool,
    ) -> int:
        """Return the length of the longest number at the start of the groups, 0 if none."""
        for num_groups in range(len(groups), 0, -1):
            stop = groups[num_groups - 1][1]
            if stop == end and JOINED_BEHIND.match(text, end):
                continue
            digits = [text[first:last] for first, last in groups[:num_groups]]
            if self._is_number(text[begin:stop].startswith(b"+"), digits, is_named):
                return stop - begin
        return 0

    def _is_number(self, has_plus: bool, groups: Sequence[bytes], is_named: bool) -> bool:
        digits = b"".join(groups).decode("ascii")
        if has_plus:
            return len(digits) in INTERNATIONAL_DIGITS and _is_possible("+" + digits)
        if digits.startswith("00"):
            # 00 alone, then pairs, is how bytes are written.
            if len(groups[0]) == 2 and not is_named:
                return False
            return len(digits) - 2 in INTERNATIONAL_DIGITS and _is_valid("+" + digits[2:], None)
        if len(digits) not in NATIONAL_DIGITS or (len(groups) == 1 and not is_named):
            return False
        lengths = [len(group) for group in groups]
        if not is_named and min(lengths) < MIN_GROUP:
            return False
        return any(
            self._is_national(digits, lengths, region, is_named) for region in self._uses_trunk
        )

    def _is_national(
        self, digits: str, lengths: Sequence[int], region: str, is_named: bool
    ) -> bool:
        has_trunk = digits.startswith(TRUNK_PREFIX.decode())
        if has_trunk != self._uses_trunk[region]:
            return False
        if is_named and region == "US" and list(lengths) == NORTH_AMERICAN:
            return True  # (555) 123-4567: formatted and labelled as a phone number, assigned or not
        if not _is_valid(digits, region):
            return False
        if is_named or has_trunk:
            return True
        # Without a trunk prefix, only the grouping distinguishes a number from a list of counts.
        number = phonenumbers.parse(digits, region)
        formatted = phonenumbers.format_number(number, PhoneNumberFormat.NATIONAL)
        usual = [len(group) for group in re.findall(r"[0-9]+", formatted)]
        return list(lengths) in (usual, [1, *usual])


def _is_possible(text: str) -> bool:
    """Return whether a number with + has a length its country uses, area code included."""
    try:
        number = phonenumbers.parse(text)
    except NumberParseException:
        return False
    reason = phonenumbers.is_possible_number_with_reason(number)
    return bool(reason == ValidationResult.IS_POSSIBLE)


def _is_valid(text: str, region: str | None) -> bool:
    """Return whether a number is in a range its country has assigned."""
    try:
        number = phonenumbers.parse(text, region)
    except NumberParseException:
        return False
    if region is None:
        return bool(phonenumbers.is_valid_number(number))
    return bool(phonenumbers.is_valid_number_for_region(number, region))

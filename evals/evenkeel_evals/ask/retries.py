"""Retries while a server is down or full, up to a limit; then the run pauses and can be resumed."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from evenkeel.errors import CannotMeasureError
from evenkeel.retry_delay import RetryDelay
from evenkeel.secret_text import hide_password
from evenkeel.settings import find_settings
from evenkeel_evals.ask.client import Attempt, Call, ChatClient, Obstacle, Reply
from evenkeel_evals.ask.settings import EvalSettings

# A request that breaks the connection this often crashes the server: it counts as failed.
MOST_BREAKS = 3
FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 5.0
# A gateway that answers 429 now and then must not flood the screen.
TELL_EVERY_S = 10.0


@dataclass(slots=True)
class _Outage:
    """The outage state of one server; times are monotonic.

    Attributes:
        since_s: When it was first found down; None while it answers.
        told_s: When a message about it was last shown.
        is_told: Whether the current outage was reported.
    """

    since_s: float | None = None
    told_s: float = -TELL_EVERY_S
    is_told: bool = False


class PatientClient(ChatClient):
    """A client that retries if a server is down, or answers 429 or 503.

    Times are those of the last attempt and exclude waiting and reconnecting. An HTTP 500, a
    timeout, and a request that breaks its connection three times are final.

    Args:
        concurrency: Maximum number of open connections.
        timeout_s: Timeout per answer, in seconds.
        api_key: Sent as a bearer token if given.
        retry_s: Maximum time to wait for a server per outage, in seconds.
        tell: Called with a line when a server stops answering, and when it is back.
        slo_class: The SLO class that requests name, if given.
    """

    def __init__(
        self,
        concurrency: int,
        timeout_s: float,
        api_key: str | None,
        retry_s: float,
        tell: Callable[[str], None],
        slo_class: str | None = None,
    ) -> None:
        super().__init__(concurrency, timeout_s, api_key, slo_class)
        self._retry_s = retry_s
        self._tell = tell
        self._outages: dict[str, _Outage] = {}

    async def ask(self, call: Call) -> Reply:
        """Return the reply; an error becomes a reply with a reason.

        Raises:
            CannotMeasureError: If the server did not answer within `retry_s`.
        """
        since_s: float | None = None
        num_retries = num_breaks = 0
        delay = RetryDelay(FIRST_DELAY_S, LONGEST_DELAY_S)
        reconnects = False
        while True:
            started_s = time.monotonic()
            attempt = await self.attempt(call, reconnects=reconnects)
            num_breaks += attempt.obstacle is Obstacle.BROKEN
            if attempt.obstacle is None:
                self._record_answer(call.side.url, started_s)
            if attempt.obstacle is None or num_breaks >= MOST_BREAKS:
                return replace(attempt.reply, num_retries=num_retries)
            now_s = time.monotonic()
            since_s = now_s if since_s is None else since_s
            await self._wait(call.side.url, attempt, delay, now_s - since_s)
            reconnects = attempt.obstacle is not Obstacle.REFUSED
            num_retries += 1

    async def _wait(self, url: str, attempt: Attempt, delay: RetryDelay, waited_s: float) -> None:
        left_s = self._retry_s - waited_s
        if left_s <= 0:
            raise CannotMeasureError(
                f"paused: {hide_password(url)} has not answered for {waited_s:.0f} s "
                f"({attempt.reply.error})"
            )
        self._record_outage(url, attempt.reply.error or "")
        delay_s = max(delay.next_s(), attempt.retry_after_s or 0.0)
        await asyncio.sleep(min(delay_s, left_s))

    def _record_outage(self, url: str, reason: str) -> None:
        outage = self._outages.setdefault(url, _Outage())
        now_s = time.monotonic()
        is_new = outage.since_s is None
        outage.since_s = now_s if outage.since_s is None else outage.since_s
        if now_s - outage.told_s < TELL_EVERY_S:
            return
        outage.told_s, outage.is_told = now_s, True
        waited = "" if is_new else f", for {now_s - outage.since_s:.0f} s now"
        self._tell(
            f"{hide_password(url)} is not answering{waited} ({reason}); "
            f"retrying for up to {self._retry_s:g} s"
        )

    def _record_answer(self, url: str, started_s: float) -> None:
        outage = self._outages.get(url)
        # Calls already in flight when the server went down may still complete.
        if outage is None or outage.since_s is None or started_s < outage.since_s:
            return
        if outage.is_told:
            waited_s = time.monotonic() - outage.since_s
            self._tell(f"{hide_password(url)} is answering again after {waited_s:.1f} s")
        outage.since_s, outage.is_told = None, False


@contextmanager
def saying_how_to_go_on(
    args: argparse.Namespace, describe: Callable[[], str | None]
) -> Iterator[None]:
    """On a pause or Ctrl-C in the block, print the command that resumes the run.

    Args:
        args: The arguments of this command; without `--report`, nothing is saved.
        describe: Returns the progress, such as "3 of 8 answers"; None if nothing was begun.

    Raises:
        CannotMeasureError: The block's own error, with the command added to its message.
    """
    try:
        yield
    except (CannotMeasureError, KeyboardInterrupt) as stop:
        there = describe()
        if there is None:
            raise
        command = resume_command(args)
        hint = f"{there} are saved; resume with: {command}"
        if args.report is None:
            hint = f"nothing is saved without --report; start over with: {command} --report DIR"
        if isinstance(stop, KeyboardInterrupt):
            print(f"evenkeel: stopped; {hint}", file=sys.stderr)
            raise
        raise CannotMeasureError(f"{stop}; {hint}") from stop


def resume_command(args: argparse.Namespace) -> str:
    """Return the command that resumes a run: the same one without `--fresh` and secrets."""
    shown = {}
    for setting in find_settings(EvalSettings):
        value = getattr(args, setting.name, None) if setting.is_secret else None
        if value and not value.startswith("@"):
            shown[value] = hide_password(value) if setting.is_address else "***"
    words = []
    for word in args.argv:
        if len(word) > len("--") and "--fresh".startswith(word):
            continue
        flag, equals, value = word.partition("=")
        is_joined = bool(equals) and flag.startswith("--") and value in shown
        words.append(f"{flag}={shown[value]}" if is_joined else shown.get(word, word))
    return shlex.join(["evenkeel", *words])

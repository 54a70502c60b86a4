"""Implements `evenkeel eval live`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from pydantic import SecretStr

from evenkeel.errors import (
    CannotMeasureError,
    ConfigurationError,
    KeyRefusedError,
    StoreLoginError,
)
from evenkeel.private_files import make_private_folder
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel.store import DEFAULT_URL, Store
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.settings import NO_STORE, EvalSettings
from evenkeel_evals.production.dial_back import Dialled, Dials, to_records
from evenkeel_evals.production.dial_targets import CollectorLabels, FolderLabels, PromptLabels
from evenkeel_evals.production.live import NS_PER_S, LiveRun, LiveWindow, evaluate
from evenkeel_evals.production.live_config import LiveConfig, load_config
from evenkeel_evals.production.live_estimate import LiveEstimate
from evenkeel_evals.production.live_spans import alert_spans, window_spans
from evenkeel_evals.report.spans import NO_ENDPOINT, send_spans
from evenkeel_evals.verdict.decision import EXIT_GOOD, EXIT_REGRESSED, EXIT_UNMEASURED

FILE_NAME = "live.jsonl"
# How often to check the clock while nothing is due.
PAUSE_S = 0.5
# Each retry reads the window anew, so an outage doubles the pause up to this.
_LONGEST_PAUSE_S = 15.0


def run(args: argparse.Namespace) -> int:
    """Evaluate production window by window; return 1 if a scorer drifts, 3 if nothing was scored.

    Raises:
        ConfigurationError: If the file or a setting is wrong.
        CannotMeasureError: If the store or the judge does not answer: with --once, or at the end.
            If one of them refuses the key or password: at once.
    """
    config = load_config(args.config)
    if args.act and not config.dial_backs:
        raise ConfigurationError(f"{args.config} has no [[dial_back]], so --act has no effect")
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    url = settings.store_address(DEFAULT_URL)
    try:
        make_private_folder(args.state, FILE_NAME)
    except OSError as error:
        raise ConfigurationError(f"--state {args.state}: {error.strerror}") from error
    with Journal(args.state / FILE_NAME) as journal:
        endpoint = settings.otlp_endpoint.get_secret_value()
        live = LiveRun(config, journal)
        dials = Dials(config, live, _labels(settings), _secret(settings.api_key), args.act)
        key = None
        if config.judge is not None:
            key = settings.judge_key(config.judge.side.url, (settings.url.get_secret_value(),))
        watch = _Watch(config, live, endpoint, args.json, dials, key)
        store = Store(url)
        try:
            watch.go(store, args.since, args.once, args.duration)
        finally:
            store.close()
        return watch.conclude()


def _labels(settings: EvalSettings) -> PromptLabels:
    url = settings.collector_url.get_secret_value()
    if url == NO_STORE:
        return FolderLabels(settings.prompts_dir)
    return CollectorLabels(url, _secret(settings.collector_token))


def _secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


class _Watch:
    """Evaluates window after window and prints each result."""

    def __init__(
        self,
        config: LiveConfig,
        live: LiveRun,
        endpoint: str,
        is_json: bool,
        dials: Dials,
        judge_key: str | None,
    ) -> None:
        self._config = config
        self._live = live
        self._endpoint = endpoint
        self._is_json = is_json
        self._dials = dials
        self._judge_key = judge_key
        # A drift that shows in windows which are not stored yet is not stored either.
        stored = live.estimates(len(live.windows) - len(live.unsent))
        self._alerted = {e.scorer for e in stored if e.is_drifting}

    def go(self, store: Store, since_s: float, is_once: bool, duration_s: float | None) -> None:
        """Evaluate the windows that are due and wait for the next, until told to stop."""
        window_ns = int(self._config.window_s * NS_PER_S)
        self._send_results()
        if self._live.windows:
            self.alert(self._live.estimates())
            # Dial-backs that failed at the end of the last run, or were only dry runs.
            self._say_dialled(self._dial_back())
        start_ns = time.time_ns() - int(since_s * NS_PER_S)
        from_ns = self._live.next_from_ns or start_ns - start_ns % window_ns
        give_up = None if duration_s is None else time.monotonic() + duration_s
        said, pause_s = "", PAUSE_S
        while True:
            to_ns = from_ns + window_ns
            due_ns = to_ns + int(self._config.settle_s * NS_PER_S)
            if time.time_ns() < due_ns:
                if is_once or (give_up is not None and time.monotonic() >= give_up):
                    return
                time.sleep(min(PAUSE_S, max(0.0, (due_ns - time.time_ns()) / NS_PER_S)))
                continue
            try:
                self._take(store, (from_ns, to_ns))
            except (KeyRefusedError, StoreLoginError):
                # This process has no other key, so that waiting does not help.
                raise
            except CannotMeasureError as error:
                if is_once or (give_up is not None and time.monotonic() >= give_up):
                    raise
                # The window is retried: an outage of the store or the judge must not end the
                # evaluation.
                if str(error) != said:
                    said = str(error)
                    print(f"evenkeel: {said}; retrying", file=sys.stderr)
                left_s = pause_s if give_up is None else max(0.0, give_up - time.monotonic())
                time.sleep(min(pause_s, left_s))
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            said, pause_s, from_ns = "", PAUSE_S, to_ns

    def _take(self, store: Store, span_ns: tuple[int, int]) -> None:
        now_ns = time.time_ns()
        budget = self._live.budget(now_ns)
        before = self._live.windows[-1] if self._live.windows else None
        window = asyncio.run(
            evaluate(self._config, store, span_ns, budget, now_ns, before, self._judge_key)
        )
        self._live.keep(window)
        estimates = self._live.estimates()
        self._send_results()
        self.alert(estimates)
        self._say(window, estimates, self._dial_back())

    def alert(self, estimates: Sequence[LiveEstimate]) -> None:
        """Store each drift once; what was not stored is sent again with the next window."""
        fresh = [e for e in estimates if e.is_drifting and e.scorer not in self._alerted]
        if self._send(list(alert_spans(self._config.name, fresh))):
            self._alerted |= {e.scorer for e in fresh}

    def _dial_back(self) -> list[Dialled | str]:
        looked = list(self._dials.look())
        for line in looked:
            if isinstance(line, str):
                print(f"evenkeel: {line}", file=sys.stderr)
        return looked

    def _say_dialled(self, looked: list[Dialled | str]) -> None:
        if self._is_json and looked:
            record = {"monitor": self._config.name, "dial_backs": to_records(looked)}
            print(json.dumps(record, allow_nan=False), flush=True)
        for dialled in looked:
            if isinstance(dialled, Dialled) and not self._is_json:
                print(dialled.describe(), flush=True)

    def _send_results(self) -> None:
        """Send every window that is not stored yet: the collector may have been down."""
        for window in list(self._live.unsent):
            if not self._send(list(window_spans(self._config.name, window))):
                return
            self._live.record_sent(window)

    def _send(self, batch: list[ReadableSpan]) -> bool:
        if not batch or self._endpoint == NO_ENDPOINT:
            return True
        problem = send_spans(batch, self._endpoint)
        if problem is not None:
            print(f"evenkeel: results were not stored: {problem}", file=sys.stderr)
        return problem is None

    def _say(
        self, window: LiveWindow, estimates: Sequence[LiveEstimate], looked: list[Dialled | str]
    ) -> None:
        if self._is_json:
            record = {
                "monitor": self._config.name,
                "from_ns": window.from_ns,
                "to_ns": window.to_ns,
                "num_requests": window.num_requests,
                "num_drawn": window.num_drawn,
                "skipped": dict(window.skipped),
                "num_judge_calls": window.num_judge_calls,
                "lag_s": window.lag_s,
                "estimates": [e.to_record() for e in estimates],
                "dial_backs": to_records(looked),
            }
            print(json.dumps(record, allow_nan=False), flush=True)
            return
        when = time.strftime("%H:%M:%S", time.gmtime(window.from_ns / NS_PER_S))
        skipped = "".join(f", {n} skipped: {why}" for why, n in window.skipped.items())
        print(
            f"{when} UTC: {window.num_drawn} of {window.num_requests} requests sampled, "
            f"{window.lag_s:.0f} s behind{skipped}",
            flush=True,
        )
        for found in estimates:
            print(f"  {found.describe()}", flush=True)
        self._say_dialled(looked)

    def conclude(self) -> int:
        """Return the exit code of all windows so far."""
        estimates = self._live.estimates()
        if any(e.is_drifting for e in estimates) or self._dials.num_dropped:
            return EXIT_REGRESSED
        return EXIT_GOOD if any(e.num_scored for e in estimates) else EXIT_UNMEASURED

"""What routes may do at the moment: what the file says, unless somebody put one into shadow."""

from __future__ import annotations

import logging
from dataclasses import replace

from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode

logger = logging.getLogger(__name__)


class UnknownRouteError(LookupError):
    """The cache's file has no such route."""


class FixedModeError(ValueError):
    """The file itself does not let the route do that."""


class RouteModes:
    """The modes of one server's routes; a change lasts until the server stops.

    Args:
        policy: What the file says.
        audit: Where changes are recorded.
    """

    def __init__(self, policy: CachePolicy, audit: AuditLog) -> None:
        self._file = policy
        self._audit = audit
        self.policy = policy

    def set(self, route: str, mode: HitMode) -> tuple[HitMode, HitMode]:
        """Put a route into shadow, or have it do again what the file says; returns before and now.

        Nothing may serve that the file does not let serve, so nobody who reaches the server can
        turn on what its owner left off.

        Raises:
            UnknownRouteError: If the file has no such route.
            FixedModeError: If the file has it switched off, or in shadow and it should serve.
        """
        declared = {policy.route: policy.mode for policy in self._file.routes}
        if route not in declared:
            known = ", ".join(declared) or "none"
            raise UnknownRouteError(
                f"the cache's file has no route {route[:100]!r}; known: {known}"
            )
        says = declared[route]
        if says is HitMode.OFF or (mode is HitMode.SERVE and says is HitMode.SHADOW):
            raise FixedModeError(
                f"the cache's file says {says.value} for route {route}; change it there"
            )
        before = self.describe()[route]
        now = HitMode.SHADOW if mode is HitMode.SHADOW else says
        routes = tuple(
            policy.model_copy(update={"mode": now}) if policy.route == route else policy
            for policy in self.policy.routes
        )
        self.policy = self.policy.model_copy(update={"routes": routes})
        if now is not before:
            logger.warning("cache route %s: %s -> %s, by request", route, before.value, now.value)
            self._audit.write("mode", route=route, before=before.value, after=now.value)
        return before, now

    def as_now(self, question: Question) -> Question:
        """Return a question with what its route may do now, which may have changed since."""
        policy = self.policy.find_route(question.policy.route)
        return question if policy == question.policy else replace(question, policy=policy)

    def describe(self) -> dict[str, HitMode]:
        """Return the mode of each route of the file."""
        return {policy.route: policy.mode for policy in self.policy.routes}

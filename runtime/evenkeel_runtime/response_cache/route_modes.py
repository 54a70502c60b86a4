"""The current mode of each route: as in the file, unless put into shadow by request."""

from __future__ import annotations

import logging
from dataclasses import replace

from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.question import Question
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode

logger = logging.getLogger(__name__)


class UnknownRouteError(LookupError):
    """The cache file has no such route."""


class FixedModeError(ValueError):
    """The cache file does not allow this mode for the route."""


class RouteModes:
    """The modes of one server's routes; a change lasts until the server stops.

    Args:
        policy: The policy from the file.
        audit: The audit log.
    """

    def __init__(self, policy: CachePolicy, audit: AuditLog) -> None:
        self._file = policy
        self._audit = audit
        self._in_shadow: set[str] = set()
        self.policy = policy

    def configure(self, policy: CachePolicy) -> None:
        """Apply a changed file; routes that were put into shadow stay there."""
        self._file = policy
        self._apply()

    def _apply(self) -> None:
        routes = tuple(
            route.model_copy(update={"mode": HitMode.SHADOW})
            if route.route in self._in_shadow and route.mode is not HitMode.OFF
            else route
            for route in self._file.routes
        )
        self.policy = self._file.model_copy(update={"routes": routes})

    def set(self, route: str, mode: HitMode) -> tuple[HitMode, HitMode]:
        """Put a route into shadow, or restore its mode from the file; return the old and new mode.

        A route can only be set to serve if the file lets it serve, so a client cannot enable what
        the owner disabled.

        Raises:
            UnknownRouteError: If the file has no such route.
            FixedModeError: If the file has the route off, or in shadow and `serve` is requested.
        """
        declared = {policy.route: policy.mode for policy in self._file.routes}
        if route not in declared:
            known = ", ".join(declared) or "none"
            raise UnknownRouteError(f"the cache file has no route {route[:100]!r}; known: {known}")
        says = declared[route]
        if not self._file.enabled:
            raise FixedModeError("the cache file has enabled = false; change it there")
        if says is HitMode.OFF or (mode is HitMode.SERVE and says is HitMode.SHADOW):
            raise FixedModeError(
                f"the cache file sets mode {says.value} for route {route}; change it there"
            )
        before = self.describe()[route]
        if mode is HitMode.SHADOW:
            self._in_shadow.add(route)
        else:
            self._in_shadow.discard(route)
        self._apply()
        now = self.describe()[route]
        if now is not before:
            logger.warning("cache route %s: %s -> %s, by request", route, before.value, now.value)
            self._audit.write("mode", route=route, before=before.value, after=now.value)
        return before, now

    def as_now(self, question: Question) -> Question:
        """Return a question with its route's current mode, which may have changed since."""
        policy = self.policy.find_route(question.policy.route)
        return question if policy == question.policy else replace(question, policy=policy)

    def describe(self) -> dict[str, HitMode]:
        """Return the mode of each route of the file."""
        find = self.policy.find_route
        return {route.route: find(route.route).mode for route in self.policy.routes}

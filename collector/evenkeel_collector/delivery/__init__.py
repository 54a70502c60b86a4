"""Delivers notifications, with retries, to Slack, e-mail, webhooks and apprise."""

"""Delivers notifications to Slack, e-mail, webhooks and apprise; `receiver_queue` retries."""

"""Delivers what receivers are owed, and tries again: Slack, e-mail, webhooks, apprise."""

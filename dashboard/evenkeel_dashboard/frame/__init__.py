"""The app around the pages: navigation, selection, queries, sign-in, user access, actions."""

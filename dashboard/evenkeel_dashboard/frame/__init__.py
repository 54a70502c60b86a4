"""The app around the pages: navigation, selection, reading, signing in, actions."""

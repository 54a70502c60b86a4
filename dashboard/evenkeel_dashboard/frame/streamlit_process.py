"""Runs Streamlit so that Ctrl-C and SIGTERM end it with code 0.

The server shuts down on the first signal and then raises it again, for the handler that was set
before: by default that is an error, here it is the end.
"""

from __future__ import annotations

import logging
import signal
import sys

from evenkeel.outside_text import safe_output


def main() -> None:
    """Run `streamlit` with this process's arguments."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    # The pages are imported before there is a runtime, which is no news to anybody.
    caching = logging.getLogger("streamlit.runtime.caching.cache_data_api")
    caching.addFilter(lambda record: "No runtime found" not in record.getMessage())
    from streamlit.web.cli import main as streamlit

    with safe_output():
        streamlit()


if __name__ == "__main__":
    main()

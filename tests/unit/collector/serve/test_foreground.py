"""Whether the C library can be told to keep freed memory."""

import platform

from evenkeel_collector.serve.foreground import keep_freed_memory


def test_glibc_takes_the_settings() -> None:
    assert keep_freed_memory() is (platform.libc_ver()[0] == "glibc")

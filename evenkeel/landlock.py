"""Restricts where this process may write, using Landlock, a Linux security module.

Landlock permanently drops rights of the calling thread and of all threads and processes it starts
later, so call it before the first thread starts. It restricts only opening for writing, creating,
removing, renaming and truncating, not reading or the network. Files that are already open
stay writable (https://docs.kernel.org/userspace-api/landlock.html).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

# linux/landlock.h
_WRITE_FILE = 1 << 1
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE = sum(1 << bit for bit in range(6, 13))  # char, dir, reg, sock, fifo, block, sym
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_VERSION_FLAG = 1
_PATH_BENEATH = 1
# Version 1 forbids renames between folders, which a store needs.
_LEAST_VERSION = 2
_TRUNCATE_SINCE = 3
# The same numbers on every architecture (Documentation/process/adding-syscalls.rst, since 5.1).
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PR_SET_NO_NEW_PRIVS = 38


class _RulesetAttr(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def why_unavailable() -> str | None:
    """Return why this system cannot restrict writes; None if it can."""
    if not sys.platform.startswith("linux"):
        return "this system is not Linux"
    try:
        version = _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    except OSError as error:
        return f"this kernel has no Landlock ({error.strerror}); it comes with Linux 5.13"
    if version < _LEAST_VERSION:
        return f"this kernel has version {version} of Landlock; version 2 comes with Linux 5.19"
    return None


def find_gap() -> str:
    """Return which writes this kernel's Landlock cannot block; "" if none.

    Call `why_unavailable` first.
    """
    if _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG) >= _TRUNCATE_SINCE:
        return ""
    return "; files elsewhere can still be truncated, which Linux 6.2 and newer can block"


def confine_writes(folders: Iterable[Path], files: Iterable[Path] = ()) -> None:
    """Allow this process to write only under `folders` and to `files` from now on.

    Call `why_unavailable` first.

    Raises:
        OSError: If one of them cannot be opened, or the kernel refuses; nothing is restricted then.
    """
    version = _syscall(_CREATE_RULESET, None, 0, _VERSION_FLAG)
    content = _WRITE_FILE | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    everything = content | _REMOVE_DIR | _REMOVE_FILE | _MAKE | _REFER
    attr = _RulesetAttr(everything)
    ruleset = _syscall(_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    try:
        for path, access in [
            *((folder, everything) for folder in folders),
            *((file, content) for file in files),
        ]:
            _allow(ruleset, path, access)
        _prctl(_PR_SET_NO_NEW_PRIVS)
        _syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        attr = _PathBeneathAttr(access, fd)
        _syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(attr), 0)
    finally:
        os.close(fd)


def _syscall(number: int, *arguments: object) -> int:
    return _checked("syscall", ctypes.c_long(number), *arguments)


def _prctl(option: int) -> None:
    zero = ctypes.c_ulong(0)
    _checked("prctl", ctypes.c_int(option), ctypes.c_ulong(1), zero, zero, zero)


def _checked(function: str, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    call = getattr(libc, function)
    call.restype = ctypes.c_long
    result = int(call(*arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

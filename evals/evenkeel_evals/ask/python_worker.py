"""Runs a dataset's checks in a separate process: one JSON line in, one JSON line out."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MAX_MEMORY_BYTES = 4 * 1024 * 1024 * 1024


def main() -> None:
    """Answer requests until standard input ends.

    For a check and the programs it starts, standard input is empty: they would read the next
    requests. What they print goes to standard error.
    """
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker = os.getpid()
    functions: dict[tuple[str, str], Callable[[str, Any], Any]] = {}
    for line in requests:
        request = json.loads(line)
        key = (request["file"], request["function"])
        try:
            if key not in functions:
                functions[key] = load(*key)
            reply = {"result": functions[key](request["answer"], request["context"])}
            text = json.dumps(reply)
        except BaseException as error:
            text = json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
        if os.getpid() != worker:
            # The check forked, and this is the copy: its reply would be taken for the next one's.
            os._exit(0)
        replies.write(f"{text}\n")
        replies.flush()


def load(file: str, function: str) -> Callable[[str, Any], Any]:
    """Return a function from a file, which may import modules in its folder."""
    folder = str(Path(file).parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"check_{abs(hash(file))}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[[str, Any], Any] = getattr(module, function)
    return found


if __name__ == "__main__":
    main()

"""The ready file that `countersign up` writes, with what its clients need."""

from __future__ import annotations

import json
import os
from typing import Any


def read_ready_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the file; raise ValueError if others can read it, or if its `countersign up` has ended.

    Another program may listen at the address then, and must not get the token.
    """
    with open(path, encoding="utf-8") as f:
        if os.fstat(f.fileno()).st_mode & 0o077:
            raise ValueError(f"{os.fspath(path)} can be read by others: chmod 600 it")
        ready: dict[str, Any] = json.load(f)
    if _is_gone(ready.get("owner")):
        raise ValueError(f"{os.fspath(path)} was left behind: its countersign up no longer runs")
    return ready


def _is_gone(owner: Any) -> bool:
    """Tell whether the owner has certainly ended; on another machine, or in another namespace, that is unknown."""
    here = _machine()
    return bool(owner and here) and owner["machine"] == here and _start_of(owner["pid"]) != owner["started"]


def _machine() -> str:
    """Return the id of this boot with the namespace of process ids, or nothing if it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f"{f.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks after boot, or nothing if it does not run."""
    try:
        with open(f"/proc/{pid:d}/stat", "rb") as f:
            fields = f.read().rpartition(b")")[2].split()  # the program's name before it may have blanks
    except OSError:
        return ""
    return "" if fields[0] == b"Z" else fields[19].decode()

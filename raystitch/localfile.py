"""Whole files on a filesystem of this machine: each appears in one step, complete."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

TEMPORARY = ".tmp-"
"""Begins the names of files that are not whole yet."""


def create(target: Path, data: bytes) -> bool:
    """Write a file if it does not exist yet. Returns whether this call created it."""
    if target.exists():
        return False
    temporary = _write_temporary(target, data)
    try:
        os.link(temporary, target)
    except FileExistsError:
        return False
    except OSError:  # no hard links here: a rename is whole as well, and both writers write the same bytes
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def replace(target: Path, data: bytes) -> None:
    """Write a file in place of any older one."""
    _write_temporary(target, data).replace(target)


def absent_parents(folder: Path) -> list[Path]:
    """Folders that writing into ``folder`` would create, innermost first."""
    return [parent for parent in (folder, *folder.parents) if not parent.exists()]


def _write_temporary(target: Path, data: bytes) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    temporary.write_bytes(data)
    return temporary

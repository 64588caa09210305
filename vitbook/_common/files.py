"""Files written whole or not at all, read without hanging, and folders: the package's, or one process's alone."""

import json
import os
import secrets
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

ASSETS = Path(__file__).parents[1] / "assets"  # the files that come with the package
_PAUSES = (0.05, 0.1, 0.2, 0.4)  # seconds between attempts to replace a file that somebody has open


def write_whole(path: Path, content: bytes) -> None:
    """Put a file with this content at `path` in one step, or leave what was there and nothing else.

    Raises OSError, with the path, where the disk is full or may not be written to.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")  # another may be writing the same file
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before it takes the old one's place
        replace_file(part, path)
    except BaseException as error:
        with suppress(OSError):  # it may not be there; and where nothing may be written, nothing may be deleted
            part.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk names no file
        raise


def replace_file(part: Path, path: Path) -> None:
    """Give a file the place of another. On Windows this has to wait while somebody has the other open."""
    for pause in _PAUSES:
        try:
            return os.replace(part, path)
        except PermissionError:
            time.sleep(pause)
    os.replace(part, path)


def read_whole(path: Path) -> bytes:
    """The content of a file. Raises ValueError as `refuse_pipes` does."""
    refuse_pipes(path)
    return path.read_bytes()


def read_json(path: Path) -> dict | None:
    """A JSON object, or None where no file is. Raises ValueError for anything else."""
    if not path.exists():
        return None
    try:
        content = json.loads(read_whole(path))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(content).__name__}")
    return content


def read_table(path: Path) -> dict[str, Any]:
    """A TOML file that comes with a package."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def refuse_pipes(path: Path) -> None:
    """Raise ValueError for a pipe or a device, which may keep its reader waiting forever or never end."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} must be a file, got a pipe or a device")


def remove_parts(folder: Path, names: str = "*") -> None:
    """Delete what processes had written of files of these names, a pattern, when they were killed."""
    for part in folder.glob(f".{names}.{'[0-9a-f]' * 16}.part"):
        remove(part)


def remove(leftover: Path) -> None:
    """Delete a file; but on Windows, one that somebody has open stays until the next time."""
    with suppress(PermissionError):
        leftover.unlink()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Meanwhile no other process enters this folder, which is made if needed. May be nested within one process.

    However the process ends, the lock ends with it. Raises ValueError while another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0, is_singleton=True)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"{folder} is in use by another training run: wait for its end or name another folder"
        ) from None
    try:
        yield
    finally:
        try:
            if lock.lock_counter == 1:
                remove(folder / ".lock")  # while it is held: later, it might be another's
        finally:
            lock.release()

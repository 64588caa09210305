"""Writing a file whole or not at all, whatever interrupts it."""

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

PAUSES = (0.05, 0.1, 0.2, 0.4)  # seconds between attempts to replace a file that somebody has open


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
        put(part, path)
    except BaseException as error:
        with suppress(OSError):  # it may not be there; and where nothing may be written, nothing may be deleted
            part.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = str(path)  # a full disk names no file
        raise


def put(part: Path, path: Path) -> None:
    """Give a file the place of another. On Windows this has to wait while somebody has the other open."""
    for pause in PAUSES:
        try:
            return os.replace(part, path)
        except PermissionError:
            time.sleep(pause)
    os.replace(part, path)


def remove_parts(folder: Path, names: str = "*") -> None:
    """Delete what processes had written of files of these names, a pattern, when they were killed."""
    for part in folder.glob(f".{names}.{'[0-9a-f]' * 16}.part"):
        remove(part)


def remove(leftover: Path) -> None:
    """Delete a file; but on Windows, one that somebody has open stays until the next time."""
    with suppress(PermissionError):
        leftover.unlink()

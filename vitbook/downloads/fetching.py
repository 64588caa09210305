"""One file from the first of several mirrors that has it, verified, or nothing at all."""

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pooch
import requests
from tqdm import tqdm

from vitbook._support.files import write_whole

TIMEOUT = 30  # seconds: a mirror silent for longer is given up
SLOW = 100_000  # bytes a second: a mirror still slower after TIMEOUT is left for the next, if there is one
CHUNK = 2**16  # bytes written at a time


def cache_dir() -> Path:
    """Where downloads are kept: $VITBOOK_DATA, or the operating system's folder for caches."""
    return Path(os.environ.get("VITBOOK_DATA") or pooch.os_cache("vitbook")).expanduser()


def own_mirrors() -> list[str]:
    """Mirrors of the reader's own, tried before all others: the addresses in $VITBOOK_MIRRORS, with spaces between."""
    return os.environ.get("VITBOOK_MIRRORS", "").split()


def fetch(name: str, sha256: str, mirrors: Sequence[str], folder: Path | None = None, progress: bool = True) -> Path:
    """The path of file `name`, downloaded unless it is there already, its SHA-256 verified either way.

    mirrors: addresses of folders, tried in order after those in $VITBOOK_MIRRORS, each followed by `name`; folder:
    where to keep the file, `cache_dir()` if not given; progress: whether to show a bar. The file appears under its name
    only when it is whole and verified; one that is there and is not is replaced.

    Raises ConnectionError where no mirror has the file whole, with what each of them said and what to put where by
    hand; OSError, with the path, where the file cannot be written; TypeError for a single address as mirrors.
    """
    folder = Path(folder or cache_dir())
    target = folder / name
    failures = []
    if target.exists():
        got = pooch.file_hash(target)
        if got == sha256:
            return target
        failures.append(f"{target} is not the published file: expected SHA-256 {sha256}, got {got}")
    hint = "or name the folder where it is with data_dir="
    return download(name, sha256, 0, mirrors, folder, progress, failures, hint)


def fetch_pinned(
    name: str, sha256: str, size: int, mirrors: Sequence[str], folder: Path | None = None, progress: bool = True
) -> Path:
    """The path of a file whose SHA-256 nobody has published, or its beginning alone: what comes first is trusted.

    The SHA-256 of what came first is kept beside it, in `name`.sha256, and nothing else is accepted from then on.

    sha256: its beginning, empty where nothing is known; size: in bytes, to a hundredth, which keeps out the web page
    that some networks send instead. The rest as in `fetch`. Raises ValueError for a file that is there and is another,
    the errors of `fetch` besides.
    """
    folder = Path(folder or cache_dir())
    target = folder / name
    pin = target.with_name(f"{target.name}.sha256")
    pinned = pin.read_text(encoding="utf-8").strip() if pin.exists() else ""
    if target.exists():
        try:
            verify(target, pinned or sha256, 0 if pinned else size)
        except ValueError as error:
            which = f"that was used first, by {pin}" if pinned else "that is published"
            raise ValueError(f"{target} is not the file {which}: {error}; delete it to get that one again") from None
    else:
        changed = f"or, if the published file has changed for good, delete {pin}"
        hint = changed if pinned else "or use the file where it is"
        download(name, pinned or sha256, 0 if pinned else size, mirrors, folder, progress, [], hint)
    if not pinned:
        write_whole(pin, f"{pooch.file_hash(target)}\n".encode())
    return target


def download(
    name: str,
    sha256: str,
    size: int,
    mirrors: Sequence[str],
    folder: Path,
    progress: bool,
    failures: list[str],
    hint: str,
) -> Path:
    """The path of file `name`, now downloaded. sha256: all of it or its beginning; size: about, in bytes, 0 if unknown.

    failures: what went wrong before; hint: what else can be done by hand. The errors are those of `fetch`.
    """
    if letters := [mirror for mirror in mirrors if len(mirror) == 1]:
        raise TypeError(f"mirrors must be a list of addresses, got the one address {''.join(letters)!r}")
    target = folder / name
    addresses = [f"{mirror.rstrip('/')}/{name}" for mirror in (*own_mirrors(), *mirrors)]
    for address in addresses:
        last = address == addresses[-1]
        downloader = partial(stream, progress=progress, patient=last, sha256=sha256, size=size)
        try:
            with quiet():
                known = f"sha256:{sha256}" if len(sha256) == 64 else None
                pooch.retrieve(address, known, name, folder, downloader=downloader)
            return target
        except (requests.RequestException, ValueError) as error:  # a wrong hash is a ValueError
            failures.append(f"{address}: {reason(error)}")
        except OSError as error:  # the disk is full, or may not be written to: another mirror would not help
            raise type(error)(error.errno, error.strerror or str(error), str(target)) from None
    raise ConnectionError(
        f"{name} could not be downloaded:\n"
        + "".join(f"  {failure}\n" for failure in failures)
        + f"Get it by another way ({described(sha256, size)}) and put it at {target}, {hint}. To try other addresses "
        "first, name them in the environment variable VITBOOK_MIRRORS."
    )


def described(sha256: str, size: int) -> str:
    """How a file can be told from others, as far as is known."""
    begins = "" if len(sha256) == 64 else "begins "
    return ", ".join([f"{size / 1e6:.1f} MB"] * bool(size) + [f"SHA-256 {begins}{sha256}"] * bool(sha256))


def verify(path: Path, sha256: str, size: int) -> None:
    """Raise ValueError unless a file's SHA-256 begins like this, and its size is about this; 0 if it is not known."""
    bytes_there = path.stat().st_size
    if size and abs(bytes_there - size) > size / 100:
        raise ValueError(f"expected {size / 1e6:.1f} MB but got {bytes_there / 1e6:.6g} MB")
    got = pooch.file_hash(path)
    if not got.startswith(sha256):
        raise ValueError(f"expected sha256:{sha256} but got {got}")


def stream(address: str, target: str, _: None, progress: bool, patient: bool, sha256: str, size: int) -> None:
    """Write what lies at an address to a file, as it comes, and verify it: the `downloader` of `pooch.retrieve`.

    patient: whether to bear with a slow mirror. Raises requests.RequestException for whatever the mirror does wrong,
    ValueError for another file.
    """
    start = time.monotonic()
    with requests.get(address, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        response.raw.headers.pop("Content-Encoding", None)  # some servers announce a .gz as a packed page
        total = int(response.headers.get("Content-Length", 0)) or None
        bar = tqdm(desc=address.rpartition("/")[2], total=total, unit="B", unit_scale=True, disable=not progress)
        with bar, open(target, "wb") as file:
            for chunk in response.iter_content(CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                seconds = time.monotonic() - start
                if not patient and seconds > TIMEOUT and file.tell() < SLOW * seconds:
                    raise requests.Timeout(f"slower than {SLOW / 1000:g} kB/s")
    verify(Path(target), sha256, size)


def reason(error: Exception) -> str:
    """A failure in a line: the innermost of the errors that requests and urllib3 wrap around each other."""
    while isinstance(error, Exception) and error.args:
        error = getattr(error, "reason", None) or error.args[0]
    return str(error).rpartition("): ")[2] or type(error).__name__


@contextmanager
def quiet() -> Iterator[None]:
    """Keep back what pooch would say while all is well: the bar says enough."""
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)

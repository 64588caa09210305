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
    hand; OSError, with the path, where the file cannot be written.
    """
    folder = Path(folder or cache_dir())
    target = folder / name
    failures = []
    if target.exists():
        got = pooch.file_hash(target)
        if got == sha256:
            return target
        failures.append(f"{target} is not the published file: expected SHA-256 {sha256}, got {got}")
    addresses = [f"{mirror.rstrip('/')}/{name}" for mirror in (*own_mirrors(), *mirrors)]
    for address in addresses:
        download = partial(stream, progress=progress, patient=address == addresses[-1])
        try:
            with quiet():
                pooch.retrieve(address, f"sha256:{sha256}", name, folder, downloader=download)
            return target
        except (requests.RequestException, ValueError) as error:  # pooch calls a wrong hash a ValueError
            failures.append(f"{address}: {reason(error)}")
        except OSError as error:  # the disk is full, or may not be written to: another mirror would not help
            raise type(error)(error.errno, error.strerror or str(error), str(target)) from None
    raise ConnectionError(
        f"{name} could not be downloaded:\n"
        + "".join(f"  {failure}\n" for failure in failures)
        + f"Get it by another way (SHA-256 {sha256}) and put it at {target}, or name the folder where it is with "
        "data_dir=. To try other addresses first, name them in the environment variable VITBOOK_MIRRORS."
    )


def stream(address: str, target: str, _: None, progress: bool, patient: bool) -> None:
    """Write what lies at an address to a file, as it comes: the `downloader` of `pooch.retrieve`.

    patient: whether to bear with a slow mirror. Raises requests.RequestException for whatever the mirror does wrong.
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


def reason(error) -> str:
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

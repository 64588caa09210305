"""One file from the first of several mirrors that has it, verified, or nothing at all."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests
from pooch.utils import temporary_file
from tqdm import tqdm

from vitbook._common.files import write_whole

TIMEOUT = 30  # seconds: a mirror silent for longer is given up
SLOW = 100_000  # bytes a second: a mirror still slower after TIMEOUT is left for the next, if there is one
_CHUNK = 2**16  # bytes written at a time


def cache_dir() -> Path:
    """Where downloads are kept: $VITBOOK_DATA, or the operating system's folder for caches."""
    return Path(os.environ.get("VITBOOK_DATA") or pooch.os_cache("vitbook")).expanduser()


def fetch(name: str, sha256: str, mirrors: Sequence[str], progress: bool = True) -> Path:
    """The path of file `name`, downloaded unless it is there already, its SHA-256 verified either way.

    mirrors: addresses of folders, each followed by `name`, tried in order after those in $VITBOOK_MIRRORS, which have
    spaces between; progress: whether to show a bar. The file appears in `cache_dir()` under its name only when it is
    whole and verified; a damaged one that is there is replaced.

    Raises ConnectionError where no mirror has the file whole, with what each of them said and what to put where by
    hand; OSError, with the path, where the file cannot be written; TypeError for a single address as mirrors.
    """
    target, failures = cache_dir() / name, []
    if target.exists():
        got = pooch.file_hash(target)
        if got == sha256:
            return target
        failures.append(f"{target} is not the published file: expected SHA-256 {sha256}, got {got}")
    hint = "or name the folder where it is with data_dir="
    return _download(name, _Expected(sha256), mirrors, target, progress, hint, failures)


def fetch_pinned(name: str, sha256: str, size: int, mirrors: Sequence[str], progress: bool = True) -> Path:
    """The path of a file of whose SHA-256 nothing, or only the beginning, is published: what comes first is trusted.

    The SHA-256 of what came first is kept beside it, in `name`.sha256, and nothing else is accepted from then on.

    sha256: its beginning, empty where nothing is known; size: in bytes, to within 1 %, which keeps out the web page
    that some networks send instead. The rest as in `fetch`. Raises ValueError for another file that is there already,
    and the errors of `fetch`.
    """
    target = cache_dir() / name
    pin = target.with_name(f"{target.name}.sha256")
    pinned = pin.read_text(encoding="utf-8").strip() if pin.exists() else ""
    expected = _Expected(pinned) if pinned else _Expected(sha256, size)
    if target.exists():
        try:
            expected.verify(target)
        except ValueError as error:
            which = f"that was used first, by {pin}" if pinned else "that is published"
            raise ValueError(f"{target} is not the file {which}: {error}; delete it to get that one again") from None
    else:
        delete = f"or, if the published file has changed for good, delete {pin}"
        hint = delete if pinned else "or use the file where it is"
        _download(name, expected, mirrors, target, progress, hint, [])
    if not pinned:
        write_whole(pin, f"{pooch.file_hash(target)}\n".encode())
    return target


@dataclass(frozen=True)
class _Expected:
    """What is known of a file."""

    sha256: str  # or its beginning
    size: int = 0  # in bytes, to within 1 %; 0 if unknown

    def verify(self, path: Path) -> None:
        """Raise ValueError for another file."""
        size = path.stat().st_size
        if self.size and abs(size - self.size) > self.size / 100:
            raise ValueError(f"expected {self.size / 1e6:.1f} MB but got {size / 1e6:.6g} MB")
        got = pooch.file_hash(path)
        if not got.startswith(self.sha256):
            raise ValueError(f"expected sha256:{self.sha256} but got {got}")

    def __str__(self) -> str:
        size = f"{self.size / 1e6:.1f} MB" if self.size else ""
        sha256 = f"SHA-256 {'' if len(self.sha256) == 64 else 'begins '}{self.sha256}" if self.sha256 else ""
        return ", ".join(filter(None, (size, sha256)))


def _download(
    name: str, expected: _Expected, mirrors: Sequence[str], target: Path, progress: bool, hint: str, failures: list[str]
) -> Path:
    """The target, now downloaded. hint: what else can be done by hand; failures: what went wrong before."""
    if letters := [mirror for mirror in mirrors if len(mirror) == 1]:
        raise TypeError(f"mirrors must be a list of addresses, got the one address {''.join(letters)!r}")
    mirrors = [*os.environ.get("VITBOOK_MIRRORS", "").split(), *mirrors]
    for number, mirror in enumerate(mirrors, 1):
        address = f"{mirror.rstrip('/')}/{name}"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with temporary_file(str(target.parent)) as part:  # deleted whatever happens
                _stream(address, part, progress, patient=number == len(mirrors), most=expected.size * 1.01)
                expected.verify(Path(part))
                os.replace(part, target)
            return target
        except (requests.RequestException, ValueError) as error:
            failures.append(f"{address}: {_reason(error)}")
        except OSError as error:  # the disk is full, or may not be written to: another mirror would not help
            raise type(error)(error.errno, error.strerror or str(error), str(target)) from None
    raise ConnectionError(
        f"{name} could not be downloaded:\n"
        + "".join(f"  {failure}\n" for failure in failures)
        + f"Get it by another way ({expected}) and put it at {target}, {hint}. To try other addresses first, name them "
        "in the environment variable VITBOOK_MIRRORS."
    )


def _stream(address: str, part: str, progress: bool, patient: bool, most: float) -> None:
    """Write what lies at an address to a file, as it comes. pooch's downloader stays with a slow mirror for hours.

    patient: whether to; most: bytes after which it is no longer the file, 0 for any number. Raises
    requests.RequestException for whatever the mirror does wrong.
    """
    start = time.monotonic()
    with requests.get(address, stream=True, timeout=TIMEOUT) as response:
        response.raise_for_status()
        response.raw.headers.pop("Content-Encoding", None)  # some servers announce a .gz as a compressed page
        total = int(response.headers.get("Content-Length", 0)) or None
        bar = tqdm(desc=address.rpartition("/")[2], total=total, unit="B", unit_scale=True, disable=not progress)
        with bar, open(part, "wb") as file:
            for chunk in response.iter_content(_CHUNK):
                file.write(chunk)
                bar.update(len(chunk))
                if most and file.tell() > most:
                    raise requests.RequestException(f"more than the {most / 1.01e6:.6g} MB that are expected")
                seconds = time.monotonic() - start
                if not patient and seconds > TIMEOUT and file.tell() < SLOW * seconds:
                    raise requests.Timeout(f"slower than {SLOW / 1000:g} kB/s")


def _reason(error: Exception) -> str:
    """A failure in a line: the innermost of the errors that requests and urllib3 wrap around each other."""
    while isinstance(error, Exception) and error.args:
        error = getattr(error, "reason", None) or error.args[0]
    return str(error).rpartition("): ")[2] or type(error).__name__

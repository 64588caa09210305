"""The files of an archive, by name, read in memory: nothing is extracted, so nothing can land in a wrong place."""

import errno
import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath, PureWindowsPath

_Readers = dict[str, Callable[[], bytes]]  # a file's name below the top folder → what reads it


class Files:
    """Files by their names below the top folder. `open_files` makes them."""

    def __init__(self, place: str, readers: _Readers):
        self.place = place  # where they lie, for messages
        self.readers = readers

    def names(self, folder: str, ending: str) -> list[str]:
        """The names that begin and end like this, sorted."""
        return sorted(name for name in self.readers if name.startswith(folder) and name.endswith(ending))

    def read(self, name: str) -> bytes:
        """A file's bytes. Raises ValueError where it is missing or damaged."""
        if name not in self.readers:
            raise ValueError(f"{self.place} must contain {name}, and does not")
        with _damage_as_value_error(f"{self.place}: {name}"):
            return self.readers[name]()

    def text(self, name: str) -> str:
        """A file's text. Raises ValueError where it is missing, damaged or not UTF-8."""
        try:
            return str(self.read(name), "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.place}: {name} must be text in UTF-8: {error}") from None


@contextmanager
def open_files(paths: list[Path], limit: int) -> Iterator[Files]:
    """What lies in these places together: folders, .tar.gz, .tar and .zip archives, single files, with .gz or without.

    limit: the number of bytes which no place may exceed once unpacked, whatever its headers say. Raises ValueError for
    a place that is damaged, cut short or larger, and for an archive with anything in it but files and folders below it.
    """
    with ExitStack() as stack:
        readers: _Readers = {}
        for path in paths:
            if path.is_dir():
                files = (file for file in path.rglob("*") if file.is_file())
                readers |= {_without_gz(file.relative_to(path)): partial(_read, file, limit) for file in files}
            elif path.suffix == ".zip":
                readers |= _zip_readers(path, limit, stack)
            elif _without_gz(path).endswith(".tar"):
                readers |= _tar_readers(path, limit)
            else:
                readers[_without_gz(Path(path.name))] = partial(bytes, _read(path, limit))
        yield Files(str(paths[0] if len(paths) == 1 else paths[0].parent), readers)


def _read(path: Path, limit: int) -> bytes:
    """A file's bytes, unpacked if its name ends in .gz. Raises ValueError for more than `limit`."""
    with _damage_as_value_error(str(path)), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(limit + 1)
    _check_size(path, len(content), limit)
    return content


def _without_gz(path: Path) -> str:
    return path.as_posix().removesuffix(".gz")


def _tar_readers(path: Path, limit: int) -> _Readers:
    """The files of a .tar, unpacked in memory, where no header can promise more than is there."""
    content, files = _read(path, limit), []
    with _damage_as_value_error(str(path)), tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:  # one at a time: a negative size leads back to an earlier one, without end
            start, end = member.offset_data, member.offset_data + member.size
            if not start <= end <= len(content):
                raise EOFError(f"{member.name} should end at byte {end:,} of {len(content):,}")
            files.append((member, slice(start, end)))
    for member, _ in files:
        _check_member(path, member.name, member.isdir() or member.isreg() and not member.issparse())
    return {_below_top(member.name): partial(content.__getitem__, part) for member, part in files if member.isreg()}


def _zip_readers(path: Path, limit: int, stack: ExitStack) -> _Readers:
    """The files of a .zip, each read when it is asked for, and never beyond the size in its header."""
    with _damage_as_value_error(str(path)):
        archive = stack.enter_context(zipfile.ZipFile(path))
    members = archive.infolist()
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was made on Windows
        _check_member(path, member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR))
    _check_size(path, sum(member.file_size for member in members), limit)
    return {_below_top(member.filename): partial(archive.read, member) for member in members if not member.is_dir()}


def _below_top(name: str) -> str:
    """A member's name without the archive's top folder: "cifar-100-binary/train.bin" → "train.bin"."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[1:] or parts)


def _check_member(path: Path, name: str, plain: bool) -> None:
    """Raise ValueError for a link or a device, and for a name that leads out of the archive.

    `tarfile.data_filter` lets links through and strips a leading slash, where both mean that this is another archive.
    """
    if not plain:
        raise ValueError(f"{path} must hold only files and folders, and {name!r} is something else")
    windows = PureWindowsPath(name)  # knows both kinds of slash, and drives
    if windows.anchor or ".." in windows.parts:
        raise ValueError(f"{path} must hold only files below its own folder, and {name!r} leads out of it")


def _check_size(path: Path, size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"{path} must hold at most {limit:,} bytes, unpacked, and holds more")


@contextmanager
def _damage_as_value_error(place: str) -> Iterator[None]:
    """Turn whatever Python's readers of archives raise over damage, which is much, into a ValueError with the place."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's fault; EINVAL is a place before the beginning of the file
        raise ValueError(f"{place} is damaged or cut short: {str(error) or type(error).__name__}") from None

"""The files of an archive, by name, read where they lie: nothing is written, so nothing can land in a wrong place."""

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

Contents = dict[str, Callable[[], bytes | memoryview]]  # a file's name → what reads it


class Unfit(ValueError):
    """An archive that can be read and should not be."""


class Files:
    """Files by their names below the top folder. `open_files` makes them."""

    def __init__(self, place: str, contents: Contents):
        self.place = place  # where they lie, for messages
        self.contents = contents

    def names(self, folder: str, ending: str) -> list[str]:
        """The names that begin and end like this, sorted."""
        return sorted(name for name in self.contents if name.startswith(folder) and name.endswith(ending))

    def read(self, name: str) -> bytes | memoryview:
        """A file's bytes. Raises ValueError where it is missing or damaged."""
        if name not in self.contents:
            raise ValueError(f"{self.place} should contain {name}, and does not")
        with blaming(f"{self.place}: {name}"):
            return self.contents[name]()

    def text(self, name: str) -> str:
        """A file's text. Raises ValueError where it is missing, damaged or not UTF-8."""
        try:
            return str(self.read(name), "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{self.place}: {name} should be text in UTF-8: {error}") from None


@contextmanager
def open_files(paths: list[Path], limit: int) -> Iterator[Files]:
    """What lies in these places together: folders, .tar.gz, .tar and .zip archives, single files, with .gz or without.

    limit: the number of bytes which no place may exceed once unpacked, whatever its headers say. Raises ValueError for
    a place that is damaged, cut short or larger, and for an archive with anything in it but files and folders below it.
    """
    with ExitStack() as stack:
        contents: Contents = {}
        for path in paths:
            with blaming(str(path)):
                contents |= contents_of(path, limit, stack)
        yield Files(str(paths[0] if len(paths) == 1 else paths[0].parent), contents)


@contextmanager
def blaming(place: str) -> Iterator[None]:
    """Turn what Python's readers of archives raise over damage, and that is much, into a ValueError with the place."""
    try:
        yield
    except Unfit:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's fault; EINVAL is a place before the beginning of the file
        raise ValueError(f"{place} is damaged or cut short: {str(error) or type(error).__name__}") from None


def contents_of(path: Path, limit: int, stack: ExitStack) -> Contents:
    """What lies in one place. The stack closes what stays open."""
    if path.is_dir():
        files = (file for file in path.rglob("*") if file.is_file())
        return {unpacked_name(file.relative_to(path)): partial(read_file, file, limit) for file in files}
    if path.suffix == ".zip":
        return zip_contents(stack.enter_context(zipfile.ZipFile(path)), path, limit)
    content = read_file(path, limit)
    name = unpacked_name(Path(path.name))
    return tar_contents(content, path) if name.endswith(".tar") else {name: lambda: content}


def read_file(path: Path, limit: int) -> bytes:
    """A file's bytes, unpacked if its name ends in .gz. Raises ValueError for more than `limit`."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(limit + 1)
    check_size(len(content), limit, path)
    return content


def unpacked_name(path: Path) -> str:
    """A file's name without .gz."""
    return path.as_posix().removesuffix(".gz")


def tar_contents(content: bytes, path: Path) -> Contents:
    """The files of a .tar, already unpacked in memory, where no header can promise more than is there."""
    contents: Contents = {}
    view = memoryview(content)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
        for member in archive:
            check_member(member.name, member.isdir() or member.isreg() and not member.issparse(), path)
            start, end = member.offset_data, member.offset_data + member.size
            if not start <= end <= len(content):
                raise EOFError(f"{member.name} should end at byte {end:,} of {len(content):,}")
            if member.isreg():
                contents[below_top(member.name)] = partial(view.__getitem__, slice(start, end))
    return contents


def zip_contents(archive: zipfile.ZipFile, path: Path, limit: int) -> Contents:
    """The files of a .zip, each read when it is asked for."""
    members = archive.infolist()
    for member in members:
        kind = stat.S_IFMT(member.external_attr >> 16)  # 0 where the archive was made on Windows
        check_member(member.filename, kind in (0, stat.S_IFREG, stat.S_IFDIR), path)
    check_size(sum(member.file_size for member in members), limit, path)
    return {below_top(member.filename): partial(archive.read, member) for member in members if not member.is_dir()}


def below_top(name: str) -> str:
    """A member's name without the archive's top folder: "cifar-100-binary/train.bin" → "train.bin"."""
    parts = PurePosixPath(name).parts
    return "/".join(parts[1:] or parts)


def check_member(name: str, plain: bool, path: Path) -> None:
    """Raise Unfit for a member that is a link or a device, or whose name leads out of the archive."""
    if not plain:
        raise Unfit(f"{path} should hold files and folders alone, and {name!r} is something else")
    windows = PureWindowsPath(name)  # knows both kinds of slash, and drives
    if windows.anchor or ".." in windows.parts:
        raise Unfit(f"{path} should hold files below its own folder alone, and {name!r} leads out of it")


def check_size(size: int, limit: int, path: Path) -> None:
    """Raise Unfit for more bytes than there should be."""
    if size > limit:
        raise Unfit(f"{path} should hold at most {limit:,} bytes, unpacked, and holds more")

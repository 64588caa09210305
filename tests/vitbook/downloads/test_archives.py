"""Whatever lies in an archive: its files are read whole, or what is wrong with it is said; and nothing is written."""

import gzip
import io
import re
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from small_sets import tar_gz, zipped

from vitbook._downloads.archives import open_files

FILES = {"a.bin": bytes(range(256)) * 5, "deep/b.txt": "grün".encode(), "empty": b""}
LIMIT = 20_000
ARCHIVES = {
    "set.tar.gz": tar_gz("top", FILES),
    "set.tar": gzip.decompress(tar_gz("top", FILES)),
    "set.zip": zipped("top", FILES),
}
PLACES = pytest.mark.parametrize("place", [*ARCHIVES, "folder"])


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path, monkeypatch):
    """Every test of this page runs in a folder of its own, in which nothing new may lie at the end."""
    (tmp_path / "in").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "in"]
    assert not list((tmp_path / "here").iterdir())


def put(tmp_path: Path, place: str, content: bytes | None = None) -> Path:
    path = tmp_path / "in" / place
    if place == "folder":
        for name, file in FILES.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(file)
    else:
        path.write_bytes(ARCHIVES[place] if content is None else content)
    return path


def read_all(*paths: Path, limit: int = LIMIT) -> dict[str, bytes]:
    with open_files(list(paths), limit) as files:
        return {name: bytes(files.read(name)) for name in files.readers}


@PLACES
def test_the_files_are_read_by_their_names_below_the_top(tmp_path, place):
    path = put(tmp_path, place)
    assert read_all(path) == FILES
    with open_files([path], LIMIT) as files:
        assert files.text("deep/b.txt") == "grün"
        assert files.names("deep/", ".txt") == ["deep/b.txt"] and files.names("", "") == sorted(FILES)
        for read, message in (
            (lambda: files.read("c.bin"), " must contain c.bin, and does not"),
            (lambda: files.text("a.bin"), ": a.bin must be text in UTF-8"),
        ):
            with pytest.raises(ValueError, match=re.escape(f"{path}{message}")):
                read()
    with pytest.raises(ValueError, match="must hold at most 1,279 bytes, unpacked, and holds more"):
        read_all(path, limit=1279)


def test_single_files_are_read_together(tmp_path):
    (tmp_path / "in" / "one.gz").write_bytes(gzip.compress(b"1"))
    (tmp_path / "in" / "two").write_bytes(b"2")
    assert read_all(tmp_path / "in" / "one.gz", tmp_path / "in" / "two") == {"one": b"1", "two": b"2"}
    assert read_all(tmp_path / "in") == {"one": b"1", "two": b"2"}


@pytest.mark.parametrize("place", ARCHIVES)
def test_a_damaged_archive_is_refused_or_lacks_files(tmp_path, place):
    """Cut short anywhere, or with a byte changed, of which only a .tar has no checksum."""
    whole = ARCHIVES[place]
    cut = [whole[:length] for length in range(0, len(whole) - 1, 1 + len(whole) // 150)]
    places = range(0, len(whole), 1 + len(whole) // 200) if place != "set.tar" else ()
    changed = [whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :] for at in places]
    for content in cut + changed:
        path = put(tmp_path, place, content)
        try:
            readable = read_all(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert set(readable.values()) <= set(FILES.values())
            shorter = len(content) < len(whole)
            assert not shorter or place == "set.tar" and (readable != FILES or len(content) >= len(whole) - 10_240)


@pytest.mark.parametrize("place", ["set.tar.gz", "set.zip", "one.gz"])
@pytest.mark.parametrize("content", [b"<html>not here</html>" * 100, bytes(2000)], ids=["page", "zeros"])
def test_what_is_no_archive_is_refused(tmp_path, place, content):
    path = put(tmp_path, place, content)
    with pytest.raises(ValueError, match=f"{re.escape(str(path))} is damaged or cut short: .+"):
        read_all(path)


def test_a_bomb_is_refused_before_it_bursts(tmp_path):
    path = put(tmp_path, "set.tar.gz", gzip.compress(bytes(50_000_000), 9))
    with pytest.raises(ValueError, match="must hold at most 20,000 bytes"):
        read_all(path)


def tar_with(name: str, **attributes) -> bytes:
    """A .tar with the files and one more member, of this name and with these attributes of tarfile.TarInfo."""
    member = tarfile.TarInfo(name)
    for attribute, value in attributes.items():
        setattr(member, attribute, value)
    files = ARCHIVES["set.tar"].rstrip(b"\0")
    files += bytes(-len(files) % tarfile.BLOCKSIZE)
    return files + member.tobuf(tarfile.GNU_FORMAT) + bytes(2 * tarfile.BLOCKSIZE)


@pytest.mark.parametrize("name", ["../evil", "top/../../evil", "/tmp/evil", "C:\\evil", "..\\evil", "\\\\server\\evil"])
def test_a_name_that_leads_out_is_refused(tmp_path, name):
    folder, _, file = name.rpartition("/")
    packed = {"set.tar.gz": gzip.compress(tar_with(name)), "set.zip": zipped(folder, {file: b"evil"})}
    for place, content in packed.items():
        with pytest.raises(ValueError, match="must hold only files below its own folder, and .* leads out of it"):
            read_all(put(tmp_path, place, content))


@pytest.mark.parametrize("kind", ["SYMTYPE", "LNKTYPE", "CHRTYPE", "FIFOTYPE", "GNUTYPE_SPARSE"])
def test_a_link_or_a_device_is_refused(tmp_path, kind):
    content = tar_with("top/c.bin", type=getattr(tarfile, kind), linkname="/etc/passwd")
    for place, packed in (("set.tar", content), ("set.tar.gz", gzip.compress(content))):
        path = put(tmp_path, place, packed)
        with pytest.raises(ValueError, match="must hold only files and folders, and 'top/c.bin' is something else"):
            read_all(path)


def test_a_link_in_a_zip_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo("top/c.bin")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(ValueError, match="only files and folders, and 'top/c.bin' is something else"):
        read_all(put(tmp_path, "set.zip", buffer.getvalue()))


@pytest.mark.parametrize("kind", ["REGTYPE", "GNUTYPE_LONGNAME", "XHDTYPE"])
@pytest.mark.parametrize("size", [10**15, 2**63, -512, -10_000])
def test_a_header_that_promises_what_is_not_there_is_refused_or_ends_it(tmp_path, kind, size):
    path = put(tmp_path, "set.tar", tar_with("top/c.bin", type=getattr(tarfile, kind), size=size))
    try:
        readable = read_all(path)
    except ValueError as error:
        assert f"{path} is damaged or cut short: " in str(error)
    else:
        assert readable == FILES and (kind != "REGTYPE" or size < 0)  # newer Pythons take a negative size for the end


def test_a_zip_that_lies_about_a_size_is_refused(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("top/c.bin", bytes(15_000))
    path = put(tmp_path, "set.zip", buffer.getvalue().replace(struct.pack("<I", 15_000), struct.pack("<I", 5_000)))
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}: c.bin is damaged or cut short"):
        read_all(path)


def test_a_locked_zip_is_named(tmp_path):
    flags = rb"(PK\x03\x04..|PK\x01\x02....)(.)"  # of each file, once before it and once in the list at the end
    whole = re.sub(flags, lambda match: match[1] + bytes([match[2][0] | 1]), ARCHIVES["set.zip"], flags=re.DOTALL)
    with pytest.raises(ValueError, match="encrypted"):
        read_all(put(tmp_path, "set.zip", whole))

"""A download is whole and verified, or it is not there; and what went wrong is said."""

import hashlib
import socket
from functools import partial
from pathlib import Path

import pytest

from vitbook._downloads import fetching
from vitbook._downloads.fetching import cache_dir, fetch, fetch_pinned

pytest_plugins = ["local_mirror"]

NAME = "numbers.bin.gz"
CONTENT = hashlib.shake_256(b"numbers").digest(200_000)
CHANGED = CONTENT[:-1] + b"!"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NOWHERE = "http://127.0.0.1:1"  # nobody listens here


@pytest.fixture
def mirror(mirror, monkeypatch):
    monkeypatch.setattr(fetching, "TIMEOUT", 0.4)
    mirror.files[NAME] = CONTENT
    return mirror


def get(*mirrors: str, progress: bool = False) -> bytes:
    return fetch(NAME, SHA256, mirrors, progress).read_bytes()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*"))


def put(cache: Path, content: bytes) -> None:
    cache.mkdir()
    (cache / NAME).write_bytes(content)


@pytest.mark.parametrize("way", ["good", "elsewhere", "lengthless", "labelled", "slow"])
def test_what_a_mirror_has_is_kept_under_its_name_and_not_asked_for_again(mirror, cache, way):
    assert get(mirror(way)) == CONTENT
    asked = list(mirror.asked)
    assert get(mirror("broken"), NOWHERE) == CONTENT
    assert mirror.asked == asked and names_in(cache) == [NAME]


def test_the_folder_can_be_chosen(mirror, cache, tmp_path, monkeypatch):
    assert cache_dir() == cache
    monkeypatch.setenv("VITBOOK_DATA", str(tmp_path / "deep" / "a b"))
    assert get(mirror("good")) == CONTENT
    assert names_in(tmp_path / "deep") == ["a b", NAME] and not cache.exists()
    monkeypatch.setenv("VITBOOK_DATA", "~/images")
    assert cache_dir() == Path.home() / "images"


FAULTS = {
    "stalled": "Read timed out",
    "cut": "IncompleteRead.100000 bytes read, 100000 more expected",
    "silent": "Connection aborted",
    "wrong": f"expected sha256:{SHA256} but got [0-9a-f]{{64}}",
    "page": f"expected sha256:{SHA256} but got [0-9a-f]{{64}}",
    "missing": "404 Client Error: Not Found",
    "broken": "503 Server Error: Service Unavailable",
}


@pytest.mark.parametrize(("way", "message"), FAULTS.items())
def test_a_bad_mirror_leaves_nothing_and_the_next_is_tried(mirror, cache, way, message):
    with pytest.raises(ConnectionError, match=f"{NAME} could not be downloaded:\n  {mirror(way)}/{NAME}: .*{message}"):
        get(mirror(way))
    assert names_in(cache) == []
    assert get(mirror(way), mirror("good"), mirror("elsewhere")) == CONTENT
    assert mirror.asked[1:] == [f"{way}/{NAME}", f"good/{NAME}"] and names_in(cache) == [NAME]


def test_a_slow_mirror_is_left_where_there_is_another(mirror, cache, monkeypatch):
    monkeypatch.setattr(fetching, "SLOW", 10**9)
    monkeypatch.setattr(fetching, "TIMEOUT", 0.1)
    assert get(mirror("slow"), mirror("good")) == CONTENT
    assert mirror.asked == [f"slow/{NAME}", f"good/{NAME}"]
    (cache / NAME).unlink()
    assert get(mirror("broken"), mirror("slow")) == CONTENT, "there is no other"


def test_without_a_network_it_is_said_what_to_put_where(cache, monkeypatch):
    def no_name_server(*_):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    with pytest.raises(ConnectionError, match=f"{NOWHERE}/{NAME}: Failed to establish a new connection"):
        get(NOWHERE)
    monkeypatch.setattr("urllib3.util.connection.socket.getaddrinfo", no_name_server)
    with pytest.raises(ConnectionError) as caught:
        get("https://data.example/sets", "http://other.example/~kriz/")
    message = str(caught.value)
    assert f"\n  https://data.example/sets/{NAME}: Failed to resolve 'data.example'" in message
    assert f"(SHA-256 {SHA256}) and put it at {cache / NAME}, or name the folder where it is with data_dir=" in message


@pytest.mark.parametrize("damaged", [b"", CONTENT[:-1], CHANGED], ids=["empty", "cut", "changed"])
def test_a_damaged_file_is_replaced_or_named(mirror, cache, damaged):
    put(cache, damaged)
    got = hashlib.sha256(damaged).hexdigest()
    with pytest.raises(ConnectionError, match=f"not the published file: expected SHA-256 {SHA256}, got {got}"):
        get(NOWHERE)
    assert get(mirror("good")) == CONTENT and names_in(cache) == [NAME]


def test_the_readers_own_mirrors_come_first(mirror, monkeypatch):
    monkeypatch.setenv("VITBOOK_MIRRORS", f"{mirror('missing')}/ {mirror('good')}")
    assert get(mirror("broken")) == CONTENT
    assert mirror.asked == [f"missing/{NAME}", f"good/{NAME}"]


@pytest.mark.parametrize("address", ["", "ftp://127.0.0.1", "http://["])
def test_an_address_that_is_none_is_passed_over(mirror, address):
    assert get(address, mirror("good")) == CONTENT


@pytest.mark.parametrize("get", [fetch, partial(fetch_pinned, size=len(CONTENT))])
def test_one_address_in_place_of_a_list_is_refused(mirror, cache, get):
    """With those that are known behind it, as data sets and published weights have them."""
    mirrors = (*mirror("good"), mirror("elsewhere"))
    with pytest.raises(TypeError, match=f"mirrors must be a list .* the one address '{mirror('good')}'"):
        get(name=NAME, sha256=SHA256, mirrors=mirrors, progress=False)
    assert not mirror.asked and not names_in(cache)


def get_pinned(*mirrors: str, sha256: str = "", size: int = len(CONTENT)) -> bytes:
    return fetch_pinned(NAME, sha256, size, mirrors, progress=False).read_bytes()


@pytest.mark.parametrize(("sha256", "by_hand"), [("", False), (SHA256[:8], True)])
def test_what_came_first_is_pinned(mirror, cache, sha256, by_hand):
    if by_hand:
        put(cache, CONTENT)
    assert get_pinned(mirror("good"), sha256=sha256) == CONTENT
    assert (cache / f"{NAME}.sha256").read_text() == f"{SHA256}\n"
    assert get_pinned(mirror("broken"), sha256=sha256) == CONTENT
    assert mirror.asked == [f"good/{NAME}"] * (not by_hand)


def test_a_pinned_file_that_has_changed_is_refused(mirror, cache):
    get_pinned(mirror("good"))
    (cache / NAME).write_bytes(CHANGED)
    message = f"{NAME} is not the file that was used first, by .*{NAME}.sha256: expected sha256:{SHA256} but got"
    with pytest.raises(ValueError, match=message):
        get_pinned(mirror("good"))
    (cache / NAME).unlink()  # as told
    mirror.files[NAME] = CHANGED
    with pytest.raises(ConnectionError, match=f"expected sha256:{SHA256} but got") as caught:
        get_pinned(mirror("good"))
    assert f"if the published file has changed for good, delete {cache / NAME}.sha256" in str(caught.value)
    assert names_in(cache) == [f"{NAME}.sha256"]


@pytest.mark.parametrize(
    ("way", "sha256", "message"),
    [
        ("page", "", "expected 0.2 MB but got 5.3e-05 MB"),
        ("wrong", SHA256[:8], f"expected sha256:{SHA256[:8]} but got"),
    ],
)
def test_what_cannot_be_the_file_is_not_trusted(mirror, cache, way, sha256, message):
    with pytest.raises(ConnectionError, match=message):
        get_pinned(mirror(way), sha256=sha256)
    assert names_in(cache) == []


@pytest.mark.parametrize(("content", "sha256"), [(CHANGED, SHA256[:8]), (CONTENT[:100], "")])
def test_another_file_that_was_put_there_is_refused(mirror, cache, content, sha256):
    put(cache, content)
    with pytest.raises(ValueError, match="is not the file that is published: expected .*; delete it to get that one"):
        get_pinned(mirror("good"), sha256=sha256)
    assert names_in(cache) == [NAME]


def test_a_name_may_be_a_path(mirror, cache):
    mirror.files["maker/model/weights.bin"] = CONTENT
    path = fetch_pinned("maker/model/weights.bin", "", len(CONTENT), [mirror("good")], progress=False)
    assert path == cache / "maker/model/weights.bin" and path.with_name("weights.bin.sha256").exists()

"""Every public address derives from the one in pyproject.toml."""

from pathlib import Path
from types import SimpleNamespace

import notebooks as notebook_tool
import pytest
import yaml
from site_address import colab_url, pages_url, repository_url, set_addresses
from sphinx.errors import ExtensionError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("text", ["", "[project]\nname = 'x'", "[project.urls]\nHomepage = 'x'", "not toml ["])
def test_a_missing_address_stops_the_build(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ExtensionError, match="Repository"):
        repository_url(tmp_path)


@pytest.mark.parametrize(
    "repository, pages",
    [
        ("https://github.com/owner/name", "https://owner.github.io/name/"),
        ("https://github.com/Owner/Name", "https://owner.github.io/Name/"),
        ("https://github.com/Owner/owner.github.io", "https://owner.github.io/"),
    ],
)
def test_the_address_of_the_pages(repository: str, pages: str) -> None:
    assert pages_url(repository) == pages


@pytest.mark.parametrize("repository", ["https://example.org/a/b", "https://github.com/a", "https://github.com/a/b/c"])
def test_another_form_of_address_stops_the_build(repository: str) -> None:
    with pytest.raises(ExtensionError, match="OWNER/NAME, got " + repository):
        pages_url(repository)


def test_colab_opens_what_the_badge_opens() -> None:
    branch = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["branch"]
    assert branch == notebook_tool.BRANCH
    url = colab_url(repository_url(ROOT), branch, "chapters/01_attention.ipynb")
    assert f"({url})" in notebook_tool.badge_source("01_attention.ipynb")


def test_the_frame_is_told_the_addresses(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project.urls]\nRepository = 'https://github.com/a/b/'", encoding="utf-8")
    options = {"repository_branch": "trunk"}
    config = SimpleNamespace(html_theme_options=options, myst_url_schemes=["https"])
    set_addresses(SimpleNamespace(srcdir=tmp_path), config)
    assert options["repository_url"] == "https://github.com/a/b"
    assert config.html_baseurl == config.ogp_site_url == "https://a.github.io/b/"
    for name in ("LICENSE", "LICENSE-TEXT", "vitbook/assets/README.md"):
        assert f'href="https://github.com/a/b/blob/trunk/{name}"' in options["extra_footer"]
        assert (ROOT / name).is_file()
    assert config.myst_url_schemes["https"] is None
    assert config.myst_url_schemes["colab"]["url"].endswith("/github/a/b/blob/trunk/{{path}}")
    assert config.myst_url_schemes["repository"]["url"] == "https://github.com/a/b/blob/trunk/{{path}}"

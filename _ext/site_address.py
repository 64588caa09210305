"""Where the book is public: one address in pyproject.toml, and everything that derives from it."""

import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.application import Sphinx
from sphinx.config import Config


def repository_url(root: Path) -> str:
    """The public address, from the one place that holds it: [project.urls] in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["urls"]["Repository"].rstrip("/")


def pages_url(repository: str) -> str:
    """Where GitHub Pages shows a repository: https://github.com/OWNER/NAME → https://OWNER.github.io/NAME/."""
    owner, name = urlsplit(repository).path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def colab_url(repository: str, branch: str, path: str) -> str:
    """Where Colab opens a notebook of the repository."""
    return f"https://colab.research.google.com/github{urlsplit(repository).path}/blob/{branch}/{path}"


def licence_line(repository: str, branch: str) -> str:
    """What may be done with the book, at the foot of every page, as HTML."""
    base = f"{repository}/blob/{branch}"
    return (
        f'Code: <a href="{base}/LICENSE">MIT License</a>. '
        f'Text and figures: <a href="{base}/LICENSE-TEXT">CC BY 4.0</a>. '
        f'Photographs keep the licences <a href="{base}/vitbook/assets/README.md">stated beside them</a>.'
    )


def set_addresses(app: Sphinx, config: Config) -> None:
    """Tell the theme, the tags for shared links and MyST.

    A page may link to [Colab](colab:chapters/NN_name.ipynb) and to [a file](repository:README.md) of the repository.
    """
    repository = repository_url(Path(app.srcdir))
    config.html_theme_options["repository_url"] = repository
    config.html_baseurl = config.ogp_site_url = pages_url(repository)
    branch = config.html_theme_options.get("repository_branch") or "main"
    config.html_theme_options["extra_footer"] = licence_line(repository, branch)
    schemes = config.myst_url_schemes
    kept = dict(schemes) if isinstance(schemes, dict) else dict.fromkeys(schemes)
    config.myst_url_schemes = kept | {
        "colab": {"url": colab_url(repository, branch, "{{path}}"), "title": "Colab"},
        "repository": {"url": f"{repository}/blob/{branch}/{{{{path}}}}", "title": "The repository"},
    }


def setup(app: Sphinx) -> None:
    app.setup_extension("sphinxext.opengraph")
    app.connect("config-inited", set_addresses)

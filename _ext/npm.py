"""Libraries for browsers as npm publishes them: MathJax, which sets the formulas, and axe-core, which finds barriers.

Nothing of npm is needed: a package is a .tgz, downloaded once, its SHA-512 verified, and kept beside the data sets.
"""

import base64
import tarfile
from functools import cache
from typing import NamedTuple

import pooch

from vitbook.downloads.fetching import cache_dir


class Package(NamedTuple):
    """A published package; integrity is what `npm view NAME@VERSION dist.integrity` says, after sha512-."""

    name: str
    version: str
    integrity: str


MATHJAX = Package(
    "mathjax", "3.2.2", "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw=="
)
AXE = Package(
    "axe-core", "4.14.1", "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)


@cache
def files(package: Package) -> dict[str, bytes]:
    """The content of every file of a package, by its path: `es5/tex-mml-chtml.js`.

    Raises requests.RequestException where the registry cannot be reached, ValueError for a file that is not the one.
    """
    name = f"{package.name}-{package.version}.tgz"
    address = f"https://registry.npmjs.org/{package.name}/-/{name}"
    sha512 = base64.b64decode(package.integrity).hex()
    path = pooch.retrieve(address, f"sha512:{sha512}", name, cache_dir() / "npm")
    with tarfile.open(path) as archive:
        members = [member for member in archive if member.isfile()]
        return {member.name.partition("/")[2]: archive.extractfile(member).read() for member in members}

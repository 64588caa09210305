"""Libraries for browsers as npm publishes them: MathJax, which draws the formulas, and axe-core, which finds barriers.

Nothing of npm is needed: a package is a .tgz whose SHA-512 is verified; it is kept beside the data sets.
"""

import base64
from pathlib import Path
from typing import NamedTuple

import pooch

from vitbook._downloads.fetching import cache_dir


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


def unpacked(package: Package) -> Path:
    """The folder with the files of a package, which is downloaded and unpacked once.

    Raises requests.RequestException where the registry cannot be reached, ValueError for a file that is not the one.
    """
    name = f"{package.name}-{package.version}.tgz"
    address = f"https://registry.npmjs.org/{package.name}/-/{name}"
    sha512 = base64.b64decode(package.integrity).hex()
    folder = cache_dir() / "npm"
    pooch.retrieve(address, f"sha512:{sha512}", name, folder, processor=pooch.Untar())
    return folder / f"{name}.untar" / "package"

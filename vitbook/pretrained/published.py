"""The published weights that can be had by name: where each file lies, its size, what is known of its SHA-256."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitbook._common.files import ASSETS, read_table

# family: address of a folder, and the files' names there
FAMILIES = {
    "google": ("https://storage.googleapis.com/vit_models/augreg", "{name}.npz"),
    "timm": ("https://huggingface.co", "timm/{name}/resolve/main/model.safetensors"),
    "hf": ("https://huggingface.co", "{name}/resolve/main/model.safetensors"),
    "torchvision": ("https://download.pytorch.org/models", "{name}-{sha256}.pth"),
    "deit": ("https://dl.fbaipublicfiles.com/deit", "{name}-{sha256}.pth"),
}


@dataclass(frozen=True)
class Published:
    """A file of weights for the 1,000 classes of ImageNet, or the 21,843 of ImageNet-21k."""

    family: str
    name: str
    megabytes: float  # of 10⁶ bytes
    sha256: str = ""  # its beginning, or nothing
    crop: float | None = None  # share of an image's side that is seen, where it is not the family's
    top_1: float | None = None  # per cent of ImageNet's validation images classified correctly, as published, if known

    @property
    def path(self) -> str:
        """What follows the address of a mirror."""
        return FAMILIES[self.family][1].format(name=self.name, sha256=self.sha256)

    def fetch(self, mirrors: Sequence[str] = (), progress: bool = True) -> Path:
        """The file, downloaded unless it is there already. Errors are those of `fetch_pinned`."""
        from vitbook._downloads.fetching import fetch_pinned  # here, because pooch and requests take long to import

        mirrors = (*mirrors, FAMILIES[self.family][0])
        return fetch_pinned(self.path, self.sha256, round(self.megabytes * 1e6), mirrors, progress=progress)


PUBLISHED = {
    f"{family}:{file['name']}": Published(family, **file)
    for family, files in read_table(ASSETS / "published_weights.toml").items()
    for file in files
}


def imagenet_classes() -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, in the order of all these weights' heads."""
    return tuple((ASSETS / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines())

"""The published weights that can be had by name: where each file lies, its size, what is known of its SHA-256."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitbook._common.files import ASSETS

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


# Top-1 is from timm's results/results-imagenet.csv, which is measured again at times, torchvision's ViT_B_16_Weights
# and its siblings, and README_deit.md of facebookresearch/deit.
_FILES = (
    Published(
        "google",
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224",
        22.9,
    ),
    Published(
        "google",
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224",
        88.2,
    ),
    Published(
        "google",
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.01-res_224",
        346.3,
    ),
    Published("google", "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0", 39.0),
    Published("google", "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0", 120.3),
    Published("google", "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0", 410.4),
    Published("timm", "vit_tiny_patch16_224.augreg_in21k_ft_in1k", 22.9, top_1=75.452),
    Published("timm", "vit_small_patch16_224.augreg_in21k_ft_in1k", 88.2, top_1=81.402),
    Published("timm", "vit_base_patch16_224.augreg_in21k_ft_in1k", 346.3, top_1=84.534),
    Published("timm", "vit_base_patch16_384.augreg_in21k_ft_in1k", 347.4, top_1=85.996, crop=1.0),
    Published("timm", "vit_large_patch16_224.augreg_in21k_ft_in1k", 1217.3, top_1=85.856),
    Published("hf", "google/vit-base-patch16-224", 346.3),
    Published("hf", "google/vit-base-patch16-224-in21k", 345.6),
    Published("torchvision", "vit_b_16", 346.3, top_1=81.072, sha256="c867db91"),
    Published("torchvision", "vit_b_32", 353.0, top_1=75.912, sha256="d86f8d99"),
    Published("torchvision", "vit_l_16", 1217.4, top_1=79.662, sha256="852ce7e3", crop=0.9256),
    Published("torchvision", "vit_l_32", 1226.3, top_1=76.972, sha256="c7638314"),
    Published("deit", "deit_tiny_patch16_224", 22.9, top_1=72.202, sha256="a1311bcf"),
    Published("deit", "deit_small_patch16_224", 88.2, top_1=79.854, sha256="cd65a155"),
    Published("deit", "deit_base_patch16_224", 346.3, top_1=81.846, sha256="b5f2ef4d"),
    Published("deit", "deit_base_patch16_384", 347.4, top_1=82.890, sha256="8de9b5d1"),
    Published("deit", "deit_tiny_distilled_patch16_224", 23.6, top_1=74.476, sha256="b40b3cf7"),
    Published("deit", "deit_small_distilled_patch16_224", 89.8, top_1=81.164, sha256="649709d9"),
    Published("deit", "deit_base_distilled_patch16_224", 349.4, top_1=83.372, sha256="df68dfff"),
    Published("deit", "deit_base_distilled_patch16_384", 350.5, top_1=85.224, sha256="d0272ac0"),
)
PUBLISHED = {f"{file.family}:{file.name}": file for file in _FILES}


def imagenet_classes() -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, in the order of all these weights' heads."""
    return tuple((ASSETS / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines())

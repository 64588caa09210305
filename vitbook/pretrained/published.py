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

# family, name, megabytes (10⁶ bytes), top-1 in per cent, how the SHA-256 begins, crop if not the family's; a -, or
# nothing, where that is not published or not known here. Top-1 is from timm's results/results-imagenet.csv, which is
# measured again at times, torchvision's ViT_B_16_Weights and its siblings, and README_deit.md of facebookresearch/deit.
_TABLE = """
google  Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224      22.9
google  S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.03-res_224     88.2
google  B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0--imagenet2012-steps_20k-lr_0.01-res_224    346.3
google  Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0                                              39.0
google  S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0                                            120.3
google  B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0                                            410.4
timm    vit_tiny_patch16_224.augreg_in21k_ft_in1k       22.9  75.452
timm    vit_small_patch16_224.augreg_in21k_ft_in1k      88.2  81.402
timm    vit_base_patch16_224.augreg_in21k_ft_in1k      346.3  84.534
timm    vit_base_patch16_384.augreg_in21k_ft_in1k      347.4  85.996  -  1.0
timm    vit_large_patch16_224.augreg_in21k_ft_in1k    1217.3  85.856
hf      google/vit-base-patch16-224                    346.3
hf      google/vit-base-patch16-224-in21k              345.6
torchvision  vit_b_16    346.3  81.072  c867db91
torchvision  vit_b_32    353.0  75.912  d86f8d99
torchvision  vit_l_16   1217.4  79.662  852ce7e3  0.9256
torchvision  vit_l_32   1226.3  76.972  c7638314
deit  deit_tiny_patch16_224               22.9  72.202  a1311bcf
deit  deit_small_patch16_224              88.2  79.854  cd65a155
deit  deit_base_patch16_224              346.3  81.846  b5f2ef4d
deit  deit_base_patch16_384              347.4  82.890  8de9b5d1
deit  deit_tiny_distilled_patch16_224     23.6  74.476  b40b3cf7
deit  deit_small_distilled_patch16_224    89.8  81.164  649709d9
deit  deit_base_distilled_patch16_224    349.4  83.372  df68dfff
deit  deit_base_distilled_patch16_384    350.5  85.224  d0272ac0
"""


@dataclass(frozen=True)
class Published:
    """A file of weights for the 1,000 classes of ImageNet, or the 21,843 of ImageNet-21k."""

    family: str
    name: str
    megabytes: float
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


def _read_row(row: str) -> Published:
    family, name, megabytes, *more = row.split()
    top_1, sha256, crop = [word.strip("-") for word in [*more, "-", "-", "-"][:3]]
    return Published(family, name, float(megabytes), sha256, float(crop) if crop else None, float(top_1 or 0) or None)


PUBLISHED = {f"{entry.family}:{entry.name}": entry for entry in map(_read_row, _TABLE.strip().splitlines())}


def imagenet_classes() -> tuple[str, ...]:
    """The names of ImageNet's 1,000 classes, in the order of all these weights' heads."""
    return tuple((ASSETS / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines())

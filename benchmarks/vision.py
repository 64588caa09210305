"""torchvision, which timm and vit-pytorch import too."""

import importlib
import sys
from types import ModuleType


def import_torchvision() -> ModuleType:
    """torchvision. Beside a torch of another build its compiled operators do not load; its ViT needs none of them."""
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:  # it stops where it describes the missing operators to the compiler
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")
        return importlib.import_module("torchvision")

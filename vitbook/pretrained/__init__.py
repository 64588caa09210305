"""Weights that others have trained, in our model, and ours under their names.

layouts.py          how each library names and orders the tensors of a Vision Transformer: a table each
translating.py      their names → ours, and back
published.py        the weights that can be had by name
hub.py              any other model of the Hugging Face Hub
config_files.py     config.json and its like beside weights → what need not be guessed
image_processors.py what such files state of images → arguments of `Preprocessing`
weight_files.py     file → tensors, without running anything that the file contains
loading.py          tensors → model
refused_formats.py  what is not read, called by its name in errors
adapting.py         another head, image size or number of channels
preprocessing.py    image → what the weights were trained to see
saving.py           model → tensors and settings for timm and Hugging Face, or for where it came from
"""

from vitbook.pretrained.adapting import KERNELS
from vitbook.pretrained.loading import Pretrained, load_pretrained, load_weights
from vitbook.pretrained.preprocessing import Preprocessing
from vitbook.pretrained.saving import huggingface_config, to_huggingface, to_source, to_timm

__all__ = ["KERNELS", "Preprocessing", "Pretrained", "huggingface_config", "load_pretrained"]
__all__ += ["load_weights", "to_huggingface", "to_source", "to_timm"]

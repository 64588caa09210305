"""An id of the Hugging Face Hub → a folder with the files that are needed, in the cache of the Hub's own client.

It reads HF_TOKEN for gated models, HF_HUB_OFFLINE to ask nobody, HF_HOME for its cache, HF_ENDPOINT for another Hub.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from vitbook._common.suggestions import listed

_BESIDE = ["config.json", "preprocessor_config.json", "processor_config.json", "open_clip_config.json"]
_BESIDE += ["tokenizer.json", "tokenizer_config.json", "adapter_config.json"]
# of weights, the first that is there: file, and the parts that an index names
_WEIGHTS = {"model.safetensors": (), "model.safetensors.index.json": ("model-?????-of-?????.safetensors",)}
_WEIGHTS |= {"open_clip_model.safetensors": (), "pytorch_model.bin": ()}
_WEIGHTS |= {"pytorch_model.bin.index.json": ("pytorch_model-?????-of-?????.bin",), "open_clip_pytorch_model.bin": ()}
_WEIGHTS |= {"adapter_model.safetensors": ()}


def fetch_from_hub(name: str, progress: bool = True) -> Path:
    """The folder of a model's files, downloaded unless they are there already.

    name: ORGANIZATION/NAME, or ORGANIZATION/NAME@REVISION for a branch, a tag or a commit; progress: whether to show
    bars. Raises ImportError without huggingface_hub, ValueError for a name, model or revision that is not there and for
    a model without weights, PermissionError for a gated one, ConnectionError where the Hub does not answer and the
    cache lacks it, other OSErrors for the disk.
    """
    repo, at, revision = name.partition("@")
    page = f"https://huggingface.co/{repo}/tree/{revision or 'main'}"
    by_hand = f"config.json, preprocessor_config.json and model.safetensors of {page} in a folder, and name the folder"
    try:
        import huggingface_hub
        from huggingface_hub import constants, errors, utils
    except ImportError:
        raise ImportError(
            f'hf:{name} needs huggingface_hub: pip install "vitbook[hub]"; or put {by_hand}, as --weights FOLDER'
        ) from None
    quiet = not (progress or utils.are_progress_bars_disabled())
    if quiet:
        utils.disable_progress_bars()
    where: Any = dict(repo_id=repo, revision=revision or None)
    try:
        if at and not revision:
            raise errors.HFValidationError
        there = huggingface_hub.HfApi().model_info(**where, files_metadata=True).siblings or ()
        sizes = {file.rfilename: file.size for file in there}
        needed = _needed(name, sizes)
        folder = Path(huggingface_hub.snapshot_download(**where, allow_patterns=needed))
        if any(sizes.get(file.name) not in (None, file.stat().st_size) for file in folder.iterdir()):  # half written
            huggingface_hub.snapshot_download(**where, allow_patterns=needed, force_download=True)
        return folder
    except errors.HFValidationError:
        raise ValueError(f"hf:{name}: expected hf:ORGANIZATION/NAME or hf:ORGANIZATION/NAME@REVISION") from None
    except errors.RevisionNotFoundError:
        raise ValueError(f"hf:{name}: {repo} has no revision {revision!r} at {constants.ENDPOINT}") from None
    except errors.GatedRepoError:
        token = "HF_TOKEN may not read it" if huggingface_hub.get_token() else "it needs a token in HF_TOKEN"
        terms = f"accept its terms at {constants.ENDPOINT}/{repo}"
        raise PermissionError(f"hf:{name} is gated: {terms}; {token}") from None
    except errors.RepositoryNotFoundError:
        private = "or it is private and no token that may read it is in HF_TOKEN"
        raise ValueError(f"hf:{name}: there is no such model at {constants.ENDPOINT}, {private}") from None
    except ValueError:
        raise
    except Exception as error:  # the client passes on those of whichever library carries its requests
        if isinstance(error, OSError) and error.errno and error.filename:  # the disk
            raise
        reason = f"{constants.ENDPOINT} does not answer ({' '.join(str(error).split())[:100] or type(error).__name__})"
    finally:
        if quiet:
            utils.enable_progress_bars()
    try:
        folder = Path(huggingface_hub.snapshot_download(**where, local_files_only=True, allow_patterns="config.json"))
    except errors.LocalEntryNotFoundError:
        holds = "it is not in the cache"
    else:
        if not (lacking := _lacking(folder)):
            return folder
        holds = f"its folder in the cache, {folder}, lacks {lacking}"
    reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else reason
    raise ConnectionError(f"hf:{name}: {reason}, and {holds}: put {by_hand}")


def _needed(name: str, files: Iterable[str]) -> list[str]:
    """Patterns of the files to fetch, of those that there are. Raises ValueError where none of them holds weights."""
    files = list(files)
    weights = next((weights for weights in _WEIGHTS if weights in files), None)
    if weights is None:
        expected = f"expected one of {', '.join(_WEIGHTS)}"
        raise ValueError(f"hf:{name} holds no weights that are read here: {expected}, got {listed(files) or 'nothing'}")
    return [*_BESIDE, weights, *_WEIGHTS[weights]]


def _lacking(folder: Path) -> str:
    """What of a model's weights is not in its folder of the cache, in words; "" where nothing is lacking."""
    weights = next((weights for weights in _WEIGHTS if (folder / weights).exists()), None)
    if weights is None:
        return "the weights"
    parts = json.loads((folder / weights).read_bytes())["weight_map"].values() if _WEIGHTS[weights] else ()
    return listed(sorted({part for part in parts if not (folder / part).exists()}))

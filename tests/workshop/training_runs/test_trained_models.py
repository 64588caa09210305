"""What commands say of weights beside their answer."""

import warnings

import pytest
import torch
from foreign import timm

from vitbook_workshop.training_runs.trained_models import open_model

MORE = torch.ones(2)


def layers(*names: str) -> dict[str, torch.Tensor]:
    return {name: MORE for name in names}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (timm(dim=64) | layers("n_averaged", "loss_fn.weight", "pixel_mean"), None),
        (
            {f"backbone.{name}": t for name, t in timm(dim=64).items()} | layers("n_averaged", "fc.weight"),
            "dropped what is not the image tower's: fc.weight, n_averaged",
        ),
        ({"model": timm(dim=64), "model_ema": timm(dim=64)}, "model_ema was taken, the mean over training"),
    ],
    ids=["buffers", "another head", "two models"],
)
def test_what_was_dropped_or_chosen_is_said_unless_it_is_harmless(tmp_path, content, said):
    torch.save(content, tmp_path / "weights.pth")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        open_model(str(tmp_path / "weights.pth"))
    beyond = [str(one.message) for one in caught if not str(one.message).endswith("the weights do not tell")]
    assert len(beyond) == (said is not None) and (said or "") in "".join(beyond)


@pytest.mark.parametrize(
    ("state", "argument"),
    [(timm(dim=60), "num_heads="), (timm(dim=64) | {"pos_embed": torch.ones(1, 1 + 10, 64)}, "image_size=")],
    ids=["heads", "grid"],
)
def test_an_argument_that_no_option_gives_is_called_one_of_python(tmp_path, state, argument):
    torch.save(state, tmp_path / "weights.pth")
    with pytest.raises(ValueError, match=f"{argument} in Python, to load_pretrained: no option of the command does it"):
        open_model(str(tmp_path / "weights.pth"))

"""The exercises of chapters/25_tokens.ipynb."""

import torch

from vitbook import tokens
from vitbook_workshop.exercises.grader.inputs import normal
from vitbook_workshop.exercises.grader.judging import Exercise, Personal
from vitbook_workshop.faults.mistakes import procedures as wrong

CHAPTER = "25_tokens"


def _owners(generator: torch.Generator, rows: int, length: int, images: int) -> torch.Tensor:
    """Owners in ascending order, with padding at the end of each row."""
    owner = torch.randint(images, (rows, length), generator=generator).sort(dim=-1).values
    owner[:, -2:] = -1
    return owner


mask = Exercise(
    tokens.same_image,
    "compare each token's owner with each other's: owner[:, :, None] == owner[:, None, :]; then hide the padding.",
    lambda g: [(_owners(g, 2, 9, 3),), (_owners(g, 3, 7, 2),)],
    level="easy",
) | {
    wrong.only_padding_is_hidden: wrong.only_padding_is_hidden,
    "Padding looks at padding: nobody may look at a key whose owner is −1.": (
        lambda owner: (owner[:, :, None] == owner[:, None, :]).unsqueeze(1)
    ),
    "Your mask lacks the axis of the heads: (rows, 1, tokens, tokens).": (
        lambda owner: tokens.same_image(owner).squeeze(1)
    ),
    "Your mask is turned around: True is where a query may look.": lambda owner: ~tokens.same_image(owner),
}

proportional = Exercise(
    tokens.proportional_attention,
    "add size.log() to the scores of each key, before the softmax.",
    lambda g: [
        (normal(g, 2, 3, t, 4), normal(g, 2, 3, s, 4), normal(g, 2, 3, s, 5), normal(g, 2, s).square() + 1)
        for t, s in ((5, 7), (4, 6))
    ],
    gradients=True,
) | {
    wrong.merged_tokens_count_once: wrong.merged_tokens_count_once,
    "You add the size itself; the weight is m·e^s = e^(s + log m).": (
        lambda q, k, v, size: tokens.proportional_attention(q, k, v, size.exp())
    ),
    "You multiply the weights by the sizes; the rows no longer sum to 1.": (
        lambda q, k, v, size: (tokens.attention_scores(q, k).softmax(dim=-1) * size[:, None, None]) @ v
    ),
}

left = Exercise(11, "how many pairs do 20 patches make?") | {
    "16 pairs cannot be found in the last block: 21 tokens are the class token and 20 patches.": 5,
    "That is how many enter the last block. Its attention comes before its MLP, and tokens merge between them.": 21,
}


def _window(wide: int) -> Exercise:
    return Exercise(int((2 * wide) ** 0.5), "set 4Nw²D equal to 8ND² and cancel.") | {
        "That is w², the number of patches in a window.": 2 * wide,
        "The linear maps take 8ND², not 4ND².": int((2 * wide) ** 0.5) // 2,
    }


window = Personal(
    dict(wide=(128, 32, 512)), lambda wide: f"You have a map of 64×64 patches and $D = {wide}$.", _window
).exercise()

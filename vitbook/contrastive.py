"""Images and words: two towers, trained until an image and its caption point the same way.

logit of image i and caption j = eᵗ · cos(xᵢ, yⱼ) + b

softmax loss: among all captions find the image's own, and among all images the caption's own (CLIP).
sigmoid loss: for every image and every caption, say whether they are a pair (SigLIP).
"""

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from vitbook._common.suggestions import unknown
from vitbook.encoder import Encoder
from vitbook.modern import ModernBlock, ModernConfig
from vitbook.patches import Images
from vitbook.positions import sincos_positions
from vitbook.transformer import EncoderLayer, causal_mask, padding_mask
from vitbook.vit import VisionTransformer

PADDING, START = "·", "<"
Table = Float[Tensor, "images captions"]  # a number for every image with every caption
PairLogits = Float[Tensor, "pairs pairs"]  # image i and caption i belong together


def cosines(x: Float[Tensor, "images dim"], y: Float[Tensor, "captions dim"]) -> Table:
    """The cosine of the angle between every image's vector and every caption's, −1 to 1. (N, D), (M, D) → (N, M)."""
    return F.normalize(x, dim=-1) @ F.normalize(y, dim=-1).mT


def softmax_loss(logits: PairLogits) -> Float[Tensor, ""]:
    """Cross-entropy of each row's and of each column's right answer, the diagonal; the mean of both, in nats.

    Radford et al. 2021 ("CLIP"), Figure 3. A model that knows nothing has ln B.
    """
    own = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, own) + F.cross_entropy(logits.mT, own)) / 2


def sigmoid_loss(logits: PairLogits) -> Float[Tensor, ""]:
    """−1/B Σᵢⱼ log σ(zᵢⱼ · logitᵢⱼ), with z = 1 on the diagonal and −1 elsewhere. In nats per image.

    Zhai et al. 2023 ("SigLIP"), section 3.2: B² questions of yes or no, summed, divided by B.
    """
    z = 2 * torch.eye(len(logits)).to(logits) - 1
    return -F.logsigmoid(z * logits).sum() / len(logits)


class ScaleAndBias(nn.Module):
    """Cosines to logits: eᵗ · cosine + b, with t and b learned. The same shape.

    A softmax ignores b, and CLIP has none. scale: eᵗ at the start, 1/0.07 in CLIP (Radford et al. 2021, section 2.5)
    and 10 in SigLIP; bias: b at the start, −10 in SigLIP (Zhai et al. 2023, section 3.2). Differs: CLIP keeps eᵗ at 100
    or less.
    """

    def __init__(self, scale: float = 1 / 0.07, bias: float = 0.0):
        super().__init__()
        self.t = nn.Parameter(torch.tensor(math.log(scale)))
        self.bias = nn.Parameter(torch.tensor(bias))

    def forward(self, cosine: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return self.t.exp() * cosine + self.bias


class TextTower(nn.Module):
    """Chapter 5's encoder, which reads a caption and answers with the token of its first word. (B, S) → (B, D).

    The first word is always `<`, so that its token can do what the class token does in an image. Positions are learned,
    and start as sines and cosines.
    Differs: CLIP's tower hides the future and takes the last word's token; it is pre-norm, as `SubwordTextTower` is.

    vocabulary: all words there are; length: S, the most words that a caption may have, `<` included.
    """

    def __init__(
        self, vocabulary: Sequence[str], length: int, dim: int, depth: int = 1, num_heads: int = 4, hidden_dim: int = 64
    ):
        super().__init__()
        self.words = {word: index for index, word in enumerate(dict.fromkeys((PADDING, START, *vocabulary)))}
        self.embedding = nn.Embedding(len(self.words), dim)
        self.positions = nn.Parameter(sincos_positions(length, dim).unsqueeze(0))
        self.layers = nn.ModuleList(EncoderLayer(dim, num_heads, hidden_dim) for _ in range(depth))

    def tokenize(self, captions: Sequence[str]) -> Int64[Tensor, "captions length"]:
        """Captions as rows of integers, `<` first and padding behind.

        Raises ValueError for a caption with more words than the tower reads, and for a word that it does not know.
        """
        length, rows = self.positions.shape[1], []
        for caption in captions:
            words = [START, *caption.split()]
            if len(words) > length:
                raise ValueError(f"a caption may have {length - 1} words, got {len(words) - 1}: {caption!r}")
            for word in words:
                if word not in self.words:
                    raise ValueError(unknown("word", word, self.words))
            rows.append([self.words[word] for word in words + [PADDING] * (length - len(words))])
        return torch.tensor(rows, device=self.positions.device)

    def forward(self, tokens: Int64[Tensor, "captions length"]) -> Float[Tensor, "captions dim"]:
        x = self.embedding(tokens) + self.positions
        mask = padding_mask(tokens, self.words[PADDING])
        for layer in self.layers:
            x = layer(x, mask)
        return x[:, 0]


class SubwordTextTower(nn.Module):
    """The text towers of CLIP and SigLIP: chapter 8's encoder, on tokens that are parts of words. (B, S) → (B, D).

    CLIP's is causal, and answers with the token of the sign behind the last word, which saw all (Radford et al. 2021,
    section 2.4); whatever follows it does not count. SigLIP's tokens see all, and the last one answers, which mostly is
    padding.

    config: the encoder's; vocabulary: how many tokens there are; length: the most that it reads; tokenizer: prompts to
    lists of integers, one sign behind each included; causal: whether it is CLIP's; end: the sign that answers, where it
    is not the highest; padding: what fills short prompts up; hides: whether SigLIP's tokens do not see it, for weights
    that were tuned so.
    """

    def __init__(
        self,
        config: ModernConfig,
        vocabulary: int,
        length: int,
        tokenizer: Callable[[Sequence[str]], list[list[int]]],
        causal: bool,
        end: int | None = None,
        padding: int = 0,
        hides: bool = False,
    ):
        super().__init__()
        self.tokenizer, self.causal, self.end, self.padding, self.hides = tokenizer, causal, end, padding, hides
        self.embedding = nn.Embedding(vocabulary, config.dim)
        self.positions = nn.Parameter(torch.empty(1, length, config.dim).normal_(std=0.01))
        self.encoder = Encoder(config.dim, 0, config.num_heads, config.mlp_dim)
        self.encoder.blocks = nn.ModuleList(ModernBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim, eps=config.norm_eps)

    def tokenize(self, captions: Sequence[str]) -> Int64[Tensor, "captions length"]:
        """Prompts as rows of integers with padding behind. Raises ValueError for one with more tokens than it reads."""
        length, rows = self.positions.shape[1], self.tokenizer(captions)
        for caption, row in zip(captions, rows, strict=True):
            if len(row) > length:
                shown = caption if len(caption) <= 60 else f"{caption[:60]}…"
                raise ValueError(f"a prompt may have {length} tokens, signs included, got {len(row)}: {shown!r}")
        rows = [row + [self.padding] * (length - len(row)) for row in rows]
        return torch.tensor(rows, dtype=torch.int64, device=self.positions.device).reshape(-1, length)

    def forward(self, tokens: Int64[Tensor, "captions length"]) -> Float[Tensor, "captions dim"]:
        x = self.embedding(tokens) + self.positions[:, : tokens.shape[1]]
        visible = padding_mask(tokens, self.padding) if self.hides else None
        x = self.encoder(x, causal_mask(tokens.shape[1], tokens.device) if self.causal else visible)
        x = self.norm(x)
        if not self.causal:
            return x[:, -1]
        ends = tokens if self.end is None else (tokens == self.end).int()
        return x[torch.arange(len(x), device=x.device), ends.argmax(dim=1)]


class TwoTowers(nn.Module):
    """A Vision Transformer and a text tower, each with a linear map into one common space.

    Radford et al. 2021, section 2.3. dim: width of the common space. `image` must be a model without a head.
    """

    def __init__(self, image: VisionTransformer, text: TextTower | SubwordTextTower, dim: int, to_logits: ScaleAndBias):
        super().__init__()
        self.image, self.text, self.to_logits = image, text, to_logits
        self.project_image: nn.Module = nn.Linear(image.config.dim, dim, bias=False)
        self.project_text = nn.Linear(text.embedding.embedding_dim, dim, bias=False)

    def see(self, images: Images) -> Float[Tensor, "batch dim"]:
        """Images as unit vectors of the common space. (B, C, H, W) → (B, D)."""
        return F.normalize(self.project_image(self.image.features(images)), dim=-1)

    def read(self, captions: Sequence[str]) -> Float[Tensor, "captions dim"]:
        """Captions as unit vectors of the common space. Raises ValueError as `TextTower.tokenize` does."""
        return F.normalize(self.project_text(self.text(self.text.tokenize(captions))), dim=-1)

    def forward(self, images: Images, captions: Sequence[str]) -> Table:
        """The logits of every image with every caption."""
        return self.to_logits(cosines(self.see(images), self.read(captions)))


def name_probabilities(logits: Table, sigmoid: bool = False) -> Table:
    """Zero-shot: each image's probabilities of the names, which are the captions. Rows sum to 1.

    sigmoid: of each name by itself, as a model trained with `sigmoid_loss` answers; a row may then sum to anything.
    """
    return logits.sigmoid() if sigmoid else logits.softmax(dim=-1)


def mean_direction(y: Float[Tensor, "prompts names dim"]) -> Float[Tensor, "names dim"]:
    """One unit vector for each name, from the vectors of several prompts with it. (P, K, D) → (K, D).

    Radford et al. 2021, section 3.1.4: the mean is taken of vectors, not of probabilities, so that it costs nothing
    later.
    """
    return F.normalize(F.normalize(y, dim=-1).mean(dim=0), dim=-1)


class Projector(nn.Sequential):
    """Patch tokens to tokens of a language model: two linear maps with a GELU between. (B, N, D) → (B, N, D_LM).

    Liu et al. 2024 ("LLaVA-1.5"), section 3.
    """

    def __init__(self, dim: int, language_dim: int):
        super().__init__(nn.Linear(dim, language_dim), nn.GELU(), nn.Linear(language_dim, language_dim))


# Scenes to learn from in minutes: one colored shape in a quarter of a gray square, and what can be said of it.
COLORS = {
    "red": (0.85, 0.15, 0.15),
    "green": (0.15, 0.65, 0.20),
    "blue": (0.15, 0.30, 0.90),
    "yellow": (0.95, 0.85, 0.10),
    "purple": (0.60, 0.20, 0.70),
    "orange": (0.95, 0.55, 0.10),
    "white": (0.95, 0.95, 0.95),
    "black": (0.05, 0.05, 0.05),
}
SHAPES = ("circle", "square", "triangle", "cross", "ring", "bar", "moon", "corner")
PLACES = ("top left", "top right", "bottom left", "bottom right")
PATTERNS = ("a {} {} at the {}", "at the {2} a {0} {1}", "{} {} {}")


def draw_scenes(scenes: Int64[Tensor, "batch 3"]) -> Float[Tensor, "batch 3 24 24"]:
    """The numbers of a color, a shape and a place as an image, 0 to 1. Size, shift, gray and noise are random."""
    color, shape, place = scenes.T
    count = len(scenes)
    radius, left, top = (torch.rand(count, 1, 1) for _ in range(3))
    y, x = torch.meshgrid(torch.arange(24) + 0.5, torch.arange(24) + 0.5, indexing="ij")
    x = (x - 12 * (place % 2).view(-1, 1, 1) - 5.5 - left) / (4.5 + radius)
    y = (y - 12 * (place // 2).view(-1, 1, 1) - 5.5 - top) / (4.5 + radius)
    near, far = torch.minimum(x.abs(), y.abs()), torch.maximum(x.abs(), y.abs())
    circle, square = x**2 + y**2 < 1, far < 0.85
    triangle, cross = (y > -1) & (y < 0.8) & (x.abs() < 0.55 * (y + 1)), (near < 0.33) & (far < 1)
    ring, bar = circle & (x**2 + y**2 > 0.3), (y.abs() < 0.35) & (x.abs() < 1)
    moon, corner = circle & ((x - 0.6) ** 2 + y**2 > 0.7), square & ((x < -0.3) | (y > 0.3))
    shapes = torch.stack([circle, square, triangle, cross, ring, bar, moon, corner], dim=1)
    inside = shapes[torch.arange(count), shape].unsqueeze(1)
    paint = torch.tensor(list(COLORS.values()))[color].view(count, 3, 1, 1)
    ground = (0.4 + 0.2 * torch.rand(count, 1, 1, 1)).expand(-1, 3, 24, 24)
    images = torch.where(inside, paint, ground) + 0.04 * torch.randn(count, 3, 24, 24)
    return images.clamp(0, 1)


def describe_scenes(scenes: Int64[Tensor, "batch 3"], pattern: str | None = None) -> list[str]:
    """One caption for each scene, in a random one of `PATTERNS` or in the one given."""
    colors, chosen = list(COLORS), torch.randint(len(PATTERNS), (len(scenes),)).tolist()
    return [
        (pattern or PATTERNS[n]).format(colors[color], SHAPES[shape], PLACES[place])
        for n, (color, shape, place) in zip(chosen, scenes.tolist(), strict=True)
    ]

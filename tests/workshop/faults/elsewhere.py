"""Vision Transformers whose weights are computed, kept or used elsewhere than in layers: right ones, and wrong."""

from functools import partial

import torch
import torch.nn.functional as F
from small_models import HEADS, C, K, P
from styles import ADDS, BRANCHES, IDLE, MIX, MLPS, NORMS, SCALE, SUMS
from torch import nn
from torch.nn.utils import parametrizations, prune
from ways import EACH, PATCHES, SIDE, WIDE, Attention, Block, EachHead, Missing, Net, normed

SHAPE = (C, SIDE, SIDE)
OUT, PIXELS, PROBABILITIES = "logits_come_out", "every_pixel_counts", "logits_are_no_probabilities"
REGISTERED, OWN, SEEN = "learned_things_are_registered", "layers_have_weights_of_their_own", "images_count"


class LowRankAdded(nn.Linear):
    """A matrix and a product of two thin ones (Hu et al. 2022)."""

    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.down, self.up = nn.Parameter(torch.randn(4, inputs)), nn.Parameter(torch.zeros(outputs, 4))

    def forward(self, x):
        return F.linear(x, self.weight + self.up @ self.down, self.bias)


class Standardized(nn.Linear):
    """Rows of mean 0 and variance 1 (Qiao et al. 2019)."""

    def forward(self, x):
        w = self.weight
        return F.linear(x, (w - w.mean(1, keepdim=True)) / w.std(1, keepdim=True) / w.shape[1] ** 0.5, self.bias)


class Rounded(nn.Linear):
    """Of three levels, with gradients as if there were all of them (Ma et al. 2024)."""

    def forward(self, x):
        w, size = self.weight, self.weight.abs().mean()
        return F.linear(x, w + ((w / size).round().clamp(-1, 1) * size - w).detach(), self.bias)


class Masked(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.register_buffer("mask", (torch.rand(outputs, inputs) > 0.3).float())

    def forward(self, x):
        return F.linear(x, self.weight * self.mask, self.bias)


def of(linear, attention=Attention, block=Block):
    """The model with maps of another kind in its blocks; linear: a class, or what changes an nn.Linear."""
    model = Net(attention, block=block)
    for part in list(model.blocks.modules()):
        for name, child in part.named_children():
            if type(child) is nn.Linear:
                is_class = isinstance(linear, type)
                setattr(part, name, linear(child.in_features, child.out_features) if is_class else linear(child))
    return model


def without_activation():
    model = of(parametrizations.weight_norm)
    for block in model.blocks:
        block.mlp[1] = nn.Identity()
    return model


class Stacked(Net):
    """Each parameter holds those of all layers."""

    def __init__(self, residual=True):
        super().__init__()
        self.residual, self.blocks = residual, None
        shapes = (3 * WIDE, WIDE), (WIDE, WIDE), (2 * WIDE, WIDE), (WIDE, 2 * WIDE)
        self.maps = nn.ParameterList(torch.randn(3, *shape) * shape[1] ** -0.5 for shape in shapes)
        self.gains = nn.Parameter(torch.ones(2, 3, WIDE))

    def encode(self, x):
        for layer in range(3):
            qkv, out, fc1, fc2 = (stack[layer] for stack in self.maps)
            one, other = (partial(F.layer_norm, normalized_shape=(WIDE,), weight=gain[layer]) for gain in self.gains)
            q, k, v = F.linear(one(x), qkv).unflatten(-1, (3, HEADS, EACH)).permute(2, 0, 3, 1, 4)
            attended = F.linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), out)
            x = x + attended if self.residual else attended
            x = x + F.linear(F.gelu(F.linear(other(x), fc1)), fc2)
        return x


class Latents(Net):
    """A few learned tokens look at those of the image, in each block (Jaegle et al. 2021)."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(3))
            self.attention = nn.MultiheadAttention(WIDE, HEADS, batch_first=True)
            self.mlp = nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.GELU(), nn.Linear(2 * WIDE, WIDE))

        def forward(self, z, x):
            x = self.norms[1](x)
            z = z + self.attention(self.norms[0](z), x, x)[0]
            return z + self.mlp(self.norms[2](z))

    def __init__(self):
        super().__init__()
        self.latents, self.blocks = nn.Parameter(torch.randn(1, 6, WIDE)), nn.ModuleList(self.Block() for _ in range(2))

    def encode(self, x):
        z = self.latents.expand(len(x), -1, -1)
        for block in self.blocks:
            z = block(z, x)
        return z

    def read(self, x):
        return x.mean(1)


class Axial(nn.Module):
    """Along rows, then along columns, in one branch (Wang et al. 2020). (B, H, W, D)."""

    def __init__(self):
        super().__init__()
        self.rows, self.columns = Attention(), Attention()

    def forward(self, x):
        x = self.rows(x.flatten(0, 1)).view_as(x).transpose(1, 2).contiguous()
        return self.columns(x.flatten(0, 1)).view_as(x).transpose(1, 2)


class OnAGrid(Net):
    def __init__(self):
        super().__init__(Axial)
        del self.cls
        self.pos = nn.Parameter(torch.randn(SIDE // P, SIDE // P, WIDE))

    def place(self, tokens):
        return tokens.unflatten(1, self.pos.shape[:2]) + self.pos

    def read(self, x):
        return x.mean((1, 2))


class Experts(nn.Module):
    """Each token gets two MLPs of four, chosen by their shares (Riquelme et al. 2021)."""

    def __init__(self, mlp):
        super().__init__()
        self.gate, self.experts = nn.Linear(WIDE, 4), nn.ModuleList(mlp() for _ in range(4))

    def forward(self, x):
        shares, chosen = self.gate(x).softmax(-1).topk(2, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            here = (chosen == i).any(-1)
            if here.any():
                out[here] += expert(x[here]) * (shares * (chosen == i))[here].sum(-1, keepdim=True)
        return out


class OfExperts(Block):
    def __init__(self, *given):
        super().__init__(*given)
        self.mlp = Experts(lambda: nn.Sequential(nn.Linear(WIDE, 32), nn.GELU(), nn.Linear(32, WIDE)))


class PlacedInEachBlock(Net):
    def place(self, tokens):
        return torch.cat((self.cls.expand(len(tokens), -1, -1), tokens), 1)

    def encode(self, x):
        places = self.pos.expand(len(x), -1, -1)
        for block in self.blocks:
            x = block(x + places)
        return x


class TwoStreams(Net):
    """As in a reversible network (Mangalam et al. 2022), with the mean of the two at the end."""

    def encode(self, x):
        one = other = x
        for block in self.blocks:
            one = one + block.attention(block.norm1(other))
            other = other + block.mlp(block.norm2(one))
        return (one + other) / 2


class RateNoted(Net):
    """A model and its attention write down the rate of the dropout that another part has."""

    class Attention(Attention):
        dropout: float

        def by_hand(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout * self.training)

    class DropPath(nn.Module):
        def __init__(self, drop_prob):
            super().__init__()
            self.drop_prob = drop_prob

        def forward(self, x):
            kept = 1 - self.drop_prob
            return x * x.new_empty(len(x), 1, 1).bernoulli_(kept) / kept if self.training else x

    class Block(Block):
        def forward(self, x):
            x = x + self.path(self.attention(self.norm1(x)))
            return x + self.path(self.mlp(self.norm2(x)))

    def __init__(self, dropout=0.1, drop_path_rate=0.2):
        super().__init__(self.Attention, block=self.Block)
        self.dropout, self.drop_path_rate = dropout, drop_path_rate
        for block, rate in zip(self.blocks, torch.linspace(0, drop_path_rate, 3), strict=True):
            block.attention.dropout, block.path = dropout, self.DropPath(rate.item())


@torch.jit.script
def scripted(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-2, -1) / q.size(-1) ** 0.5, -1) @ v


class Scripted(Attention):
    def by_hand(self, q, k, v):
        return scripted(q, k, v)


class ByNumpy(Net):
    """Images that require a gradient are none for numpy."""

    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(C * P * P, WIDE)

    def cut(self, x):
        side = SIDE // P
        pixels = x.numpy().reshape(len(x), C, side, P, side, P).transpose(0, 2, 4, 1, 3, 5)
        return self.patch(torch.from_numpy(pixels.reshape(len(x), PATCHES, -1).copy()))


class ByClosures(Net):
    """Functions that the model keeps know its parts; of what its hooks note, the head gets the mean. Beside it, a layer
    that is not trained is kept where nothing finds it."""

    def __init__(self):
        super().__init__()
        self.noted = []

        def answer(x, *, scale=1.0):
            return answer.times * scale * self.head(self.read(x))

        answer.times = 1.0
        self.answer, self.twin = answer, [nn.Linear(WIDE, WIDE).requires_grad_(False)]
        for block in self.blocks:
            block.register_forward_hook(lambda block, given, output: self.noted.append(output))

    def forward(self, images):
        self.noted.clear()
        self.encode(self.place(self.cut(images)))
        return self.answer(torch.stack(self.noted).mean(0))


def old_hook(add):
    model = Net(head=normed())
    add(model.head[-1], "weight")
    return model


RIGHT = {
    "two thin matrices": lambda: of(LowRankAdded),
    "weight norm": lambda: of(parametrizations.weight_norm),
    "spectral norm": lambda: of(parametrizations.spectral_norm),
    "standardized weights": lambda: of(Standardized),
    "weights of three levels": lambda: of(Rounded),
    "masked weights": lambda: of(Masked),
    "pruned": lambda: old_hook(partial(prune.l1_unstructured, amount=0.3)),
    "weights of all layers in one": Stacked,
    "latents": Latents,
    "rows, then columns": OnAGrid,
    "experts": lambda: Net(block=OfExperts),
    "positions in each block": PlacedInEachBlock,
    "two streams": TwoStreams,
    "a rate is noted": RateNoted,
    "scripted": lambda: Net(Scripted),
    "by numpy": ByNumpy,
    "by closures": ByClosures,
}


class Hidden(Net):
    """What is learned is not found by parameters(): where it is kept is given."""

    shared = nn.LayerNorm(WIDE)

    def __init__(self, where):
        super().__init__()
        self.where = where
        if where == "lists":
            self.kept, self.blocks = [[block] for block in self.blocks], None
        elif where == "private":
            self._kept, self.blocks = list(self.blocks), None
        elif where in ("class", "forward"):
            self.head = nn.Linear(WIDE, K)

    def encode(self, x):
        if self.blocks is not None:
            return self.blocks(x)
        for block in [kept for row in self.kept for kept in row] if self.where == "lists" else self._kept:
            x = block(x)
        return x

    def read(self, x):
        if self.where == "forward":
            return nn.LayerNorm(WIDE, dtype=x.dtype)(x[:, 0])
        return self.shared(x[:, 0]) if self.where == "class" else x[:, 0]


class LosesAPatch(Net):
    def place(self, tokens):
        tokens = torch.cat((self.cls.expand(len(tokens), -1, -1), tokens[:, 1:]), 1)
        return tokens + self.pos[:, :PATCHES]


class Bounded(Net):
    def forward(self, images):
        return super().forward(images).tanh()


class OneMLP(Block):
    mlp_of_all = [nn.Sequential(nn.Linear(WIDE, 2 * WIDE), nn.GELU(), nn.Linear(2 * WIDE, WIDE))]

    def __init__(self, *given):
        super().__init__(*given)
        self.mlp = self.mlp_of_all[0]


class AddedToItsInput(Block):
    def forward(self, x):
        between = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(between))


class AddedToTheEmbedding(Net):
    def encode(self, x):
        start = x
        for block in self.blocks:
            x = start + block.attention(block.norm1(x))
            x = start + block.mlp(block.norm2(x))
        return x


class OfTokens(nn.Module):
    """A norm of every number over all tokens, by torch's instance norm or by its length."""

    def __init__(self, width, by_length):
        super().__init__()
        self.norm = partial(F.normalize, dim=-1) if by_length else nn.InstanceNorm1d(width, affine=True)

    def forward(self, x):
        return self.norm(x.mT).mT


def last_without_a_norm():
    model = Net()
    model.blocks[-1].norm1 = nn.Identity()
    return model


class SummedWeights(Attention):
    """The weights are summed, and the values of each token stay where they are."""

    def by_hand(self, q, k, v):
        return torch.einsum("bhij, bhid -> bhid", (q @ k.mT * self.scale).softmax(-1), v)


class LosesAHead(Attention):
    def by_hand(self, q, k, v):
        answers = super().by_hand(q, k, v)
        return torch.cat((answers[:, :1], answers[:, :-1]), 1)


class OverTheBatch(EachHead):
    def by_hand(self, q, k, v):
        return (q @ k.mT * self.scale).softmax(0) @ v


class LaterOnes(Attention):
    """The mask of a language model the wrong way around, with a large number in place of −inf."""

    def by_hand(self, q, k, v):
        mask = torch.ones(q.shape[2], q.shape[2]).tril().bool()
        return (q @ k.mT * self.scale).masked_fill(mask, -1e9).softmax(-1) @ v


class DropsTheSum(RateNoted):
    class Block(RateNoted.Block):
        def forward(self, x):
            x = self.path(x + self.attention(self.norm1(x)))
            return self.path(x + self.mlp(self.norm2(x)))


class WithoutGradient(Attention):
    def by_hand(self, q, k, v):
        with torch.no_grad():
            weights = (q @ k.mT * self.scale).softmax(-1)
        return weights @ v


class Upside(Attention):
    """A mask of 0 and −inf that hides all keys from the first query."""

    def by_hand(self, q, k, v):
        mask = torch.full((q.shape[2], q.shape[2]), -torch.inf, dtype=q.dtype).triu()
        return (q @ k.mT * self.scale + mask).softmax(-1) @ v


WRONG = {
    **{
        f"{name}, no residual": (partial(of, linear, block=Missing), {ADDS: "residual"})
        for name, linear in {
            "two thin matrices": LowRankAdded,
            "weight norm": parametrizations.weight_norm,
            "standardized weights": Standardized,
            "weights of three levels": Rounded,
            "masked weights": Masked,
        }.items()
    },
    "weight norm, no scale": (
        lambda: of(parametrizations.weight_norm, partial(Attention, scale=1.0)),
        {SCALE: "no scale"},
    ),
    "weight norm, no activation": (without_activation, {MLPS: "GELU is missing"}),
    "weights of all layers in one, no residual": (lambda: Stacked(residual=False), {ADDS: "residual"}),
    "hidden in lists": (lambda: Hidden("lists"), {REGISTERED: "nn.ModuleList"}),
    "hidden behind a name": (lambda: Hidden("private"), {REGISTERED: "nn.ModuleList"}),
    "hidden in the class": (
        lambda: Hidden("class"),
        {REGISTERED: "a layer of the class", "float64_works": "a plain attribute"},
    ),
    "made in forward": (lambda: Hidden("forward"), {REGISTERED: "made in forward"}),
    "loses a patch": (LosesAPatch, {PIXELS: "a class token put in the place"}),
    "tanh after the head": (Bounded, {PROBABILITIES: "a tanh"}),
    "one MLP for all": (lambda: Net(block=OneMLP), {OWN: "one MLP"}),
    "a head without an activation": (
        lambda: Net(head=nn.Sequential(nn.LayerNorm(WIDE), nn.Linear(WIDE, 64), nn.Linear(64, K))),
        {MLPS: "GELU is missing"},
    ),
    "added to its input": (lambda: Net(block=AddedToItsInput), {ADDS: "only the next layer"}),
    "added to the embedding": (AddedToTheEmbedding, {ADDS: "not to the embedding"}),
    "instance norm": (lambda: Net(norm=partial(OfTokens, by_length=False)), {NORMS: "over the tokens"}),
    "vectors of all tokens": (lambda: Net(norm=partial(OfTokens, by_length=True)), {NORMS: "over the tokens"}),
    "group norm": (lambda: Net(norm=lambda width: nn.GroupNorm(1, PATCHES + 1)), {NORMS: "normalized together"}),
    "the last block without a norm": (last_without_a_norm, {BRANCHES: "is missing there"}),
    "weights without a gradient": (lambda: Net(WithoutGradient), {IDLE: "no_grad"}),
    "later ones alone": (lambda: Net(LaterOnes), {"tokens_see_the_later_ones": "a causal mask"}),
    "drop path on the sum": (DropsTheSum, {"every_dropout_acts": "x + drop_path(f(x))"}),
    "loses a head": (lambda: Net(LosesAHead), {IDLE: "a head"}),
    "over the batch, head by head": (lambda: Net(OverTheBatch), {MIX: "the batch (dim=0)", SUMS: "over the batch"}),
    "weights summed": (lambda: Net(SummedWeights), {SEEN: "class token"}),
    "a mask upside down": (lambda: Net(Upside), {OUT: "a mask the wrong way"}),
}

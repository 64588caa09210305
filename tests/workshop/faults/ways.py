"""A small Vision Transformer in which one thing at a time is written in another way: right ones, and wrong ones."""

import math
from functools import partial

import torch
import torch.nn.functional as F
from small_models import HEADS, HIDDEN, C, K, P
from styles import ADDS, BRANCHES, CUT, IDLE, LAST, MIX, NORMS, SCALE, SUMS
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

WIDE, SIDE = 24, 16
EACH, PATCHES = WIDE // HEADS, (SIDE // P) ** 2
SHAPE = (C, SIDE, SIDE)
OF_48 = (C, 6 * P, 8 * P)  # as many patches as one has numbers


class Attention(nn.Module):
    """One matrix for queries, keys and values; how they attend is given as a function of (B, h, T, D_h) or (T, D_h)."""

    def __init__(self, attend=None, scale=EACH**-0.5):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)
        self.scale, self.attend = scale, attend or self.by_hand

    def by_hand(self, q, k, v):
        return (q @ k.mT * self.scale).softmax(-1) @ v

    def heads(self, x):
        return (t.unflatten(-1, (HEADS, EACH)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))

    def forward(self, x):
        return self.out(self.attend(*self.heads(x)).transpose(1, 2).flatten(2))


class EachImage(Attention):
    """A loop over the images, and one over the heads, on matrices (T, D_h)."""

    def image(self, x):
        heads = zip(*(t.chunk(HEADS, -1) for t in self.qkv(x).chunk(3, -1)), strict=True)
        return self.out(torch.cat([self.attend(*head) for head in heads], -1))

    def forward(self, x):
        return torch.stack([self.image(image) for image in x])


class Mapped(EachImage):
    """The same by torch.vmap."""

    def forward(self, x):
        return torch.vmap(self.image)(x)


class EachHead(Attention):
    """A loop over the heads alone, of (B, T, D_h)."""

    def forward(self, x):
        q, k, v = (t.chunk(HEADS, -1) for t in self.qkv(x).chunk(3, -1))
        return self.out(torch.cat([self.attend(q[i], k[i], v[i]) for i in range(HEADS)], dim=-1))


class InChunks(Attention):
    """Two queries at a time, to save memory."""

    def forward(self, x):
        q, k, v = self.heads(x)
        parts = [self.attend(part, k, v) for part in q.split(2, dim=2)]
        return self.out(torch.cat(parts, 2).transpose(1, 2).flatten(2))


class Keeps(Attention):
    """Its weights stay for a picture, so that a model cannot be copied by deepcopy after a run."""

    def by_hand(self, q, k, v):
        self.weights = (q @ k.mT * self.scale).softmax(-1)
        return self.weights @ v


class TalkingHeads(Attention):
    """Scores and weights mixed over the heads by linear maps (Shazeer et al. 2020)."""

    def __init__(self):
        super().__init__()
        self.before, self.after = nn.Linear(HEADS, HEADS), nn.Linear(HEADS, HEADS)

    def by_hand(self, q, k, v):
        weights = self.before((q @ k.mT * self.scale).permute(0, 2, 3, 1)).softmax(2)
        return self.after(weights).permute(0, 3, 1, 2) @ v


class Bounded(Attention):
    """Scores that tanh bounds, as in Gemma 2."""

    def by_hand(self, q, k, v):
        return (30 * torch.tanh(q @ k.mT * self.scale / 30)).softmax(-1) @ v


class Differential(Attention):
    """The weights of one softmax minus a part of those of another (Ye et al. 2024)."""

    def __init__(self):
        super().__init__()
        self.part = nn.Parameter(torch.tensor(0.4))

    def by_hand(self, q, k, v):
        one, other = ((a @ b.mT * (EACH / 2) ** -0.5).softmax(-1) for a, b in zip(*map(halves, (q, k)), strict=True))
        return (one - self.part * other) @ v


class Gated(Attention):
    """Each weight is multiplied by a gate that is computed of the query."""

    def by_hand(self, q, k, v):
        return ((q @ k.mT * self.scale).softmax(-1) * q.mean(-1, keepdim=True).sigmoid()) @ v


class HeadsLast(Attention):
    """Scores (B, T_q, T_k, h), shared out over one of their axes."""

    def __init__(self, axis=2):
        super().__init__()
        self.axis = axis

    def by_hand(self, q, k, v):
        scores = torch.einsum("bhqd, bhkd -> bqkh", q, k) * self.scale
        return torch.einsum("bqkh, bhkd -> bhqd", scores.softmax(self.axis), v)


class Rotary(Attention):
    """Queries and keys turned by their places, as (a, b) or as complex numbers, or one of them alone."""

    def __init__(self, turned="qk", as_complex=False):
        super().__init__()
        self.turned, self.as_complex = turned, as_complex
        angles = torch.arange(PATCHES + 1)[:, None] * 10.0 ** -torch.arange(EACH // 2)
        self.register_buffer("places", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def turn(self, x):
        if self.as_complex:
            pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
            return torch.view_as_real(pairs * self.places).flatten(-2).to(x)
        (a, b), cos, sin = halves(x), self.places.real.to(x), self.places.imag.to(x)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def by_hand(self, q, k, v):
        q = self.turn(q) if "q" in self.turned else q
        return super().by_hand(q, self.turn(k) if "k" in self.turned else k, v)


class Paired(Attention):
    """Cosines and sines of all D_h numbers, for halves or for neighbors; numbers are turned as one or the other."""

    def __init__(self, table="halves", turn="halves", normed=False):
        super().__init__()
        angles = torch.arange(PATCHES + 1)[:, None] * 10.0 ** -torch.arange(EACH // 2)
        angles = torch.cat((angles, angles), -1) if table == "halves" else angles.repeat_interleave(2, -1)
        self.cos, self.sin = (nn.Parameter(x, requires_grad=False) for x in (angles.cos(), angles.sin()))
        self.turn, self.norm = turn, nn.RMSNorm(EACH) if normed else nn.Identity()

    def turned(self, x):
        if self.turn == "halves":
            a, b = halves(x)
            other = torch.cat((-b, a), -1)
        else:
            other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * self.cos + other * self.sin

    def by_hand(self, q, k, v):
        return super().by_hand(self.turned(self.norm(q)), self.turned(self.norm(k)), v)


class Placed(Attention):
    """Places are told to queries and keys after their map: by a sum, by one number, or by a convolution."""

    def __init__(self, how):
        super().__init__()
        self.how, self.near = how, nn.Conv1d(EACH, EACH, 3, padding=1, groups=EACH)
        self.register_buffer("table", torch.arange(EACH * (PATCHES + 1.0)).view(-1, EACH).sin(), persistent=False)
        if how != "convolution":
            del self.near

    def tell(self, x):
        if self.how == "convolution":
            return self.near(x.flatten(0, 1).mT).mT.unflatten(0, x.shape[:2])
        return x + self.table if self.how == "sum" else x * self.table[:, :1].exp()

    def by_hand(self, q, k, v):
        return super().by_hand(self.tell(q), self.tell(k), v)


def halves(x):
    return x.chunk(2, -1)


class LowRank(Attention):
    """Queries, keys and values by two maps in a row, or with a norm between them."""

    def __init__(self, *between):
        super().__init__()
        self.qkv = nn.Sequential(nn.Linear(WIDE, WIDE // 2), *between, nn.Linear(WIDE // 2, 3 * WIDE))


class WeightNormed(Attention):
    """A matrix computed of others at each call."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.utils.parametrizations.weight_norm(self.qkv)


class TorchFunction(nn.Module):
    """F.multi_head_attention_forward, sequence first."""

    def __init__(self):
        super().__init__()
        self.into = nn.Parameter(torch.randn(3 * WIDE, WIDE) / WIDE**0.5)
        self.bias, self.out = nn.Parameter(torch.zeros(3 * WIDE)), nn.Linear(WIDE, WIDE)

    def forward(self, x):
        x, out = x.transpose(0, 1), self.out
        settings = (WIDE, HEADS, self.into, self.bias, None, None, False, 0.0, out.weight, out.bias)
        return F.multi_head_attention_forward(x, x, x, *settings, training=self.training)[0].transpose(0, 1)


def near(batch, head, query, key):
    return (query - key).abs() < PATCHES - 1


def flex(q, k, v, scale=None):
    """With a bias for each distance, and a mask."""
    mask = create_block_mask(near, None, None, PATCHES + 1, PATCHES + 1, device=q.device)
    return flex_attention(q, k, v, lambda score, b, h, i, j: score - 0.1 * (i - j).abs(), mask, scale=scale)


def einsum(q, k, v, words="bhqd, bhkd -> bhqk", back="bhqk, bhkd -> bhqd"):
    return torch.einsum(back, torch.einsum(words, q, k).div(math.sqrt(EACH)).softmax(-1), v)


def tensordot(q, k, v):  # of one head of one image
    return torch.tensordot((torch.tensordot(q, k, dims=([1], [1])) * EACH**-0.5).softmax(1), v, dims=1)


def inner(q, k, v):
    return (torch.inner(q, k) / EACH**0.5).softmax(-1).matmul(v)


def baddbmm(q, k, v):
    scores = torch.baddbmm(q.new_empty(1), q.flatten(0, 1), k.flatten(0, 1).mT, beta=0, alpha=EACH**-0.5)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view_as(v)


def stepwise(q, k, v):
    """Exponentials divided by their sum."""
    weights = (q @ k.mT * EACH**-0.5).exp()
    return (weights / weights.sum(-1, keepdim=True)) @ v


class InPlace(torch.autograd.Function):
    """Scores become weights in place, and are computed again to go back."""

    @staticmethod
    def forward(ctx, q, k, v, scale):
        ctx.scale = scale
        ctx.save_for_backward(q, k, v)
        scores = (q @ k.mT).mul_(scale)
        return scores.sub_(scores.logsumexp(-1, keepdim=True)).exp_() @ v

    @staticmethod
    def backward(ctx, slope):
        q, k, v = (x.detach().requires_grad_() for x in ctx.saved_tensors)
        with torch.enable_grad():
            return *torch.autograd.grad((q @ k.mT * ctx.scale).softmax(-1) @ v, (q, k, v), slope), None


def one_by_one(q, k, v, scale=EACH**-0.5):
    """No product of matrices: numbers are multiplied, and summed."""
    weights = ((q[:, :, :, None] * k[:, :, None]).sum(-1) * scale).softmax(-1)
    return (weights[..., None] * v[:, :, None]).sum(-2)


def query_by_query(q, k, v, scale=EACH**-0.5):
    weights = [((q[:, :, i : i + 1] * k).sum(-1) * scale).softmax(-1) for i in range(q.shape[2])]
    return torch.stack([(w[..., None] * v).sum(-2) for w in weights], 2)


def divided_later(q, k, v):
    weights = (q @ k.mT * EACH**-0.5).exp()
    return (weights @ v) / weights.sum(-1, keepdim=True)


def three_in_one(q, k, v):
    weights = (q @ k.mT * EACH**-0.5).exp()
    return torch.einsum("bhqk, bhkd, bhq -> bhqd", weights, v, 1 / weights.sum(-1))


def in_tiles(q, k, v):
    """Keys by halves: what is known of the first is corrected by what the second brings."""
    largest = torch.full_like(q[..., :1], -1e9)
    total, answer = torch.zeros_like(largest), torch.zeros_like(q)
    for keys, values in zip(k.chunk(2, 2), v.chunk(2, 2), strict=True):
        scores = q @ keys.mT * EACH**-0.5
        larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weights, before = (scores - larger).exp(), (largest - larger).exp()
        total, answer = total * before + weights.sum(-1, keepdim=True), answer * before + weights @ values
        largest = larger
    return answer / total


def sink(q, k, v, scale=EACH**-0.5):
    """One more key, of score 0, takes a part of the weights and has no value."""
    scores = q @ k.mT * scale
    return torch.cat([scores, scores.new_zeros(*scores.shape[:-1], 1)], -1).softmax(-1)[..., :-1] @ v


def quiet(q, k, v):
    weights = (q @ k.mT * EACH**-0.5).exp()
    return weights / (1 + weights.sum(-1, keepdim=True)) @ v


def in_16_bits(q, k, v, scale=EACH**-0.5, dtype=torch.bfloat16):
    q, k, v, before = *(x.to(dtype) for x in (q, k, v)), q.dtype
    return (((q @ k.mT).float() * scale).softmax(-1).to(dtype) @ v).to(before)


def in_autocast(q, k, v):
    with torch.autocast("cpu", torch.bfloat16):
        return ((q @ k.mT / EACH**0.5).softmax(-1) @ v).to(v.dtype)


def checkpointed(q, k, v, use_reentrant=True):
    return checkpoint(inner_of_heads, q, k, v, use_reentrant=use_reentrant)


def inner_of_heads(q, k, v):
    return (q @ k.mT / EACH**0.5).softmax(-1) @ v


def jagged(q, k, v, scale=None):
    """Tokens of all images in a row, (B · T, h, D_h), with the places where images begin."""
    starts = torch.arange(len(q) + 1) * q.shape[2]
    q, k, v = (torch.nested.nested_tensor_from_jagged(x.transpose(1, 2).flatten(0, 1), starts) for x in (q, k, v))
    answer = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), scale=scale)
    return torch.stack(answer.unbind())


class Block(nn.Module):
    def __init__(self, attention=Attention, norm=nn.LayerNorm):
        super().__init__()
        self.norm1, self.norm2, self.attention = norm(WIDE), norm(WIDE), attention()
        self.mlp = nn.Sequential(nn.Linear(WIDE, HIDDEN * 2), nn.GELU(), nn.Linear(HIDDEN * 2, WIDE))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Bare(EachImage):
    """Heads joined, and no map after them."""

    def image(self, x):
        heads = zip(*(t.chunk(HEADS, -1) for t in self.qkv(x).chunk(3, -1)), strict=True)
        return torch.cat([self.attend(*head) for head in heads], -1)


class SlicedImages(nn.Module):
    """Each head has a slice of the token, image by image."""

    def __init__(self, project=False):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(EACH, 3 * EACH) for _ in range(HEADS))
        self.out = nn.Linear(WIDE, WIDE) if project else nn.Identity()

    def image(self, x):
        parts = []
        for part, qkv in zip(x.split(EACH, -1), self.maps, strict=True):
            q, k, v = qkv(part).chunk(3, -1)
            parts.append((q @ k.T * EACH**-0.5).softmax(-1) @ v)
        return self.out(torch.cat(parts, -1))

    def forward(self, x):
        return torch.stack([self.image(image) for image in x])


class OneHot(Attention):
    def __init__(self):
        super().__init__()
        nn.init.normal_(self.qkv.weight)


class HandNorm(nn.Module):
    """LayerNorm by hand over any axis of (B, T, D)."""

    def __init__(self, dim, axis=-1, correction=0):
        super().__init__()
        self.axis, self.correction = axis, correction
        self.gain, self.shift = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        centered = x - x.mean(self.axis, keepdim=True)
        variance = centered.var(self.axis, correction=self.correction, keepdim=True)
        return centered / torch.sqrt(variance + 1e-6) * self.gain + self.shift


class Turned(nn.Module):
    """A norm that gets tokens transposed."""

    def __init__(self, dim, norm=nn.LayerNorm):
        super().__init__()
        self.norm = norm(PATCHES + 1)

    def forward(self, x):
        return self.norm(x.mT).mT if isinstance(self.norm, nn.LayerNorm) else self.norm(x)


class Gain(nn.Module):
    """A norm of its own with a gain that starts somewhere."""

    def __init__(self, dim, start=torch.ones, centered=True):
        super().__init__()
        self.gain, self.centered = nn.Parameter(start(dim)), centered

    def forward(self, x):
        if self.centered:
            return F.layer_norm(x, x.shape[-1:], self.gain)
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * self.gain


class AroundOne(nn.Module):
    """RMSNorm whose gain is 1 + a parameter, as in Gemma."""

    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(0.02 * torch.randn(dim))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:]) * (1 + self.gain)


class FeaturesFirst(nn.Module):
    """A norm of (B, D, T) where there are as many tokens as a token has numbers; `turned` is right."""

    def __init__(self, dim, norm=nn.LayerNorm, turned=False):
        super().__init__()
        self.norm, self.turned = norm(dim), turned

    def forward(self, x):
        return self.norm(x) if self.turned else self.norm(x.mT).mT


class In32Bits(nn.LayerNorm):
    """LayerNorm in float32, whatever the tokens are in."""

    def forward(self, x):
        return F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), self.bias.float()).to(x)


class Missing(Block):
    """No residual connection around attention."""

    def forward(self, x):
        x = self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Replaced(Block):
    """The MLP's residual carries normalized tokens."""

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        x = self.norm2(x)
        return x + self.mlp(x)


class PostNorm(Block):
    """After an embedding that is normalized, too, as in BERT."""

    def forward(self, x):
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Normed(PostNorm):
    """What a branch gives is added to what it got, both normalized: a block begins with its norms."""

    def forward(self, x):
        x = self.norm1(x)
        x = x + self.attention(x)
        x = self.norm2(x)
        return x + self.mlp(x)


class ReZero(Block):
    """A learned gain of 0 in place of norms (Bachlechner et al. 2021)."""

    def __init__(self, attention, norm):
        super().__init__(attention, nn.Identity)
        self.gain = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        x = x + self.gain[0] * self.attention(x)
        return x + self.gain[1] * self.mlp(x)


class OneNorm(Block):
    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm1(x))


class SideBySide(Block):
    """One norm for attention and MLP, which run in parallel: right."""

    def __init__(self, *parts):
        super().__init__(*parts)
        del self.norm2

    def forward(self, x):
        y = self.norm1(x)
        return x + self.attention(y) + self.mlp(y)


class Turning(Block):
    """Attention over the batch."""

    def forward(self, x):
        x = x + self.attention(self.norm1(x).transpose(0, 1)).transpose(0, 1)
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """Patches by a convolution, a class token in front, three blocks."""

    def __init__(self, attention=Attention, norm=nn.LayerNorm, block=Block, head=None):
        super().__init__()
        self.patch, self.head = nn.Conv2d(C, WIDE, P, P), head or normed()
        self.blocks = nn.Sequential(*(block(attention, norm) for _ in range(3)))
        self.cls, self.pos = nn.Parameter(torch.randn(1, 1, WIDE)), nn.Parameter(torch.randn(1, PATCHES + 1, WIDE))

    def cut(self, x):
        return self.patch(x).flatten(2).mT

    def place(self, tokens):
        return torch.cat((self.cls.expand(len(tokens), -1, -1), tokens), 1) + self.pos

    def encode(self, x):
        return self.blocks(x)

    def read(self, x):
        return x[:, 0]

    def forward(self, images):
        return self.head(self.read(self.encode(self.place(self.cut(images)))))


def shape_for(model):
    return getattr(model, "takes", SHAPE)


class Square(Net):
    """As many tokens as a token has numbers: class tokens make them up."""

    def __init__(self, **ways):
        super().__init__(**ways)
        more = WIDE - PATCHES
        self.cls, self.pos = (nn.Parameter(torch.randn(1, n, WIDE)) for n in (more, WIDE))


class ByImage(Net):
    """Positions are looked up by the image in the batch; axis 1 would be right."""

    def __init__(self, learned, axis=0):
        super().__init__()
        del self.pos
        self.axis, self.table = axis, nn.Embedding(50, WIDE).requires_grad_(learned)

    def place(self, tokens):
        x = torch.cat((self.cls.expand(len(tokens), -1, -1), tokens), 1)
        places = self.table(torch.arange(x.shape[self.axis], device=x.device))
        return x + (places if self.axis else places[:, None])


class Tensordot(Net):
    """A map of which autocast does not know."""

    def cut(self, x):
        return torch.tensordot(super().cut(x), self.mix, dims=1)

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.eye(WIDE))


class NoTable(Net):
    """Without positions of its own."""

    def __init__(self, attention):
        super().__init__(attention)
        del self.pos

    def place(self, tokens):
        return torch.cat((self.cls.expand(len(tokens), -1, -1), tokens), 1)


class Plain(Net):
    """The simple one of Beyer et al. (2022): patches are normalized before their map and after, places are sines."""

    def __init__(self, stem=False, patch=P, image=SHAPE, axes=(0, 1), turned=False):
        super().__init__()
        del self.cls, self.pos, self.patch
        channels, height, width = image
        self.takes = image
        self.stem = nn.Conv2d(channels, channels, 3, padding=1) if stem else nn.Identity()
        self.size, self.turned = patch, turned
        numbers, grid = channels * patch**2, (height // patch, width // patch)
        self.norm = nn.LayerNorm(math.prod(grid) if turned else numbers)
        self.map, self.after = nn.Linear(numbers, WIDE), nn.LayerNorm(WIDE)
        places = torch.cartesian_prod(*map(torch.arange, grid))[:, list(axes), None]
        angles = (places * 100.0 ** -(torch.arange(WIDE // 4) / 5)).flatten(1)
        self.register_buffer("table", torch.cat((angles.sin(), angles.cos()), 1), persistent=False)

    def cut(self, x):
        tokens = F.unfold(self.stem(x), self.size, stride=self.size)  # (B, numbers, T)
        return self.after(self.map(self.norm(tokens).mT if self.turned else self.norm(tokens.mT)))

    def place(self, tokens):
        return tokens + self.table.to(tokens)

    def read(self, x):
        return x.mean(1)


class Averaged(Net):
    def read(self, x):
        return x.mean(1)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Maximum(nn.Module):
    def forward(self, x):
        return x.amax(1)


class AllTokens(Net):
    def read(self, x):
        return x


class Unchained(Net):
    """Each block gets the embedding."""

    def encode(self, x):
        for block in self.blocks:
            out = block(x)
        return out


class UnchainedList(Net):
    """Each block gets the embedding, and the list's last is taken."""

    def encode(self, x):
        return [block(x) for block in self.blocks][-1]


class Shared(Net):
    """One block for three layers, as in ALBERT."""

    def encode(self, x):
        for _ in range(3):
            x = self.blocks[0](x)
        return x

    def __init__(self):
        super().__init__()
        del self.blocks[1:]


class Frozen(Net):
    """The patch map runs under no_grad; every residual connection is right."""

    def cut(self, x):
        with torch.no_grad():
            return super().cut(x)


class Detached(Net):
    def place(self, tokens):
        return super().place(tokens).detach()


class ImageByImage(Net):
    """All of the model on one image at a time, on (T, D)."""

    def __init__(self, residual=1, head=None):
        super().__init__(EachImage, head=head)
        self.residual = residual

    def image(self, image):
        x = torch.cat([self.cls[0], self.patch(image[None])[0].flatten(1).T]) + self.pos[0]
        for block in self.blocks:
            x = x + block.attention.image(block.norm1(x))
            x = self.residual * x + block.mlp(block.norm2(x))
        return self.head(x[0])

    def forward(self, images):
        return torch.stack([self.image(image) for image in images])


class EmbeddingNormed(Net):
    def __init__(self, **ways):
        super().__init__(**ways)
        self.norm = nn.LayerNorm(WIDE)

    def place(self, tokens):
        return self.norm(super().place(tokens))


class Buffers(Net):
    """Results are written into a tensor that is there before."""

    def encode(self, x):
        for block in self.blocks:
            out = torch.empty_like(x)
            for i in range(len(x)):
                out[i] = block(x[i : i + 1])[0]
            x = out
        return x


class Unfolded(Net):
    """Two unfolds; axes is the permutation before the reshape. stride below P: patches overlap."""

    def __init__(self, axes=(0, 2, 3, 1, 4, 5), stride=P):
        super().__init__()
        self.axes, self.stride, self.patch = axes, stride, nn.Linear(C * P * P, WIDE)
        self.count = ((SIDE - P) // stride + 1) ** 2
        self.pos = nn.Parameter(torch.randn(1, self.count + 1, WIDE))

    def cut(self, x):
        patches = x.unfold(2, P, self.stride).unfold(3, P, self.stride)
        patches = patches.permute(self.axes) if self.axes else patches
        return self.patch(patches.reshape(len(x), self.count, -1))


class OfOneChannel(Unfolded):
    """A token for each channel of a patch, as in ChannelViT (Bao et al. 2024): right."""

    def __init__(self):
        super().__init__(None)
        self.patch, self.count = nn.Linear(P * P, WIDE), C * self.count
        self.pos = nn.Parameter(torch.randn(1, self.count + 1, WIDE))


class Whole(Net):
    """The image is one token."""

    def __init__(self):
        super().__init__()
        self.patch, self.pos = nn.Linear(C * SIDE * SIDE, WIDE), nn.Parameter(torch.randn(1, 2, WIDE))

    def cut(self, x):
        return self.patch(x.flatten(1))[:, None]


def normed():
    return nn.Sequential(nn.LayerNorm(WIDE), nn.Linear(WIDE, K))


def two_layers(*before):
    return nn.Sequential(*before, nn.Linear(WIDE, WIDE), nn.Tanh(), nn.Linear(WIDE, K))


RIGHT = {
    "each image": lambda: Net(EachImage),
    "vmap": lambda: Net(Mapped),
    "each head": lambda: Net(EachHead),
    "in chunks": lambda: Net(InChunks),
    "kept weights": lambda: Net(Keeps),
    "torch's function": lambda: Net(TorchFunction),
    "einsum": lambda: Net(partial(Attention, einsum)),
    "einsum of matrices": lambda: Net(partial(EachImage, partial(einsum, words="qd, kd -> qk", back="qk, kd -> qd"))),
    "tensordot": lambda: Net(partial(EachImage, tensordot)),
    "inner": lambda: Net(partial(EachImage, inner)),
    "baddbmm": lambda: Net(partial(Attention, baddbmm)),
    "stepwise": lambda: Net(partial(Attention, stepwise)),
    "in place, in a function of its own": lambda: Net(
        partial(Attention, lambda q, k, v: InPlace.apply(q, k, v, EACH**-0.5))
    ),
    "logarithms": lambda: Net(partial(Attention, lambda q, k, v: F.log_softmax(q @ k.mT / EACH**0.5, -1).exp() @ v)),
    "one by one": lambda: Net(partial(Attention, one_by_one)),
    "query by query": lambda: Net(partial(Attention, query_by_query)),
    "divided later": lambda: Net(partial(Attention, divided_later)),
    "three in one": lambda: Net(partial(Attention, three_in_one)),
    "in tiles": lambda: Net(partial(Attention, in_tiles)),
    "sink": lambda: Net(partial(Attention, sink)),
    "quiet": lambda: Net(partial(Attention, quiet)),
    "in 16 bits": lambda: Net(partial(Attention, in_16_bits)),
    "in half precision": lambda: Net(partial(Attention, partial(in_16_bits, dtype=torch.float16))),
    "in autocast": lambda: Net(partial(Attention, in_autocast)),
    "checkpoint, reentrant": lambda: Net(partial(Attention, checkpointed)),
    "checkpoint": lambda: Net(partial(Attention, partial(checkpointed, use_reentrant=False))),
    "jagged": lambda: Net(partial(Attention, jagged)),
    "talking heads": lambda: Net(TalkingHeads),
    "bounded scores": lambda: Net(Bounded),
    "weight norm": lambda: Net(WeightNormed),
    "all of it image by image": ImageByImage,
    "flex attention": lambda: Net(partial(Attention, flex)),
    "unfolded": Unfolded,
    "overlapping": lambda: Unfolded(stride=2),
    "a token for each channel": OfOneChannel,
    "hand-made norms": lambda: Net(norm=HandNorm, head=nn.Sequential(HandNorm(WIDE), nn.Linear(WIDE, K))),
    "norms in 32 bits": lambda: Net(norm=In32Bits),
    "head of two layers": lambda: Net(head=two_layers(nn.LayerNorm(WIDE))),
    "norm, then mean": lambda: AllTokens(head=nn.Sequential(nn.LayerNorm(WIDE), Mean(), nn.Linear(WIDE, K))),
    "mean, then norm": lambda: AllTokens(head=nn.Sequential(Mean(), nn.LayerNorm(WIDE), nn.Linear(WIDE, K))),
    "embedding normalized, post-norm": lambda: EmbeddingNormed(block=PostNorm, head=nn.Linear(WIDE, K)),
    "ReZero": lambda: Net(block=ReZero, head=nn.Linear(WIDE, K)),
    "side by side": lambda: Net(block=SideBySide),
    "into a buffer": Buffers,
    "differential": lambda: Net(Differential),
    "gated weights": lambda: Net(Gated),
    "heads last": lambda: Net(HeadsLast),
    "rotary": lambda: NoTable(Rotary),
    "rotary and learned positions": lambda: Net(Rotary),
    "rotary, complex": lambda: NoTable(partial(Rotary, as_complex=True)),
    "gains of 0": lambda: Net(norm=partial(Gain, start=torch.zeros)),
    "gains around 1": lambda: Net(norm=AroundOne, head=nn.Sequential(AroundOne(WIDE), nn.Linear(WIDE, K))),
    "as many tokens as numbers": lambda: Square(norm=partial(FeaturesFirst, turned=True)),
    "as many tokens as numbers, by hand": lambda: Square(norm=partial(HandNorm, correction=0)),
    "positions by Embedding": lambda: ByImage(True, axis=1),
    "tensordot that autocast does not know": Tensordot,
    "halves turned": lambda: NoTable(Paired),
    "neighbors turned": lambda: NoTable(partial(Paired, "neighbors", "neighbors")),
    "neighbors turned, normed": lambda: Net(partial(Paired, "neighbors", "neighbors", normed=True)),
    "places added to queries and keys": lambda: NoTable(partial(Placed, "sum")),
    "queries and keys longer by their places": lambda: Net(partial(Placed, "number")),
    "queries and keys of three tokens": lambda: Averaged(partial(Placed, "convolution")),
    "two maps in a row": lambda: Net(LowRank),
    "two maps and a norm": lambda: Net(lambda: LowRank(nn.RMSNorm(WIDE // 2))),
    "two maps in a row, post-norm": lambda: Net(LowRank, block=PostNorm, head=nn.Linear(WIDE, K)),
    "simple": Plain,
    "simple, as many tokens as a token has numbers": lambda: Plain(image=(C, 4 * P, 6 * P)),
    "simple, as many tokens as a patch has numbers": lambda: Plain(image=OF_48),
    "simple, as many tokens as a patch has numbers, behind a convolution": lambda: Plain(True, image=OF_48),
    "simple, as many tokens as a patch has numbers, of gray strips": lambda: Plain(patch=4, image=(1, 4, 64)),
}

SLICES = "heads_see_whole_tokens"
CHAIN, STARTS, TOKENS = "not chained", "attention_starts_soft", "an_image_has_several_tokens"
TURNED, STARTING = "queries_and_keys_are_turned_alike", "norms_start_at_one"
JOINED, OWN = "heads_are_joined_by_a_map", "layers_have_weights_of_their_own"

# How to build it, and for each question that it fails a part of the suspect that it names: the true cause
WRONG = {
    "each image, no scale": (lambda: Net(partial(EachImage, scale=1.0)), {SCALE: "no scale"}),
    "each image, √D": (lambda: Net(partial(EachImage, scale=WIDE**-0.5)), {SCALE: "√D for √D_h"}),
    "vmap, no scale": (lambda: Net(partial(Mapped, scale=1.0)), {SCALE: "no scale"}),
    "each head, scaled by √D": (lambda: Net(partial(EachHead, scale=WIDE**-0.5)), {SCALE: "√D for √D_h"}),
    "each image, slices": (lambda: Net(partial(SlicedImages, True)), {SLICES: "cut into heads before"}),
    "each image, slices, no map": (
        lambda: Net(SlicedImages),
        {SLICES: "cut into heads before", JOINED: "no output projection"},
    ),
    "flex attention, no scale": (lambda: Net(partial(Attention, partial(flex, scale=1.0))), {SCALE: "no scale"}),
    "never divided": (
        lambda: Net(partial(Attention, lambda q, k, v: (q @ k.mT * EACH**-0.5).exp() @ v)),
        {SUMS: "weights"},
    ),
    "in place, √D": (
        lambda: Net(partial(Attention, lambda q, k, v: InPlace.apply(q, k, v, WIDE**-0.5))),
        {SCALE: "√D for √D_h"},
    ),
    "one by one, no scale": (lambda: Net(partial(Attention, partial(one_by_one, scale=1.0))), {SCALE: "no scale"}),
    "query by query, √D": (
        lambda: Net(partial(Attention, partial(query_by_query, scale=WIDE**-0.5))),
        {SCALE: "√D for √D_h"},
    ),
    "sink, no scale": (lambda: Net(partial(Attention, partial(sink, scale=1.0))), {SCALE: "no scale"}),
    "in 16 bits, no scale": (lambda: Net(partial(Attention, partial(in_16_bits, scale=1.0))), {SCALE: "no scale"}),
    "jagged, no scale": (lambda: Net(partial(Attention, partial(jagged, scale=1.0))), {SCALE: "no scale"}),
    "all of it image by image, no residual": (lambda: ImageByImage(0), {ADDS: "residual"}),
    "all of it image by image, no norm": (lambda: ImageByImage(head=nn.Linear(WIDE, K)), {LAST: "last LayerNorm"}),
    "no map": (lambda: Net(Bare), {JOINED: "no output projection", IDLE: "never called"}),
    "one-hot": (lambda: Net(OneHot), {STARTS: "standard deviation of 1"}),
    "kept weights, no residual": (lambda: Net(Keeps, block=Missing), {ADDS: "residual"}),
    "no residual, each image": (lambda: Net(EachImage, block=Missing), {ADDS: "residual"}),
    "residual of the norm": (lambda: Net(block=Replaced), {ADDS: "x = norm(x)"}),
    "both residuals of the norm": (lambda: Net(block=Normed), {ADDS: "x = norm(x)"}),
    "not chained": (Unchained, {ADDS: CHAIN, IDLE: ""}),
    "not chained, listed": (UnchainedList, {ADDS: CHAIN, IDLE: ""}),
    "one block": (Shared, {OWN: "one block in a loop"}),
    "one norm": (lambda: Net(block=OneNorm), {BRANCHES: "two places", IDLE: "never called"}),
    "patches under no_grad": (Frozen, {IDLE: "no_grad"}),
    "embedding detached": (Detached, {IDLE: "detach"}),
    "norm over tokens": (lambda: Net(norm=partial(HandNorm, axis=1), head=normed()), {NORMS: "over the tokens"}),
    "norm over tokens, n − 1": (
        lambda: Net(norm=partial(HandNorm, axis=1, correction=1), head=normed()),
        {NORMS: "over the tokens"},
    ),
    "norm of transposed tokens": (lambda: Net(norm=Turned, head=normed()), {NORMS: "over the tokens"}),
    "BatchNorm over tokens": (
        lambda: Net(norm=partial(Turned, norm=nn.BatchNorm1d), head=normed()),
        {NORMS: "BatchNorm"},
    ),
    "head of two layers, no norm": (lambda: Net(head=two_layers()), {LAST: "last LayerNorm"}),
    "mean, no norm": (lambda: AllTokens(head=nn.Sequential(Mean(), nn.Linear(WIDE, K))), {LAST: "last LayerNorm"}),
    "maximum, two layers, no norm": (lambda: AllTokens(head=two_layers(Maximum())), {LAST: "last LayerNorm"}),
    "unfolded, no permute": (lambda: Unfolded(None), {CUT: "channels in front"}),
    "overlapping, no permute": (lambda: Unfolded(None, 2), {CUT: "channels in front"}),
    "one token": (Whole, {TOKENS: "as large as the image"}),
    "batch for tokens": (lambda: Net(block=Turning), {"images_count": "over the batch"}),
    "batch for tokens, mean": (
        lambda: AllTokens(block=Turning, head=nn.Sequential(nn.LayerNorm(WIDE), Mean(), nn.Linear(WIDE, K))),
        {MIX: "over the batch"},
    ),
    "into a buffer, no scale": (lambda: Buffers(partial(EachImage, scale=1.0)), {SCALE: "no scale"}),
    "heads last, over the heads": (lambda: Net(partial(HeadsLast, 3)), {SUMS: "over the heads"}),
    "heads last, over the queries": (lambda: Net(partial(HeadsLast, 1)), {SUMS: "over the queries"}),
    "heads last, over the batch": (lambda: Net(partial(HeadsLast, 0)), {SUMS: "over the batch", MIX: "first axis"}),
    "√D after the softmax": (
        lambda: Net(partial(Attention, lambda q, k, v: (q @ k.mT).softmax(-1) / WIDE**0.5 @ v)),
        {SUMS: "scale stands after", SCALE: "it stands after"},
    ),
    "halved after the softmax": (
        lambda: Net(partial(Attention, lambda q, k, v: (q @ k.mT * EACH**-0.5).softmax(-1) / 2 @ v)),
        {SUMS: "all multiplied by 0.5"},
    ),
    "positions by the image": (
        partial(ByImage, True),
        {"order_counts": "by the image", "places_in_a_batch_are_alike": "indexed by the image"},
    ),
    "fixed positions by the image": (
        partial(ByImage, False),
        {"order_counts": "by the image", "places_in_a_batch_are_alike": "indexed by the image"},
    ),
    "gains drawn, LayerNorm": (lambda: Net(norm=partial(Gain, start=torch.randn)), {STARTING: "p.ndim > 1"}),
    "gains drawn, RMSNorm": (
        lambda: Net(norm=partial(Gain, start=lambda n: 0.02 * torch.randn(n), centered=False)),
        {STARTING: "p.ndim > 1"},
    ),
    "queries turned": (lambda: NoTable(partial(Rotary, "q")), {TURNED: "of the queries alone"}),
    "queries turned, complex, with positions": (
        lambda: Net(partial(Rotary, "q", as_complex=True)),
        {TURNED: "of the queries alone"},
    ),
    "keys turned": (lambda: NoTable(partial(Rotary, "k")), {TURNED: "of the keys alone"}),
    "features first": (lambda: Square(norm=FeaturesFirst), {NORMS: "over the tokens"}),
    "features first, RMSNorm": (
        lambda: Square(norm=partial(FeaturesFirst, norm=nn.RMSNorm)),
        {NORMS: "over the tokens"},
    ),
    "over the tokens by hand, as many as numbers": (
        lambda: Square(norm=partial(HandNorm, axis=1)),
        {NORMS: "over the tokens"},
    ),
    "two maps in a row, no residual": (lambda: Net(LowRank, block=Missing), {ADDS: "residual"}),
    "halves of a table for neighbors": (lambda: NoTable(partial(Paired, "neighbors")), {TURNED: "is none"}),
    "neighbors of a table for halves": (lambda: Net(partial(Paired, turn="neighbors")), {TURNED: "is none"}),
    "neighbors of a table for halves, normed": (
        lambda: NoTable(partial(Paired, turn="neighbors", normed=True)),
        {TURNED: "is none"},
    ),
    "simple, over the tokens": (lambda: Plain(image=OF_48, turned=True), {NORMS: "over the tokens"}),
    "simple, columns alone": (lambda: Plain(axes=(1, 1)), {"order_counts": "rows are not told apart"}),
    "simple, rows alone": (lambda: Plain(image=OF_48, axes=(0, 0)), {"order_counts": "columns are not told apart"}),
}

"""Vision Transformers in other styles, written after the questions were: what they find here shows their worth.

`fault in faults` is the wrong way; without faults each is right.
"""

import math

import torch
import torch.nn.functional as F
from einops import einsum, pack, rearrange, reduce, repeat
from einops.layers.torch import Rearrange, Reduce
from small_models import HEIGHT, WIDTH, C, K, P
from styles import ADDS, CUT, DRAWN, HEADS_WHOLE, IDLE, LAST, MIX, MLPS, NORMS, ORDER, READ, SCALE, SHARES, SUMS
from torch import nn

WIDE, HEADS, LAYERS = 32, 4, 3
EACH, ROWS, COLUMNS = WIDE // HEADS, HEIGHT // P, WIDTH // P
PATCHES = ROWS * COLUMNS


class FlaxLike(nn.Module):
    """A tree of kernels (in, out) and pure functions, named as by Flax."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        shapes = {"embedding/kernel": (P, P, C, WIDE), "embedding/bias": (WIDE,), "cls": (1, 1, WIDE)}
        shapes |= {"pos_embedding": (1, PATCHES + 1, WIDE), "head/kernel": (WIDE, K), "head/bias": (K,)}
        for i in range(LAYERS):
            for name in ("query", "key", "value"):
                shapes |= {f"block_{i}/{name}/kernel": (WIDE, HEADS, EACH), f"block_{i}/{name}/bias": (HEADS, EACH)}
            shapes |= {f"block_{i}/out/kernel": (HEADS, EACH, WIDE), f"block_{i}/out/bias": (WIDE,)}
            shapes |= {f"block_{i}/Dense_0/kernel": (WIDE, 48), f"block_{i}/Dense_0/bias": (48,)}
            shapes |= {f"block_{i}/Dense_1/kernel": (48, WIDE), f"block_{i}/Dense_1/bias": (WIDE,)}
        for name in (*(f"block_{i}/LayerNorm_{j}" for i in range(LAYERS) for j in (0, 1)), "encoder_norm"):
            shapes |= {f"{name}/scale": (WIDE,), f"{name}/bias": (WIDE,)}
        start = {name: torch.ones(shape) if "scale" in name else self.drawn(shape) for name, shape in shapes.items()}
        self.tree = nn.ParameterDict({name.replace("/", "__"): x for name, x in start.items()})

    @staticmethod
    def drawn(shape):
        return torch.zeros(shape) if len(shape) < 3 and shape[0] != WIDE else 0.1 * torch.randn(shape)

    def p(self, name):
        return self.tree[name.replace("/", "__")]

    def layer_norm(self, x, name):
        mean = x.mean(-1, keepdims=True)
        mean_of_squares = (x * x).mean(-1, keepdims=True)
        return (x - mean) * torch.rsqrt(mean_of_squares - mean * mean + 1e-6) * self.p(f"{name}/scale") + self.p(
            f"{name}/bias"
        )

    def attention(self, x, name):
        q, k, v = (
            torch.einsum("bnd,dhe->bnhe", x, self.p(f"{name}/{part}/kernel")) + self.p(f"{name}/{part}/bias")
            for part in ("query", "key", "value")
        )
        if "by tokens" in self.faults:
            q = q / x.shape[1] ** 0.5
        elif "after" not in self.faults:
            q = q / EACH**0.5
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(-1)
        x = torch.einsum("bhqk,bkhd->bqhd", weights, v)
        return torch.einsum("bnhe,hed->bnd", x, self.p(f"{name}/out/kernel")) + self.p(f"{name}/out/bias")

    def forward(self, images):
        x = F.conv2d(images, rearrange(self.p("embedding/kernel"), "p q c d -> d c p q"), self.p("embedding/bias"), P)
        x = rearrange(x, "b d h w -> b (h w) d")
        cls = self.p("cls").expand(len(x), 1, WIDE)
        x = torch.cat([x, cls] if "class token last" in self.faults else [cls, x], 1) + self.p("pos_embedding")
        for i in range(LAYERS):
            y = self.attention(self.layer_norm(x, f"block_{i}/LayerNorm_0"), f"block_{i}")
            x = x + y
            y = self.layer_norm(x, f"block_{i}/LayerNorm_1") @ self.p(f"block_{i}/Dense_0/kernel")
            y = F.gelu(y + self.p(f"block_{i}/Dense_0/bias"), approximate="tanh")
            x = x + y @ self.p(f"block_{i}/Dense_1/kernel") + self.p(f"block_{i}/Dense_1/bias")
        x = self.layer_norm(x, "encoder_norm")[:, 0]
        logits = x @ self.p("head/kernel") + self.p("head/bias")
        return logits.log_softmax(-1) if "log" in self.faults else logits


class SequenceFirst(nn.Module):
    """torch's encoder as it comes, (T, B, D), as ported from a language model."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.conv = nn.Conv2d(C, WIDE, P, P)
        self.token, self.embed = nn.Parameter(torch.randn(1, 1, WIDE)), nn.Embedding(PATCHES + 1, WIDE)
        layer = nn.TransformerEncoderLayer(WIDE, HEADS, 64, 0.1, "gelu", norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDE), enable_nested_tensor=False)
        for p in self.layers.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)
        self.out = nn.Linear(WIDE, K)
        self.register_buffer("ids", torch.arange(PATCHES + 1).unsqueeze(0))

    def forward(self, images):
        x = self.conv(images).flatten(start_dim=2).transpose(2, 1)
        x = torch.cat((self.token.expand(x.size(0), -1, -1), x), dim=1)
        x = x + self.embed(torch.zeros_like(self.ids) if "one id" in self.faults else self.ids)
        if "never turned" in self.faults:
            return self.out(self.layers(x)[:, 0])
        x = x.permute(1, 0, 2)
        if "causal" in self.faults:
            mask = nn.Transformer.generate_square_subsequent_mask(len(x)).to(x)
            return self.out(self.layers(x, mask=mask)[-1])
        return self.out(self.layers(x)[0])


class MapNorm(nn.Module):
    """LayerNorm over the channels of a map."""

    def __init__(self):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(1, WIDE, 1, 1)), nn.Parameter(torch.zeros(1, WIDE, 1, 1))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.g + self.b


class MapAttention(nn.Module):
    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.norm, self.to_qkv = MapNorm(), nn.Conv2d(WIDE, 3 * WIDE, 1, bias=False)
        self.to_out = nn.Conv2d(WIDE, WIDE, 1)

    def forward(self, fmap):
        h, w = fmap.shape[-2:]
        q, k, v = self.to_qkv(self.norm(fmap)).chunk(3, dim=1)
        q, k, v = (rearrange(t, "b (h c) x y -> (b h) (x y) c", h=HEADS) for t in (q, k, v))
        sim = (
            einsum(q, k, "b i d, b j d -> b j i" if "columns" in self.faults else "b i d, b j d -> b i j") * EACH**-0.5
        )
        attn = sim.softmax(dim=-1)
        out = einsum(attn, v, "b j i, b j d -> b i d" if "columns" in self.faults else "b i j, b j d -> b i d")
        out = rearrange(out, "(b h) (x y) c -> b (h c) x y", h=HEADS, x=h, y=w)
        return self.to_out(out)


class OnMaps(nn.Module):
    """Tokens stay a map (B, D, H, W) from the first to the last layer, as in vit-pytorch's hybrids."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.stem = nn.Sequential(
            nn.Conv2d(C, WIDE, P, stride=P), nn.BatchNorm2d(WIDE, track_running_stats="batch" not in faults)
        )
        self.where = nn.Parameter(torch.randn(WIDE, ROWS, COLUMNS) * 0.02)
        self.attn = nn.ModuleList(MapAttention(faults) for _ in range(LAYERS))
        act = (lambda: nn.Sequential()) if "linear" in faults else nn.GELU
        self.ff = nn.ModuleList(
            nn.Sequential(MapNorm(), nn.Conv2d(WIDE, 64, 1), act(), nn.Dropout(0.1), nn.Conv2d(64, WIDE, 1))
            for _ in range(LAYERS)
        )
        self.head = nn.Sequential(MapNorm(), Reduce("b c h w -> b c", "mean"), nn.Linear(WIDE, K))

    def forward(self, x):
        x = self.stem(x) + self.where
        for attn, ff in zip(self.attn, self.ff, strict=True):
            x = attn(x) + x
            x = ff(x) if "no residual" in self.faults else ff(x) + x
        return self.head(x)


class RMS(nn.Module):
    def __init__(self, dim, eps=1e-5):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        x32 = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + self.eps)).to(x.dtype) * self.weight


class LlamaBlock(nn.Module):
    """wq, wk, wv, wo; w1, w2, w3; two keys for four queries; rotary positions by complex numbers."""

    def __init__(self, faults):
        super().__init__()
        self.faults = faults
        self.attention_norm, self.ffn_norm = RMS(WIDE), RMS(WIDE)
        self.wq, self.wo = nn.Linear(WIDE, WIDE, bias=False), nn.Linear(WIDE, WIDE, bias=False)
        self.wk, self.wv = nn.Linear(WIDE, 2 * EACH, bias=False), nn.Linear(WIDE, 2 * EACH, bias=False)
        self.w1, self.w3, self.w2 = (nn.Linear(*sizes, bias=False) for sizes in ((WIDE, 48), (WIDE, 48), (48, WIDE)))

    def rotate(self, x, turn):
        x = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(x * turn[:, None].to(x.dtype)).flatten(3)

    def forward(self, x, turn):
        B, T, _ = x.shape
        h = self.attention_norm(x)
        q = self.rotate(self.wq(h).view(B, T, HEADS, EACH), turn).transpose(1, 2)
        k = self.rotate(self.wk(h).view(B, T, 2, EACH), turn).transpose(1, 2).repeat_interleave(2, 1)
        v = self.wv(h).view(B, T, 2, EACH).transpose(1, 2).repeat_interleave(2, 1)
        scores = torch.matmul(q, k.transpose(2, 3)) / (1 if "unscaled" in self.faults else math.sqrt(EACH))
        if "causal" in self.faults:
            scores = scores + torch.full((T, T), float("-inf"), dtype=x.dtype).triu(1)
        y = torch.matmul(F.softmax(scores, dim=-1), v)
        y = (y if "unturned" in self.faults else y.transpose(1, 2)).contiguous().view(B, T, -1)
        x = x + self.wo(y)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class LlamaLike(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.patchify = nn.Sequential(nn.PixelUnshuffle(P), nn.Conv2d(C * P * P, WIDE, 1, bias=False))
        self.layers = nn.ModuleList(LlamaBlock(faults) for _ in range(LAYERS))
        self.norm, self.output = RMS(WIDE), nn.Linear(WIDE, K, bias=False)
        angles = torch.outer(torch.arange(PATCHES).double(), 100.0 ** (-torch.arange(EACH // 2) / (EACH // 2)))
        self.register_buffer("turn", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def _apply(self, fn, recurse=True):  # complex numbers stay what they are
        turn, self._buffers["turn"] = self._buffers["turn"], None
        super()._apply(fn, recurse)
        self._buffers["turn"] = turn
        return self

    def forward(self, images):
        x = self.patchify(images).flatten(2).transpose(1, 2)
        for layer in self.layers:
            x = layer(x, self.turn)
        return self.output((x if "no norm" in self.faults else self.norm(x)).mean(1))


class QueryPositions(nn.Module):
    """Positions are added to queries and keys in each layer, and never to values, as in DETR."""

    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.backbone, self.pos = nn.Conv2d(C, WIDE, P, P), nn.Parameter(torch.rand(PATCHES, WIDE))
        self.mha = nn.ModuleList(nn.MultiheadAttention(WIDE, HEADS, 0.1, batch_first=True) for _ in range(LAYERS))
        self.norm1, self.norm2 = (nn.ModuleList(nn.LayerNorm(WIDE) for _ in range(LAYERS)) for _ in range(2))
        self.linear1 = nn.ModuleList(nn.Linear(WIDE, 64) for _ in range(LAYERS))
        self.linear2 = nn.ModuleList(nn.Linear(64, WIDE) for _ in range(LAYERS))
        self.norm, self.class_embed = nn.LayerNorm(WIDE), nn.Linear(WIDE, K)

    def forward(self, samples):
        src = self.backbone(samples).flatten(2).permute(0, 2, 1)
        pos = self.pos.mean(0) if "one place" in self.faults else self.pos
        for i, attend in enumerate(self.mha):
            src2 = self.norm1[i](src)
            q = k = src2 + pos
            src = src + attend(q, k, value=src2)[0]
            src2 = self.norm2[i](src)
            src = src + self.linear2[i](
                F.dropout(F.relu(self.linear1[i](src2)), 0.1, "always" in self.faults or self.training)
            )
        return self.class_embed(self.norm(src).max(dim=1)[0] if "max" in self.faults else self.norm(src).mean(1))


class Residual(nn.Module):
    def __init__(self, *layers, twice=False):
        super().__init__()
        self.fn, self.twice = nn.Sequential(*layers), twice

    def forward(self, x):
        return x + self.fn(x) + x if self.twice else x + self.fn(x)


class Attend(nn.Module):
    def __init__(self, cut, join):
        super().__init__()
        self.cut, self.join = Rearrange(cut, three=3, h=HEADS), Rearrange(join)

    def forward(self, qkv):
        q, k, v = self.cut(qkv)
        return self.join(
            einsum(
                (einsum(q, k, "b h i d, b h j d -> b h i j") / EACH**0.5).softmax(-1), v, "b h i j, b h j d -> b h i d"
            )
        )


def all_einops(*faults):
    """One nn.Sequential, every axis named, the class token a layer of its own."""
    cut = "b n (three h d) -> three b h n d"
    join = "b h n d -> b n (h d)"

    class Prepend(nn.Module):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.randn(3, WIDE))  # a class token and two registers

        def forward(self, x):
            return pack([repeat(self.extra, "n d -> b n d", b=len(x)), x], "b * d")[0]

    class Place(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.table = nn.Parameter(torch.randn(count, WIDE) / 50)

        def forward(self, x):
            return x + self.table

    class Read(nn.Module):
        def forward(self, x):
            return x[:, 3] if "fourth" in faults else reduce(x[:, :1], "b 1 d -> b d", "sum")

    def block():
        norm = lambda: nn.LayerNorm((PATCHES + 3, WIDE)) if "joint norm" in faults else nn.LayerNorm(WIDE)  # noqa: E731
        attention = (norm(), nn.Linear(WIDE, 3 * WIDE), Attend(cut, join), nn.Linear(WIDE, WIDE))
        hidden = (nn.Linear(WIDE, 96), nn.GELU(), nn.Linear(96, WIDE))
        if "gelu first" in faults:
            hidden = (nn.GELU(), nn.Linear(WIDE, 96), nn.Linear(96, WIDE))
        return nn.Sequential(Residual(*attention), Residual(norm(), *hidden, twice="twice" in faults))

    grid = "b c (h p) (w q) -> b (h w) (p q c)"
    if "strided" in faults:
        grid = "b c (p h) (q w) -> b (h w) (p q c)"
    return nn.Sequential(
        Rearrange(grid, p=P, q=P), nn.Linear(P * P * C, WIDE), Place(PATCHES), Prepend(),
        *(block() for _ in range(LAYERS)), nn.LayerNorm(WIDE), Read(), nn.Linear(WIDE, K),
    )  # fmt: skip


class FusedBlock(nn.Module):
    """One matrix makes queries, keys, values and the hidden layer, one joins them, as in PaLM and ViT-22B."""

    def __init__(self, faults):
        super().__init__()
        self.faults, self.sizes = faults, (WIDE, WIDE, WIDE, 64)
        self.norm, self.fused_in = nn.LayerNorm(WIDE, bias=False), nn.Linear(WIDE, sum(self.sizes), bias=False)
        self.q_norm, self.k_norm = nn.RMSNorm(EACH), nn.RMSNorm(EACH)
        self.fused_out = nn.Linear(WIDE + 64, WIDE)

    def forward(self, x):
        q, k, v, hidden = self.fused_in(self.norm(x)).split(self.sizes, dim=-1)
        if "keys for values" in self.faults:
            v = k
        q, k, v = (t.unflatten(-1, (HEADS, EACH)).transpose(1, 2) for t in (q, k, v))
        if "batch" in self.faults:
            q, k, v = (t.transpose(0, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(self.q_norm(q), self.k_norm(k), v)
        y = (y.transpose(0, 2) if "batch" in self.faults else y).transpose(1, 2).flatten(2)
        return x + self.fused_out(torch.cat([y, F.gelu(hidden)], dim=-1))


class Fused(nn.Module):
    def __init__(self, *faults):
        super().__init__()
        self.faults = faults
        self.proj = nn.Conv2d(C, WIDE, P, P, bias=False)
        y, x = torch.meshgrid(torch.arange(ROWS), torch.arange(COLUMNS), indexing="ij")
        waves = torch.stack([y, x]).flatten(1).T.float()[:, :, None] / 10 ** torch.linspace(0, 2, WIDE // 4)
        self.register_buffer("waves", torch.cat([waves.sin(), waves.cos()], -1).flatten(1), persistent=False)
        self.blocks = nn.ModuleList(FusedBlock(faults) for _ in range(LAYERS))
        self.query, self.norm, self.head = nn.Parameter(torch.randn(1, 1, WIDE)), nn.LayerNorm(WIDE), nn.Linear(WIDE, K)
        if "drop" in faults:
            self.drop = 0.1

    def forward(self, images):
        x = self.proj(images).flatten(2).mT + self.waves
        for block in self.blocks:
            x = block(F.dropout(x, self.drop) if "drop" in self.faults else x)
        x = self.norm(x)
        pooled = F.scaled_dot_product_attention(self.query.expand(len(x), -1, -1), x, x)[:, 0]
        logits = self.head(pooled)
        return torch.sigmoid(logits) if "sigmoid" in self.faults else logits


class LatentQueries(nn.Module):
    """A few learned vectors ask the patches and then each other, as in Perceiver."""

    def __init__(self):
        super().__init__()
        self.patches, self.places = nn.Linear(C * P * P, WIDE), nn.Parameter(0.02 * torch.randn(PATCHES, WIDE))
        self.latents = nn.Parameter(0.02 * torch.randn(5, WIDE))
        self.cross = nn.MultiheadAttention(WIDE, HEADS, batch_first=True)
        self.norm_q, self.norm_kv = nn.LayerNorm(WIDE), nn.LayerNorm(WIDE)
        layer = nn.TransformerEncoderLayer(WIDE, HEADS, 64, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.steps = nn.ModuleList([layer, nn.TransformerEncoderLayer(WIDE, HEADS, 64, 0.0, F.gelu, 1e-6, True, True)])
        self.head = nn.Sequential(nn.LayerNorm(WIDE), nn.Linear(WIDE, K))

    def forward(self, images):
        x = F.unfold(images, P, stride=P).transpose(1, 2)
        x, z = self.patches(x) + self.places, self.latents.expand(len(images), -1, -1)
        keys = self.norm_kv(x)
        z = z + self.cross(self.norm_q(z), keys, keys, need_weights=False)[0]
        for layer in self.steps:
            z = layer(z)
        return self.head(z.mean(dim=1))


class LinearAttention(nn.Module):
    """No softmax: elu + 1, keys and values first (Katharopoulos et al. 2020)."""

    def __init__(self):
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(WIDE), nn.Linear(WIDE, 3 * WIDE), nn.Linear(WIDE, WIDE)

    def forward(self, x):
        q, k, v = rearrange(self.mix(self.norm(x)), "b t (s h d) -> s b h t d", s=3, h=HEADS)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        top, below = q @ (k.mT @ v), (q * k.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        return x + self.out(rearrange(top / below, "b h t d -> b t (h d)"))


class TanhNorm(nn.Module):
    """Dynamic Tanh in place of a norm (Zhu et al. 2025)."""

    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.tensor(0.5))
        self.gamma, self.beta = nn.Parameter(torch.ones(WIDE)), nn.Parameter(torch.zeros(WIDE))

    def forward(self, x):
        return self.gamma * torch.tanh(self.alpha * x) + self.beta


class Modern(nn.Module):
    """Parts of after 2021: linear attention, or softmax with tanh for its norms; layers drawn from a table."""

    def __init__(self, kind):
        super().__init__()
        self.tokenizer = nn.Conv2d(C, WIDE, P, P)
        self.spots = nn.Parameter(torch.zeros(1, PATCHES, WIDE).normal_(std=0.02))
        if kind == "linear":
            mix, norm = LinearAttention, lambda: nn.LayerNorm(WIDE)
        else:
            norm = TanhNorm

            def mix():
                cut = "b n (three h d) -> three b h n d"
                return Residual(
                    norm(), nn.Linear(WIDE, 3 * WIDE), Attend(cut, "b h n d -> b n (h d)"), nn.Linear(WIDE, WIDE)
                )

        feed = lambda: Residual(norm(), nn.Linear(WIDE, 64), nn.Hardswish(), nn.Linear(64, WIDE))  # noqa: E731
        self.tower = nn.Sequential(*(part() for _ in range(LAYERS) for part in (mix, feed)))
        self.last, self.fc = norm(), nn.Linear(WIDE, K)

    def forward(self, images):
        x = self.tokenizer(images).flatten(2).mT + self.spots
        return self.fc(self.last(self.tower(x)).mean(1))


RIGHT = {
    "Flax-like": FlaxLike,
    "sequence first": SequenceFirst,
    "on maps": OnMaps,
    "Llama-like": LlamaLike,
    "positions of queries": QueryPositions,
    "all einops": all_einops,
    "fused matrices": Fused,
    "latent queries": LatentQueries,
    "linear attention": lambda: Modern("linear"),
    "tanh for norms": lambda: Modern("tanh"),
}

# How to build it, and for each question that it fails a part of the suspect that it names: the true cause
WRONG = {
    "Flax-like, √T": (lambda: FlaxLike("by tokens"), {SCALE: "scale"}),
    "Flax-like, log-softmax": (lambda: FlaxLike("log"), {SHARES: "log_softmax"}),
    "Flax-like, class token last": (lambda: FlaxLike("class token last"), {READ: "wrong index"}),
    "sequence first, never turned": (
        lambda: SequenceFirst("never turned"),
        {"images_count": "attention over the batch"},
    ),
    "sequence first, one id": (lambda: SequenceFirst("one id"), {ORDER: "positions", IDLE: "positions"}),
    "sequence first, causal": (lambda: SequenceFirst("causal"), {"tokens_see_the_later_ones": "causal"}),
    "on maps, columns": (lambda: OnMaps("columns"), {SUMS: "over the queries"}),
    "on maps, batch statistics": (lambda: OnMaps("batch"), {MIX: "batch statistics"}),
    "on maps, no GELU": (lambda: OnMaps("linear"), {MLPS: "GELU is missing"}),
    "on maps, no residual": (lambda: OnMaps("no residual"), {ADDS: "residual"}),
    "Llama-like, unscaled": (lambda: LlamaLike("unscaled"), {SCALE: "no scale"}),
    "Llama-like, unturned": (lambda: LlamaLike("unturned"), {HEADS_WHOLE: "heads joined"}),
    "positions of queries, one place": (lambda: QueryPositions("one place"), {ORDER: "positions"}),
    "positions of queries, dropout": (lambda: QueryPositions("always"), {DRAWN: "F.dropout"}),
    "all einops, fourth token": (lambda: all_einops("fourth"), {READ: "wrong index"}),
    "all einops, joint norm": (lambda: all_einops("joint norm"), {NORMS: "LayerNorm((T, D))"}),
    "all einops, GELU first": (lambda: all_einops("gelu first"), {MLPS: "GELU"}),
    "all einops, residual twice": (lambda: all_einops("twice"), {ADDS: "twice"}),
    "all einops, strided": (lambda: all_einops("strided"), {CUT: "view or reshape"}),
    "fused, keys for values": (lambda: Fused("keys for values"), {IDLE: "taken twice"}),
    "fused, batch": (lambda: Fused("batch"), {MIX: "attention over the batch"}),
}
UNSEEN = {}
TWICE_WRONG = {
    "Llama-like, causal, no norm": (
        lambda: LlamaLike("causal", "no norm"),
        {"tokens_see_the_later_ones": "causal", LAST: "last LayerNorm", IDLE: "last LayerNorm"},
    ),
    "fused, dropout, sigmoid": (lambda: Fused("drop", "sigmoid"), {DRAWN: "F.dropout", SHARES: "sigmoid"}),
    "on maps, columns, no residual": (
        lambda: OnMaps("columns", "no residual"),
        {SUMS: "over the queries", ADDS: "residual"},
    ),
}

"""What must hold of the parts of a Vision Transformer, from attention to the whole model.

Each check takes one implementation of a part (a function, or a class of modules) and raises AssertionError where it is
wrong. The tests demand them of the package, and demand that each rejects the mistakes that it is there for.
"""

import inspect
import itertools
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.attention import attention as right_attention
from vitbook.patches import PatchEmbedding
from vitbook.patches import patchify as right_patchify
from vitbook_workshop.faults.recorders.operations import attentions_of
from vitbook_workshop.faults.small_examples import (
    HEADS,
    HEIGHT,
    HIDDEN,
    WIDTH,
    B,
    C,
    D,
    K,
    N,
    P,
    S,
    T,
    build,
    close,
    copy_weights,
    differ,
    images,
    layer_norm,
    same_map,
    shake,
    small_config,
    transformer_and_words,
)

# Attention: implementations are functions (q, k, v, mask=None) → (output, weights)


def _masks() -> list[Tensor | None]:
    """None; one for all; one for each head; one in which a query may look nowhere; the padding's, (B, 1, 1, S)."""
    one = torch.rand(T, S) < 0.5
    nowhere = one & (torch.arange(T) != 2)[:, None]
    padding = torch.arange(S) < torch.tensor([3, S])[:, None, None, None]
    return [None, one, torch.rand(B, HEADS, T, S) < 0.5, nowhere, padding]


def _queries_keys_values() -> tuple[Tensor, Tensor, Tensor]:
    """Queries (B, h, T, 4), keys (B, h, S, 4) and values (B, h, S, 6)."""
    return torch.randn(B, HEADS, T, 4), torch.randn(B, HEADS, S, 4), torch.randn(B, HEADS, S, 6)


def attention_equals_torch(attention: Callable) -> None:
    """Output and gradients are those of torch's kernel, under every kind of mask."""
    for mask in _masks():
        torch_attention = partial(F.scaled_dot_product_attention, attn_mask=mask)
        same_map(lambda *qkv, mask=mask: attention(*qkv, mask)[0], torch_attention, *_queries_keys_values())


def weights_sum_to_one(attention: Callable) -> None:
    """Weights are shares: at least 0, and 1 in sum for every query that may look somewhere."""
    for mask in _masks():
        _, weights = attention(*_queries_keys_values(), mask)
        looks_somewhere = torch.ones(()) if mask is None else mask.any(dim=-1).to(weights.dtype)
        assert (weights >= 0).all()
        close(weights.sum(dim=-1), looks_somewhere.expand(B, HEADS, T))


def hidden_keys_do_not_leak(attention: Callable) -> None:
    """A key that is hidden from all queries has weight 0, and no influence."""
    q, k, v = torch.randn(T, 4), torch.randn(S, 4), torch.randn(S, 6)
    mask = (torch.arange(S) != 3).expand(T, S)
    output, weights = attention(q, k, v, mask)
    assert (weights[:, 3] == 0).all()
    k[3], v[3] = 100 * torch.randn(4), 100 * torch.randn(6)
    close(attention(q, k, v, mask)[0], output)
    v[4] += 1
    assert differ(attention(q, k, v, mask)[0], output), "what is not hidden is seen"


# Multi-head attention: implementations are classes (dim, num_heads, qkv_bias=True), parameters as in the package


def multihead_equals_torch(multihead: Callable) -> None:
    """With the same weights, outputs and gradients are those of `nn.MultiheadAttention`, masks and all."""
    for bias in (True, False):
        ours = shake(multihead(D, HEADS, qkv_bias=bias))
        theirs = nn.MultiheadAttention(D, HEADS, batch_first=True)
        nn.init.zeros_(theirs.in_proj_bias)
        weights = [(ours.qkv.weight, theirs.in_proj_weight), (ours.proj.weight, theirs.out_proj.weight)]
        weights += [(ours.qkv.bias, theirs.in_proj_bias)] * bias + [(ours.proj.bias, theirs.out_proj.bias)]
        copy_weights(weights)
        for mask in (None, torch.rand(T, T).add(torch.eye(T)) > 0.5):
            same_map(
                lambda x, ours=ours, mask=mask: ours(x, mask),
                lambda x, theirs=theirs, mask=mask: theirs(x, x, x, attn_mask=None if mask is None else ~mask)[0],
                torch.randn(B, T, D),
                weights=weights,
            )


# Modules on tokens: implementations are classes of modules (B, T, D) → (B, T, D)


def tokens_have_no_order(layer: Callable) -> None:
    """Permuted tokens give permuted outputs."""
    module, x, order = shake(build(layer)), torch.randn(B, T, D), torch.tensor([3, 0, 4, 1, 2])
    close(module(x[:, order]), module(x)[:, order])


def images_do_not_mix(layer: Callable) -> None:
    """What comes out for an example does not depend on the others of its batch."""
    module, x = shake(build(layer)), torch.randn(B, T, D)
    close(module(x)[:1], module(x[:1]))
    close(module(x.flip(0)), module(x).flip(0))


def backward_runs(layer: Callable) -> None:
    """A gradient reaches what went in."""
    x = torch.randn(B, T, D, requires_grad=True)
    try:
        build(layer).train()(x).sum().backward()
    except RuntimeError as error:
        raise AssertionError(str(error)) from None
    assert x.grad is not None


def every_dropout_acts(layer: Callable) -> None:
    """Each of the probabilities alone makes two calls in training differ."""
    arguments = inspect.signature(layer).parameters
    for name in {"dropout", "attention_dropout"} & set(arguments):
        module, x = shake(build(layer, **{name: 0.5})), torch.randn(B, T, D)
        assert differ(module(x), module(x)), f"{name} has no effect"


def evaluation_is_deterministic(layer: Callable) -> None:
    """Two calls differ in training, where dropout acts, and are the same after `eval()`."""
    module, x = shake(build(layer, dropout=0.4, attention_dropout=0.3)), torch.randn(B, T, D)
    assert differ(module(x), module(x)), "dropout acts in training"
    module.eval()
    assert torch.equal(module(x), module(x))


# Masks: implementations are the functions that make them


def only_the_past_is_seen(causal_mask: Callable) -> None:
    """Implementations are functions T → (T, T), boolean: True up to the diagonal."""
    mask = causal_mask(T)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[key <= query for key in range(T)] for query in range(T)]


def only_words_are_seen(padding_mask: Callable) -> None:
    """Implementations are functions (integers (B, T), padding) → (B, 1, 1, T), boolean: True at words."""
    mask = padding_mask(torch.tensor([[4, 2, 9, 9], [9, 5, 3, 1]]), 9)
    assert mask.tolist() == [[[[True, True, False, False]]], [[[False, True, True, True]]]]


# The Transformer of 2017: implementations are classes (vocab_size, dim, depth, num_heads, hidden_dim, padding)


def the_future_does_not_leak(transformer: Callable) -> None:
    """Later words of the target change no earlier logits, and change those of their own place."""
    model, source, target = transformer_and_words(transformer)
    scores = model(source, target)
    for t in range(1, T):
        changed = target.clone()
        changed[:, t:] = (changed[:, t:] + 3) % 10 + 1
        close(model(source, changed)[:, :t], scores[:, :t])
        assert differ(model(source, changed)[:, t], scores[:, t]), "each position sees its own word"


def padding_does_not_leak(transformer: Callable) -> None:
    """More padding behind a source changes nothing, nor does what the padding's vector is."""
    model, source, target = transformer_and_words(transformer)
    scores = model(source, target)
    padded = F.pad(source, (0, 2))
    close(model(padded, target), scores)
    with torch.no_grad():
        model.source_embedding.weight[0] += 5
    close(model(padded, target), scores)


# Patches


def patchify_equals_loops(patchify: Callable) -> None:
    """Implementations are functions (images, patch_size) → (B, N, P²C); every number is where loops put it."""
    x = images()
    for p in (2, P):
        corners = itertools.product(range(0, HEIGHT, p), range(0, WIDTH, p))
        inside = list(itertools.product(range(C), range(p), range(p)))
        patches = [torch.stack([x[:, c, y + i, z + j] for c, i, j in inside], dim=1) for y, z in corners]
        assert torch.equal(patchify(x, p), torch.stack(patches, dim=1))


def unpatchify_undoes_patchify(unpatchify: Callable) -> None:
    """Implementations are functions (patches, patch_size, (height, width)) → (B, C, H, W)."""
    x = images()
    for p in (1, 2, P):
        assert torch.equal(unpatchify(right_patchify(x, p), p, (HEIGHT, WIDTH)), x)


def convolution_equals_linear(embedding: Callable) -> None:
    """Implementations are classes (patch_size, channels, dim) with a convolution `proj`."""
    ours, linear = embedding(P, C, D), nn.Linear(C * P * P, D)
    copy_weights([(ours.proj.weight.flatten(1), linear.weight), (ours.proj.bias, linear.bias)])
    weights = [(ours.proj.weight, linear.weight), (ours.proj.bias, linear.bias)]
    same_map(ours, lambda x: linear(right_patchify(x, P)), images(), weights=weights)


# Positions and Equation 1


def sincos_equals_formula(sincos: Callable) -> None:
    """Implementations are functions (T, D) → (T, D)."""
    angles = [[t / 10_000 ** (2 * i / D) for i in range(D // 2)] for t in range(T)]
    expected = [[f(angle) for angle in row for f in (math.sin, math.cos)] for row in angles]
    close(sincos(T, D), torch.tensor(expected))


def _equation_1(embedding: nn.Module, x: Tensor) -> Tensor:
    """z₀ of images, from the parameters of an `ImageEmbedding`. (B, C, H, W) → (B, N + 1, D)."""
    proj = embedding.patch_embed.proj
    patches = F.linear(right_patchify(x, P), proj.weight.flatten(1), proj.bias)
    return torch.cat([embedding.cls_token.repeat(B, 1, 1), patches], dim=1) + embedding.positions.pos_embed


def embedding_equals_equation_1(embedding: Callable) -> None:
    """Implementations are classes with the arguments of `ImageEmbedding`."""
    ours, x = shake(embedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D)), images()
    close(ours(x), _equation_1(ours, x))


def every_batch_size_will_do(embedding: Callable) -> None:
    """Implementations are classes with the arguments of `ImageEmbedding`; no parameter has a batch axis."""
    module = embedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D)
    assert (module.cls_token.shape, module.positions.pos_embed.shape) == ((1, 1, D), (1, N + 1, D))
    for batch in (1, B, 3):
        assert module(images(batch)).shape == (batch, N + 1, D)


def parameters_play_a_part(embedding: Callable) -> None:
    """Implementations are classes with the arguments of `ImageEmbedding`; a gradient reaches all of Equation 1."""
    ours = embedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D)
    ours(images()).square().sum().backward()
    learned = {name for name, parameter in ours.named_parameters() if parameter.grad is not None}
    assert learned == {"cls_token", "positions.pos_embed", "patch_embed.proj.weight", "patch_embed.proj.bias"}


# The encoder


def each_token_is_normalized(norm: Callable) -> None:
    """Implementations are classes of norms (dim): each token has mean 0 and variance 1, divided by D, afterwards."""
    tokens = 3 * torch.randn(B, T, D) + 2
    y = norm(D)(tokens)
    close(y.mean(dim=-1), torch.zeros(B, T))
    torch.testing.assert_close(y.var(dim=-1, correction=0), torch.ones(B, T), rtol=0, atol=1e-4)  # eps shows


def sizes_follow_the_arguments(block: Callable) -> None:
    """4D² + 4D in the attention, 2DM + M + D in the MLP of hidden width M, 4D in the two norms."""
    for dim, hidden in ((D, HIDDEN), (HIDDEN, D)):
        parameters = sum(p.numel() for p in block(dim, 2, hidden).parameters())
        assert parameters == 4 * dim**2 + 4 * dim + 2 * dim * hidden + hidden + dim + 4 * dim


def block_equals_torch(block: Callable) -> None:
    """Implementations are classes (dim, num_heads, mlp_dim), parameters as in the package."""
    ours = shake(block(D, HEADS, HIDDEN))
    theirs = nn.TransformerEncoderLayer(
        *(D, HEADS, HIDDEN), dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    their_names = {
        "norm1": "norm1.",
        "attn.qkv": "self_attn.in_proj_",
        "attn.proj": "self_attn.out_proj.",
        "norm2": "norm2.",
        "mlp.fc1": "linear1.",
        "mlp.fc2": "linear2.",
    }
    pairs = [
        (ours.get_parameter(f"{our_name}.{kind}"), theirs.get_parameter(their_name + kind))
        for our_name, their_name in their_names.items()
        for kind in ("weight", "bias")
    ]
    copy_weights(pairs)
    for scale in (1.0, 1e-3):  # in small numbers LayerNorm's eps shows
        same_map(ours, theirs, scale * torch.randn(B, T, D), weights=pairs)


# The whole model: implementations are classes (config)


def equations_hold(vit: Callable) -> None:
    """Features and logits are those of the four equations, written out."""
    model, x = shake(vit(small_config())), images()
    z = _equation_1(model.embedding, x)
    for block in model.encoder.blocks:
        msa, mlp = block.attn, block.mlp
        q, k, v = F.linear(layer_norm(z, block.norm1), msa.qkv.weight, msa.qkv.bias).split(D, dim=-1)
        slices = [slice(i, i + D // HEADS) for i in range(0, D, D // HEADS)]
        heads = [right_attention(q[..., cut], k[..., cut], v[..., cut])[0] for cut in slices]
        z = F.linear(torch.cat(heads, dim=-1), msa.proj.weight, msa.proj.bias) + z  # Eq. 2
        hidden = F.gelu(F.linear(layer_norm(z, block.norm2), mlp.fc1.weight, mlp.fc1.bias))
        z = F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias) + z  # Eq. 3
    y = layer_norm(z[:, 0], model.norm)  # Eq. 4
    close(model.features(x), y)
    close(model(x), F.linear(y, model.head.weight, model.head.bias))


def mean_pooling_ignores_the_class_token(vit: Callable) -> None:
    """With no block to mix the tokens, the features are the mean of the patches."""
    model = shake(vit(small_config(pool="mean", depth=1)))
    model.encoder = nn.Identity()
    before = model(x := images())
    with torch.no_grad():
        model.embedding.cls_token += torch.randn(D)
    close(model(x), before)
    close(model.features(x), model.tokens(x)[:, 1:].mean(dim=1))


def blocks_start_different(vit: Callable) -> None:
    """No two blocks begin with the same weights, as copies of one would."""
    blocks = vit(small_config(depth=3)).encoder.blocks
    assert len(blocks) == 3
    for name, weight in blocks[0].named_parameters():
        starts = [block.get_parameter(name) for block in blocks]
        assert weight.ndim == 1 or all(differ(*pair) for pair in itertools.combinations(starts, 2)), name


def norms_start_at_one(vit: Callable) -> None:
    """Before any training a norm's gain is 1, and leaves the tokens normalized."""
    gains = [m.weight for m in vit(small_config()).modules() if isinstance(m, nn.LayerNorm)]
    assert gains and all((gain == 1).all() for gain in gains)


def attention_starts_soft(vit: Callable) -> None:
    """Before any training no query gives nearly all of its attention to one key."""
    model, x = vit(small_config()), images()
    for seen in attentions_of(lambda: model(x)):
        assert seen.peak < 0.8


def order_counts(vit: Callable) -> None:
    """Images whose patches have exchanged places get other logits."""
    model, x = shake(vit(small_config())), images()
    assert differ(model(x), model(x.roll((P, P), dims=(2, 3))))


def logits_are_no_probabilities(vit: Callable) -> None:
    """The softmax belongs to the loss: logits may be negative, and their sum is free."""
    scores = shake(vit(small_config()))(images())
    ones = torch.ones(B)
    assert (scores < 0).any() or differ(scores.sum(dim=-1), ones)
    assert (scores > 0).any() or differ(scores.exp().sum(dim=-1), ones)


def no_logit_is_dropped(vit: Callable) -> None:
    """In training, dropout may change a logit, and makes none 0."""
    model = shake(vit(small_config())).train()
    assert (model(images(100)) != 0).all()


def first_loss_is_near_ln_k(vit: Callable) -> None:
    """Before any training the K classes are equally likely."""
    loss = F.cross_entropy(vit(small_config())(images()), torch.randint(K, (B,)))
    close(loss, torch.tensor(math.log(K)))

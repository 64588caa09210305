"""What must hold of every part of a Vision Transformer, as functions of an implementation of that part.

Each takes one implementation (a function, or what makes a module) and raises AssertionError where it is wrong. The
tests demand them of the package, and demand that each rejects the mistakes in `faults.mistakes` that it is there for.
Random numbers are drawn from torch's own generator, in torch's default dtype; the sizes all differ, so that no
transpose can hide.
"""

import inspect
import itertools
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.attention import attention as right_attention
from vitbook.mae import add_mask_tokens
from vitbook.modern import ModernConfig
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.patches import PatchEmbedding
from vitbook.patches import patchify as right_patchify
from vitbook.training import parameter_groups
from vitbook.vit import VisionTransformer, ViTConfig

B, T, S, D, HEADS, HIDDEN = 2, 5, 7, 12, 3, 20  # T tokens, S tokens to look at, D/HEADS = 4
C, HEIGHT, WIDTH, P = 3, 8, 12, 4  # a grid of 2 rows and 3 columns
GRID = (2, 3)
N, K = 6, 9  # patches, classes

TOLERANCE = {torch.float64: {"rtol": 1e-9, "atol": 1e-10}, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


# Tools


def _close(got: Tensor, expected: Tensor) -> None:
    """Assert the same numbers, to the tolerance of their dtype."""
    torch.testing.assert_close(got, expected, **TOLERANCE[got.dtype])


def _differ(one: Tensor, other: Tensor) -> bool:
    """Not the same numbers, by more than rounding."""
    same_kind = one.device == other.device and one.shape == other.shape
    return not (same_kind and torch.allclose(one, other, rtol=1e-4, atol=1e-6))


def _same_map(ours: Callable, theirs: Callable, *inputs: Tensor, weights: Iterable[tuple[Tensor, Tensor]] = ()) -> None:
    """Same outputs, and same gradients for the inputs and for pairs (ours, theirs) of weights in the same order."""
    leaves = [(x.detach().clone().requires_grad_(),) * 2 for x in inputs]
    sides = list(zip(*leaves, *weights, strict=True))
    outputs = [function(*side[: len(inputs)]) for function, side in zip((ours, theirs), sides, strict=True)]
    _close(*outputs)
    direction = torch.linspace(-1, 2, outputs[0].numel()).view_as(outputs[0])
    gradients = [torch.autograd.grad(output, side, direction) for output, side in zip(outputs, sides, strict=True)]
    for our_gradient, their_gradient in zip(*gradients, strict=True):
        _close(our_gradient.flatten(), their_gradient.flatten())


@torch.no_grad()
def _copy_weights(pairs: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Put our weights into theirs."""
    for our_weight, their_weight in pairs:
        their_weight.copy_(our_weight)


@torch.no_grad()
def _shake(module: nn.Module) -> nn.Module:
    """Give every parameter random values, so that no zero and no one hides a mistake."""
    for parameter in module.parameters():
        parameter.normal_(std=0.3).add_(0.1)
    return module


def _build(layer: Callable, **settings: Any) -> nn.Module:
    """A module from its class, with this page's sizes for those of its arguments that need one."""
    sizes = dict(dim=D, embed_dim=D, num_heads=HEADS, mlp_dim=HIDDEN, hidden_dim=HIDDEN, depth=3)
    arguments = inspect.signature(layer).parameters
    return layer(**{name: value for name, value in (sizes | settings).items() if name in arguments})


def _images(batch: int = B) -> Tensor:
    """Images of random numbers. (B, C, H, W)."""
    return torch.randn(batch, C, HEIGHT, WIDTH)


def _small_config(**changes: Any) -> ViTConfig:
    """A small ViT's config, with other fields where they are given."""
    sizes = dict(image_size=(HEIGHT, WIDTH), patch_size=P, channels=C, num_classes=K, dim=D, depth=2)
    return ViTConfig(**sizes | dict(num_heads=HEADS, mlp_dim=HIDDEN) | changes)


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
        _same_map(lambda *qkv, mask=mask: attention(*qkv, mask)[0], torch_attention, *_queries_keys_values())


def rows_sum_to_one(attention: Callable) -> None:
    """Weights are shares: at least 0, and 1 in sum for every query that may look somewhere."""
    for mask in _masks():
        _, weights = attention(*_queries_keys_values(), mask)
        looks_somewhere = torch.ones(()) if mask is None else mask.any(dim=-1).to(weights.dtype)
        assert (weights >= 0).all()
        _close(weights.sum(dim=-1), looks_somewhere.expand(B, HEADS, T))


def hidden_keys_do_not_leak(attention: Callable) -> None:
    """A key that is hidden from all queries has weight 0, and no influence."""
    q, k, v = torch.randn(T, 4), torch.randn(S, 4), torch.randn(S, 6)
    mask = (torch.arange(S) != 3).expand(T, S)
    output, weights = attention(q, k, v, mask)
    assert (weights[:, 3] == 0).all()
    k[3], v[3] = 100 * torch.randn(4), 100 * torch.randn(6)
    _close(attention(q, k, v, mask)[0], output)
    v[4] += 1
    assert _differ(attention(q, k, v, mask)[0], output), "what is not hidden is seen"


# Multi-head attention: implementations are classes (dim, num_heads, qkv_bias=True), parameters as in the package


def multihead_equals_torch(multihead: Callable) -> None:
    """With the same weights, outputs and gradients are those of `nn.MultiheadAttention`, masks and all."""
    for bias in (True, False):
        ours = _shake(multihead(D, HEADS, qkv_bias=bias))
        theirs = nn.MultiheadAttention(D, HEADS, batch_first=True)
        nn.init.zeros_(theirs.in_proj_bias)
        weights = [(ours.qkv.weight, theirs.in_proj_weight), (ours.proj.weight, theirs.out_proj.weight)]
        weights += [(ours.qkv.bias, theirs.in_proj_bias)] * bias + [(ours.proj.bias, theirs.out_proj.bias)]
        _copy_weights(weights)
        for mask in (None, torch.rand(T, T).add(torch.eye(T)) > 0.5):
            _same_map(
                lambda x, ours=ours, mask=mask: ours(x, mask),
                lambda x, theirs=theirs, mask=mask: theirs(x, x, x, attn_mask=None if mask is None else ~mask)[0],
                torch.randn(B, T, D),
                weights=weights,
            )


# Modules on tokens: implementations are classes of modules (B, T, D) → (B, T, D)


def tokens_have_no_order(layer: Callable) -> None:
    """Permuted tokens give permuted outputs."""
    module, x, order = _shake(_build(layer)), torch.randn(B, T, D), torch.tensor([3, 0, 4, 1, 2])
    _close(module(x[:, order]), module(x)[:, order])


def examples_do_not_mix(layer: Callable) -> None:
    """What comes out for an example does not depend on the others of its batch."""
    module, x = _shake(_build(layer)), torch.randn(B, T, D)
    _close(module(x)[:1], module(x[:1]))
    _close(module(x.flip(0)), module(x).flip(0))


def every_dropout_acts(layer: Callable) -> None:
    """Each of the probabilities alone makes two calls in training differ."""
    arguments = inspect.signature(layer).parameters
    for name in {"dropout", "attention_dropout"} & set(arguments):
        module, x = _shake(_build(layer, **{name: 0.5})), torch.randn(B, T, D)
        assert _differ(module(x), module(x)), f"{name} has no effect"


def eval_is_deterministic(layer: Callable) -> None:
    """Two calls differ in training, where dropout acts, and are the same after `eval()`."""
    module, x = _shake(_build(layer, dropout=0.4, attention_dropout=0.3)), torch.randn(B, T, D)
    assert _differ(module(x), module(x)), "dropout acts in training"
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


def _transformer_and_words(transformer: Callable) -> tuple[nn.Module, Tensor, Tensor]:
    """A small Transformer, a source (B, S) and a target (B, T) without padding."""
    source, target = torch.randint(1, 11, (B, S)), torch.randint(1, 11, (B, T))
    return _shake(transformer(11, D, 2, HEADS, HIDDEN, padding=0)), source, target


def the_future_does_not_leak(transformer: Callable) -> None:
    """Later words of the target change no earlier logits, and change those of their own place."""
    model, source, target = _transformer_and_words(transformer)
    scores = model(source, target)
    for t in range(1, T):
        changed = target.clone()
        changed[:, t:] = (changed[:, t:] + 3) % 10 + 1
        _close(model(source, changed)[:, :t], scores[:, :t])
        assert _differ(model(source, changed)[:, t], scores[:, t]), "each position sees its own word"


def padding_does_not_leak(transformer: Callable) -> None:
    """More padding behind a source changes nothing, nor does what the padding's vector is."""
    model, source, target = _transformer_and_words(transformer)
    scores = model(source, target)
    padded = F.pad(source, (0, 2))
    _close(model(padded, target), scores)
    with torch.no_grad():
        model.source_embedding.weight[0] += 5
    _close(model(padded, target), scores)


# Patches


def patchify_equals_loops(patchify: Callable) -> None:
    """Implementations are functions (images, patch_size) → (B, N, P²C); every number is where loops put it."""
    x = _images()
    for p in (2, P):
        corners = itertools.product(range(0, HEIGHT, p), range(0, WIDTH, p))
        inside = list(itertools.product(range(C), range(p), range(p)))
        patches = [torch.stack([x[:, c, y + i, z + j] for c, i, j in inside], dim=1) for y, z in corners]
        assert torch.equal(patchify(x, p), torch.stack(patches, dim=1))


def unpatchify_undoes_patchify(unpatchify: Callable) -> None:
    """Implementations are functions (patches, patch_size, (height, width)) → (B, C, H, W)."""
    x = _images()
    for p in (1, 2, P):
        assert torch.equal(unpatchify(right_patchify(x, p), p, (HEIGHT, WIDTH)), x)


def convolution_equals_linear(embedding: Callable) -> None:
    """Implementations are classes (patch_size, channels, dim) with a convolution `proj`."""
    ours, linear = embedding(P, C, D), nn.Linear(C * P * P, D)
    _copy_weights([(ours.proj.weight.flatten(1), linear.weight), (ours.proj.bias, linear.bias)])
    weights = [(ours.proj.weight, linear.weight), (ours.proj.bias, linear.bias)]
    _same_map(ours, lambda x: linear(right_patchify(x, P)), _images(), weights=weights)


# Positions and Equation 1


def sincos_equals_formula(sincos: Callable) -> None:
    """Implementations are functions (T, D) → (T, D)."""
    angles = [[t / 10_000 ** (2 * i / D) for i in range(D // 2)] for t in range(T)]
    expected = [[f(angle) for angle in row for f in (math.sin, math.cos)] for row in angles]
    _close(sincos(T, D), torch.tensor(expected))


def _equation_1(embedding: nn.Module, x: Tensor) -> Tensor:
    """z₀ of images, from the parameters of an `ImageEmbedding`. (B, C, H, W) → (B, N + 1, D)."""
    proj = embedding.patch_embed.proj
    patches = F.linear(right_patchify(x, P), proj.weight.flatten(1), proj.bias)
    return torch.cat([embedding.cls_token.repeat(B, 1, 1), patches], dim=1) + embedding.positions.pos_embed


def embedding_equals_equation_1(embedding: Callable) -> None:
    """Implementations are classes with the arguments of `ImageEmbedding`."""
    ours, x = _shake(embedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D)), _images()
    _close(ours(x), _equation_1(ours, x))


def parameters_fit_every_batch(embedding: Callable) -> None:
    """Implementations are classes with the arguments of `ImageEmbedding`; no parameter has a batch axis."""
    module = embedding(PatchEmbedding(P, C, D), (HEIGHT, WIDTH), D)
    assert (module.cls_token.shape, module.positions.pos_embed.shape) == ((1, 1, D), (1, N + 1, D))
    for batch in (1, B, 3):
        assert module(_images(batch)).shape == (batch, N + 1, D)


# The encoder


def _layer_norm(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """LayerNorm with eps 1e-6: each token's mean to 0 and its (biased) variance to 1."""
    return F.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, 1e-6)


def norm_makes_variance_one(norm: Callable) -> None:
    """Implementations are classes of norms (dim): each token has mean 0 and variance 1, divided by D, afterwards."""
    tokens = 3 * torch.randn(B, T, D) + 2
    y = norm(D)(tokens)
    _close(y.mean(dim=-1), torch.zeros(B, T))
    torch.testing.assert_close(y.var(dim=-1, correction=0), torch.ones(B, T), rtol=0, atol=1e-4)  # eps shows


def sizes_follow_the_arguments(block: Callable) -> None:
    """4D² + 4D in the attention, 2DM + M + D in the MLP of hidden width M, 4D in the two norms."""
    for dim, hidden in ((D, HIDDEN), (HIDDEN, D)):
        parameters = sum(p.numel() for p in block(dim, 2, hidden).parameters())
        assert parameters == 4 * dim**2 + 4 * dim + 2 * dim * hidden + hidden + dim + 4 * dim


def block_equals_torch(block: Callable) -> None:
    """Implementations are classes (dim, num_heads, mlp_dim), parameters as in the package."""
    ours = _shake(block(D, HEADS, HIDDEN))
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
    _copy_weights(pairs)
    for scale in (1.0, 1e-3):  # in small numbers LayerNorm's eps shows
        _same_map(ours, theirs, scale * torch.randn(B, T, D), weights=pairs)


# The whole model: implementations are classes (config)


def vit_equals_equations_1_to_4(vit: Callable) -> None:
    """Features and logits are those of the four equations, written out."""
    model, x = _shake(vit(_small_config())), _images()
    z = _equation_1(model.embedding, x)
    for block in model.encoder.blocks:
        msa, mlp = block.attn, block.mlp
        q, k, v = F.linear(_layer_norm(z, block.norm1), msa.qkv.weight, msa.qkv.bias).split(D, dim=-1)
        slices = [slice(i, i + D // HEADS) for i in range(0, D, D // HEADS)]
        heads = [right_attention(q[..., cut], k[..., cut], v[..., cut])[0] for cut in slices]
        z = F.linear(torch.cat(heads, dim=-1), msa.proj.weight, msa.proj.bias) + z  # Eq. 2
        hidden = F.gelu(F.linear(_layer_norm(z, block.norm2), mlp.fc1.weight, mlp.fc1.bias))
        z = F.linear(hidden, mlp.fc2.weight, mlp.fc2.bias) + z  # Eq. 3
    y = _layer_norm(z[:, 0], model.norm)  # Eq. 4
    _close(model.features(x), y)
    _close(model(x), F.linear(y, model.head.weight, model.head.bias))


def mean_pooling_ignores_the_class_token(vit: Callable) -> None:
    """With no block to mix the tokens, the features are the mean of the patches."""
    model = _shake(vit(_small_config(pool="mean", depth=1)))
    model.encoder = nn.Identity()
    before = model(x := _images())
    with torch.no_grad():
        model.embedding.cls_token += torch.randn(D)
    _close(model(x), before)
    _close(model.features(x), model.tokens(x)[:, 1:].mean(dim=1))


def blocks_start_different(vit: Callable) -> None:
    """No two blocks begin with the same weights, as copies of one would."""
    starts = [block.mlp.fc1.weight for block in vit(_small_config(depth=3)).encoder.blocks]
    assert len(starts) == 3 and all(_differ(*pair) for pair in itertools.combinations(starts, 2))


def the_order_of_patches_counts(vit: Callable) -> None:
    """Images whose patches have exchanged places get other logits."""
    model, x = _shake(vit(_small_config())), _images()
    assert _differ(model(x), model(x.roll((P, P), dims=(2, 3))))


def scores_are_no_probabilities(vit: Callable) -> None:
    """The softmax belongs to the loss: logits may be negative, and their sum is free."""
    scores = _shake(vit(_small_config()))(_images())
    assert (scores < 0).any() or _differ(scores.sum(dim=-1), torch.ones(B))


def first_loss_is_log_k(vit: Callable) -> None:
    """Before any training the K classes are equally likely."""
    loss = F.cross_entropy(vit(_small_config())(_images()), torch.randint(K, (B,)))
    _close(loss, torch.tensor(math.log(K)))


# Training


def _unequal_batches() -> list[tuple[Tensor, Tensor]]:
    """Seven examples in batches of 4 and 3."""
    x, labels = torch.randn(7, D), torch.randint(K, (7,))
    return [(x[:4], labels[:4]), (x[4:], labels[4:])]


def _classifier() -> nn.Module:
    """A small model (…, D) → (…, K) with dropout."""
    return nn.Sequential(nn.Linear(D, HIDDEN), nn.GELU(), nn.Dropout(0.5), nn.Linear(HIDDEN, K))


def epoch_equals_the_bare_loop(train_epoch: Callable) -> None:
    """Implementations are functions (model, batches, optimizer) → mean loss."""
    batches, ours, theirs = _unequal_batches(), _classifier().eval(), _classifier()
    theirs.load_state_dict(ours.state_dict())
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1)
    torch.manual_seed(3)
    losses = []
    for x, labels in batches:
        optimizer.zero_grad()
        losses += [F.cross_entropy(theirs(x), labels)] * len(labels)
        losses[-1].backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
    torch.manual_seed(3)
    loss = train_epoch(ours, batches, torch.optim.AdamW(ours.parameters(), lr=0.1))
    assert math.isclose(loss, sum(losses).item() / 7, rel_tol=1e-5)
    for our_parameter, their_parameter in zip(ours.parameters(), theirs.parameters(), strict=True):
        _close(our_parameter, their_parameter)


def evaluation_counts_each_example_once(evaluate: Callable) -> None:
    """Implementations are functions (model, batches) → something with loss and accuracy. Right: 4 of 4, then 1 of 3."""
    model = nn.Sequential(nn.Linear(K, K, bias=False), nn.Dropout(0.5))
    _copy_weights([(3 * torch.eye(K), model[0].weight)])
    labels = torch.tensor([0, 1, 2, 3, 4, 6, 7])
    x = torch.eye(K)[:7] + 0.1 * torch.rand(7, K)
    evaluation = evaluate(model, [(x[:4], labels[:4]), (x[4:], labels[4:])])
    assert math.isclose(evaluation.accuracy, 5 / 7)
    assert math.isclose(evaluation.loss, F.cross_entropy(3 * x, labels).item(), rel_tol=1e-5)


def evaluation_leaves_the_mode(evaluate: Callable) -> None:
    """Implementations are functions (model, batches); the model trains or evaluates afterwards as before."""
    for training in (True, False):
        model = _classifier().train(training)
        evaluate(model, _unequal_batches())
        assert [module.training for module in model.modules()] == [training] * 5


def only_matrices_decay(groups: Callable) -> None:
    """Implementations are functions (model, weight_decay) → parameter groups."""
    model = VisionTransformer(_small_config())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    decay = [(names[id(p)], group["weight_decay"]) for group in groups(model, 0.3) for p in group["params"]]
    assert sorted(name for name, _ in decay) == sorted(names.values()), "every parameter is there exactly once"
    matrix = ("proj.weight", "qkv.weight", "fc1.weight", "fc2.weight", "head.weight")
    assert dict(decay) == {name: 0.3 if name.endswith(matrix) else 0.0 for name in names.values()}


def decay_is_decoupled(optimizer: Callable) -> None:
    """Implementations are functions (parameter groups, lr) → optimizer. A matrix shrinks by 1 − lr·decay each step."""
    model = nn.Linear(D, K)
    weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
    stepper = optimizer(parameter_groups(model, weight_decay=0.5), lr=0.1)
    (0 * model(torch.randn(B, D)).sum()).backward()
    stepper.step()
    _close(model.weight.detach(), 0.95 * weight)
    _close(model.bias.detach(), bias)


def warmup_cosine_equals_formula(schedule: Callable) -> None:
    """Implementations are functions (step, total steps, steps of warm-up) → share of the peak."""
    up = [schedule(step, 20, 4) for step in range(4)]
    down = [schedule(step, 20, 4) for step in range(4, 21)]
    assert up == [0.25, 0.5, 0.75, 1.0]
    torch.testing.assert_close(down, [math.cos(math.pi / 2 * i / 16) ** 2 for i in range(17)], rtol=1e-12, atol=1e-12)


# Attention maps


def _some_weights() -> Tensor:
    """Attention of three blocks. (L, B, h, T, T) with T = N + 1, rows sum to 1."""
    return torch.randn(3, B, HEADS, N + 1, N + 1).mul(3).softmax(dim=-1)


def rollout_is_a_walk(rollout: Callable) -> None:
    """Implementations are functions (L, B, h, T, T) → (B, T, T).

    Rows are shares; without mixing, every token stays what it was; and tokens that look nowhere but at token 0 keep
    half of themselves in each of the three blocks.
    """
    _close(rollout(_some_weights()).sum(dim=-1), torch.ones(B, N + 1))
    identity = torch.eye(N + 1).expand(B, -1, -1)
    _close(rollout(identity.expand(3, HEADS, -1, -1, -1).transpose(1, 2)), identity)
    to_the_first = torch.zeros(3, B, HEADS, N + 1, N + 1)
    to_the_first[..., 0] = 1
    kept = rollout(to_the_first).diagonal(dim1=1, dim2=2)[:, 1:]
    _close(kept, torch.full((B, N), 1 / 8))


def every_image_has_its_own_map(patch_map: Callable) -> None:
    """Implementations are functions ((..., T, T), grid) → (..., rows, columns), the class token's row."""
    weights = _some_weights()
    maps = patch_map(weights, GRID)
    for place in itertools.product(range(3), range(B), range(HEADS)):
        _close(maps[place].flatten(), weights[place][0, 1:])


# Masked autoencoders


def patches_find_their_way_back(random_masking: Callable) -> None:
    """Implementations are functions (x, ratio, noise) → (visible, restore, hidden).

    The visible patches return to where they were, and the hidden ones, put in as zeros, to all other places.
    """
    x = torch.randn(B, S, D)
    visible, restore, hidden = random_masking(x, 0.6, torch.rand(B, S))
    assert visible.shape == (B, 3, D) and hidden.sum(dim=1).tolist() == [4] * B
    again = add_mask_tokens(visible, torch.zeros(1, 1, D), restore)
    _close(again, x.masked_fill(hidden[..., None], 0))


def hidden_patches_are_told_apart(autoencoder: Callable) -> None:
    """Implementations are classes (backbone, dim, depth, num_heads): no two hidden patches are painted alike."""
    model = _shake(autoencoder(VisionTransformer(_small_config()), 8, 2, 2, ratio=0.6)).eval()
    with torch.no_grad():
        predicted, hidden = model(_images())
    for patches in (predicted[i, hidden[i]] for i in range(B)):
        assert all(_differ(one, other) for one, other in itertools.combinations(patches, 2))


def only_hidden_patches_count(masked_loss: Callable) -> None:
    """Implementations are functions (predicted, targets, hidden): the mean over the hidden patches, one by one."""
    predicted, targets = torch.randn(B, S, D), torch.randn(B, S, D)
    hidden = torch.rand(B, S).argsort(dim=1) >= 3
    errors = [(predicted[i, n] - targets[i, n]).square().mean() for i, n in hidden.nonzero()]
    _close(masked_loss(predicted, targets, hidden), torch.stack(errors).mean())


# Agreement without labels


def a_common_answer_is_taken_away(teacher_probabilities: Callable) -> None:
    """Implementations are functions (logits, center, temperature): what all images share, the center, counts nothing.

    Adding the same to every logit vector and to the center changes nothing; each answer is a distribution.
    """
    logits, center, common = torch.randn(2, B, S) / 10, torch.randn(S) / 10, torch.randn(S)
    p = teacher_probabilities(logits, center, 0.1)
    _close(p.sum(dim=-1), torch.ones(2, B))
    _close(teacher_probabilities(logits + common, center + common, 0.1), p)


def a_teacher_is_as_sure_as_told(teacher_probabilities: Callable) -> None:
    """Implementations are functions (logits, center, temperature): log p of two answers differ as logits over τ do."""
    logits, center = torch.randn(2, B, S) / 10, torch.randn(S) / 10
    for temperature in (0.1, 0.5):
        log_p = teacher_probabilities(logits, center, temperature).log()
        _close((log_p - log_p[..., :1]) * temperature, logits - center - (logits - center)[..., :1])


def a_view_is_not_its_own_teacher(agreement_loss: Callable) -> None:
    """Implementations are functions (student, teacher, temperature): the mean over pairs of different views."""
    student, teacher = torch.randn(4, B, S), torch.randn(2, B, S).softmax(dim=-1)
    log_p = (student / 0.5).log_softmax(dim=-1)
    pairs = [(g, v) for g in range(2) for v in range(4) if g != v]
    expected = torch.stack([-(teacher[g] * log_p[v]).sum(dim=-1).mean() for g, v in pairs]).mean()
    _close(agreement_loss(student, teacher, 0.5), expected)


def a_round_cloud_is_left_alone(sigreg: Callable) -> None:
    """Implementations are functions (z, slices): normal vectors have about 1.06, and any other size has more."""
    z = torch.randn(200, D)
    own = sigreg(z, 200)
    assert 0.5 < own < 1.8
    assert all(sigreg(size * z, 200) > own for size in (0.3, 3))


# Any number of tokens


def packed_images_stay_apart(same_image: Callable) -> None:
    """Implementations are functions owner → mask: in a packed row, attention gives each sequence what it gets alone."""
    lengths = (2, 4, 3)
    x = torch.randn(1, sum(lengths) + 2, D)  # the last two are padding
    owner = torch.tensor([[*(i for i, length in enumerate(lengths) for _ in range(length)), -1, -1]])
    together = right_attention(x, x, x, same_image(owner).squeeze(1))[0]
    alone = [right_attention(part, part, part)[0] for part in x[:, :-2].split(lengths, dim=1)]
    _close(together[:, :-2], torch.cat(alone, dim=1))


def a_merged_key_counts_for_its_parts(proportional: Callable) -> None:
    """Implementations are functions (q, k, v, size): equal keys and values give the same merged as one by one."""
    q, k, v = torch.randn(B, HEADS, T, 4), torch.randn(B, HEADS, S, 4), torch.randn(B, HEADS, S, 4)
    size = torch.tensor([1, 3, 1, 2, 1, 1, 4])
    each = right_attention(q, k.repeat_interleave(size, dim=2), v.repeat_interleave(size, dim=2))[0]
    _close(proportional(q, k, v, size.to(q).expand(B, -1)), each)


def merging_keeps_the_sum(merge: Callable) -> None:
    """Implementations are functions (z, keys, groups, r): tokens times their sizes add up to what they did before.

    Each round leaves one token fewer, every first token is in exactly one group, and the class token stays as it is.
    """
    z, groups = torch.randn(B, N + 1, D), torch.eye(N + 1).expand(B, -1, -1)
    total, class_token = z.sum(dim=1), z[:, 0]
    for fewer in range(1, 4):
        z, groups = merge(z, torch.randn(B, z.shape[1], 4), groups, 1)
        assert z.shape == (B, N + 1 - fewer, D)
        _close((z * groups.sum(dim=-1, keepdim=True)).sum(dim=1), total)
        _close(groups.sum(dim=1), torch.ones(B, N + 1))
        _close(z[:, 0], class_token)


def windows_are_looked_into(window_attention: Callable) -> None:
    """Implementations are functions (attention, x, grid, window, shift): full attention, masked to windows.

    One window that holds the whole grid is full attention itself.
    """
    attention = _shake(MultiHeadSelfAttention(D, HEADS))
    x, grid = torch.randn(B, 4 * 6, D), (4, 6)
    row, column = torch.arange(4).repeat_interleave(6), torch.arange(6).repeat(4)
    for shift in (0, 1):
        window = 100 * ((row - shift) // 2) + (column - shift) // 2
        _close(window_attention(attention, x, grid, 2, shift), attention(x, window[:, None] == window))
    square = x[:, :16]
    _close(window_attention(attention, square, (4, 4), 4, 0), attention(square))


# The block of today


def turning_keeps_norms_and_offsets(rotate: Callable) -> None:
    """Implementations are functions (x, angles): lengths stay, and scores depend on differences of angles alone.

    Half of the entries are turned into the other half, by the angle of their pair.
    """
    q, k, angles = torch.randn(B, HEADS, T, 8), torch.randn(B, HEADS, T, 8), 3 * torch.randn(T, 4)
    _close(rotate(q, angles).norm(dim=-1), q.norm(dim=-1))
    _close(rotate(q, torch.zeros(T, 4)), q)
    moved = angles + torch.randn(4)  # every token by the same
    _close(rotate(q, moved) @ rotate(k, moved).mT, rotate(q, angles) @ rotate(k, angles).mT)
    first, turned = torch.eye(8)[0].expand(1, 8), torch.zeros(1, 8)
    turned[0, 0], turned[0, 4] = math.cos(2), math.sin(2)
    _close(rotate(first, torch.tensor([[2.0, 0, 0, 0]])), turned)


def angles_tell_offsets_apart(rotary_angles: Callable) -> None:
    """Implementations are functions (grid, head_dim): two pairs of patches differ by the same angles where their
    offsets in rows and columns are the same, and only there."""
    grid = (3, 5)
    angles = rotary_angles(grid, 8)
    assert angles.shape == (15, 4)
    place = torch.cartesian_prod(torch.arange(3), torch.arange(5))
    offsets = (place[:, None] - place).flatten(0, 1)
    differences = (angles[:, None] - angles).flatten(0, 1)
    same_offset = (offsets[:, None] == offsets).all(dim=-1)
    same_angles = (differences[:, None] - differences).abs().amax(dim=-1) < 1e-4
    assert torch.equal(same_offset, same_angles)


def scores_are_bounded(attention: Callable) -> None:
    """Implementations are classes with qk_norm: no score exceeds √D_h, however large queries and keys are."""
    layer = attention(D, HEADS, qk_norm=True)
    for scale in (1, 100):
        q, k, _ = layer.project(scale * torch.randn(B, T, D))
        assert (q @ k.mT).abs().max() / math.sqrt(D // HEADS) <= math.sqrt(D // HEADS) * (1 + 1e-5)


def registers_leave_no_trace(vit: Callable) -> None:
    """Implementations are classes of models: with registers, features have the same shape, and the mean of the patches
    is that of the patches. Registers are no copies of each other."""
    sizes = dict(image_size=(HEIGHT, WIDTH), patch_size=P, channels=C, num_classes=K, dim=D, depth=2, num_heads=HEADS)
    for choice in (dict(pool="mean"), dict(pool="class"), dict(pool="mean", class_token=False)):
        model, x = vit(ModernConfig(**sizes, mlp_dim=HIDDEN, registers=3, **choice)), _images()
        registers = model.embedding.prefix_tokens[-3:]
        assert _differ(registers[0], registers[1]) and _differ(registers[1], registers[2])
        model.encoder = nn.Identity()
        assert model(x).shape == (B, K)
        place = slice(-N, None) if choice["pool"] == "mean" else slice(0, 1)
        _close(model.features(x), model.tokens(x)[:, place].mean(dim=1))


# Images and words


def lengths_do_not_count(cosines: Callable) -> None:
    """Implementations are functions ((N, D), (M, D)) → (N, M): torch's cosines, whatever the lengths of the vectors."""
    x, y = torch.randn(T, D), torch.randn(S, D)
    table = cosines(x, y)
    _close(table, F.cosine_similarity(x[:, None], y[None], dim=-1))
    _close(cosines(3 * x, y / 2), table)


def both_sides_choose(loss: Callable) -> None:
    """Implementations are functions (B, B) → loss: every image chooses a caption, every caption an image."""
    logits = 3 * torch.randn(T, T)
    chosen = [logits[i, i] - logits[i].logsumexp(dim=0) for i in range(T)]
    chosen += [logits[i, i] - logits[:, i].logsumexp(dim=0) for i in range(T)]
    _close(loss(logits), -torch.stack(chosen).sum() / (2 * T))
    _close(loss(logits.mT), loss(logits))
    _close(loss(torch.zeros(T, T)), torch.tensor(math.log(T)))


def every_pair_is_asked(loss: Callable) -> None:
    """Implementations are functions (B, B) → loss: pair or not, B² questions in sum, divided by B."""
    logits = 3 * torch.randn(T, T)
    pairs = torch.eye(T)
    asked = F.binary_cross_entropy_with_logits(logits, pairs, reduction="sum")
    _close(loss(logits), asked / T)
    _close(loss(torch.zeros(T, T)), torch.tensor(T * math.log(2)))


@torch.no_grad()
def the_scale_stays_positive(scale_and_bias: Callable) -> None:
    """Implementations are classes (scale, bias): whatever is learned, a larger cosine is a larger logit."""
    layer, cosine = scale_and_bias(20.0, -3.0), torch.linspace(-1, 1, S)
    _close(layer(cosine), 20 * cosine - 3)
    for learned in (-2.0, 0.0, 2.0):
        for parameter in layer.parameters():
            parameter.fill_(learned)
        assert (layer(cosine).diff() > 0).all()


def other_images_do_not_count(name_probabilities: Callable) -> None:
    """Implementations are functions (N, K) → (N, K): an image's probabilities are those that it has alone."""
    logits = torch.randn(S, K)
    probabilities = name_probabilities(logits)
    _close(probabilities.sum(dim=-1), torch.ones(S))
    _close(probabilities, torch.cat([name_probabilities(row[None]) for row in logits]))


# Out of the notebook


def half_a_step_is_the_largest_error(quantize: Callable) -> None:
    """Implementations are functions (N, D) → whole numbers (N, D), scales (N, 1): no weight is off by more than half of
    what separates two whole numbers, 1/127 of the largest in its row."""
    weight = torch.randn(S, D) * torch.tensor([0.01, 0.1, 1, 10])[torch.arange(S) % 4, None]
    weight[0, 0] = -2 * weight[0].abs().max()  # the largest is negative
    whole, scale = quantize(weight)
    assert whole.shape == weight.shape and int(whole.long().abs().max()) <= 127
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((whole * scale - weight).abs() <= step / 2 * 1.0001).all()

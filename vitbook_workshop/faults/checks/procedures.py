"""What must hold of what is done with a model, and of what came after the first: training, maps, the block of today …

Each check takes one implementation of a step (a function, or a class) and raises AssertionError where it is wrong.
"""

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitbook.attention import attention as right_attention
from vitbook.data import Split
from vitbook.mae import add_mask_tokens
from vitbook.modern import ModernConfig
from vitbook.multihead import MultiHeadSelfAttention
from vitbook.painting import Painter
from vitbook.training import parameter_groups
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.small_examples import (
    GRID,
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
    classifier,
    close,
    copy_weights,
    differ,
    images,
    shake,
    small_config,
    unequal_batches,
)

# Training


def epoch_equals_the_bare_loop(train_epoch: Callable) -> None:
    """Implementations are functions (model, batches, optimizer) → mean loss."""
    batches, ours, theirs = unequal_batches(), classifier().eval(), classifier()
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
        close(our_parameter, their_parameter)


def evaluation_counts_each_example_once(evaluate: Callable) -> None:
    """Implementations are functions (model, batches) → something with loss and accuracy. Right: 4 of 4, then 1 of 3."""
    model = nn.Sequential(nn.Linear(K, K, bias=False), nn.Dropout(0.5))
    copy_weights([(3 * torch.eye(K), model[0].weight)])
    labels = torch.tensor([0, 1, 2, 3, 4, 6, 7])
    x = torch.eye(K)[:7] + 0.1 * torch.rand(7, K)
    evaluation = evaluate(model, [(x[:4], labels[:4]), (x[4:], labels[4:])])
    assert math.isclose(evaluation.accuracy, 5 / 7)
    assert math.isclose(evaluation.loss, F.cross_entropy(3 * x, labels).item(), rel_tol=1e-5)


def evaluation_leaves_the_mode(evaluate: Callable) -> None:
    """Implementations are functions (model, batches); the model trains or evaluates afterwards as before."""
    for training in (True, False):
        model = classifier().train(training)
        evaluate(model, unequal_batches())
        assert [module.training for module in model.modules()] == [training] * 5


def only_matrices_decay(groups: Callable) -> None:
    """Implementations are functions (model, weight_decay) → parameter groups."""
    model = VisionTransformer(small_config())
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
    close(model.weight.detach(), 0.95 * weight)
    close(model.bias.detach(), bias)


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
    close(rollout(_some_weights()).sum(dim=-1), torch.ones(B, N + 1))
    identity = torch.eye(N + 1).expand(B, -1, -1)
    close(rollout(identity.expand(3, HEADS, -1, -1, -1).transpose(1, 2)), identity)
    to_the_first = torch.zeros(3, B, HEADS, N + 1, N + 1)
    to_the_first[..., 0] = 1
    kept = rollout(to_the_first).diagonal(dim1=1, dim2=2)[:, 1:]
    close(kept, torch.full((B, N), 1 / 8))


def every_image_has_its_own_map(patch_map: Callable) -> None:
    """Implementations are functions ((..., T, T), grid) → (..., rows, columns), the class token's row."""
    weights = _some_weights()
    maps = patch_map(weights, GRID)
    for place in itertools.product(range(3), range(B), range(HEADS)):
        close(maps[place].flatten(), weights[place][0, 1:])


# Masked autoencoders


def patches_find_their_way_back(random_masking: Callable) -> None:
    """Implementations are functions (x, ratio, noise) → (visible, restore, hidden).

    The visible patches return to where they were, and the hidden ones, put in as zeros, to all other places.
    """
    x = torch.randn(B, S, D)
    visible, restore, hidden = random_masking(x, 0.6, torch.rand(B, S))
    assert visible.shape == (B, 3, D) and hidden.sum(dim=1).tolist() == [4] * B
    again = add_mask_tokens(visible, torch.zeros(1, 1, D), restore)
    close(again, x.masked_fill(hidden[..., None], 0))


def hidden_patches_are_told_apart(autoencoder: Callable) -> None:
    """Implementations are classes (backbone, dim, depth, num_heads): no two hidden patches are painted alike."""
    model = shake(autoencoder(VisionTransformer(small_config()), 8, 2, 2, ratio=0.6)).eval()
    with torch.no_grad():
        predicted, hidden = model(images())
    for patches in (predicted[i, hidden[i]] for i in range(B)):
        assert all(differ(one, other) for one, other in itertools.combinations(patches, 2))


def only_hidden_patches_count(masked_loss: Callable) -> None:
    """Implementations are functions (predicted, targets, hidden): the mean over the hidden patches, one by one."""
    predicted, targets = torch.randn(B, S, D), torch.randn(B, S, D)
    hidden = torch.rand(B, S).argsort(dim=1) >= 3
    errors = [(predicted[i, n] - targets[i, n]).square().mean() for i, n in hidden.nonzero()]
    close(masked_loss(predicted, targets, hidden), torch.stack(errors).mean())


# Agreement without labels


def a_common_answer_is_taken_away(teacher_probabilities: Callable) -> None:
    """Implementations are functions (logits, center, temperature): what all images share, the center, counts nothing.

    Adding the same to every logit vector and to the center changes nothing; each answer is a distribution.
    """
    logits, center, common = torch.randn(2, B, S) / 10, torch.randn(S) / 10, torch.randn(S)
    p = teacher_probabilities(logits, center, 0.1)
    close(p.sum(dim=-1), torch.ones(2, B))
    close(teacher_probabilities(logits + common, center + common, 0.1), p)


def a_teacher_is_as_sure_as_told(teacher_probabilities: Callable) -> None:
    """Implementations are functions (logits, center, temperature): log p of two answers differ as logits over τ do."""
    logits, center = torch.randn(2, B, S) / 10, torch.randn(S) / 10
    for temperature in (0.1, 0.5):
        log_p = teacher_probabilities(logits, center, temperature).log()
        close((log_p - log_p[..., :1]) * temperature, logits - center - (logits - center)[..., :1])


def a_view_is_not_its_own_teacher(agreement_loss: Callable) -> None:
    """Implementations are functions (student, teacher, temperature): the mean over pairs of different views."""
    student, teacher = torch.randn(4, B, S), torch.randn(2, B, S).softmax(dim=-1)
    log_p = (student / 0.5).log_softmax(dim=-1)
    pairs = [(g, v) for g in range(2) for v in range(4) if g != v]
    expected = torch.stack([-(teacher[g] * log_p[v]).sum(dim=-1).mean() for g, v in pairs]).mean()
    close(agreement_loss(student, teacher, 0.5), expected)


def a_round_cloud_is_left_alone(sigreg: Callable) -> None:
    """Implementations are functions (z, slices): normal vectors have about 1.06, and any other size has more."""
    z = torch.randn(200, D)
    own = sigreg(z, 200)
    assert 0.5 < own < 1.8
    assert all(sigreg(size * z, 200) > own for size in (0.3, 3))


# Images and words


def lengths_do_not_count(cosines: Callable) -> None:
    """Implementations are functions ((N, D), (M, D)) → (N, M): torch's cosines, whatever the lengths of the vectors."""
    x, y = torch.randn(T, D), torch.randn(S, D)
    table = cosines(x, y)
    close(table, F.cosine_similarity(x[:, None], y[None], dim=-1))
    close(cosines(3 * x, y / 2), table)


def both_sides_choose(loss: Callable) -> None:
    """Implementations are functions (B, B) → loss: every image chooses a caption, every caption an image."""
    logits = 3 * torch.randn(T, T)
    chosen = [logits[i, i] - logits[i].logsumexp(dim=0) for i in range(T)]
    chosen += [logits[i, i] - logits[:, i].logsumexp(dim=0) for i in range(T)]
    close(loss(logits), -torch.stack(chosen).sum() / (2 * T))
    close(loss(logits.mT), loss(logits))
    close(loss(torch.zeros(T, T)), torch.tensor(math.log(T)))


def every_pair_is_asked(loss: Callable) -> None:
    """Implementations are functions (B, B) → loss: pair or not, B² questions in sum, divided by B."""
    logits = 3 * torch.randn(T, T)
    pairs = torch.eye(T)
    asked = F.binary_cross_entropy_with_logits(logits, pairs, reduction="sum")
    close(loss(logits), asked / T)
    close(loss(torch.zeros(T, T)), torch.tensor(T * math.log(2)))


@torch.no_grad()
def the_scale_stays_positive(scale_and_bias: Callable) -> None:
    """Implementations are classes (scale, bias): whatever is learned, a larger cosine is a larger logit."""
    layer, cosine = scale_and_bias(20.0, -3.0), torch.linspace(-1, 1, S)
    close(layer(cosine), 20 * cosine - 3)
    for learned in (-2.0, 0.0, 2.0):
        for parameter in layer.parameters():
            parameter.fill_(learned)
        assert (layer(cosine).diff() > 0).all()


def other_images_do_not_count(name_probabilities: Callable) -> None:
    """Implementations are functions (N, K) → (N, K): an image's probabilities are those that it has alone."""
    logits = torch.randn(S, K)
    probabilities = name_probabilities(logits)
    close(probabilities.sum(dim=-1), torch.ones(S))
    close(probabilities, torch.cat([name_probabilities(row[None]) for row in logits]))


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


# Any number of tokens


def packed_images_stay_apart(same_image: Callable) -> None:
    """Implementations are functions owner → mask: in a packed row, attention gives each sequence what it gets alone."""
    lengths = (2, 4, 3)
    x = torch.randn(1, sum(lengths) + 2, D)  # the last two are padding
    owner = torch.tensor([[*(i for i, length in enumerate(lengths) for _ in range(length)), -1, -1]])
    together = right_attention(x, x, x, same_image(owner).squeeze(1))[0]
    alone = [right_attention(part, part, part)[0] for part in x[:, :-2].split(lengths, dim=1)]
    close(together[:, :-2], torch.cat(alone, dim=1))


def a_merged_key_counts_for_its_parts(proportional: Callable) -> None:
    """Implementations are functions (q, k, v, size): equal keys and values give the same merged as one by one."""
    q, k, v = torch.randn(B, HEADS, T, 4), torch.randn(B, HEADS, S, 4), torch.randn(B, HEADS, S, 4)
    size = torch.tensor([1, 3, 1, 2, 1, 1, 4])
    each = right_attention(q, k.repeat_interleave(size, dim=2), v.repeat_interleave(size, dim=2))[0]
    close(proportional(q, k, v, size.to(q).expand(B, -1)), each)


def merging_keeps_the_sum(merge: Callable) -> None:
    """Implementations are functions (z, keys, groups, r): tokens times their sizes add up to what they did before.

    Each round leaves one token fewer, every first token is in exactly one group, and the class token stays as it is.
    """
    z, groups = torch.randn(B, N + 1, D), torch.eye(N + 1).expand(B, -1, -1)
    total, class_token = z.sum(dim=1), z[:, 0]
    for fewer in range(1, 4):
        z, groups = merge(z, torch.randn(B, z.shape[1], 4), groups, 1)
        assert z.shape == (B, N + 1 - fewer, D)
        close((z * groups.sum(dim=-1, keepdim=True)).sum(dim=1), total)
        close(groups.sum(dim=1), torch.ones(B, N + 1))
        close(z[:, 0], class_token)


def windows_are_looked_into(window_attention: Callable) -> None:
    """Implementations are functions (attention, x, grid, window, shift): full attention, masked to windows.

    One window that holds the whole grid is full attention itself.
    """
    attention = shake(MultiHeadSelfAttention(D, HEADS))
    x, grid = torch.randn(B, 4 * 6, D), (4, 6)
    row, column = torch.arange(4).repeat_interleave(6), torch.arange(6).repeat(4)
    for shift in (0, 1):
        window = 100 * ((row - shift) // 2) + (column - shift) // 2
        close(window_attention(attention, x, grid, 2, shift), attention(x, window[:, None] == window))
    square = x[:, :16]
    close(window_attention(attention, square, (4, 4), 4, 0), attention(square))


# The block of today


def turning_keeps_norms_and_offsets(rotate: Callable) -> None:
    """Implementations are functions (x, angles): lengths stay, and scores depend on differences of angles alone.

    Half of the entries are turned into the other half, by the angle of their pair.
    """
    q, k, angles = torch.randn(B, HEADS, T, 8), torch.randn(B, HEADS, T, 8), 3 * torch.randn(T, 4)
    close(rotate(q, angles).norm(dim=-1), q.norm(dim=-1))
    close(rotate(q, torch.zeros(T, 4)), q)
    moved = angles + torch.randn(4)  # every token by the same
    close(rotate(q, moved) @ rotate(k, moved).mT, rotate(q, angles) @ rotate(k, angles).mT)
    first, turned = torch.eye(8)[0].expand(1, 8), torch.zeros(1, 8)
    turned[0, 0], turned[0, 4] = math.cos(2), math.sin(2)
    close(rotate(first, torch.tensor([[2.0, 0, 0, 0]])), turned)


def queries_and_keys_are_turned_alike(attention: Callable) -> None:
    """Implementations are classes of `ModernAttention`: all places turned by the same leave the output as it is."""
    module, x, angles = shake(attention(16, 2)), torch.randn(B, T, 16), 3 * torch.randn(T, 4)
    outputs = []
    for moved in (angles, angles + torch.randn(4)):
        module.angles = moved
        outputs.append(module(x))
    close(*outputs)


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
        model, x = vit(ModernConfig(**sizes, mlp_dim=HIDDEN, registers=3, **choice)), images()
        registers = model.embedding.prefix_tokens[-3:]
        assert differ(registers[0], registers[1]) and differ(registers[1], registers[2])
        model.encoder = nn.Identity()
        assert model(x).shape == (B, K)
        place = slice(-N, None) if choice["pool"] == "mean" else slice(0, 1)
        close(model.features(x), model.tokens(x)[:, place].mean(dim=1))


# At work


def others_to_test_do_not_count(standardize: Callable) -> None:
    """Implementations are functions (features, known) → features; the known themselves get mean 0 and deviation 1."""
    known, asked = 3 * torch.randn(T, D) + 1, torch.randn(B, D)
    close(standardize(asked[:1], known), standardize(asked, known)[:1])
    alike = standardize(known, known)
    close(alike.mean(dim=0), torch.zeros(D))
    close(alike.std(dim=0), torch.ones(D))


def no_image_is_on_both_sides(split: Callable) -> None:
    """Implementations are functions (split, fraction, seed, class names) → two splits, of very unequal classes."""
    labels = torch.tensor([0] * 20 + [1] * 7 + [2] * 3)
    images = torch.arange(30, dtype=torch.uint8).view(-1, 1, 1, 1)
    parts = split(Split(images, labels), 0.3, 0, ("many", "some", "few"))
    assert sorted(torch.cat([part.images.flatten() for part in parts]).tolist()) == list(range(30))


def every_class_counts_alike(score: Callable) -> None:
    """Implementations are functions confusion (K, K) → number: ten times as many images of a class change nothing."""
    confusion = torch.randint(1, 9, (K, K))
    more = confusion * torch.where(torch.arange(K) == 0, 10, 1)[:, None]
    assert math.isclose(score(more), score(confusion), rel_tol=1e-9)


# Painting


def a_path_leads_from_noise_to_the_image(on_the_path: Callable) -> None:
    """Implementations are functions (images, noise, t) → z_t: noise at 0, the image at 1, a straight line between."""
    x, noise = images(3), torch.randn(3, C, HEIGHT, WIDTH)
    z = on_the_path(x, noise, torch.tensor([0, 0.25, 1]).to(x))
    close(z, torch.stack([noise[0], noise[1] + (x[1] - noise[1]) / 4, x[2]]))


def no_time_outweighs_all_others(velocity_loss: Callable) -> None:
    """Implementations are functions (guess, images, z, t) → loss: that of the velocity, weighed by at most 400."""
    guess, x, z = images(), images(), images()
    for time, weight in ((0.0, 1), (0.5, 4), (0.9, 100), (0.99, 400), (1.0, 400)):
        close(velocity_loss(guess, x, z, torch.full((B,), time).to(x)), weight * (guess - x).square().mean())


@torch.no_grad()
def guidance_leads_to_the_class(guided_guess: Callable) -> None:
    """Implementations are functions (model, z, t, labels, guidance) → x̂: of none at 0, of the class at 1, a line."""
    model, z, t, labels = shake(Painter(small_config())).eval(), images(), torch.rand(B), torch.arange(B)
    none, asked = model(z, t, torch.full_like(labels, K)), model(z, t, labels)
    for guidance in (0.0, 1.0, 3.0):
        close(guided_guess(model, z, t, labels, guidance), none + guidance * (asked - none))


def the_running_mean_is_kept(train_painter: Callable) -> None:
    """Implementations are functions (model, images, labels, epochs, …): what is returned lags behind the model."""
    model = Painter(small_config())
    start = model.time.weight.detach().clone()
    kept, _ = train_painter(model, images(), torch.arange(B), epochs=2, batch_size=B, learning_rate=0.1)
    gone, behind = ((model.time.weight - weight).norm() for weight in (start, kept.time.weight))
    assert 0 < behind < gone

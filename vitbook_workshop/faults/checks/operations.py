"""What must hold of anybody's model, from inside: its patches, attention and blocks, as its operations compute them.

No name and no class is looked at, so that it does not matter who wrote the model.
"""

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitbook.patches import HybridEmbedding
from vitbook.vit import VisionTransformer
from vitbook_workshop.faults.findings import Failed, NotAsked, expect, skip_if
from vitbook_workshop.faults.mistakes import IN_A_VIT, MISTAKES, broken_vit
from vitbook_workshop.faults.model_under_test import Gradients, ModelUnderTest, altered, depends, logits_of, stacks
from vitbook_workshop.faults.recorders.operations import (
    AttentionSeen,
    NormSeen,
    OperationRecorder,
    Origin,
    is_right_scale,
    matrices,
)

# Patches


def a_token_is_a_rectangle(tested: ModelUnderTest) -> None:
    """Asked of the rows of the first queries, each made of one token."""
    pixels, tokens = 0, []
    for again in range(8):  # the zeros of a ReLU are elsewhere each time
        recorded, images = tested.recorded, tested.shown
        if again:
            model, images = tested.shaken().requires_grad_(), tested.images().requires_grad_()
            recorded, _ = tested.record(model, images, until_attention=True)
        if not recorded.attentions or not depends(recorded.attentions[0].queries, images):
            raise NotAsked("no attention was seen whose queries are made of the image")
        rows = matrices(recorded.attentions[0].queries)[-1]
        middle = [row.to(tested.dtype) @ tested.normal(len(row)) for row in rows[len(rows) // 2 :][:3]]
        _expect_whole_vectors(middle, recorded.feature_map)
        slopes = [torch.autograd.grad(number, images, retain_graph=True)[0] for number in middle]
        pixels = pixels + torch.stack(slopes).ne(0)  # (tokens, B, C, H, W)
        of_images = [token[token.flatten(1).any(dim=1)] for token in pixels]
        tokens = [token[0] for token in of_images if len(token) == 1]  # no class token, and no mixture of images
        if all(_is_patch(token) and not _of_one_channel(token) for token in tokens):
            break
    skip_if(not tokens, "no token of one image was seen")
    for token in tokens:
        if _is_patch(token) and _of_one_channel(token):
            rows, columns = (int((token > 0).any(0).any(axis).sum()) for axis in (1, 0))
            raise Failed(
                f"one is made of {rows} rows and {columns} columns of one channel; an image has {len(token)} channels.",
                "unfolded, and reshaped without a permute: (B, C, h, w, P, P) has the channels in front. They belong"
                " behind the places: permute(0, 2, 3, 1, 4, 5) before the reshape.",
            )
        area = (token > 0).any(dim=0)
        size = f"{int(area.sum())} pixels in {int(area.any(1).sum())} rows and {int(area.any(0).sum())} columns"
        expect(_is_patch(token), f"one is made of {size}, scattered.")


def _expect_whole_vectors(numbers: list[Tensor], feature_map: Tensor | None) -> None:
    """Each number, made of one token, depends on the D channels of one place of a map (B, D, H, W), or on many more."""
    if feature_map is None or not feature_map.requires_grad:
        return
    channels = feature_map.shape[1]
    for number in numbers:
        (slope,) = torch.autograd.grad(number, feature_map, retain_graph=True, allow_unused=True)
        touched = slope.ne(0).any(dim=0).flatten(1) if slope is not None else torch.zeros(1, 1)  # (D, places)
        places = int(touched.any(dim=0).sum())
        if touched.sum() == channels and places > 1:
            raise Failed(
                f"one has {channels} numbers, of {int(touched.any(dim=1).sum())} channels at {places} places.",
                "the convolution's (B, D, H, W) reshaped to (B, N, D) without a transpose: flatten(2).transpose(1, 2).",
                "06_patches.ipynb#the-same-map-as-a-convolution",
            )


def _is_patch(counts: Tensor) -> bool:
    """Whether the pixels (C, H, W) that a token depends on lie together: a rectangle, or one with corners cut off."""
    pixels = counts > 0
    area = pixels.any(dim=0)
    if not (_unbroken(area) and _unbroken(area.mT)):
        return False
    rectangle = area.sum() == area.any(dim=0).sum() * area.any(dim=1).sum()
    if not rectangle and _unbroken(area.flatten()[None]):
        return False  # the end of a row, some rows, the start of a row
    every_channel = pixels.flatten(1).any(dim=1).all()
    return bool(every_channel or pixels.sum() == 1 or not _unbroken(pixels.flatten()[None]))


def _of_one_channel(counts: Tensor) -> bool:
    """Whether it depends on one channel alone of several; in a square, each channel may be meant to have tokens."""
    pixels = counts > 0
    area = pixels.any(dim=0)
    square = area.any(dim=0).sum() == area.any(dim=1).sum()
    return len(pixels) > 1 and int(pixels.flatten(1).any(dim=1).sum()) == 1 and not bool(square)


def an_image_has_several_tokens(tested: ModelUnderTest) -> None:
    skip_if(tested.attends_to_the_batch, "attention runs over the batch")
    queries, keys = tested.changed_rows
    most = int(queries.sum(1).max())
    skip_if(most == 0, "its first queries are not made of the image")
    tokens = queries.shape[1]
    expect(most > 1 or int(keys.sum(1).max()) > 1, f"of {tokens} tokens, one is made of the image: all of it.")


def _unbroken(lines: Tensor) -> bool:
    """Whether what is True in each line (lines, places) is one run."""
    runs = (lines[:, 1:] & ~lines[:, :-1]).sum(dim=1) + lines[:, 0]
    return bool((runs <= 1).all())


# Attention and blocks, as they are computed


def heads_keep_tokens_whole(tested: ModelUnderTest) -> None:
    skip_if(all(seen.split is None for seen in tested.attentions), "what happens to its values cannot be followed")
    if split := _in_layers(tested, lambda seen: seen.split is False):
        raise Failed(
            f"in {split}, several rows of a head come from the same token.",
            "view(B, h, T, D_h) without a transpose, or a fused kernel fed (B, T, h, D_h): it takes (B, h, T, D_h).",
        )
    if joined := _in_layers(tested, lambda seen: seen.joined is False):
        raise Failed(
            f"in {joined}, the output projection gets several tokens in one row.",
            "heads joined by view or reshape without a transpose: (B, h, T, D_h) has to become (B, T, h, D_h) first.",
        )


def _in_layers(tested: ModelUnderTest, wrong: Callable[[AttentionSeen], bool]) -> str:
    """In how many attentions something is wrong, in words; "" where in none. Those of one layer are one."""
    layers = tested.recorded.layers if tested.attentions else []
    count = sum(any(map(wrong, layer)) for layer in layers)
    return f"{count} of {len(layers)} attentions" if count else ""


def heads_see_whole_tokens(tested: ModelUnderTest) -> None:
    known = [seen for seen in tested.attentions if seen.into and seen.inputs]
    skip_if(not known, "where its heads are joined was not seen")
    for seen in known:
        width, inner = (seen.into, seen.into) if seen.projection is None else seen.projection.shape[:2]
        of_a_head = seen.weight is None or len(seen.weight) <= 3 * seen.width
        sliced = of_a_head and width == inner > seen.inputs == seen.width
        expect(not sliced, f"a token has {width} numbers; queries are made of {seen.inputs}, as many as a head has.")


def heads_are_joined_by_a_map(tested: ModelUnderTest) -> None:
    skip_if(not any(seen.into for seen in tested.attentions), "where its heads are joined was not seen")
    bare = _in_layers(tested, lambda seen: seen.projection is None and seen.into > seen.gives)
    expect(not bare, f"in {bare}, what the heads give is added to the tokens as it is.")


def layers_have_weights_of_their_own(tested: ModelUnderTest) -> None:
    listed_twice = any(len(set(map(id, stack))) < len(stack) for stack in stacks(tested.subject))
    skip_if(listed_twice, "the list of blocks has one of them several times")
    depths: dict[tuple[int, int], set[int]] = {}
    for seen in tested.attentions:
        if seen.weight is not None:
            depths.setdefault(seen.map, set()).add(seen.of_queries)
    skip_if(not depths, "no maps of queries were seen")
    most = max(map(len, depths.values()))
    expect(most < 2, f"one map makes the queries of {most} layers, one after another.")
    looking = {id(seen.weight) for seen in tested.attentions}
    added = {id(term.weight) for seen in tested.recorded.sums for term in seen.terms if term.made_by == "linear"}
    at: dict[tuple[int, int], set[int]] = {}
    for one, back in _mlps(tested.recorded, looking):
        if id(back.weight) in added:  # to the tokens, as that of a block
            at.setdefault(one.map, set()).add(one.fed.layer)
    most = max(map(len, at.values()), default=0)
    if most > 1:
        raise Failed(
            f"one map begins the MLPs of {most} blocks.",
            "one MLP, made once, for all blocks, such as a default argument: MLP() as a default is made a single time.",
        )


def weights_sum_to_one(tested: ModelUnderTest) -> None:
    def is_wrong(seen: AttentionSeen) -> bool:
        return not torch.allclose(seen.sums, torch.ones_like(seen.sums), atol=1e-4)

    wrong = list(filter(is_wrong, tested.attentions))
    if not wrong:
        mixed = all(seen.combined for seen in tested.attentions)
        skip_if(mixed, "several softmaxes are mixed, or multiplied by what is computed: by design, of other sums")
        return
    sums = torch.cat([seen.sums.flatten() for seen in wrong])
    least, most = sums.min().item(), sums.max().item()
    over = {-2: "the queries", -3: "the heads", -4: "the batch"}.get(wrong[0].axis)
    dropped = not over and any(met.how == "dropout" for met in tested.drawn)
    skip_if(dropped, "a dropout that stays on in evaluation may act on them")
    raise Failed(
        f"in {_in_layers(tested, is_wrong)} they sum to {least:.2g} to {most:.2g}.",
        f"a softmax over {over} instead of the keys." if over else _how_changed(wrong[0]),
        "" if over else "02_scale.ipynb#before-the-softmax-not-after" if _scaled_after(wrong[0]) else "",
    )


def _scaled_after(seen: AttentionSeen) -> bool:
    """Whether all sums are what a scale would have to be that the scores lack: 1/√D_h, or the like of √D."""
    if seen.factor is None or is_right_scale(seen):
        return False
    scales = {seen.width**-0.5, (seen.inputs or seen.width) ** -0.5, seen.width**0.5, 1 / seen.width}
    return any(torch.allclose(seen.sums, torch.full_like(seen.sums, scale), rtol=1e-3) for scale in scales)


def _how_changed(seen: AttentionSeen) -> str:
    if _scaled_after(seen):
        return "the scale stands after the softmax, where the scores have to be divided: before it."
    by = seen.sums.mean().item()
    alike = torch.allclose(seen.sums, torch.full_like(seen.sums, by), rtol=1e-3)
    return f"weights changed after the softmax{f': all multiplied by {by:.3g}' if alike else ''}."


def scores_are_scaled(tested: ModelUnderTest) -> None:
    known = [seen for seen in tested.attentions if seen.factor is not None]
    skip_if(not known, "its queries are normalized, or its scale is learned")
    known = [seen for seen in known if not _is_of_channels(seen)]
    skip_if(not known, "its channels attend to one another, over the tokens")
    for seen in known:
        if not is_right_scale(seen):
            raise Failed(
                f"they run over {seen.width} numbers, which asks for 1/√{seen.width} = {seen.width**-0.5:.3f}; before "
                f"the softmax they are multiplied by {seen.factor:.3f}.",
                _why_scaled_so(seen),
                likely="a softmax can be meant sharper or softer" if seen.factor != 1 else "",
            )


def _is_of_channels(seen: AttentionSeen) -> bool:
    """Whether it is the rows that a head has of a token's numbers, and the dot products run over tokens."""
    rows = seen.queries.shape[-2]
    return bool(seen.inputs) and (seen.width > seen.inputs or (seen.inputs % rows == 0 != seen.inputs % seen.width))


def _why_scaled_so(seen: AttentionSeen) -> str:
    """The mistake that makes just this factor, if one does."""
    ratio, whole = seen.factor * seen.width**0.5, seen.inputs or seen.width
    if math.isclose(seen.factor, 1, rel_tol=1e-3):
        return "no scale before the softmax" + ("; it stands after it." if _scaled_after(seen) else ".")
    if math.isclose(seen.factor, whole**-0.5, rel_tol=1e-3):
        return "√D for √D_h: the width of a token in place of that of a head."
    if math.isclose(ratio, seen.width, rel_tol=1e-3):
        return "multiplied by √D_h in place of divided."
    if math.isclose(ratio, seen.width**-0.5, rel_tol=1e-3):
        return "divided by D_h in place of √D_h, or scaled twice: a fused kernel, which scales, gets scaled queries."
    heads = ratio**2
    if seen.width == whole and heads > 1.5 and math.isclose(heads, round(heads), rel_tol=1e-3):
        return f"heads never split: the scale is that of {round(heads)} heads, and the dot products run over all of D."
    return ""


def queries_and_keys_are_turned_alike(tested: ModelUnderTest) -> None:
    """Seen in an image whose patches are all alike: what is not turned is the same at every place, what is turned has
    the same length. Positions that are learned are taken away meanwhile."""
    queries, keys = (rows.any(0) for rows in tested.changed_rows)
    skip_if(queries.shape != keys.shape or not torch.equal(queries, keys), "queries and keys are of other tokens")
    tokens, width = int(queries.sum()), tested.attentions[0].inputs
    skip_if(tokens < 3, "an image has less than three tokens")
    shapes = {shape for n in (len(queries), tokens) for shape in ((n, width), (width, n))}
    maps = {id(linear.weight) for linear in tested.recorded.linear}
    tables = {id(p) for p in tested.subject.parameters() if tuple(p.shape[-2:]) in shapes} - maps
    flat = torch.ones_like(tested.shown[:, :, :1, :1]).expand_as(tested.shown).contiguous()
    with altered(tested.subject, tables, torch.zeros_like):
        (look,) = tested.record(tested.subject, flat, until_attention=True)[0].attentions
    alike, turned = [], []
    for rows in (look.queries, look.rows_of_keys):
        rows = matrices(rows.detach())[:, queries]
        lengths, little = rows.norm(dim=-1), 1e-4 * rows.abs().max()
        alike.append(bool(((rows - rows[:, :1]).abs() < little).all()))
        turned.append(not alike[-1] and bool(((lengths - lengths[:, :1]).abs() < little).all()))
    if any(alike) and any(turned):
        one, other = ("queries", "keys") if turned[0] else ("keys", "queries")
        raise Failed(
            f"{one} are turned by their places, and {other} are not.",
            f"a rotation (RoPE) of the {one} alone. Only if {other} are rotated too, a score depends on how far two"
            " tokens are apart.",
        )
    if not any(alike + turned) and (stretched := _stretched_by_place(tested, tables, flat)):
        raise Failed(
            f"where all patches are alike, the length of a query is {stretched}, by its place.",
            "a rotation (RoPE) that is none: the numbers of a pair have other angles. Where halves are paired, it is"
            " cat((angles, angles), -1); where neighbors are, angles.repeat_interleave(2, -1).",
            likely="lengths may be meant to change with the place",
        )


def _stretched_by_place(tested: ModelUnderTest, tables: set[int], flat: Tensor) -> str:
    """How long the queries of equal patches are, if they differ for what is done to them after their map; else "".

    Something added to them is nothing of the kind, nor is one number for all of a query. As the model is, without
    noise: sines and cosines may be kept as parameters.
    """
    if not tested.keeps_tokens_whole:
        return ""  # a query is made of several places
    model, patches = tested.copy(), tested.changed_rows[0].any(0)
    with torch.no_grad():
        for name, parameter in tested.subject.named_parameters():
            if id(parameter) in tables:
                model.get_parameter(name).zero_()
        recorded, _ = tested.record(model, flat, until_attention=True)
        weight = recorded.attentions[0].weight
        made = next((linear.output for linear in reversed(recorded.linear) if linear.weight is weight), None)
        if weight is None or made is None:
            return ""
        made = made.flatten(0, -2)
        little = 1e-6 * made.abs().max()
        alike = max(int(((made - made[i]).abs().amax(1) < little).sum()) for i in (0, len(made) // 2, -1))
        if alike < len(made) * patches.float().mean():
            return ""
        for part in model.modules():
            if any(parameter is weight for parameter in part.parameters(recurse=False)):
                for parameter in part.parameters(recurse=False):
                    parameter.neg_()
        (negated,) = tested.record(model, flat, until_attention=True)[0].attentions
    one, other = (matrices(look.queries.detach())[:, patches] for look in (recorded.attentions[0], negated))
    lengths = one.norm(dim=-1)
    directions = one / lengths[..., None]
    same = (lengths - lengths[:, :1]).abs() < 1e-3 * lengths.max(), (directions - directions[:, :1]).abs() < 1e-3
    if not torch.allclose(one, -other, atol=1e-4 * float(one.abs().max())) or any(x.all() for x in same):
        return ""
    return f"{lengths[0].min():.2g} to {lengths[0].max():.2g}"


def attention_starts_soft(tested: ModelUnderTest) -> None:
    skip_if(not tested.untrained, "the model is trained")
    wrong = any(seen.factor is not None and not is_right_scale(seen) for seen in tested.attentions)
    skip_if(wrong, "its scores are scaled otherwise, which comes first")
    if tested.at_start.error:
        raise tested.at_start.error
    layers = tested.at_start.layers
    layers = [layer for layer in layers if layer[0].keys_seen > 3 and all(seen.axis == -1 for seen in layer)]
    skip_if(not layers, "no attention over several keys was seen")
    peaks = [sum(seen.peak for seen in layer) / len(layer) for layer in layers]
    hard = [peak for peak in peaks if peak > 0.8]
    if hard:
        raise Failed(
            f"in {len(hard)} of {len(layers)} attentions a query gives {max(hard):.0%} of its attention to one of "
            f"{layers[0][0].keys_seen} keys, on the average."
        )


def tokens_see_the_later_ones(tested: ModelUnderTest) -> None:
    for side in ("later", "earlier"):
        some = _in_layers(tested, lambda seen, side=side: seen.hides == side)
        expect(not some, f"in {some} no token sees {'a later' if side == 'later' else 'an earlier'} one.")


def blocks_add(tested: ModelUnderTest) -> None:
    """What stands before the blocks passes where their maps are 0: all from the first attention to the last, or those
    of the last block. That it passes is seen by other images, and by another embedding of them."""
    tested.needs_sight()
    skip_if(not tested.attentions, "no attention was seen")
    if again := tested.recorded.added_twice:
        raise Failed(
            f"in {len(again)} sums, tokens are added to what they are a part of already.",
            "tokens are added twice: what adds its input itself stands in one more residual connection.",
            likely="they may be meant to count twice",
        )
    _expect_residuals_unnormalized(tested)
    model, recorded = tested.brief, tested.recorded_in_brief
    maps = [linear.map for linear in recorded.linear if linear.weight is not None]
    first = recorded.attentions[0]
    tokens = first.queries.shape[-2]
    alike = [seen for seen in recorded.attentions if seen.inputs == first.inputs and seen.map in maps[1:]]
    alike = [seen for seen in alike if seen.queries.shape[-2] == tokens in seen.keys.shape[-2:]]
    skip_if(len({seen.map for seen in alike}) < 2, "its blocks are not several of one kind")
    last, place = alike[-1].map, recorded.attentions.index(alike[-1])
    used = list(recorded.used)
    before = set(used[: used.index(id(alike[0].weight))])
    images = tested.shown.detach(), tested.images()

    def passes(silent: set[tuple[int, int]], look: Callable[..., list[Tensor]]) -> bool:
        seen = []
        for x, other in zip(images, (set(), before - {parameter for parameter, _ in silent}), strict=True):
            with torch.no_grad(), altered(model, other, lambda p: p + torch.randn_like(p)):
                seen.append(look(*tested.record(model, x, silent=silent)))
        return not all(map(tested.same, *seen))

    logits = []

    def last_attention(seen: OperationRecorder, without: Tensor) -> list[Tensor]:
        logits.append(without)
        return [seen.attentions[place].queries, seen.attentions[place].keys]

    own = next(linear for linear in recorded.linear if linear.map == last)
    steps = {linear.map: linear.step for linear in reversed(recorded.linear)}  # of their first call
    since = max((added.step for added in recorded.sums if added.step < own.step), default=0)
    queries_of = {id(seen.projection): seen.map for seen in recorded.attentions if since > steps[alike[0].map]}
    while own.fed_by in ("linear", "norm") and steps.get(own.fed.map, 0) > since:
        own, joined = own.fed, own.fed_by == "linear" and id(own.fed.weight) in queries_of
        if joined:  # one attention gets what another gives, as along rows and then along columns
            own = next(linear for linear in recorded.linear if linear.map == queries_of[id(own.weight)])
    between = set(maps[maps.index(alike[0].map) : maps.index(own.map)])
    skip_if(not between, "the queries of its last attention are made before its layers")
    skip_if(not {key for key, _ in between} <= {id(p) for p in model.parameters()}, "its layers are not registered")
    if not passes(between, last_attention):
        raise Failed("where the layers before it add nothing, the last attention gets nothing of the image.")
    if tested.same(logits[0], tested.answer):
        raise Failed(
            "the layers before the last can be silenced, and the logits stay as they are.",
            "layers that are not chained: in `for block in blocks: out = block(x)` each gets the embedding, and the"
            " last alone counts. It should be x = block(x).",
            "08_encoder.ipynb#the-encoder",
        )
    blocks = [{id(p) for p in block.parameters()} for stack in stacks(model) for block in stack]
    block = next((block for block in blocks if last[0] in block), set())
    several = len({seen.map for seen in recorded.attentions if id(seen.weight) in block}) > 1  # not all is added
    expect(
        several or passes({key for key in maps if key[0] in block}, lambda _, logits: [logits]),
        "where the layers of the last block add nothing, the logits know nothing of the image.",
    )
    _expect_sums_to_go_on(tested)


def _sums_of_branches(recorded: OperationRecorder) -> dict[str, list[int]]:
    """The sums to which attention adds, and to which MLPs do, by their places in the list of sums."""
    projections = {id(seen.projection) for seen in recorded.attentions}
    sums: dict[str, list[int]] = {"attention": [], "the MLP": []}
    for place, seen in enumerate(recorded.sums):
        branch = next((term for term in seen.terms if term.made_by == "linear" and term.layer), None)
        if branch:
            sums["attention" if id(branch.weight) in projections else "the MLP"].append(place)
    return sums


def _expect_sums_to_go_on(tested: ModelUnderTest) -> None:
    """Each sum of a block is a part of later ones, but for the last; post-norm blocks hand on what a norm makes."""
    sums, of = tested.recorded.sums, _sums_of_branches(tested.recorded)
    if min(map(len, of.values())) < 2 or any(term.made_by == "norm" for seen in sums for term in seen.terms):
        return
    if len({(seen.inputs, seen.queries.shape[-2]) for seen in tested.attentions}) > 1:
        return  # tokens of several sizes, such as those of EdgeNeXt, of which each block adds to what it got
    held = frozenset().union(*(seen.holds for seen in sums))
    lost = {name: [place for place in places if place not in held] for name, places in of.items()}
    if lost["attention"] == of["attention"]:
        both = len(lost["the MLP"]) == len(of["the MLP"])
        those = "those to which attention and the MLP add" if both else "that to which attention adds"
        raise Failed(
            f"in {len(of['attention'])} blocks, no later sum is made of {those}.",
            "a sum that only the next layer gets: in h = x + attention(norm(x)); x = x + mlp(norm(h)) it has to be"
            " h + mlp(norm(h)); and each block adds to what the last one gave, not to the embedding.",
            likely="a block may be meant so",
        )


def _expect_residuals_unnormalized(tested: ModelUnderTest) -> None:
    """No sum takes, for what was there, the normalized tokens that its branch got; in post-norm blocks all do.

    The first sum of a post-norm encoder does not, unless the embedding is normalized too.
    """
    recorded = tested.recorded
    read = {linear.fed.step for linear in recorded.linear if linear.fed and linear.fed_by == "norm"}
    sums = {
        name: [
            any(term.made_by == "norm" and term.step in read for term in recorded.sums[place].terms) for place in places
        ]
        for name, places in _sums_of_branches(recorded).items()
    }
    if min(map(len, sums.values())) < 2:
        return
    suspect = (
        "x = norm(x) before the sum: the residual connection carries the normalized tokens, and what was there is lost."
        " It should be x = x + f(norm(x))."
    )
    for name, replaced in sums.items():
        others = next(sums[other] for other in sums if other != name)
        if all(replaced) and not any(others):
            raise Failed(f"what {name} gives is added to the normalized tokens, in {len(replaced)} blocks.", suspect)
    if all(sums["attention"]) and all(sums["the MLP"]) and _blocks_start_with_a_norm(tested):
        raise Failed(
            f"what layers give is added to the normalized tokens, in {len(sums['attention'])} blocks.",
            suspect,
            likely="it is what a post-norm encoder does, which has its norms at the end of a block",
        )


def _blocks_start_with_a_norm(tested: ModelUnderTest) -> bool:
    """Whether the first parameter that each block takes is a gain or a shift."""
    looking = {id(seen.weight) for seen in tested.attentions}
    blocks = [{id(p): p for p in block.parameters()} for stack in stacks(tested.subject) for block in stack]
    blocks = [block for block in blocks if looking & block.keys()]
    first = [next(block[i] for i in tested.recorded.used if i in block) for block in blocks]
    return bool(first) and all(p.ndim == 1 for p in first)


def mlps_have_an_activation(tested: ModelUnderTest) -> None:
    recorded = tested.recorded
    names = {id(parameter): name for name, parameter in tested.subject.named_parameters()}
    looking = {id(seen.weight) for seen in tested.attentions_if_any}

    def named(pair: tuple[nn.Parameter | None, nn.Parameter | None]) -> str:
        return f"nothing stands between {' and '.join(names.get(id(weight), '?') for weight in pair)}."

    expect(not recorded.no_activation, named(recorded.no_activation[0]) if recorded.no_activation else "")
    if heads := [pair for pair in recorded.to_fewer if id(pair[1]) not in looking]:
        raise Failed(
            named(heads[0]), likely="a map that was trained before, such as a projection, may be kept in front"
        )
    if recorded.activations_twice:
        times = recorded.activations_twice
        raise Failed(
            f"one follows right after another, {times} times.", "the same activation is applied twice in a row."
        )
    if recorded.branches_activated:
        raise Failed(
            f"what is added to the tokens comes right from an activation, {recorded.branches_activated} times.",
            "GELU after the second linear map of the MLP, too: it adds nothing below −0.17, and can hardly subtract.",
            likely="some write it so on purpose",
        )


def both_branches_get_normalized_tokens(tested: ModelUnderTest) -> None:
    """Post-norm too, from the second block on."""
    recorded = tested.recorded
    looking = {id(seen.weight) for seen in tested.attentions}
    of_attention = [linear for linear in recorded.linear if id(linear.weight) in looking]
    of_mlps = [one for one, _ in _mlps(recorded, looking)]
    _expect_norms_apart(of_attention, of_mlps)
    attention, mlp = ([linear.fed_by for linear in maps] for maps in (of_attention[1:], of_mlps))
    if not attention or not mlp or not {*attention, *mlp} <= {"norm", "sum"}:
        raise NotAsked("what the layers get is no plain sum or norm")
    for mine, theirs, name in ((attention, mlp, "attention"), (mlp, attention, "the MLP")):
        if set(mine) == {"sum"} and set(theirs) == {"norm"}:
            raise Failed(
                f"in {len(mine)} blocks, {name} gets the sum itself.", f"the LayerNorm before {name} is missing."
            )
        if set(theirs) == {"norm"} and 0 < mine.count("sum") <= mine.count("norm"):
            raise Failed(
                f"in {mine.count('sum')} of {len(mine)} blocks looked at, {name} gets the sum itself.",
                f"the LayerNorm before {name} is missing there.",
                likely="a block may be meant to be another",
            )


def _expect_norms_apart(of_attention: list[Origin], of_mlps: list[Origin]) -> None:
    """No norm makes the tokens of both, unless it does so at once, as where the two stand side by side."""
    fed = [linear.fed for linear in of_attention if linear.fed_by == "norm"]
    norms, steps = {id(x.gain) for x in fed if x.gain is not None}, {x.step for x in fed}
    fed = [one.fed for one in of_mlps if one.fed_by == "norm"]
    twice = [x for x in fed if id(x.gain) in norms and x.step not in steps]
    if twice:
        raise Failed(
            f"one norm stands before attention and before the MLP, at {len(twice)} places.",
            "one LayerNorm for two places: each has a gain and a shift of its own, norm1 and norm2.",
            likely="it runs and trains, and may be meant to save parameters",
        )


def _mlps(recorded: OperationRecorder, looking: set[int]) -> list[tuple[Origin, Origin]]:
    """The two maps of each."""
    return [pair for pair in itertools.pairwise(recorded.linear) if _starts_an_mlp(*pair, looking)]


def _starts_an_mlp(one: Origin, next_one: Origin, looking: set[int]) -> bool:
    """Whether two linear maps in a row are D → M → D, and the first makes no queries."""
    wide = one.output.shape[-1]
    back = next_one.output.shape[-1] == one.width and next_one.width in (wide, wide / 2)
    return back and wide > one.width and id(one.weight) not in looking


OVER_TOKENS = (
    "LayerNorm over the tokens: a wrong axis, LayerNorm(T), or tokens transposed before it. It runs over the last axis"
    " of (B, T, D): LayerNorm(D)."
)


def _reads_more_of_the_image(tested: ModelUnderTest, norm: NormSeen) -> bool:
    """Whether it makes numbers of other tokens, too: of pixels all around those of what it takes from each place."""
    before, after, shape = norm.before, norm.after, norm.shape
    if before is None or after is None or not (before.requires_grad and after.requires_grad):
        return False
    if norm.sizes[0] not in (tested.attentions[0].inputs, *shape[1:2]):
        return False
    axis = next((i for i, n in enumerate(after.shape) if n == 1 < shape[i]), len(shape) - 1)

    def pixels(numbers: Tensor) -> Tensor:
        """The rectangle (H, W) of the pixels that they are made of, in whichever image."""
        mixture = (numbers * torch.randn_like(numbers)).sum()
        slope = torch.autograd.grad(mixture, tested.shown, retain_graph=True, allow_unused=True)[0]
        read = torch.zeros_like(tested.shown[0, 0]) if slope is None else slope.ne(0).flatten(0, 1).any(0)
        rows, columns = (read.any(i).cumsum(0) * read.any(i).flip(0).cumsum(0).flip(0) > 0 for i in (1, 0))
        return rows[:, None] & columns

    def mixes_tokens(place: int) -> bool:
        at = place // math.prod(shape[axis + 1 :]) % shape[axis]
        result = pixels(after.expand(shape).flatten()[place])
        taken = pixels(before.select(axis, at))  # of one token; or of all, where the axis is that of numbers
        return bool(taken.any() and 2 * taken.sum() < result.sum() and not (taken & ~result).any())

    number = math.prod(shape[1:])  # of one image; in its middle, and at its end, where patches are
    if not any(map(mixes_tokens, (number // 2 + shape[-1] // 2, number - 1))):
        return False
    try:
        a_token_is_a_rectangle(tested)  # one made of several patches is not torn by its norm
    except Failed:
        return False
    return True


def each_token_is_normalized(tested: ModelUnderTest) -> None:
    recorded = tested.recorded
    skip_if(not recorded.norms, "no norm was seen")
    first = tested.attentions[0]
    tokens, width = first.queries.shape[-2], first.inputs
    for norm in recorded.norms:
        if len(norm.sizes) == 2 and norm.sizes[0] == tokens:
            raise Failed(
                f"one runs over {tokens} tokens × {norm.sizes[1]} numbers.",
                "LayerNorm((T, D)) for LayerNorm(D): tokens are normalized together.",
                likely="some do so on purpose, on channels first",
            )
        if norm.sizes in ((tokens,), (tokens - 1,)) and width in norm.shape and width not in norm.sizes:
            if norm.batch_norm:
                raise Failed(
                    f"one has a mean and a variance for each of {norm.sizes[0]} tokens.",
                    "BatchNorm over the tokens in the place of LayerNorm(D), which knows no batch and no place.",
                )
            raise Failed(
                f"one runs over the {norm.sizes[0]} tokens, and not over the {width} numbers of each.",
                OVER_TOKENS,
            )
        if len(norm.sizes) == 1 and not norm.batch_norm and _reads_more_of_the_image(tested, norm):
            raise Failed(
                f"one makes each token of others: it runs over {norm.sizes[0]} tokens, as many as a token has numbers.",
                OVER_TOKENS,
            )
        if norm.eps is not None and norm.eps > 1e-3:
            raise Failed(
                f"its ε is {norm.eps:g}.",
                "another argument given in the place of ε, such as a dropout: it is 1e-6 in most Vision Transformers.",
                likely="no published one has an ε as large",
            )
        if norm.correction and len(norm.sizes) == 1:
            raise Failed(
                f"the variance is divided by {norm.sizes[0]} − {norm.correction:g}.", MISTAKES["UnbiasedVariance"].cause
            )


def head_gets_normalized_tokens(tested: ModelUnderTest) -> None:
    """Asked of the first map after the last residual connection, whatever pools the tokens before it."""
    recorded = tested.recorded
    skip_if(not recorded.linear or not recorded.sums, "no linear maps or no sums were seen")
    head = [linear for linear in recorded.linear if linear.step > recorded.sums[-1].step]
    if not head or head[-1].output.shape[-1] != tested.num_classes:
        raise NotAsked("no linear head after the last residual connection")
    skip_if(all(linear.fed_by != "norm" for linear in recorded.linear), "no norms before the layers")
    if tested.attentions[0].queries.shape[-2] != tested.attentions[-1].queries.shape[-2]:
        raise NotAsked("its last attention pools the tokens")
    layers = f"a head of {len(head)} layers" if len(head) > 1 else "it"
    expect(head[0].fed_by != "sum", f"{layers} gets the sum of the last block's residual connection.")


def patches_are_read_alike(tested: ModelUnderTest) -> None:
    tested.needs_sight()
    tested.needs_whole_tokens()
    if not _reads_alike(*_tokens_read(tested, tested.subject, tested.shown, tested.recorded, tested.gradients)):
        # once more, as the zeros of a maximum are elsewhere each time
        model, images = tested.shaken().requires_grad_(), tested.images().requires_grad_()
        recorded, logits = tested.record(model, images)
        gradients = tested.gradients_of(model, logits, images, *(seen.queries for seen in recorded.layers[-1]))
        patches, read = _tokens_read(tested, model, images, recorded, gradients)
        if not _reads_alike(patches, read):
            learned = (~patches).nonzero().flatten().tolist()
            class_token = f" Token {learned[0]} is the same for all images: a class token." if learned else ""
            raise Failed(f"of {int(patches.sum())} patches, it reads {int((patches & read).sum())}.{class_token}")


def _tokens_read(
    tested: ModelUnderTest, model: nn.Module, images: Tensor, recorded: OperationRecorder, gradients: Gradients
) -> tuple[Tensor, Tensor]:
    """Which tokens are patches, and which the head reads; read off the queries of the first and the last attention.

    A token that is the same for all images is learned, and no patch, nor is one in front that is made of the whole
    image; one is read where a gradient reaches its query.
    """
    of_others = tested.record(model, tested.images(), until_attention=True)[0].attentions
    first, last = recorded.layers[0], recorded.layers[-1]
    queries = recorded.attentions[0].queries
    shapes = {seen.queries.shape for seen in (*first, *last)}
    if len(shapes) > 1 or len(first) != len(last) or not last[0].queries.requires_grad:
        raise NotAsked("its tokens are others at the end than at the start")
    shape = queries.shape
    skip_if(len(first) == 1 and len(shape) != 3 and shape[0] != tested.batch, "its tokens are cut into windows")
    skip_if(len(first) == 1 and shape[0] % tested.batch != 0, "its tokens are others for each image")
    skip_if(not depends(queries, images), "its first queries are not made of the image")

    def of_the_whole_image(token: int) -> bool:
        row = queries[..., token, :]
        slope = torch.autograd.grad((row * torch.randn_like(row)).sum(), images, retain_graph=True)[0]
        return bool(slope.ne(0).all())

    skip_if(of_the_whole_image(shape[-2] // 2), "its tokens are mixed before the first attention")
    changed = matrices((of_others[0].queries - queries).detach()).abs().amax(dim=(0, 2))
    patches = changed > 1e-6 * queries.detach().abs().max()
    patches[0] &= not (patches[0] and of_the_whole_image(0))
    return patches, torch.stack([matrices(slope).any(2).any(0) for slope in gradients.of_queries]).any(0)


def _reads_alike(patches: Tensor, read: Tensor) -> bool:
    """Whether it reads no patch, all of them, or several; one left out at an end is told from a maximum's."""
    number, total = int((patches & read).sum()), int(patches.sum())
    if number == 1 < total:
        return False
    unread = (patches & ~read).nonzero().flatten().tolist()
    return bool(len(unread) != 1 or (~patches).any() or unread[0] not in (0, total - 1))


def equations_hold(tested: ModelUnderTest) -> None:
    if not isinstance(tested.model, VisionTransformer) or isinstance(
        tested.model.embedding.patch_embed, HybridEmbedding
    ):
        raise NotAsked("not built of this book's parts; so the order of query, key and value, say, cannot be seen")
    model, images, expected = tested.subject, tested.shown.detach(), tested.logits.detach()

    def agrees(*mistakes: str) -> bool:
        with _Undrawn():
            twin = broken_vit(tested.model.config, *mistakes).to(images).eval()
        ours, theirs = ({n: x.shape for n, x in m.state_dict().items()} for m in (model, twin))
        if ours != theirs:
            return False
        twin.load_state_dict(model.state_dict(), assign=True)
        return tested.same(logits_of(twin, images), expected)

    if agrees():
        return
    likely = [MISTAKES[name] for name in IN_A_VIT if agrees(name)]
    if not likely:
        raise Failed("it is neither those nor any one of the known mistakes.")
    titles = " Or: ".join(f"“{mistake.title}”" for mistake in likely)
    causes = " Or: ".join(mistake.cause for mistake in likely)
    raise Failed(f"it does what a model does with {titles}.", causes, likely[0].where)


class _Undrawn(TorchFunctionMode):
    """Meanwhile, nothing is written into parameters that will get other numbers."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, x = getattr(func, "__name__", ""), next(iter([*args, *(kwargs or {}).values()]), None)
        if name.endswith("_") and not name.endswith("__") and isinstance(x, Tensor):
            if isinstance(x if x._base is None else x._base, nn.Parameter):
                return x
        return func(*args, **(kwargs or {}))

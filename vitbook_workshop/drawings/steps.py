"""The drawings of single steps, in the order of the chapters."""

import math

from vitbook_workshop.drawings.svg import Drawing, Point

QKV = ("query", "key", "value")


def match_and_blend() -> Drawing:
    """Chapter 1: a query meets three keys on the left; on the right the weights blend three values."""
    d = Drawing(
        312,
        "Queries, keys and values as points and arrows",
        "Left, arrows from one origin: a query, and three keys. The first key points almost the query's way, the "
        "second less so, the third the other way. Below, three bars: the weights 0.68, 0.29 and 0.03. Right, three "
        "values as points of a triangle; the output lies inside it, near the first value.",
    )
    query, keys = (1.7, 1.1), ((1.5, 0.5), (0.2, 1.4), (-1.0, 0.3))
    values = ((1.5, 1.3), (-0.9, 1.0), (0.5, -0.3))
    scores = [(query[0] * a + query[1] * b) / math.sqrt(2) for a, b in keys]
    weights = [math.exp(s) / sum(map(math.exp, scores)) for s in scores]
    output = tuple(sum(w * v[i] for w, v in zip(weights, values, strict=True)) for i in (0, 1))

    def left(p: Point) -> Point:
        return 72 + 44 * p[0], 126 - 44 * p[1]

    def right(p: Point) -> Point:
        return 256 + 48 * p[0], 132 - 48 * p[1]

    d.text(88, 24, "match", font_weight="600")
    d.text(272, 24, "blend", font_weight="600")
    d.box(8, 36, 160, 132, "muted", r=8)
    d.box(192, 36, 160, 132, "muted", r=8)
    offsets = ((4, 18), (14, 6), (0, -8))
    for n, key in enumerate(keys):
        d.line(left((0, 0)), left(key), role="key", width=2, arrow=True)
        x, y = left(key)
        d.text(x + offsets[n][0], y + offsets[n][1], f"$k_{n + 1}$", "key")
    d.line(left((0, 0)), left(query), role="query", width=3.5, arrow=True)
    d.text(left(query)[0] + 8, left(query)[1] - 5, "$q$", "query", size=15)
    d.dot(*left((0, 0)), "ink", 3)

    for n, (weight, value) in enumerate(zip(weights, values, strict=True)):
        d.line(right(value), right(output), role="value", width=max(1, 7 * weight))
        x, y = right(value)
        d.box(x - 6, y - 6, 12, 12, "value", r=2)
        d.text(x + (0, 0, 18)[n], y + (-11, -11, 5)[n], f"$v_{n + 1}$", "value")
    x, y = right(output)
    d.dot(x, y, "ink", 6)
    d.text(x + 10, y + 22, "output", anchor="start")

    d.text(8, 196, "score", anchor="start")
    d.text(126, 196, "weight", anchor="start")
    for n, (score, weight) in enumerate(zip(scores, weights, strict=True)):
        y = 216 + 32 * n
        d.text(8, y + 4, f"$q·k_{n + 1}$ / √2 = {score:.2f}".replace("-", "−"), anchor="start")
        d.box(126, y - 8, max(2.0, 140 * weight), 16, "ink", r=2)
        d.text(134 + 140 * weight, y + 4, f"{weight:.2f}", anchor="start")
        d.line((170 + 140 * weight, y), (310, y), role="muted", dashed=True)
        d.box(316, y - 8, 16, 16, "value", r=2)
        d.text(346, y + 4, f"$v_{n + 1}$", "value")
    return d


def queries_keys_values() -> Drawing:
    """Chapter 3: one sequence of tokens becomes queries, keys and values."""
    d = Drawing(
        256,
        "From tokens to queries, keys and values",
        "Left, a table of four rows and six columns: the tokens X. Three arrows fan out of it, through the matrices "
        "W Q, W K and W V, to three tables of four rows and three columns: Q, K and V. One row is outlined in all "
        "four: each token becomes one query, one key and one value.",
    )
    d.cells(12, 96, 4, 6, "token", 16)
    d.text(60, 86, "$X$", "token", size=16)
    d.text(60, 180, "$T$ × $D$")
    for n, role in enumerate(QKV):
        y = 16 + 80 * n
        d.line((112, 128), (168, y + 32), (224, y + 32), role=role, width=2.5, arrow=True)
        d.text(194, y + 24, f"$W_{'QKV'[n]}$", role, size=15)
        d.cells(232, y, 4, 3, role, 16)
        d.text(296, y + 28, f"${'QKV'[n]}$", role, size=18)
        d.text(288, y + 52, "$T$ × $D_h$", anchor="start")
        d.outline(232, y + 16, 48, 16)
    d.outline(12, 112, 96, 16)
    return d


def heads() -> Drawing:
    """Chapter 4: split into heads, attend in each, merge, and mix with W_O."""
    d = Drawing(
        424,
        "Three heads, from split to merge",
        "From top to bottom. Wide bars of queries, keys and values, B by T by D, are cut into three equal pieces. Each "
        "of three heads takes its own piece of the three, computes its own table of weights, and gives its own output. "
        "The three outputs are joined to one wide bar, and W O mixes it into tokens, again B by T by D.",
    )
    for n, role in enumerate(QKV):
        y = 16 + 24 * n
        d.text(20, y + 13, f"${'QKV'[n]}$", role, size=15)
        for head in range(3):
            d.box(36 + 80 * head, y, 80, 16, role, r=2)
    d.text(288, 40, "$(B, T, D)$", anchor="start")
    d.text(288, 60, "$D$ = $h D_h$", anchor="start")
    for head in range(3):
        x, middle = 20 + 92 * head, 56 + 92 * head
        d.line((76 + 80 * head, 84), (middle, 112), arrow=True)
        d.box(x, 116, 76, 160, "muted", r=8)
        d.text(middle, 134, f"head {head}")
        for n, role in enumerate(QKV):
            d.box(x + 10 + 20 * n, 146, 16, 24, role, r=2)
        d.line((middle, 174), (middle, 190), arrow=True)
        for i in range(4):
            for j in range(4):
                weight = (0.85 if i == j else 0.05, 0.85 if j == 0 else 0.05, 0.05 + 0.4 * ((i + j) % 2))[head]
                cell = dict(x=middle - 20 + 10 * j, y=194 + 10 * i, width=10, height=10)
                d.add("rect", **cell, fill=d.color("ink"), fill_opacity=weight, stroke=d.color("ink"), stroke_width=0.5)
        d.line((middle, 238), (middle, 250), arrow=True)
        d.box(x + 14, 254, 48, 14, "value", r=2)
        d.line((middle, 280), (76 + 80 * head, 306), arrow=True)
        d.box(36 + 80 * head, 310, 80, 16, "value", r=2)
    d.text(304, 158, "split", anchor="start")
    d.text(304, 218, "weights", anchor="start")
    d.text(304, 323, "merge", anchor="start")
    d.line((156, 330), (156, 366), width=2.5, arrow=True)
    d.text(168, 354, "$W_O$", anchor="start", size=15)
    d.box(36, 370, 240, 16, "token", r=2)
    d.text(288, 383, "$(B, T, D)$", anchor="start")
    d.text(156, 408, "tokens")
    return d


def patch_to_token() -> Drawing:
    """Chapter 6: a patch is read off as a row of numbers and projected to a token."""
    d = Drawing(
        304,
        "From a patch to a token",
        "Top left, a photograph of a bird, cut into four by four patches, one of them outlined. Right, that patch "
        "enlarged: P by P pixels in C channels. Below, its pixels in one long row of P squared times C numbers. The "
        "matrix E makes of the row a token: D numbers.",
    )
    d.photo(16, 16, 112, 4)
    d.outline(44, 44, 28, 28)
    d.line((72, 44), (200, 16), role="muted")
    d.line((72, 72), (200, 112), role="muted")
    shades = [0.15, 0.2, 0.3, 0.45, 0.2, 0.35, 0.6, 0.75, 0.35, 0.6, 0.8, 0.85, 0.5, 0.75, 0.85, 0.9]
    for n, shade in enumerate(shades):
        for x, y, side in ((200 + 24 * (n % 4), 16 + 24 * (n // 4), 24), (20 + 20 * n, 168, 20)):
            d.box(x, y, side, side, "paper", r=0)
            square = dict(x=x, y=y, width=side, height=side, fill_opacity=shade, stroke_width=1)
            d.add("rect", **square, fill=d.color("token"), stroke=d.color("token"))
    d.outline(200, 16, 96, 96)
    d.text(304, 60, "$P$ × $P$", anchor="start")
    d.text(304, 78, "pixels", anchor="start")
    d.line((248, 116), (248, 162), arrow=True)
    d.text(258, 140, "row by row", anchor="start")
    d.text(20, 206, "$P^2C$ numbers", anchor="start")
    d.line((180, 194), (180, 244), width=2.5, arrow=True)
    d.text(192, 226, "$E$", anchor="start", size=16)
    d.cells(100, 250, 1, 8, "token", 20)
    d.text(180, 290, "one token, $D$ numbers")
    return d


def norms() -> Drawing:
    """Chapter 8: the block as a residual stream from bottom to top, pre-norm and post-norm."""
    d = Drawing(
        408,
        "Pre-norm and post-norm",
        "Two blocks side by side, each a thick line from bottom to top with two detours. Left, pre-norm: LayerNorm "
        "stands on each detour, before attention and before the MLP, and the thick line runs through untouched. "
        "Right, post-norm: attention and the MLP stand alone on the detours, and after each sum there is a LayerNorm.",
    )
    for x, name, when in ((56, "pre-norm", "ViT, 2021"), (232, "post-norm", "Transformer, 2017")):
        d.text(x + 48, 24, name, font_weight="600")
        d.text(x + 48, 42, when, "muted")
        pre = name == "pre-norm"
        d.line((x, 388), (x, 60), role="token", width=4, arrow=True)
        for bottom, part in ((360, "attention"), (212, "MLP")):
            top = bottom - (110 if pre else 84)
            d.line((x, bottom), (x + 68, bottom), (x + 68, bottom - 14), arrow=True)
            if pre:
                d.box(x + 28, bottom - 44, 80, 28, words="LayerNorm", solid=True)
                d.line((x + 68, bottom - 44), (x + 68, bottom - 62), arrow=True)
            y = bottom - (92 if pre else 44)
            d.box(x + 28, y, 80, 28, words=part)
            d.line((x + 68, y), (x + 68, top), (x + 10, top), arrow=True)
            d.plus(x, top)
            if not pre:
                d.box(x - 40, top - 44, 80, 28, words="LayerNorm", solid=True)
        d.text(x + 14, 392, "$z_{ℓ−1}$", anchor="start", size=15)
        d.text(x + 14, 70, "$z_ℓ$", anchor="start", size=15)
    return d


def encoder_decoder() -> Drawing:
    """Chapter 5: the Transformer of 2017."""
    d = Drawing(
        416,
        "The Transformer of 2017",
        "Two columns, each read from bottom to top. Left, the encoder: the source's tokens, with positions, pass "
        "self-attention and an MLP, N times. Right, the decoder: the target's tokens so far pass masked "
        "self-attention, cross-attention and an MLP, N times, then a linear layer and a softmax. Two arrows, keys and "
        "values, lead from the encoder into the cross-attention; its queries come from the decoder itself.",
    )
    for x, top, name in ((16, 176, "encoder"), (200, 88, "decoder")):
        d.text(x + 72, 24, name, font_weight="600")
        d.box(x, top, 144, 356 - top, "muted", r=8)
        d.text(x + 10, top + 20, "× $N$", anchor="start")
        d.line((x + 72, 384), (x + 72, top + 48), role="token", width=4)
    d.line((272, 124), (272, 70), role="token", width=4, arrow=True)
    for x, y, words in (
        (88, 300, "self-attention"),
        (88, 212, "MLP"),
        (272, 300, "masked\nself-attention"),
        (272, 212, "cross-attention"),
        (272, 124, "MLP"),
    ):
        d.box(x - 54, y, 108, 40, words=words)
    d.box(212, 40, 120, 28, words="linear, softmax")
    d.line((84, 212), (84, 140), (184, 140), (184, 224), (216, 224), role="key", width=2, arrow=True)
    d.line((92, 212), (92, 148), (176, 148), (176, 240), (216, 240), role="value", width=2, arrow=True)
    d.text(122, 132, "$K$", "key", size=15)
    d.text(122, 166, "$V$", "value", size=15)
    d.text(280, 280, "$Q$", "query", size=15, anchor="start")
    d.text(88, 402, "source + positions")
    d.text(272, 402, "target so far + positions")
    return d


def two_tokens() -> Drawing:
    """Chapter 17: DeiT's class token and distillation token, and what each is compared with."""
    d = Drawing(
        312,
        "DeiT's two tokens",
        "A row of tokens enters the encoder from below: a class token, a distillation token, and those of the patches. "
        "Above the encoder only the first two go on, each to a head of its own. The class token's head is compared "
        "with the true label, the distillation token's head with the teacher's answer.",
    )
    for x, against in ((64, "true label"), (184, "teacher’s answer")):
        d.text(x, 28, against)
        d.line((x, 36), (x, 66), role="muted", dashed=True)
        d.text(x + 8, 55, "loss", anchor="start")
        d.box(x - 36, 70, 72, 32, words="head")
        d.line((x, 144), (x, 106), arrow=True, role="class", width=2.5)
        d.line((x, 240), (x, 208), arrow=True, role="class", width=2.5)
    d.box(12, 148, 336, 56, words="encoder", r=8)
    d.box(40, 244, 48, 28, "class", "cls")
    frame = dict(x=160, y=244, width=48, height=28, rx=4, stroke_width=3)
    d.add("rect", **frame, fill=d.color("paper"), stroke=d.color("class"))
    d.text(184, 262, "dist", "class")
    for n in range(3):
        d.box(240 + 36 * n, 244, 28, 28, "token", f"$x_{n + 1}$" if n < 2 else "…")
        d.line((254 + 36 * n, 240), (254 + 36 * n, 208), arrow=True, role="token")
    for x, words in ((64, "class"), (184, "distillation"), (290, "patches")):
        d.text(x, 294, words)
    d.text(290, 130, "not read", "muted")
    return d


def tiles() -> Drawing:
    """Chapter 20: the fused kernel visits the score matrix tile by tile and never stores it whole."""
    d = Drawing(
        328,
        "Attention tile by tile",
        "A square table of scores, cut into five by five tiles: queries down its left side, keys along its top, values "
        "along its bottom. The tile in the middle is dark; the blocks of queries, keys and values that it needs are "
        "colored. The tiles before it are ticked: computed and forgotten. Right, what is kept of the row so far: a "
        "maximum, a sum, and the output.",
    )
    side, x0, y0 = 40, 52, 64
    for n in range(5):
        for role, box in (
            ("query", (16, y0 + side * n, 24, side - 4)),
            ("key", (x0 + side * n, 28, side - 4, 24)),
            ("value", (x0 + side * n, y0 + 5 * side + 8, side - 4, 24)),
        ):
            with d.muted(n != 2):
                d.box(*box, role, r=2)
        for row in range(5):
            done, now = row < 2 or (row == 2 and n < 2), row == n == 2
            shade = dict(fill=d.color("ink"), fill_opacity=0.85 if now else 0.14 if row == 2 and n < 2 else 0)
            square = dict(x=x0 + side * n, y=y0 + side * row, width=side - 4, height=side - 4, rx=2)
            d.add("rect", **square, **shade, stroke=d.color("ink" if now else "muted"), stroke_width=1.5)
            if done:
                a, b = x0 + side * n + 18, y0 + side * row + 18
                d.line((a - 4, b), (a - 1, b + 4), (a + 5, b - 4), role="muted")
    d.text(28, 20, "$Q$", "query", size=15)
    d.text(x0 + 98, 20, "$K$", "key", size=15)
    d.text(x0 + 98, 316, "$V$", "value", size=15)
    d.line((252, 162), (272, 162), arrow=True)
    d.text(314, 112, "row so far")
    for y, words in ((124, "maximum"), (152, "sum")):
        d.box(276, y, 76, 22, words=words)
    d.box(276, 180, 76, 22, "value")
    d.text(314, 220, "output")
    return d


def training_step() -> Drawing:
    """Chapter 10: forward to a loss, backward to a gradient, and a step that changes the weights."""
    d = Drawing(
        214,
        "One step of training",
        "Two rows. Above, from left to right: a batch of images is augmented and goes into the model, which gives "
        "logits; logits and labels give the loss. Below, from right to left: the loss gives a gradient, which is "
        "clipped and handed to AdamW; a schedule tells AdamW the learning rate. From AdamW an arrow leads up to the "
        "model: new weights.",
    )
    for x, width, words in ((8, 58, "images"), (84, 68, "augment"), (282, 70, "loss")):
        d.box(x, 56, width, 36, words=words)
    d.box(172, 56, 60, 36, "token", "model")
    for start, end in ((66, 82), (152, 170), (232, 280)):
        d.line((start, 74), (end, 74), arrow=True)
    d.text(257, 66, "logits")
    d.text(317, 24, "labels")
    d.line((317, 30), (317, 54), arrow=True)
    d.line((317, 94), (317, 164), (290, 164), dashed=True, arrow=True)
    d.text(311, 132, "gradient", anchor="end")
    d.box(238, 146, 50, 36, words="clip")
    d.line((236, 164), (210, 164), dashed=True, arrow=True)
    d.box(136, 146, 72, 36, words="AdamW")
    d.box(8, 146, 78, 36, words="schedule")
    d.line((86, 164), (134, 164), arrow=True)
    d.text(110, 156, "$η_t$")
    d.line((188, 144), (188, 94), role="token", width=2.5, arrow=True)
    d.text(180, 124, "new weights", "token", anchor="end")
    return d


def image_and_words() -> Drawing:
    """Chapter 24: patch tokens become tokens of a language model and stand before the words."""
    d = Drawing(
        344,
        "How a language model gets to see",
        "From bottom to top. Left, a photograph cut into patches goes through a Vision Transformer, and its patch "
        "tokens through a projector, which makes them as wide as the words. Right, words become embeddings. Both stand "
        "in one row, patches first, and go through the language model. Above the last words stand the words that come "
        "next; above the patches nothing is read.",
    )
    d.photo(16, 246, 72, 3)
    d.line((94, 282), (110, 282), arrow=True)
    d.box(114, 264, 56, 36, words="ViT")
    d.line((142, 260), (142, 240), role="token", width=2.5, arrow=True)
    d.text(152, 254, "$(N, D)$", "token", anchor="start")
    d.text(114, 191, "$(N, D_{LM})$", "token", anchor="start")
    d.box(62, 202, 112, 32, words="projector", solid=True)
    d.line((104, 199), (104, 176), role="token", width=2.5, arrow=True)
    for n in range(5):
        d.box(28 + 32 * n, 146, 28, 24, "token")
    for n, word in enumerate(("a", "red", "…")):
        x = 212 + 44 * n
        d.box(x, 146, 40, 24, "ink", word)
        d.line((x + 20, 142), (x + 20, 130), arrow=True)
        d.line((x + 20, 84), (x + 20, 66), arrow=True)
        d.text(x + 20, 56, ("red", "circle", "…")[n])
        d.line((x + 20, 260), (x + 20, 176), role="muted", dashed=True)
        d.text(x + 20, 278, ("a", "red", "…")[n])
    for n in range(5):
        d.line((42 + 32 * n, 142), (42 + 32 * n, 130), role="token", arrow=True)
    d.box(16, 88, 328, 38, words="language model, causal mask", r=8)
    d.text(100, 56, "not read", "muted")
    d.text(274, 34, "the next words", font_weight="600")
    d.text(276, 302, "words so far")
    d.text(52, 334, "image")
    return d


def painter() -> Drawing:
    """Chapter 29: time and class in front of the patches of a noisy image, and a guess of the clean one behind them."""
    d = Drawing(
        330,
        "A Vision Transformer that paints",
        "From bottom to top. A noisy image is cut into patches, which become tokens. Two more tokens stand in front of "
        "them, one for the time and one for the class. All go through the encoder. Above it the patches alone are "
        "read: a linear map makes clean pixels of each, which together are the guess of the image. An arrow leads from "
        "the guess back to the noisy image: a short step toward the guess, and again.",
    )
    d.box(16, 150, 268, 52, words="encoder", r=8)
    for x, role, word in ((28, "position", "$t$"), (76, "class", "7")):
        d.box(x, 236, 40, 28, role, word, solid=role == "class")
        d.line((x + 20, 232), (x + 20, 206), arrow=True, role=role, width=2.5)
    for n in range(4):
        x = 136 + 36 * n
        d.box(x, 236, 28, 28, "token")
        d.line((x + 14, 232), (x + 14, 206), arrow=True, role="token")
        d.line((x + 14, 146), (x + 14, 112), arrow=True, role="token")
    d.box(130, 76, 148, 32, words="to pixels")
    d.line((204, 72), (204, 50), arrow=True)
    d.text(204, 36, "the guess $x̂$", font_weight="600")
    d.text(62, 130, "not read", "muted")
    d.text(48, 286, "time")
    d.text(98, 286, "class", "class")
    d.text(204, 286, "patches of $z_t$")
    d.line((256, 31), (324, 31), (324, 281), (262, 281), dashed=True, arrow=True)
    d.text(204, 316, "a short step toward the guess, and again", "muted")
    return d

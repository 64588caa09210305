"""A small picture for each chapter's card, painted in patches: six rows of six, in the colors of the book's vectors."""

ROLES = {role[0]: role for role in ("query", "key", "value", "class", "position", "token", "muted")}  # "." is paper

ICONS = {
    0: "...... .qq... kqqq.. .vvvv. ..vv.v ..m...",  # a bird
    1: "...... ..q... ...... mmkmmm mmvmmm ......",  # who asks, who answers, and what is heard
    2: "...... ..q... ..q... ..q... .qqq.. qqqqqq",  # a softmax
    3: "q..... .q..m. ..q... .m.q.. ....q. .....q",  # everyone asks everyone
    4: "qq..kk qq..kk ...... ...... vv..cc vv..cc",  # heads
    5: "....vv ....vv qq..vv qqkkvv qq..vv qq....",  # encoder and decoder
    6: "t.t.t. .t.t.t t.t.t. .t.t.t t.t.t. .t.t.t",  # patches
    7: "...... ...... cttttt .ppppp ...... ......",  # class token and positions
    8: "t..... tqqqq. t..... tvvvv. t..... t.....",  # a stream and its branches
    9: "..cc.. ...... .qqqq. .kkkk. .vvvv. tttttt",  # the whole model
    10: "q..... q..... .q.... ..q... ...qq. .....q",  # a loss
    11: "..tt.. .tttt. tt..tt tt..tt .tttt. ..tt..",  # a wheel
    12: "vvvv.. v..vqq v..v.q vvvv.q ..q..q ..qqqq",  # photographs
    13: "mmmmmm mmkkmm mkqqkm mkqqkm mmkkmm mmmmmm",  # a map
    14: "...... ...... q....k qttttk q....k ......",  # a distance
    15: "..qq.. ..qq.. tttttt tttttt tttttt tttttt",  # on the shoulders of
    16: "t.t.t. q.t.t. t.t.v. t.k.t. t.t.t. t.t.t.",  # what can be turned
    17: "tttt.. tttt.. tttt.. tttt.. ....cc ....cc",  # large and small
    18: "q.k..v q.k..v tttttt ..tt.. ..tt.. ..tt..",  # one trunk
    19: "q....q .q..q. ..qq.. ..qq.. .q..q. q....q",  # wrong
    20: "k..k.. kk.kk. kkkkkk kkkkkk kk.kk. k..k..",  # fast
    21: "..vv.. .vvvv. vvvvvv ..vv.. ..vv.. ..vv..",  # since then
    22: "mmtmmm mmmmtm tmmmmm mmmtmm mtmmmm mmmmmt",  # what is left of an image
    23: "qqqq.. q..q.. q.cckk qqccck ..k..k ..kkkk",  # two views
    24: "vmmmmm mvmmmm mmvmmm mmmvmm mmmmvm mmmmmv",  # pairs
    25: "tttttt ttttt. tttt.. ttt... tt.... t.....",  # fewer and fewer
    26: "ttt.qq t...qq t..q.. t.q..t t....t tttttt",  # out of the box
    27: "ppp... pppppp p....p p....p p....p pppppp",  # a folder
    28: "...... .....v ....v. v..v.. .vv... ......",  # right
    29: "m.mvvv .mm..v m.m.v. .m..v. mm.v.. m.m...",  # noise, and a digit
}
PATCHES = "tttttt " * 6  # of a chapter that has no icon yet


def icon(number: int) -> str:
    """A chapter's icon as SVG, which names no color but the page's own."""
    rows = ICONS.get(number, PATCHES).split()
    paths = ""
    for letter, role in ROLES.items():
        squares = ((x, y) for y, row in enumerate(rows) for x, seen in enumerate(row) if seen == letter)
        if drawn := "".join(f"M{x} {y}h.9v.9h-.9z" for x, y in squares):
            paths += f'<path fill="var(--vit-{role})" d="{drawn}"/>'
    return f'<svg class="chapter-icon" viewBox="0 0 5.9 5.9" aria-hidden="true">{paths}</svg>'

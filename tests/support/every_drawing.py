"""The book's drawings by name, each a function that makes one; that of the model once for each place in it."""

from vitbook_workshop import drawings

STEPS = [name for name in drawings.__all__ if name.islower() and name != "vit"]
ALL = {name: getattr(drawings, name) for name in STEPS}
ALL |= {f"vit-{here}": lambda here=here: drawings.vit(here) for here in (None, *drawings.PLACES)}

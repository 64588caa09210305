"""The tables of the page "How this book is tested" are those of the records."""

import json
from pathlib import Path
from types import SimpleNamespace

import tested

ROOT = Path(__file__).resolve().parents[2]


def test_each_table_stands_where_the_page_wants_it() -> None:
    source, noted = [(ROOT / "tested.md").read_text(encoding="utf-8")], []
    app = SimpleNamespace(srcdir=str(ROOT), env=SimpleNamespace(note_dependency=noted.append))
    places = (tested.LAST_RUN, tested.EVERY_VIT, tested.BLIND)
    assert [source[0].count(place) for place in places] == [1, 1, 1]
    tested.fill_in(app, "intro", source)
    assert all(place in source[0] for place in places) and not noted
    tested.fill_in(app, "tested", source)
    assert not any(place in source[0] for place in places) and str(ROOT / tested.LOADABLE) in noted


def test_every_model_is_counted_once_and_named() -> None:
    lines = tested.every_vit(ROOT)
    for library, outcomes in json.loads((ROOT / tested.LOADABLE).read_text(encoding="utf-8")).items():
        names = " ".join(outcomes.values()).split()
        row = next(line for line in lines if line.startswith(f"| {library} "))
        equal, headless, refused = map(int, row.split("|")[2:5])
        assert equal + headless + refused == len(names) and equal == len(outcomes["equal"].split())
        assert headless == len(outcomes.get(tested.WITHOUT_HEAD, "").split())
        shown = "\n".join(line for line in lines if line.startswith(f"- {library}, "))
        assert all(shown.count(f"`{name}`") == 1 for name in names)


def test_models_written_blind_are_counted_as_they_were_found() -> None:
    record = json.loads((ROOT / tested.DIAGNOSIS).read_text(encoding="utf-8"))
    rows = [[int(cell) for cell in line.split("|")[2:-1]] for line in tested.blind(ROOT)[2:]]
    for (wrong, found, named, right, accused, _), kind in zip(rows, ("first", "second"), strict=True):
        counts = record[f"{kind}_blind"]
        assert (right, accused) == (counts["right"]["models"], len(counts["right"]["alarms"]))
        assert {"models": wrong, "found": found, "named_rightly": named} == counts["wrong"]

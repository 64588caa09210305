"""The scripts that a page loads are small, and ask for nothing from elsewhere."""

import gzip
import re

from vitbook_workshop.live import bundles, figures


def test_still_and_scripts_are_small_and_ask_for_nothing_from_elsewhere():
    figure = figures.ask()
    assert len(figure._repr_html_()) < 40_000
    scripts = figures.site_files()
    data = {name.partition("{")[0] for needs in bundles.NEEDS.values() for name in needs}
    code = "".join(script for name, script in scripts.items() if not name.startswith(tuple(data)))
    assert len(gzip.compress(code.encode())) < 80_000
    for small in ("query", "scale", "patches", "places", "shares", "steps"):
        parts = getattr(figures, small)().parts
        own = "".join(script for name, script in parts.items() if name not in ("digits", "computing", "thread-train"))
        assert len(gzip.compress(own.encode())) < 20_000
    scripts = {name: script for name, script in scripts.items() if not name.startswith("model-")}
    still = re.sub(r'<span class="elsewhere">.*?</span>', "", figure.still)
    for script in [still, *scripts.values()]:
        script = script.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        assert not re.search(r"https?:|//\w+\.\w|@import|<link|\bfetch\(|\bimport\(|Math\.random|Date", script)

"""The scripts themselves, with compilers from npm, which nothing else needs: what is compiled, and the types stated."""

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from vitbook.explorer import live

pytestmark = pytest.mark.slow
SCRIPTS = Path(str(resources.files("vitbook.explorer"))) / "scripts"
COMPILERS = (live.COMPILER, "typescript@7.0.2")


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """The folder of npm's programs."""
    folder = tmp_path_factory.mktemp("npm")
    if not shutil.which("npm"):
        pytest.skip("no npm")
    got = subprocess.run(["npm", "install", "--prefix", folder, *COMPILERS], capture_output=True, text=True)
    if got.returncode:
        pytest.skip(f"npm gave no compilers: {got.stderr[-200:]}")
    return folder / "node_modules" / ".bin"


def test_the_webassembly_is_what_its_source_compiles_to(programs, tmp_path):
    made = tmp_path / "kernels.wasm"
    subprocess.run([programs / "asc", SCRIPTS / "kernels.ts", "-o", made, *live.COMPILE], check=True)
    assert made.read_bytes() == (SCRIPTS / "kernels.wasm").read_bytes()


@pytest.mark.parametrize("figure", [*live.NEEDS, "live"])
@pytest.mark.parametrize("thread", [False, True], ids=["page", "thread"])
def test_types_are_those_that_are_stated(programs, tmp_path, figure, thread):
    (tmp_path / "given.d.ts").write_text("declare const KERNELS: string;")
    own = (*live.COMPUTING, *live.THREADS.get(figure, ()), "thread.js") if thread else (f"{figure}.js",)
    if thread and figure not in live.THREADS:
        pytest.skip("no thread")
    settings = dict(noEmit=True, allowJs=True, checkJs=True, strict=False, target="es2022", types=[])
    settings["lib"] = ["es2023", "dom", "dom.iterable"]
    files = [str(SCRIPTS / name) for name in own] + [str(tmp_path / "given.d.ts")]
    (tmp_path / "tsconfig.json").write_text(json.dumps(dict(compilerOptions=settings, files=files)))
    checked = subprocess.run([programs / "tsc", "-p", tmp_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout

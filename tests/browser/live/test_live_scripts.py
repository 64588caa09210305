"""The scripts themselves, with tools from npm, which nothing else needs: lint, types, and what is compiled."""

import hashlib
import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from vitbook._downloads.fetching import cache_dir
from vitbook_workshop.live import bundles

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(str(resources.files("vitbook_workshop.live"))) / "scripts"
COMPILER = "assemblyscript@0.28.20"
COMPILE = "--optimizeLevel 3 --noAssert --runtime stub --memoryBase 16 --importMemory --enable simd".split()
TOOLS = (COMPILER, "typescript@7.0.2", "@biomejs/biome@2.6.8")


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of npm's programs, installed once."""
    folder = cache_dir() / "npm" / f"programs-{hashlib.sha256(repr(TOOLS).encode()).hexdigest()[:12]}"
    if not shutil.which("npm"):
        pytest.skip("the scripts were not linted, for want of node and its npm")
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(["npm", "install", "--prefix", folder, *TOOLS], capture_output=True, text=True)
        if got.returncode:
            pytest.skip(f"the scripts were not linted, for want of npm's tools: {got.stderr[-200:]}")
        (folder / "ready").touch()
    return folder / "node_modules" / ".bin"


def test_the_scripts_pass_biome(programs):
    """Its recommended rules; biome.jsonc beside this file says which are off, and why."""
    told = ["--config-path", Path(__file__).parent, "--error-on-warnings", "--max-diagnostics", "50"]
    got = subprocess.run([programs / "biome", "lint", *told, SCRIPTS, ROOT / "_static"], capture_output=True, text=True)
    assert got.returncode == 0, got.stdout + got.stderr


def test_the_webassembly_is_what_its_source_compiles_to(programs, tmp_path):
    made = tmp_path / "kernels.wasm"
    subprocess.run([programs / "asc", SCRIPTS / "kernels.ts", "-o", made, *COMPILE], check=True)
    assert made.read_bytes() == (SCRIPTS / "kernels.wasm").read_bytes()


@pytest.mark.parametrize("figure", [*bundles.NEEDS, "live", *(f"{name}'s thread" for name in bundles.THREADS)])
def test_types_are_those_that_are_stated(programs, tmp_path, figure):
    (tmp_path / "given.d.ts").write_text("declare const KERNELS: string;")
    name, _, thread = figure.partition("'")
    own = (*bundles.COMPUTING, *bundles.THREADS[name], "thread.js") if thread else bundles.scripts_of(name)
    settings = dict(noEmit=True, allowJs=True, checkJs=True, strict=False, target="es2022", types=[])
    settings["lib"] = ["es2023", "dom", "dom.iterable"]
    files = [str(SCRIPTS / name) for name in own] + [str(tmp_path / "given.d.ts")]
    (tmp_path / "tsconfig.json").write_text(json.dumps(dict(compilerOptions=settings, files=files)))
    checked = subprocess.run([programs / "tsc", "-p", tmp_path], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout

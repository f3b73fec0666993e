"""transformers looks for an unrelated package that is also called ``kernels``; ours must not be taken for it.

Each check runs in a fresh interpreter, once with the tree on the path, as tests run, and once with an installed copy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CHECK = """
import kernels
from transformers.utils.import_utils import is_kernels_available
assert not is_kernels_available(), "transformers takes our kernels/ for the one from the hub"
import transformers.generation
import transformers.integrations.hub_kernels
import transformers.modeling_utils
import transformers.models.llama.modeling_llama
from transformers import AutoModelForCausalLM, AutoTokenizer
print(kernels.__file__)
"""


def _import_beside(folder: Path) -> Path:
    """Run the check with ``folder`` as the only place of our packages; return where ``kernels`` was found."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip().splitlines()[-1])


def test_transformers_imports_beside_the_tree() -> None:
    assert _import_beside(ROOT) == ROOT / "kernels" / "__init__.py"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as pip leaves it: our packages with the metadata that names the distribution and its version."""
    folder = tmp_path_factory.mktemp("site")
    build = "from hatchling.build import build_wheel; import sys; print(build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True)
    return folder


def test_transformers_imports_beside_the_installed_package(installed: Path) -> None:
    assert _import_beside(installed) == installed / "kernels" / "__init__.py"

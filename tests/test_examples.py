"""The examples run, as a person would run them: in a process of their own, without the tests' strictness.

So do the blocks of Python in the pages, one after the other in one process; and the reference has every public name.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import lamu

ROOT = Path(__file__).parent.parent
LONG = {
    "ask_the_right_questions.py",
    "bounded_influence.py",
    "continual_digits.py",
    "demo.py",
    "dense_prediction.py",
    "dlgm_depth.py",
    "draw.py",
    "evidence_selection.py",
    "imputation.py",
    "lora.py",
    "most_influential_rows.py",
    "next_step.py",
    "one_model_all_agree.py",
    "priors_gallery.py",
    "pytorch_network.py",
    "relevant_inputs.py",
    "samplers_in_2d.py",
    "semi_supervised.py",
    "structured_vae.py",
    "ten_thousand_classes.py",
    "textbook_regression.py",
    "trained_network.py",
    "vogn_versus_backprop.py",
    "wide_limits.py",
    "your_own_algorithm.py",
    "your_own_loop.py",
}
SCRIPTS = [
    pytest.param(path, id=path.name, marks=[pytest.mark.stress] if path.name in LONG else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
] + [pytest.param(path, id=f"yours/{path.name}") for path in sorted((ROOT / "examples" / "yours").glob("*.py"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LONG_PAGES = {
    "README.md",
    "docs/after.md",
    "docs/curvature.md",
    "docs/index.md",
    "docs/one_rule.md",
    "docs/sampling.md",
    "docs/sequential.md",
    "docs/textbook_network.md",
    "docs/trained_network.md",
    "docs/training.md",
    "docs/your_own_algorithm.md",
}
PAGES = {
    str(path.relative_to(ROOT)): "\n".join(BLOCK.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}


# What the first block of the README takes from its reader: a network that is sure of itself, and its rows.
YOURS = """
import numpy as np
import torch

import lamu

x, y = lamu.data.load("digits")
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(np.array(y), dtype=torch.long)
rows = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
seen, unseen, (new, answers) = ((x[part], y[part]) for part in (rows[:300], rows[300:450], rows[450:]))
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(module.parameters(), 1e-2)
for _ in range(3000):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(module(seen[0]), seen[1]).backward()
    optimizer.step()
"""
BETTER = """
from your_project import answers

pred = fit.posterior.predict(new)
before = float(torch.nn.functional.cross_entropy(module(new), answers))
after = lamu.scores.nll(pred, answers.numpy())
assert after < before, (after, before)
print(before, after)
"""

# Their time is compilation: less of it goes into making the code fast.
HASTE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def run(*words: str, folder: Path | None = None) -> str:
    ran = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
        env={**os.environ, "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {HASTE}".strip()},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.examples
@pytest.mark.parametrize("path", SCRIPTS)
def test_example_runs(path: Path) -> None:
    assert run(str(path))


@pytest.mark.examples
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.stress] if page in LONG_PAGES else [])
        for page, blocks in PAGES.items()
        if blocks
    ],
)
def test_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    (tmp_path / "your_project.py").write_text(YOURS, encoding="utf-8")
    run("-c", PAGES[page], folder=tmp_path)


@pytest.mark.examples
def test_ten_lines_lead_from_ones_own_pytorch_network_to_a_better_prediction(tmp_path: Path) -> None:
    (tmp_path / "your_project.py").write_text(YOURS, encoding="utf-8")
    blocks = BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    (block,) = (block for block in blocks if "your_project" in block)
    assert sum(bool(line.strip()) for line in block.splitlines()) <= 10
    assert run("-c", f"import torch\n{block}{BETTER}", folder=tmp_path)


def test_the_error_of_the_demos_auroc_is_that_of_other_rows() -> None:
    demo = runpy.run_path(str(ROOT / "examples" / "demo.py"))
    random = np.random.default_rng(0)
    known, unknown = random.normal(size=(300, 80)).round(1), random.normal(0.7, 1.0, size=(300, 50)).round(1)
    found = [demo["estimate"](*demo["apart"](*rows)) for rows in zip(known, unknown, strict=True)]
    values = [each.value for each in found]
    assert values[0] == pytest.approx(lamu.scores.auroc(known[0], unknown[0]))
    # 300 values tell their deviation to 4 %, at one standard error.
    assert np.mean([each.error for each in found]) == pytest.approx(np.std(values), rel=0.15)


def test_pages_with_code_are_found() -> None:
    assert {"README.md", "docs/index.md", "docs/training.md"} <= {page for page, blocks in PAGES.items() if blocks}


def test_the_reference_has_every_public_package_and_the_site_every_page() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for name in lamu.__all__:
        value = getattr(lamu, name)
        module = value.__name__ if isinstance(value, ModuleType) else "lamu"
        page = name if isinstance(value, ModuleType) else "index"
        assert f"::: {module}\n" in pages.get(page, ""), f"docs/api/{page}.md does not show {module}"
    for page in pages:
        assert f"api/{page}.md" in navigation, f"mkdocs.yml does not lead to docs/api/{page}.md"
    for module in re.findall(r"^::: (\S+)$", "\n".join(pages.values()), re.MULTILINE):
        assert importlib.import_module(module).__all__, f"{module} lists nothing to show"

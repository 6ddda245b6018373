"""Runs the Python blocks of a page that need nothing but the installed package, in order and in one namespace."""

import re
import sys
from pathlib import Path

blocks = re.findall(r"^```python\n(.*?)^```", Path(sys.argv[1]).read_text(encoding="utf-8"), re.M | re.S)
own = [block for block in blocks if "your_project" not in block]  # the others show code of the reader's
names: dict[str, object] = {}
for block in own:
    exec(compile(block, sys.argv[1], "exec"), names)
print(f"{len(own)} of {len(blocks)} blocks of {sys.argv[1]} ran")
assert own

"""scikit-learn's forest and boosting, and LightGBM: NAME CSV SCORES; or a stored forest: loaded CSV TRAINING."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pandas as pd


def made(name: str) -> Any:
    if name == "forest":
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier(random_state=0, n_jobs=-1)
    if name == "boosting":
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(random_state=0)
    from lightgbm import LGBMClassifier  # pyright: ignore[reportMissingImports]

    return LGBMClassifier(random_state=0, verbose=-1)


def main() -> None:
    name, data, out = sys.argv[1:]
    frame = pd.read_csv(data)
    x, y = frame.drop(columns="target"), frame["target"]
    if name == "loaded":
        stored = Path(out).with_suffix(".pickle")
        if not stored.exists():
            rows = pd.read_csv(out)
            stored.write_bytes(pickle.dumps(made("forest").fit(rows.drop(columns="target"), rows["target"])))
        print(pickle.loads(stored.read_bytes()).predict_proba(x))
        return
    from sklearn.metrics import log_loss
    from sklearn.model_selection import train_test_split

    train, test, labels, held = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    model = made(name).fit(train, labels)
    nll = float(log_loss(held, model.predict_proba(test), labels=model.classes_))
    Path(out).write_text(json.dumps({"nll": nll}), encoding="utf-8")


if __name__ == "__main__":
    main()

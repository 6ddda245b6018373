"""Calibration of predictions on rows that were not used in training.

`conformal(pred, y)` measures on such rows how far targets lie from their predictions, and gives intervals and sets
whose coverage holds for any model; `jackknife_plus` does so on the folds of a cross-validation, without losing a row.
`temperature_scaling(pred, y)` fits a temperature, which calibrates any prediction. `selective` selects the rows to
answer, so that the error among them is bounded.
"""

from lamu.calibration.conformity import Conformal, LeftOut, conformal, jackknife_plus
from lamu.calibration.selection import Selective, require_unseen, selective
from lamu.calibration.temperature import Temperature, TemperedClasses, Widened, temperature_scaling

__all__ = [
    "Conformal",
    "LeftOut",
    "Selective",
    "Temperature",
    "TemperedClasses",
    "Widened",
    "conformal",
    "jackknife_plus",
    "require_unseen",
    "selective",
    "temperature_scaling",
]

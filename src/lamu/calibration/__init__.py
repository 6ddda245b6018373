"""Calibration: what a prediction promises, mended on rows that training has not seen.

`conformal(pred, y)` learns on such rows how far targets lie from what was predicted, and makes intervals and sets whose
coverage holds whatever the model is; `jackknife_plus` does so on the folds of a cross-validation, without losing a row.
`temperature_scaling(pred, y)` learns how sure to be, and turns any prediction into one that is. `selective` chooses
whom to answer, so that the error among the answered is as promised.
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

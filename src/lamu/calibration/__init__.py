"""Calibration: what a prediction promises, mended on rows that training has not seen.

`conformal(pred, y)` learns on such rows how far targets lie from what was predicted, and makes intervals and sets whose
coverage holds whatever the model is.
"""

from lamu.calibration.conformity import Conformal, conformal

__all__ = ["Conformal", "conformal"]

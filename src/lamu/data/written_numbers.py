"""Numbers in common notations: `$2,675`, `12 %`, `(1,200)`, `1.5M`, `1.234,56 €`, `3 kg`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

__all__ = ["FACTORS", "Sentinels", "Written", "is_code", "is_number", "placeholders", "sentinels", "written"]


_ERROR = re.compile(
    r"#(DIV/0!|N/A|VALUE!|REF!|NAME\?|NUM!|NULL!|SPILL!|CALC!|FIELD!|BLOCKED!|ERROR!|GETTING_DATA)|Err:\d+"
)
_MARKS = ("?", "??", "???", "-", "--", "---", "–", "—", "−", ".", "..", "...", "…")
_AMONG_NUMBERS = (
    "n.a.", "n.a", "na", "n/a", "n/d", "nd", "nan", "null", "nil", "missing", "unknown", "unk", "not available",
    "not applicable", "no data", "blank", "(missing)", "(blank)", "*", "x", "_", "/",
)  # fmt: skip
_LIMITS = (32767.0, -32768.0, 2147483647.0, -2147483648.0, 9.96921e36, -999.25)
_REPEATED = 3  # rows, at the least
_FAR = 3.0  # in ranges of the others, beyond which only a missing value is likely
_APART = 0.5  # likewise, beyond which it is reported
_FEWEST = 10  # other values


def placeholders(levels: Collection[str], numbers: bool) -> tuple[str, ...]:
    """Returns those of a column's texts that mark a missing value."""
    marks = () if "+" in levels else _MARKS
    is_mark = lambda level: _ERROR.fullmatch(level) or level in marks or (numbers and level.lower() in _AMONG_NUMBERS)
    return tuple(level for level in levels if is_mark(level))


@dataclass(frozen=True)
class Sentinels:
    """Numbers of a column that mark a missing value, with their counts."""

    certain: dict[float, int]  # those with overwhelming evidence
    suspected: dict[float, int]  # those to report
    low: float  # the smallest of the other numbers
    high: float  # the largest of the other numbers


def sentinels(values: np.ndarray) -> Sentinels:
    """Returns the numbers that mark a missing value, such as −999, 99 or 9999."""
    # One is certain if at least three rows have it, and it is three times the range of the other numbers or more
    # away from them. It is suspected if it is that far and fewer rows have it, if it is half of the range away,
    # and if only it is below zero.
    remaining = values[np.isfinite(values)]
    certain: dict[float, int] = {}
    suspected: dict[float, int] = {}
    while len(remaining) > _FEWEST:
        ends = (float(remaining.min()), float(remaining.max()))
        mark = next((end for end in ends if _usual(end) and _judge(remaining, end)), None)
        if mark is None:
            break
        (certain if _judge(remaining, mark) == "certain" else suspected)[mark] = int((remaining == mark).sum())
        remaining = remaining[remaining != mark]
    return Sentinels(certain, suspected, float(remaining.min(initial=np.inf)), float(remaining.max(initial=-np.inf)))


def _judge(values: np.ndarray, end: float) -> str:
    """Returns "certain", "suspected" or an empty text for the smallest or the largest of some numbers."""
    others = values[values != end]
    if len(others) < _FEWEST or others.min() == others.max():
        return ""
    low, high, count = float(others.min()), float(others.max()), len(values) - len(others)
    apart = (low - end if end < low else end - high) / (high - low)
    if _usual(low if end < low else high) and apart < _FAR:  # 98 next to 99
        rest = others[others != (low if end < low else high)]
        if len(rest) >= _FEWEST and rest.min() < rest.max():
            apart = (rest.min() - end if end < low else end - rest.max()) / (rest.max() - rest.min())
    if apart >= _FAR:
        return "certain" if count >= _REPEATED else "suspected"
    return "suspected" if count >= _REPEATED and (apart >= _APART or (end < 0.0 <= low)) else ""


def _usual(value: float) -> bool:
    """Returns whether a number is a common missing value: 99, −999, 9998, the limits of integers, 1e20."""
    if value in _LIMITS or abs(value) >= 1e20:
        return True
    digits = f"{abs(value):.10g}".replace(".", "")
    repeated = re.fullmatch(r"9+[789]?|8+|7+", digits) is not None
    return repeated and (len(digits) > 1 or value < 0)


_SYMBOLS = "$€£¥₹₽₩₺₴₿¢฿₫₦₪₱"
_CODES = """
AED ARS AUD BGN BRL BTC CAD CHF CLP CNY COP CZK DKK EGP EUR GBP HKD HUF IDR ILS INR ISK JPY KRW MAD MXN MYR NGN NOK NZD
PEN PHP PKR PLN RON RUB SAR SEK SGD THB TRY TWD UAH USD VND ZAR
"""
_CURRENCY = rf"(?:[A-Z]{{0,3}}[{_SYMBOLS}]|{'|'.join(_CODES.split())}|Rs\.?|kr\.?|zł|Fr\.|SFr\.?)"
_NUMBER = re.compile(
    rf"(?P<open>\()?\s*(?P<sign>[-+])?\s*(?P<before>{_CURRENCY})?\s*(?P<second>[-+])?\s*"
    r"(?P<digits>(?:\d+(?:[.,' ]\d+)*[.,]?|[.,]\d+)(?:[eE][-+]?\d+)?)"
    r"(?P<space>\s*)(?P<after>[^\d\s().,'+\-][^()]*?)?\s*(?P<last>-)?\s*(?P<close>\))?"
)
_BY_SIGN = {
    sign: re.compile(
        rf"(?:\d+(?:{point}\d*)?|{point}\d+|[1-9]\d{{0,2}}(?:{group}\d{{3}})+(?:{point}\d*)?"
        rf"|[1-9]\d{{0,2}}(?:(?P<blank>[' ])\d{{3}})(?:(?P=blank)\d{{3}})*(?:{point}\d*)?"
        rf"|[1-9]\d?(?:{group}\d\d)+{group}\d{{3}}(?:{point}\d*)?)"
    )
    for sign, point, group in ((".", r"\.", ","), (",", ",", r"\."))
}
FACTORS = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "bn": 1e9, "mn": 1e6, "mio": 1e6, "Mio": 1e6, "Mio.": 1e6}
FACTORS |= {"thousand": 1e3, "million": 1e6, "billion": 1e9, "Million": 1e6, "Billion": 1e9, "trillion": 1e12}
_OF_MONEY = {"m": 1e6, "b": 1e9, "T": 1e12, "t": 1e12}  # only with a currency: alone they are metres or tons
_UNITS = """
% ‰ °C °F ° mg g kg t lb lbs oz nm µm um mm cm dm m km in ft yd mi mile sqm sqft m2 m² m3 m³ km2 km² ft2 ft²
ha acre acres ml mL cl dl l L gal ns µs us ms s sec min h hr hrs wk mo yr yrs y years year month months day
days hours hour minutes week weeks Hz kHz MHz GHz V mV kV mA W kW MW GW Wh kWh MWh GWh J kJ MJ cal kcal N kN
Pa hPa kPa MPa bar mbar psi mmHg px pt dpi bps kbps Mbps Gbps KB MB GB TB kB KiB MiB GiB TiB dB ppm ppb mol
mmol rpm mph km/h kmh kph m/s kt mpg cc hp bhp kgm Nm kg/m2 kg/m² g/l g/L mg/l mg/L mg/dL mg/dl mmol/L mmol/l
µg/m³ bpm IU U/L
"""
_SEVERAL_WORDS = re.compile(r"(?i)(?:sq|cu|fl)\.? ?(?:ft|m|km|mi|in|yd|oz)\.?")
_WORD = re.compile(r"[^\W\d_]{2,20}\.?|[^\W\d_]{1,10}/[^\W\d_]{1,10}")
_PLAIN = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2212": "-", "\u2013": "-", "’": "'", "＄": "$"})
_CODE = re.compile(r"\d+")


@dataclass(frozen=True)
class Written:
    """A number read from a text."""

    point: float  # its value with a decimal point; NaN if the text is not a number then
    comma: float  # its value with a decimal comma
    unit: str  # its currency, percent sign or unit, as written; empty for none
    signs: tuple[str, ...]  # the other characters of the text than digits, decimal sign and minus
    factor: float = 1.0  # the factor of a sign such as M; one if there is none


@lru_cache(2**16)
def written(text: str) -> Written | None:
    """Returns the number that a text holds; None if it is not a number."""
    # Thousands may be separated by commas, points, blanks or apostrophes; a trailing minus and brackets are signs;
    # `k`, `M` and `B` are thousands, millions and billions. A unit is one of the known ones, or a word after a blank.
    text = text.translate(_PLAIN)
    if text.lower().lstrip("+-") in ("inf", "infinity"):
        value = float(text)
        return Written(value, value, "", ())
    match = _NUMBER.fullmatch(text)
    if match is None or bool(match["open"]) != bool(match["close"]):
        return None
    minuses = [sign for sign in (match["sign"], match["second"], match["last"]) if sign]
    if len(minuses) > 1 or (minuses and match["open"]):
        return None
    suffix = _suffix(match["after"] or "", bool(match["space"]), match["before"])
    if suffix is None:
        return None
    factor, unit, shown = suffix
    signed = -factor if match["open"] or minuses == ["-"] else factor
    point, comma = (_value(match["digits"], sign) * signed for sign in ".,")
    if math.isnan(point) and math.isnan(comma):
        return None
    grouped = {sign for sign in ",' ." if sign in match["digits"]} - {"." if not math.isnan(point) else ","}
    signs = (match["before"], *shown, *sorted(grouped), "( )" if match["open"] else None)
    return Written(point, comma, unit, tuple(sign for sign in signs if sign), factor)


def is_number(text: str) -> bool:
    """Returns whether Python reads a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_code(levels: tuple[str, ...]) -> bool:
    """Returns whether texts are codes rather than numbers: one begins with a zero followed by another digit."""
    padded = any(len(level) > 1 and level[0] == "0" and _CODE.fullmatch(level) for level in levels)
    return padded and not any(not _CODE.fullmatch(level) and written(level) is not None for level in levels)


def _value(digits: str, sign: str) -> float:
    mantissa, _, exponent = digits.lower().partition("e")
    if not _BY_SIGN[sign].fullmatch(mantissa):
        return math.nan
    kept = re.sub(rf"[' {',' if sign == '.' else '.'}]", "", mantissa).replace(",", ".")
    return float(np.float64(kept + (f"e{exponent}" if exponent else "")))


def _suffix(after: str, space: bool, before: str | None) -> tuple[float, str, tuple[str, ...]] | None:
    """Returns the factor, the unit and the characters after a number; None if there is no such unit."""
    money = re.fullmatch(rf"(?P<factor>[A-Za-z.]*?)\s*(?P<unit>{_CURRENCY})", after)
    if before is not None or money is not None:
        if before is not None and money is not None:
            return None
        name, unit = (after, before or "") if money is None else (money["factor"], money["unit"])
        factor = 1.0 if not name else (FACTORS | _OF_MONEY).get(name)
        return (
            None if factor is None else (factor, unit, (*([] if money is None else [unit]), *([name] if name else [])))
        )
    if not after:
        return 1.0, "", ()
    if after in FACTORS:
        return FACTORS[after], "", (after,)
    usual = after in _UNITS.split() or _SEVERAL_WORDS.fullmatch(after) is not None
    if not usual and not (space and _WORD.fullmatch(after)):
        return None
    unit = after.rstrip(".")
    if len(unit) > 3 and unit.isalpha():
        unit = unit.lower()
        unit = unit[:-1] if unit.endswith("s") else unit
    elif unit in ("lbs", "hrs", "yrs"):
        unit = unit[:-1]
    return 1.0, unit, (after,)

"""Numbers as people read them."""

import math

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float) -> str:
    """Three digits: 0.123, 12.3, 1.23·10⁷."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "−∞" if value < 0 else "NaN"
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.3g}".replace("-", "−") if abs(value) < 1000 else f"{value:,.0f}".replace(",", " ")
    return scientific(value)


def brief(value: float) -> str:
    """A few signs, for narrow cells: 0, 0.3, 4.2, 43, 870, 3e5, 1e−4."""
    if not math.isfinite(value):
        return number(value)
    if value == 0:
        return "0"
    if 0.05 <= abs(value) < 9999.5:
        return (f"{value:.2g}" if abs(value) < 99.5 else f"{value:.0f}").replace("-", "−")
    digit, exponent = f"{value:.0e}".split("e")
    return f"{digit}e{int(exponent)}".replace("-", "−")


def scientific(value: float) -> str:
    """Two digits and a power of ten: 5.7·10⁻⁸; below 10⁻¹⁵ it is 0; plain from 0.01 to 99."""
    if not math.isfinite(value):
        return number(value)
    if abs(value) < 1e-15:
        return "0"
    if 0.01 <= abs(value) < 100:
        return f"{value:.2g}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(SUPERSCRIPT)}".replace("-", "−")


def percent(value: float) -> str:
    """0.8 -> 80 %, 8.1e-17 -> 8.1·10⁻¹⁵ %"""
    return f"{100 * value:.3g} %" if value == 0 or not abs(value) < 1e-6 else f"{number(100 * value)} %"


def percent_interval(value: float, low: float, high: float) -> str:
    """80 % [61, 91]"""
    return f"{percent(value)} [{100 * low:.0f}, {100 * high:.0f}]"


def scientific_interval(value: float, low: float, high: float) -> str:
    """5.3 [4.2, 11]·10⁻⁶: the ends in units of the value's power of ten."""
    if not all(map(math.isfinite, (value, low, high))) or abs(value) < 1e-15 or 0.01 <= abs(value) < 100:
        return f"{scientific(value)} [{scientific(low)}, {scientific(high)}]"
    exponent = int(f"{value:.1e}".split("e")[1])
    ends = [end / 10**exponent for end in (low, high)]
    shown = ["0" if abs(end) < 0.005 else f"{end:.2g}" if abs(end) < 100 else f"{end:.0f}" for end in ends]
    power_of_ten = str(exponent).translate(SUPERSCRIPT)
    return f"{value / 10**exponent:.1f} [{shown[0]}, {shown[1]}]·10{power_of_ten}".replace("-", "−")


def thousands(value: float) -> str:
    """Steps: 950, 12.4k, 1.20M."""
    if not math.isfinite(value):
        return number(value)
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            short = value / size
            return f"{short:.0f}{unit}" if short >= 99.95 else f"{short:#.3g}{unit}"
    return f"{value:.0f}"


def thousands_tick(value: float) -> str:
    """Round steps: 500, 2k, 10k, 1M."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def power(value: float) -> str:
    """Whole powers of ten as 10⁻⁵, other numbers and those from 0.01 to 1000 in full."""
    mantissa, exponent = f"{value:.1e}".split("e")
    if mantissa == "1.0" and not 0.01 <= value <= 1000:
        return f"10{str(int(exponent)).translate(SUPERSCRIPT)}"
    return f"{value:g}" if value >= 0.01 else scientific(value)


def duration(seconds: float) -> str:
    """95 s, 12 min, 3.4 h."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def counted(n: int, noun: str) -> str:
    """1 seed, 2 seeds, 1,000 steps"""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def p_value(value: float | None) -> str:
    if value is None:
        return ""
    return "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def attribute(value: str) -> str:
    """Text that may stand between the quotes of an HTML attribute."""
    return value.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")

"""Numbers, durations, shares and times, as people read them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import isfinite

from spark.report.drawing.markup import Html, element

NOTHING = "–"
"""In place of a number that there is not."""

SPACE = "\N{NO-BREAK SPACE}"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = 1e15  # larger numbers have so many digits that nobody counts them
_SECOND, _MINUTE, _HOUR, _DAY = 1.0, 60.0, 3_600.0, 86_400.0
_LONG = ((_DAY, "d", _HOUR, "h"), (_HOUR, "h", _MINUTE, "min"), (_MINUTE, "min", _SECOND, "s"))
_LARGE_UNITS = ((_DAY * 1e3, 2, "d"), (_HOUR * 1e3, 2, "h"), (_MINUTE * 1e3, 10, "min"))
_HINT = 1_000  # characters of a title
_WHOLE = 20_000  # characters of a text that is unfolded


def count(value: float) -> str:
    """A whole number: 1,234."""
    if not isfinite(value):
        return NOTHING
    if abs(value) >= _PLAIN:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def number(value: float) -> str:
    """A number with about three digits: 0.034, 1.23, 12.3, 1,234."""
    if not isfinite(value):
        return NOTHING
    if value == 0 or abs(value) >= 99.95 or value == round(value):
        return count(value)
    if abs(value) < 0.0005:
        return "<0.001" if value > 0 else ">-0.001"
    return f"{value:.{1 if abs(value) >= 9.995 else 2 if abs(value) >= 0.9995 else 3}f}"


def short_count(value: float) -> str:
    """A number for an axis: 950, 2k, 1.5M."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{_stripped(value / unit)}{name}"
    return _stripped(value)


def share(value: float) -> str:
    """A share of 1: 38 %, 3.4 %, 0.05 %."""
    percent = value * 100
    if not isfinite(percent):
        return NOTHING
    if percent == 0:
        text = "0"
    elif 0 < percent < 0.005:
        text = "<0.01"
    elif 99.5 <= percent < 100:
        text = ">99"
    elif percent >= 9.95:
        text = count(percent)
    else:
        text = f"{percent:.1f}" if percent >= 0.95 else f"{percent:.2f}"
    return _with_unit(text, "%")


def milliseconds(value: float) -> str:
    """A duration: 340 µs, 12.3 ms, 4.5 s, 2 min 5 s, 3 d 4 h."""
    if not isfinite(value):
        return NOTHING
    if value < 0:
        return "−" + milliseconds(-value)
    if value == 0:
        return _with_unit("0", "ms")
    if value < 0.00005:
        return _with_unit("<0.1", "µs")
    if value < 0.9995:
        return _with_unit(_tenths(value * 1_000), "µs")
    if value < 999.5:
        return _with_unit(_tenths(value), "ms")
    return _long_duration(value / 1_000)


def seconds(value: float) -> str:
    """A duration that is given in seconds."""
    return milliseconds(value * 1_000)


def per(bucket_s: float) -> str:
    """After “per”: 10 s, but min in place of 1 min."""
    return seconds(bucket_s).removeprefix("1" + SPACE)


def tick_milliseconds(value: float) -> str:
    """A duration for an axis, in one unit."""
    if value == 0:
        return "0"
    for unit, many, unit_name in _LARGE_UNITS:
        if value >= unit and (value % unit == 0 or value >= many * unit):
            return _with_unit(_stripped(value / unit), unit_name)
    if value >= 999.5:
        return _with_unit(_stripped(value / 1_000), "s")
    if value >= 0.9995:
        return _with_unit(_stripped(value), "ms")
    return _with_unit(_stripped(value * 1_000), "µs")


def tick_seconds(value: float) -> str:
    """A duration in seconds, for an axis."""
    return tick_milliseconds(value * 1_000)


def times(value: float) -> str:
    """How many times as much: 3.1×."""
    return f"{_ratio(value)}×"


def in_words(value: float) -> str:
    """How many times as much, within a sentence: 3.1 times."""
    return f"{_ratio(value)}{SPACE}times"


def moment(us: int) -> datetime | None:
    """The time `us` microseconds after 1970, or None if it is beyond the calendar."""
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        return None


def utc(us: int) -> str:
    """A time to the second: 2026-03-04 12:05:30 UTC."""
    at = moment(us)
    return f"{us:,}{SPACE}µs after 1970" if at is None else f"{_day(at)} {_clock(at)}{SPACE}UTC"


def clock_time(us: int) -> str:
    """The time of day, for tables of times of one day: 12:05:30."""
    at = moment(us)
    return utc(us) if at is None else _clock(at)


def is_one_day(begin_us: int, end_us: int) -> bool:
    """Whether two times are on the same day (UTC)."""
    begin, end = moment(begin_us), moment(end_us)
    return begin is not None and end is not None and begin.date() == end.date()


def span(begin_us: int, end_us: int) -> str:
    """From when to when; a day that both share is said once."""
    begin, end = moment(begin_us), moment(end_us)
    if begin is None or end is None:
        return f"{utc(begin_us)} to {utc(end_us)}"
    if begin.replace(microsecond=0) == end.replace(microsecond=0):
        return utc(begin_us)
    last = _clock(end) if begin.date() == end.date() else f"{_day(end)} {_clock(end)}"
    return f"{_day(begin)} {_clock(begin)} to {last}{SPACE}UTC"


def plural(many: float, one: str, more: str | None = None) -> str:
    """A number with its noun: 1 file, 2 files."""
    return f"{count(many)} {one if many == 1 else more or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """Words in a sentence: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def name(text: str, most: int = 32, empty: str = NOTHING) -> Html:
    """A name from the traces; a long one is shortened, and has the whole as its `title`."""
    if not text:
        return element("span", empty, class_="muted")
    if len(text) <= most:
        return element("span", text)
    return element("span", short(text, most), title=_bounded(text, _HINT))


def folded(text: str, most: int = 120, tag: str = "code") -> Html:
    """A text such as a filter; a long one is shortened, and unfolds to the whole."""
    if not text:
        return element("span", NOTHING, class_="muted")
    if len(text) <= most:
        return element(tag, text)
    summary = element("summary", element(tag, short(text, most)))
    return element("details", summary, element("pre", _bounded(text, _WHOLE)), class_="text")


def short(text: str, most: int = 32) -> str:
    """The begin and the end of a long text: names such as configurator-eu-west-2 differ there."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[len(text) - end :]}"


def _bounded(text: str, most: int) -> str:
    left = len(text) - most
    return text if left <= 0 else f"{text[:most]}… ({count(left)} more characters)"


def _with_unit(text: str, unit: str) -> str:
    return text + SPACE + unit


def _long_duration(value: float) -> str:
    if value >= 365 * _DAY:
        return _with_unit(number(value / _DAY), "d")
    for unit, unit_name, lower, lower_name in _LONG:
        if value >= unit - lower / 2:
            whole, rest = divmod(round(value / lower), round(unit / lower))
            text = _with_unit(str(whole), unit_name)
            return text if rest == 0 else f"{text}{SPACE}{_with_unit(str(rest), lower_name)}"
    return _with_unit(_tenths(value), "s")


def _tenths(value: float) -> str:
    """One digit after the point: columns of durations are easier to compare that way."""
    return count(value) if value >= 99.95 or value == round(value) else f"{value:.1f}"


def _ratio(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 99.95 else count(value)


def _stripped(value: float) -> str:
    """As few characters as will do, for an axis."""
    if isfinite(value) and abs(value) >= 99_999.5:
        return f"{value:.2g}".replace("e+", "e")
    text = number(value)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _day(at: datetime) -> str:
    return f"{at.year:04}-{at.month:02}-{at.day:02}"


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}"

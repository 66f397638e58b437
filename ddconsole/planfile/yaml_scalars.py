"""The meaning of a plain YAML scalar: the 1.2 core schema, where YAML 1.1 would read the same."""

import math
import re

Scalar = bool | int | float | str | None


class AmbiguousScalarError(ValueError):
    """A plain scalar that readers of YAML disagree about. `text` says why, `do` how to write it."""

    def __init__(self, text: str, do: str) -> None:
        super().__init__(f"{text} ({do})")
        self.text = text
        self.do = do


_NULLS = {"", "~", "null", "Null", "NULL"}
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONGEST_NUMBER = 40
"""Digits; more is no measure of anything here, and Python refuses to read more than 4300."""

# The core schema of YAML 1.2.2, section 10.3.2.
_INT_12 = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT_12 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")

# What both versions read as the same number: decimal without leading zero, hexadecimal, floats with a dot and, where
# there is an exponent, with its sign.
_INT_BOTH = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT_BOTH = re.compile(r"[-+]?[0-9]+\.[0-9]*([eE][-+][0-9]+)?|\.[0-9]+([eE][-+][0-9]+)?")

# https://yaml.org/type/bool.html, int.html, float.html, timestamp.html, value.html, merge.html, as PyYAML has them,
# and the single letters which it left out.
_BOOL_11 = re.compile(r"y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF")
_INT_11 = re.compile(r"[-+]?(0b[0-1_]+|0x[0-9a-fA-F_]+|0[0-7_]+|0|[1-9][0-9_]*)")
_SIXTIES_11 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_FLOAT_11 = re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_DATE_11 = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
    r"(([Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]*)?([ \t]*(Z|[-+][0-9]{1,2}(:?[0-9]{2})?))?)?"
)
_SYNTAX_11 = {"=": "the default value", "<<": "a merge"}


def plain_scalar(text: str) -> Scalar:
    """The value of a plain (unquoted) scalar.

    Raises:
        AmbiguousScalarError: YAML 1.1 reads it otherwise, or it is no finite number.
    """
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    _refuse_other_meanings(text)
    if _INT_BOTH.fullmatch(text):
        _refuse_long(text)
        return int(text, 16) if text.startswith("0x") else int(text)
    if _FLOAT_BOTH.fullmatch(text):
        _refuse_long(text)
        number = float(text)
        if math.isinf(number):
            raise AmbiguousScalarError(f"{text} is no finite number", "write a number")
        return number
    return text


def _refuse_long(text: str) -> None:
    if len(text) > _LONGEST_NUMBER:
        raise AmbiguousScalarError(f"a number of {len(text)} characters", "quote it if it is text")


def _refuse_other_meanings(text: str) -> None:
    """Refuse what is one thing in YAML 1.2 and another in 1.1."""
    quote = f'quote it: "{text}"'
    if _BOOL_11.fullmatch(text):
        boolean = "true" if text.lower() in {"y", "yes", "on"} else "false"
        raise AmbiguousScalarError(
            f"{text} is the boolean {boolean} to some YAML readers", f"{quote}, or write {boolean}"
        )
    if _INFINITE.fullmatch(text):
        raise AmbiguousScalarError(f"{text} is no finite number", "write a number")
    if text in _SYNTAX_11:
        raise AmbiguousScalarError(f"{text} is {_SYNTAX_11[text]} to some YAML readers", quote)
    if _SIXTIES_11.fullmatch(text):
        raise AmbiguousScalarError(f"{text} is a number in base 60 to some YAML readers", quote)
    if _DATE_11.fullmatch(text):
        raise AmbiguousScalarError(f"{text} is a date to some YAML readers", quote)
    number = any(one.fullmatch(text) for one in (_INT_12, _FLOAT_12, _INT_11, _FLOAT_11))
    if number and not _INT_BOTH.fullmatch(text) and not _FLOAT_BOTH.fullmatch(text):
        raise AmbiguousScalarError(f"{text} is not the same number to all YAML readers", f"{quote}, {_plainly(text)}")


def _plainly(text: str) -> str:
    if "e" in text.lower() and not text.lower().startswith("0x"):
        return "or write the exponent as in 1.0e+9"
    return "or write it in plain decimal digits"

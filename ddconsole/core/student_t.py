"""Quantiles of Student's t at 95 %, with the standard library alone: hosts have no numpy."""

_TABLE = (12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.30600, 2.26216)
_Z = 1.959964


def t_95(freedom: int) -> float:
    """Standard errors within which the central 95 % of Student's t lie.

    From ten degrees of freedom on by the expansion of Abramowitz and Stegun, 26.7.5, to four digits.

    Args:
        freedom: degrees of freedom, from 1 on.
    """
    if freedom <= len(_TABLE):
        return _TABLE[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3

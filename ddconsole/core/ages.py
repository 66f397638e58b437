"""How long ago something was, in few characters. Imports nothing: a status bar uses it."""


def age_in_words(seconds: float) -> str:
    """`14 s`, `3 min`, `5 h`, `3 days`: short, rounded down."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min"
    return f"{whole // 3600} h" if whole < 172_800 else f"{whole // 86_400} days"


def as_of_copy(seconds: float) -> str:
    """What a copy on the console's machine is worth: `as of 3 min ago, by the copy here`."""
    return f"as of {age_in_words(seconds)} ago, by the copy here"

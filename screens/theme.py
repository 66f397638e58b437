"""The colours, chosen to be told apart in 256 colours and on a projector."""

from textual.theme import Theme

COLOURS = {
    "dim": "#8b95a5",
    "strong": "#f0f4f8",
    "key": "#6cb6ff",
    "violet": "#c3a6ff",
    "good": "#5fd38d",
    "live": "#4fd1e8",
    "warn": "#f0b95a",
    "bad": "#ff7b72",
    "raised": "#1c2430",
    "selected": "#26405f",
    "marked": "#33304f",
    "rule": "#3a4656",
}
"""By the names that the stylesheets use."""

THEME = Theme(
    name="ddconsole",
    primary="#6cb6ff",
    secondary="#4fd1e8",
    warning="#f0b95a",
    error="#ff7b72",
    success="#5fd38d",
    accent="#c3a6ff",
    foreground="#d5dce6",
    background="#10151c",
    surface="#10151c",
    panel="#1c2430",
    dark=True,
    variables=COLOURS,
)

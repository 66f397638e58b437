"""A fragment: one file that stands by itself in anybody's document, with its CSV twin."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

import ddconsole
from ddconsole.report.latex_text import comment_text
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import ResultSet

SIMULATED_LINE = r"\textbf{SIMULATED}: not measured on hardware"

_TEMPLATES = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=False,  # noqa: S701  # LaTeX, escaped by latex_text before it gets here
    undefined=jinja2.StrictUndefined,
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    comment_start_string="<#",
    comment_end_string="#>",
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A complete `tabular` or `tikzpicture`, ASCII, without float, caption or label."""

    name: str
    """File name without its end: `[a-z0-9-]+`, `tab-...` or `fig-...`."""
    tex: str
    csv: str
    caption: str
    """LaTeX, for the document."""
    marks: frozenset[Mark]
    """Those that occur in it."""

    @property
    def is_figure(self) -> bool:
        """A picture, not a table."""
        return self.name.startswith("fig-")


def fill(template: str, **values: Any) -> str:
    """A template of `templates/` with LaTeX-friendly delimiters: `<< value >>`, `<% block %>`."""
    return _TEMPLATES.get_template(template).render(**values)


def header(result: ResultSet) -> str:
    """Where a file comes from, as comment lines: the time is the data's, so that a second export is the same file."""
    lines = [
        f"ddconsole {ddconsole.__version__}, run {result.run} of plan {result.plan_name} on {result.host}",
        f"plan sha256 {result.plan_sha256}",
        f"result set sha256 {result.sha256}",
        f"data of {utc(result.data_time)}",
    ]
    if result.simulated:
        lines.append("SIMULATED: these figures were not measured on hardware")
    return "".join(f"% {comment_text(line)}\n" for line in lines)


def utc(seconds: float) -> str:
    """Wall time as `2026-09-21T14:13:20Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

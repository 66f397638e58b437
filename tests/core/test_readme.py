"""The README says what is true."""

import re
from pathlib import Path

from ddconsole.cli import parser
from ddconsole.core.actions import key_table
from ddconsole.preflight.register import CHECKS, PROXMOX_CHECKS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_key_table_is_the_registers() -> None:
    found = re.search(r"<!-- keys[^\n]*-->\n(.*)<!-- /keys -->", README, re.DOTALL)
    assert found is not None
    assert found.group(1) == key_table()


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert pictures
    for name in pictures:
        assert (ROOT / name).is_file(), name


def test_every_verb_that_the_readme_names_is_one() -> None:
    action = next(one for one in parser()._actions if one.dest == "verb")
    assert action.choices is not None
    named = set(re.findall(r"ddconsole ([a-z][a-z-]+)", README)) - {"prints", "checks", "runs"}
    unknown = {name for name in named if name not in set(action.choices)}
    assert unknown <= {"headless", "brings", "goes", "starts", "shows", "does"}, unknown


def test_the_list_of_checks_is_the_registers() -> None:
    rows = re.findall(
        r"^\| `([a-z0-9.-]+)` \| (\w+) \| ([^|]+) \|((?: [●◐–] \|){5})$", (ROOT / "CHECKS.md").read_text(), re.MULTILINE
    )

    assert [(name, tier, proves) for name, tier, proves, _ in rows] == [
        (one.id, one.tier, one.proves) for one in (*CHECKS, *PROXMOX_CHECKS)
    ]


def test_the_table_of_other_tools_counts_what_the_list_of_checks_says() -> None:
    rows = [
        [one.strip() for one in line.split("|")[1:-1]]
        for line in (ROOT / "CHECKS.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    assert f"Of the {len(rows)} checks of `preflight`" in README
    for tier in sorted({row[1] for row in rows}):
        of = [row for row in rows if row[1] == tier]
        marks = [[row[column] for row in of] for column in range(3, 8)]
        counts = [f"{column.count('●')} {column.count('◐')}" for column in marks]
        assert f"| {tier} | {len(of)} | {' | '.join(counts)} |" in README

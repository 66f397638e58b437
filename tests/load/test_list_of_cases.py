"""The list of measurement cases is true."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_that_the_list_of_cases_names_is_there() -> None:
    known = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    rows = [line.split("|")[1:-1] for line in (TESTS / "MEASUREMENT_CASES.md").read_text().splitlines()]
    cases = [row for row in rows if row and re.match(r" \d", row[0])]
    assert len(cases) > 40
    for row in cases:
        named = re.findall(r"`(test_\w+)`", row[3])
        assert named or "not ours" in row[3], row
        assert set(named) <= known, (row[0], set(named) - known)
    told = " ".join(row[0] for row in cases)
    for number in (1, 2, 4, 5, 7, 8, 9, 10, 11, 13, 14, 16, 18, 19, 21, 23, 25):
        assert re.search(rf"\b5\.{number}\b", told), number

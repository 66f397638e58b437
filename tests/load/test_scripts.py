"""The shipped conversations hold real code: it runs, its bugs are real, and the scripted answers mend them."""

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ddconsole
from ddconsole.load.prompts import read_workload_texts
from ddconsole.load.task import Script

WORKLOADS = Path(ddconsole.__file__).parent.parent / "plans" / "workloads"
ETL = (WORKLOADS / "etl_pipeline.py").read_text()


def script(name: str) -> Script:
    return read_workload_texts(WORKLOADS, {name}).scripts[name]


def code_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def module_of(source: str) -> ModuleType:
    module = ModuleType("etl")
    exec(compile(source, "etl_pipeline.py", "exec"), module.__dict__)
    return module


# --- the data pipeline -----------------------------------------------------------------------------------------

CSV_HEAD = "order_id,revision,customer_id,ordered_at,amount,currency\n"
FRIDAY, MONDAY = date(2024, 3, 1), date(2024, 3, 4)


def loses_the_last_batch(etl: Any) -> bool:
    cut = [[len(batch) for batch in etl.batches(list(range(count)), 500)] for count in (1180, 1000, 40, 0)]
    return cut != [[500, 500, 180], [500, 500], [40], []]


def adds_up_when_loaded_twice(etl: Any) -> bool:
    connection = sqlite3.connect(":memory:")
    connection.executescript(etl.SCHEMA)
    for totals in (
        [("2024-03-01", "trade", 2, 500)],
        [("2024-03-01", "trade", 2, 500)],
        [("2024-03-01", "retail", 2, 500)],
    ):
        with connection:
            etl.store_daily_revenue(connection, totals)
    rows = connection.execute("SELECT day, segment, orders, revenue_cents FROM daily_revenue").fetchall()
    connection.close()
    return bool(rows != [("2024-03-01", "retail", 2, 500)])


def loses_the_sign_of_refunds(etl: Any) -> bool:
    return bool(etl.parse_amount("(59.90)") != Decimal("-59.90"))


def keeps_the_first_rate(etl: Any) -> bool:
    rates = {("USD", FRIDAY): Decimal("0.90"), ("USD", MONDAY): Decimal("0.95")}
    hundred = Decimal(100)
    own_days = [etl.to_eur(hundred, "USD", day, rates) for day in (FRIDAY, MONDAY)]
    other_table = etl.to_eur(hundred, "USD", FRIDAY, {("USD", FRIDAY): Decimal("0.80")})
    return [*own_days, other_table] != [90, 95, 80]


def compares_revisions_as_text(etl: Any) -> bool:
    row = {"order_id": "A-1007", "customer_id": "C-1", "ordered_at": "2024-03-01", "currency": "EUR"}
    orders = [etl.parse_order(row | {"revision": str(number), "amount": str(number)}) for number in range(1, 12)]
    return [int(order.amount) for order in etl.latest_revisions(orders)] != [11]


def cuts_cents_off(etl: Any) -> bool:
    return [etl.to_cents(Decimal(text)) for text in ("18.346", "-18.346", "18.344", "0.005")] != [1835, -1835, 1834, 1]


SYMPTOMS: list[tuple[int, Callable[[Any], bool]]] = [
    (1, loses_the_last_batch),
    (2, adds_up_when_loaded_twice),
    (3, loses_the_sign_of_refunds),
    (4, keeps_the_first_rate),
    (5, compares_revisions_as_text),
    (5, cuts_cents_off),
]
"""The turn that mends it, and whether a state of the script shows it."""


def test_the_first_turn_carries_the_script_as_it_is_kept_beside_it() -> None:
    first = script("data-pipeline").turns[0].user
    assert code_blocks(first) == [ETL]
    assert 180 <= len(ETL.splitlines()) <= 240


def test_each_answer_mends_its_own_bug_and_no_other() -> None:
    etl = module_of(ETL)
    assert [symptom(module_of(ETL)) for _, symptom in SYMPTOMS] == [True] * 6
    for number, turn in enumerate(script("data-pipeline").turns, start=1):
        exec(code_blocks(turn.assistant)[0], etl.__dict__)
        if number == 5:
            etl.__dict__["ROUND_HALF_UP"] = "ROUND_HALF_UP"  # its import is told of in the text
        shown = {symptom.__name__: symptom(etl) for _, symptom in SYMPTOMS}
        assert shown == {symptom.__name__: mended_by > number for mended_by, symptom in SYMPTOMS}, number


def test_the_checks_that_the_answers_offer_pass_and_would_have_failed_before() -> None:
    turns = script("data-pipeline").turns
    etl = module_of(ETL)
    for turn in turns[:4]:
        fix, *checks = code_blocks(turn.assistant)
        for check in checks:
            with pytest.raises(AssertionError):
                exec(check, dict(module_of(ETL).__dict__))
        exec(fix, etl.__dict__)
        for check in checks:
            exec(check, dict(etl.__dict__))
    assert [len(code_blocks(turn.assistant)) for turn in turns] == [2, 1, 2, 2, 2]


def test_the_last_answer_holds_the_whole_script_with_the_answers_code_in_it() -> None:
    turns = script("data-pipeline").turns
    final = code_blocks(turns[4].assistant)[-1]
    etl = module_of(final)
    assert not any(symptom(etl) for _, symptom in SYMPTOMS)
    for turn in turns:
        for part in code_blocks(turn.assistant)[0].split("\n\n\n"):
            assert part.strip() in final
    changed = set(final.splitlines()) ^ set(ETL.splitlines())
    assert len(changed) < 50, "nothing else was rewritten"


def load(source: str, folder: Path, export: str, times: int) -> dict[str, list[tuple[Any, ...]]]:
    (folder / "etl.py").write_text(source)
    (folder / "export.csv").write_text(export)
    (folder / "customers.jsonl").write_text('{"id": "C-1", "segment": "trade"}\n\n{"id": "C-2", "segment": null}\n')
    (folder / "rates.json").write_text(json.dumps({"2024-03-01": {"USD": 0.9217}, "2024-03-04": {"USD": 0.95}}))
    arguments = ["export.csv", "--customers", "customers.jsonl", "--rates", "rates.json", "--database", "sales.db"]
    for _ in range(times):
        subprocess.run([sys.executable, "etl.py", *arguments], cwd=folder, check=True, capture_output=True)
    connection = sqlite3.connect(folder / "sales.db")
    tables = {
        "orders": connection.execute("SELECT order_id, amount_cents FROM orders ORDER BY order_id").fetchall(),
        "daily_revenue": connection.execute("SELECT * FROM daily_revenue ORDER BY day, segment").fetchall(),
    }
    connection.close()
    return tables


EXPORT = CSV_HEAD + (
    'A-1,1,C-1,2024-03-01T09:00:00+01:00,"1,234.50",EUR\n'
    "A-2,9,C-1,2024-03-01T10:00:00+01:00,10.00,EUR\n"
    "A-2,11,C-1,2024-03-01T10:00:00+01:00,12.00,EUR\n"
    "A-3,1,C-2,2024-03-01T11:00:00+01:00,$ 19.99,USD\n"
    "A-4,1,C-9,2024-03-04T12:00:00+01:00,100.00,USD\n"
    "R-1,1,C-1,2024-03-04T13:00:00+01:00,(59.90),EUR\n"
    "A-5,1,C-1,2024-03-04T13:00:00+01:00,nonsense,EUR\n"
)


def test_the_mended_script_loads_what_the_export_holds_however_often_it_runs(tmp_path: Path) -> None:
    final = code_blocks(script("data-pipeline").turns[4].assistant)[-1]
    # 19.99 USD at 0.9217 are 18.424783 EUR; 100 USD at 0.95 are 95 EUR.
    assert load(final, tmp_path, EXPORT, times=2) == {
        "orders": [("A-1", 123450), ("A-2", 1200), ("A-3", 1842), ("A-4", 9500), ("R-1", -5990)],
        "daily_revenue": [
            ("2024-03-01", "trade", 2, 124650),
            ("2024-03-01", "unknown", 1, 1842),
            ("2024-03-04", "trade", 1, -5990),
            ("2024-03-04", "unknown", 1, 9500),
        ],
    }


def test_the_script_as_it_is_handed_over_runs_and_is_wrong(tmp_path: Path) -> None:
    assert load(ETL, tmp_path, EXPORT, times=2) == {
        "orders": [],
        "daily_revenue": [
            ("2024-03-01", "trade", 4, 2 * 124450),
            ("2024-03-01", "unknown", 2, 2 * 1842),
            ("2024-03-04", "trade", 2, 2 * 5990),
            ("2024-03-04", "unknown", 2, 2 * 9217),
        ],
    }


# --- the calculator --------------------------------------------------------------------------------------------


def test_the_calculator_that_the_answers_build_passes_the_tests_that_they_end_with(tmp_path: Path) -> None:
    turns = script("cli-calculator").turns
    blocks = [block for turn in turns for block in code_blocks(turn.assistant)]
    assert len(blocks) == 6
    (tmp_path / "calc.py").write_text("\n".join(blocks[:5]))
    (tmp_path / "test_calc.py").write_text(blocks[5])
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:asyncio",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
        "test_calc.py",
    ]
    run = subprocess.run(tests, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "31 passed" in run.stdout
    command = [sys.executable, "calc.py"]
    piped = subprocess.run(
        command, cwd=tmp_path, input="x = 3\n\nans * 2\n1 = 2\n", capture_output=True, text=True, check=False
    )
    assert (piped.returncode, piped.stdout) == (1, "3\n6\n")
    assert piped.stderr == "  1 = 2\n    ^\nerror: unexpected '='\n"


def test_each_step_of_the_calculator_works_by_itself() -> None:
    turns = script("cli-calculator").turns
    calc = ModuleType("calc")
    sys.modules["calc"] = calc  # dataclasses look their module up
    try:
        steps = [code_blocks(turn.assistant)[0] for turn in turns]
        exec(steps[0], calc.__dict__)
        tokens = [token.text for token in calc.tokenize("3.5 * (x1 + 2e-3) ** 2")]
        assert tokens == ["3.5", "*", "(", "x1", "+", "2e-3", ")", "**", "2", ""]
        exec(steps[1], calc.__dict__)
        assert [calc.calculate(text) for text in ("1 + 2 * 3", "10 - 4 - 3", "2 ** 3 ** 2", "-2 ** 2")] == [
            7,
            3,
            512,
            -4,
        ]
        exec(steps[2], calc.__dict__)
        assert [calc.show(value) for value in (3.0, 0.1 + 0.2)] == ["3", "0.3"]
        exec(steps[3], calc.__dict__)
        assert calc.calculate("rate = 0.19") == 0.19
        assert calc.calculate("ans * 100") == 19
    finally:
        del sys.modules["calc"]

#!/usr/bin/env python3
"""Nightly sales ETL.

Reads the shop's order export (CSV), the customer records (JSON lines) and the
exchange rates (JSON), keeps the latest revision of every order, converts all
amounts to EUR and loads the orders and the revenue by day and customer segment
into SQLite. Cron starts it at 02:30; it may be run again for the same export.

An export holds every order of the business days in it. Amounts are written as
the shop's accounting writes them: `1,234.50`, `$ 19.90`, and `(12.50)` for a
refund of 12.50. The business day is the first ten characters of `ordered_at`.
"""

import argparse
import csv
import json
import logging
import sqlite3
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

log = logging.getLogger("sales_etl")

BATCH_SIZE = 500
REPORT_CURRENCY = "EUR"
RATE_LOOKBACK_DAYS = 7
UNKNOWN_SEGMENT = "unknown"

SCHEMA = """
CREATE TABLE IF NOT EXISTS orders (
    order_id TEXT PRIMARY KEY,
    revision TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    day TEXT NOT NULL,
    amount_cents INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS daily_revenue (
    day TEXT NOT NULL,
    segment TEXT NOT NULL,
    orders INTEGER NOT NULL,
    revenue_cents INTEGER NOT NULL,
    PRIMARY KEY (day, segment)
);
"""


@dataclass(frozen=True)
class Order:
    order_id: str
    revision: str
    customer_id: str
    day: date
    amount: Decimal
    currency: str


class MissingRate(Exception):
    """No exchange rate for a currency, on the day or in the week before it."""


# --- extract ----------------------------------------------------------------


def parse_amount(text):
    """An amount as the shop's accounting writes it."""
    cleaned = text.strip().lstrip("$€£ ").replace(",", "")
    if cleaned.startswith("(") and cleaned.endswith(")"):
        cleaned = cleaned[1:-1]
    return Decimal(cleaned)


def parse_order(row):
    return Order(
        order_id=row["order_id"].strip(),
        revision=row["revision"].strip(),
        customer_id=row["customer_id"].strip(),
        day=date.fromisoformat(row["ordered_at"][:10]),
        amount=parse_amount(row["amount"]),
        currency=row["currency"].strip().upper(),
    )


def read_orders(path):
    """Yield the orders of an export; rows that cannot be read are logged and left out."""
    with path.open(newline="", encoding="utf-8") as file:
        for number, row in enumerate(csv.DictReader(file), start=2):
            try:
                yield parse_order(row)
            except (KeyError, ValueError, InvalidOperation, AttributeError, TypeError) as problem:
                log.warning("%s line %d left out: %r", path.name, number, problem)


def read_segments(path):
    """Customer id -> segment."""
    segments = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                customer = json.loads(line)
                segments[customer["id"]] = customer.get("segment") or UNKNOWN_SEGMENT
    return segments


def read_rates(path):
    """(currency, day) -> units of EUR for one unit of the currency."""
    rates = {}
    for day, table in json.loads(path.read_text(encoding="utf-8")).items():
        for currency, rate in table.items():
            rates[currency, date.fromisoformat(day)] = Decimal(str(rate))
    return rates


# --- transform --------------------------------------------------------------


def latest_revisions(orders):
    """The latest revision of each order, whatever the sequence in the export."""
    latest = {}
    for order in orders:
        known = latest.get(order.order_id)
        if known is None or order.revision > known.revision:
            latest[order.order_id] = order
    return list(latest.values())


def to_eur(amount, currency, day, rates, cache={}):
    """Convert with the day's rate; banks are closed at weekends, so look back up to a week."""
    if currency == REPORT_CURRENCY:
        return amount
    if currency not in cache:
        for back in range(RATE_LOOKBACK_DAYS):
            rate = rates.get((currency, day - timedelta(days=back)))
            if rate is not None:
                cache[currency] = rate
                break
        else:
            raise MissingRate(f"{currency} on {day}")
    return amount * cache[currency]


def to_cents(euros):
    return int(euros * 100)


def convert_orders(orders, rates):
    """Rows for the table `orders`."""
    rows = []
    for order in orders:
        cents = to_cents(to_eur(order.amount, order.currency, order.day, rates))
        rows.append((order.order_id, order.revision, order.customer_id, order.day.isoformat(), cents))
    return rows


def daily_totals(rows, segments):
    """Rows for the table `daily_revenue`."""
    counts = defaultdict(int)
    revenue = defaultdict(int)
    for _, _, customer_id, day, cents in rows:
        key = (day, segments.get(customer_id, UNKNOWN_SEGMENT))
        counts[key] += 1
        revenue[key] += cents
    return [(day, segment, counts[day, segment], revenue[day, segment]) for day, segment in sorted(counts)]


# --- load -------------------------------------------------------------------


def batches(rows, size):
    """Cut `rows` into lists of at most `size`."""
    for start in range(0, len(rows) - size, size):
        yield rows[start : start + size]


def store_orders(connection, rows, batch_size=BATCH_SIZE):
    for batch in batches(rows, batch_size):
        connection.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?, ?)", batch)


def store_daily_revenue(connection, totals):
    connection.executemany(
        """
        INSERT INTO daily_revenue (day, segment, orders, revenue_cents) VALUES (?, ?, ?, ?)
        ON CONFLICT (day, segment) DO UPDATE SET
            orders = orders + excluded.orders,
            revenue_cents = revenue_cents + excluded.revenue_cents
        """,
        totals,
    )


def run(export, customers, rates, database):
    orders = latest_revisions(read_orders(export))
    rows = convert_orders(orders, read_rates(rates))
    totals = daily_totals(rows, read_segments(customers))
    connection = sqlite3.connect(database)
    try:
        connection.executescript(SCHEMA)
        with connection:
            store_orders(connection, rows)
            store_daily_revenue(connection, totals)
    finally:
        connection.close()
    log.info("%s: %d orders, %d daily totals", export.name, len(rows), len(totals))


def main():
    parser = argparse.ArgumentParser(description="Load one order export into the warehouse.")
    parser.add_argument("export", type=Path, help="orders, CSV")
    parser.add_argument("--customers", type=Path, required=True, help="customers, JSON lines")
    parser.add_argument("--rates", type=Path, required=True, help="exchange rates, JSON")
    parser.add_argument("--database", type=Path, required=True, help="SQLite file, made if it is missing")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run(arguments.export, arguments.customers, arguments.rates, arguments.database)
    except (OSError, MissingRate, sqlite3.Error) as problem:
        log.error("nothing loaded: %s", problem)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

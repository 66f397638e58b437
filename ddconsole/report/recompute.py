#!/usr/bin/env python3
"""Makes every number of the tables here again, from the request records of a run, and compares it with what is typeset.

    python3 recompute.py RUN_DIRECTORY

It needs Python 3.10 and nothing else, and shares no code with what made the tables. Each row of a table names its cells
in a comment. Exit status 0: every number is the same; 1: some differ, each is listed; 2: it cannot be checked.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
Json = dict[str, Any]
Figure = Callable[[Json], "float | None"]
Key = tuple[str, int]
Bounds = tuple[float, float]

FLOORS = {0.5: 11, 0.9: 64, 0.95: 130, 0.99: 662}
CHECKED = [0]
WRONG: list[str] = []
PARTS = ("driver", "build", "model")
"""What must agree between all numbers of a run."""


# --- the run -------------------------------------------------------------------------------------------------------


class Run:
    """A run directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Json] = []
        for line in (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines():
            self.events.append(json.loads(line))
        self.failure_limit = 0.01
        self.baseline = ""
        for event in self.walk():
            if "baseline" in event and "plan_name" in event:
                self.baseline = event["baseline"]
                self.failure_limit = float(event.get("protocol", {}).get("failure_limit", 0.01))
        self.attempts: dict[str, list[Json]] = {}
        self.found: dict[str, list[Json]] = {}
        for path in sorted(folder.glob("cells/*/*.json"), key=lambda one: (one.parent.name, int(one.stem))):
            attempt = json.loads(path.read_text(encoding="utf-8"))
            self.attempts.setdefault(path.parent.name, []).append(attempt)
        self.left_out = self.cells_left_out()
        self.usual = self.usual_environment()

    def walk(self) -> Iterator[Json]:
        """Every mapping of every entry, however it is nested."""
        waiting = list(self.events)
        while waiting:
            one = waiting.pop(0)
            yield one
            waiting.extend(value for value in one.values() if isinstance(value, dict))

    def cells_left_out(self) -> set[str]:
        """Cells that ended as skipped or unfit: whatever was measured of them counts no more."""
        out: set[str] = set()
        for event in self.walk():
            names = event.get("cells")
            if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
                continue
            kind = str(event.get("type", event.get("kind", "")))
            if re.search("Skipped|Unfit", kind, re.IGNORECASE):
                out.update(names)
            elif re.search("Retried|PutBack", kind, re.IGNORECASE):
                out.difference_update(names)
        return out

    def environment(self, attempt: Json) -> str:
        """Driver, build and model of an attempt, as text."""
        parts = attempt["fingerprint_parts"]
        context = parts.get("context") or {}
        told = {name: parts[name] if parts.get(name) is not None else context.get(name) for name in PARTS}
        if told["build"] is None:
            told["build"] = attempt.get("build") or None
        return json.dumps([told, attempt["simulated"]], sort_keys=True)

    def counts(self, cell: str) -> list[Json]:
        """The first sound attempt of each round, of the newest revision of the cell."""
        if cell in self.left_out:
            return []
        done = [one for one in self.attempts.get(cell, ()) if one["outcome"] == "done"]
        newest = max((one["cell"]["revision"] for one in self.attempts.get(cell, ())), default=0)
        first: dict[int, Json] = {}
        for one in done:
            if one["cell"]["revision"] == newest:
                first.setdefault(one["round"], one)
        sound = [first[number] for number in sorted(first)]
        return [one for one in sound if is_sound(one, self.failure_limit)]

    def usual_environment(self) -> str:
        """The one of most attempts: others are in no table."""
        tally: dict[str, int] = {}
        for cell in self.attempts:
            for one in self.counts(cell):
                name = self.environment(one)
                tally[name] = tally.get(name, 0) + 1
        return max(tally, key=lambda one: tally[one]) if tally else ""

    def of(self, cell: str) -> list[Json]:
        """The attempts that make a cell's numbers."""
        if cell not in self.found:
            self.found[cell] = self.sought(cell)
        return self.found[cell]

    def sought(self, cell: str) -> list[Json]:
        """The same without remembering it."""
        return [one for one in self.counts(cell) if self.environment(one) == self.usual]

    def baseline_of(self, cell: str) -> str | None:
        """The baseline's cell at the same size, workload and sampling."""
        mine = self.of(cell)[0]
        for name in sorted(self.attempts):
            for one in self.of(name):
                same_size = one["deployment"]["tensor_parallel"] == mine["deployment"]["tensor_parallel"]
                if one["deployment"]["method"] == self.baseline and same_size and place(one) == place(mine):
                    return name
        return None


def place(attempt: Json) -> str:
    """What was asked of the server, as text: the same for cells that compare."""
    point = attempt["cell"]["point"]
    names = ("workload", "kind", "prompts", "concurrency", "max_tokens", "sampling", "turns")
    open_loop = ("rate", "arrivals", "arrival_seed")
    return json.dumps([point.get(name) for name in (*names, *open_loop)], sort_keys=True)


def is_sound(attempt: Json, limit: float) -> bool:
    """Whether so few requests failed that the attempt counts."""
    bad = sum(1 for one in attempt["requests"] if one["outcome"] in ("failed", "short"))
    good = sum(1 for one in attempt["requests"] if one["outcome"] == "ok")
    return good > 0 and bad <= limit * len(attempt["requests"])


# --- one request ---------------------------------------------------------------------------------------------------


def last_token(request: Json) -> float | None:
    """When the last token was there."""
    if request["last_text"] is None:
        return None
    text, finished = float(request["last_text"]), request.get("finished")
    return text if finished is None else max(text, float(finished))


def at_first(request: Json) -> int:
    """Tokens that had come with the first text."""
    if request.get("first_chunk_tokens") is not None and request.get("first_chunk_source") not in (None, "estimated"):
        return max(int(request["first_chunk_tokens"]), 1)
    number = 1
    for gap in request["chunk_gaps_us"]:
        if gap:
            break
        number += 1
    return number


def rate(request: Json) -> float | None:
    """Output tokens a second, (n - k) / (last - first)."""
    first, last, tokens = request["first_text"], last_token(request), request["output_tokens"]
    if tokens is None or first is None or last is None:
        return None
    rest = int(tokens) - at_first(request)
    if rest < 1 or last <= first or request["last_text"] == first:
        return None
    return rest / (last - float(first))


def begin(request: Json) -> float:
    """From when latencies count."""
    return float(request["sent"] if request.get("intended") is None else request["intended"])


def ttft(request: Json) -> float | None:
    """Seconds to the first text."""
    return None if request["first_text"] is None else float(request["first_text"]) - begin(request)


def tpot(request: Json) -> float | None:
    """Seconds a token."""
    return ratio(1.0, rate(request))


def good(attempts: Sequence[Json]) -> list[Json]:
    """The requests that succeeded."""
    return [one for attempt in attempts for one in attempt["requests"] if one["outcome"] == "ok"]


def known(values: Iterable[T | None]) -> list[T]:
    """Without None."""
    return [one for one in values if one is not None]


# --- one cell ------------------------------------------------------------------------------------------------------


def quantile(values: Sequence[float], fraction: float) -> float:
    """Linear between closest ranks."""
    ordered = sorted(values)
    place_ = fraction * (len(ordered) - 1)
    low = math.floor(place_)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place_ - low)


def percentile(told: Sequence[float | None], fraction: float) -> float | None:
    """None where the sample is too small to carry it."""
    values = known(told)
    return quantile(values, fraction) if len(values) >= FLOORS[fraction] else None


def by_launch(attempts: Sequence[Json], figure: Figure, keys: set[Key] | None = None) -> list[float]:
    """The median of each launch's requests; of these prompts only, where `keys` names them."""
    launches: dict[int, list[float]] = {}
    for attempt in attempts:
        for key, value in keyed(attempt, figure):
            if keys is None or key in keys:
                launches.setdefault(attempt["launch"], []).append(value)
    return [statistics.median(launches[number]) for number in sorted(launches)]


def keyed(attempt: Json, figure: Figure) -> Iterator[tuple[Key, float]]:
    """The figure of each request that succeeded, by prompt and its how-manieth occurrence."""
    seen: dict[tuple[int, str], int] = {}
    for one in sorted(attempt["requests"], key=lambda request: request["index"]):
        where = (one["repetition"], one["prompt"])
        seen[where] = seen.get(where, 0) + 1
        value = figure(one) if one["outcome"] == "ok" else None
        if value is not None:
            yield (one["prompt"], seen[where]), value


def median_rate(attempts: Sequence[Json]) -> float | None:
    """Over all requests of a cell."""
    rates = known(rate(one) for one in good(attempts))
    return statistics.median(rates) if rates else None


def rate_bounds(attempts: Sequence[Json]) -> Bounds | None:
    """The 95 % interval from three launches on, else the central 95 % of the requests."""
    launches, value = by_launch(attempts, rate), median_rate(attempts)
    if len(launches) >= 3 and value is not None:
        mean, error, freedom = summary(launches)
        reach = t_quantile(freedom) * error
        return widened(value, math.exp(mean - reach), math.exp(mean + reach))
    rates = known(rate(one) for one in good(attempts))
    return (quantile(rates, 0.025), quantile(rates, 0.975)) if len(rates) > 1 else None


def speed_up_bounds(attempts: Sequence[Json], base: Sequence[Json]) -> Bounds | None:
    """Welch's t over the launches, of the prompts that both sides have; None below three launches."""
    keys = {key for one in attempts for key, _ in keyed(one, rate)} & {
        key for one in base for key, _ in keyed(one, rate)
    }
    above, below = by_launch(attempts, rate, keys), by_launch(base, rate, keys)
    value = ratio(median_rate(attempts), median_rate(base))
    if min(len(above), len(below)) < 3 or value is None:
        return None
    mean, error, freedom = summary(above)
    mean_, error_, freedom_ = summary(below)
    squared = error**2 + error_**2
    reach = 0.0
    if squared > 0:
        joint = squared**2 / (error**4 / freedom + error_**4 / freedom_)
        reach = t_quantile(joint) * math.sqrt(squared)
    return widened(value, math.exp(mean - mean_ - reach), math.exp(mean - mean_ + reach))


def widened(value: float, low: float, high: float) -> Bounds:
    """The figure is never outside."""
    return min(low, value), max(high, value)


def summary(launches: Sequence[float]) -> tuple[float, float, int]:
    """Mean of the logarithms, its standard error, degrees of freedom."""
    logs = [math.log(one) for one in launches]
    return statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(len(logs)), len(logs) - 1


def t_quantile(freedom: float) -> float:
    """How far the central 95 % of Student's t reach, by bisection of its integral (Simpson's rule on the angle)."""

    def area(angle: float, steps: int = 2000) -> float:
        width = angle / steps
        total = 1 + math.cos(angle) ** (freedom - 1)
        total += sum((4 if step % 2 else 2) * math.cos(step * width) ** (freedom - 1) for step in range(1, steps))
        return float(total * width / 3)

    whole = area(math.pi / 2 - 1e-9)
    low, high = 0.0, math.pi / 2 - 1e-9
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if area(middle, 400) < 0.95 * whole else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def acceptance(attempts: Sequence[Json], baseline: str) -> tuple[int, int] | None:
    """(tokens, steps) of a cell; None where an engine did not tell."""
    tokens, steps = 0, 0
    for attempt in attempts:
        told = told_by_requests(good([attempt]))
        if told is not None:
            tokens, steps = tokens + told[0], steps + told[1]
            continue
        cell = attempt["figures"].get("acceptance")
        if cell and cell["steps"]:
            tokens, steps = tokens + cell["tokens"], steps + cell["steps"]
        elif attempt["deployment"]["method"] == baseline and not attempt["deployment"]["speculative"]:
            count = sum(one["output_tokens"] or 0 for one in good([attempt]))
            tokens, steps = tokens + count, steps + count
        else:
            return None
    return (tokens, steps) if steps else None


def told_by_requests(requests: Sequence[Json]) -> tuple[int, int] | None:
    """(tokens, steps) of requests that each told their own."""
    told = [one.get("acceptance") or {} for one in requests]
    if not told or any(one.get("steps") is None for one in told):
        return None
    return sum(int(one["tokens"]) for one in told), sum(int(one["steps"]) for one in told)


def length(attempts: Sequence[Json], baseline: str) -> float | None:
    """Tokens a verify step."""
    told = acceptance(attempts, baseline)
    return told[0] / told[1] if told else None


def server_rate(attempts: Sequence[Json]) -> float:
    """All output tokens over the wall time."""
    tokens = sum(int(one["output_tokens"] or 0) for one in good(attempts))
    return tokens / sum(wall_time(one) for one in attempts)


def wall_time(attempt: Json) -> float:
    """First send to last end."""
    return max(float(one["end"]) for one in attempt["requests"]) - min(begin(one) for one in attempt["requests"])


def chunk_gap(attempts: Sequence[Json]) -> float | None:
    """Seconds between chunks, the median of the attempts' medians."""
    medians: list[float] = []
    for attempt in attempts:
        gaps = [gap / 1e6 for one in good([attempt]) for gap in one["chunk_gaps_us"]]
        # Chunks of one read share its time: where most are, the time between chunks is not known.
        medians += [statistics.median(gaps)] if gaps and statistics.median(gaps) > 0 else []
    return statistics.median(medians) if medians else None


def goodput(attempts: Sequence[Json]) -> float | None:
    """Requests a second within every limit, the median of the attempts."""
    values = []
    for attempt in attempts:
        slo = {name: limit for name, limit in (attempt.get("slo") or {}).items() if limit is not None}
        if not slo:
            continue
        kept = 0
        for one in attempt["requests"]:
            last = last_token(one)
            told = {"ttft": ttft(one), "tpot": tpot(one), "e2e": None if last is None else last - begin(one)}
            kept += one["outcome"] == "ok" and all(told[n] is None or told[n] <= limit for n, limit in slo.items())
        values.append(kept / wall_time(attempt))
    return statistics.median(values) if values else None


# --- the tables ----------------------------------------------------------------------------------------------------


def rows_of(path: Path) -> Iterator[tuple[list[str], list[str], bool]]:
    """(cells, texts of the columns) of each row; the small row below a row belongs to the same cells."""
    names: list[str] = []
    for line in path.read_text(encoding="ascii").split(r"\midrule", 1)[1].splitlines():
        found = re.search(r"\s*\\\\(?:\[[^]]*\])?(?: % (?P<cells>[ -~]+))?$", line)
        if not found or " & " not in line:
            continue
        texts = [one.strip() for one in re.split(r"(?:^|\s)&(?:\s|$)", line[: found.start()].lstrip())]
        names = found["cells"].split() if found["cells"] else names
        yield names, texts, bool(found["cells"])


def title_of(path: Path) -> str:
    """The head of a table."""
    return path.read_text(encoding="ascii").split(r"\midrule")[0]


def check(where: str, text: str, value: float | None) -> None:
    """One typeset number against a value: equal when the value, rounded to as many decimals, is that text."""
    shown = text.replace(r"\bfseries", "").strip().strip("{}").strip()
    CHECKED[0] += 1
    if value is None:
        if shown not in ("", "--", r"\textdagger"):
            WRONG.append(f"{where}: typeset {shown}, there is no such number")
        return
    if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", shown):
        WRONG.append(f"{where}: typeset {shown!r}, made again {value:.6g}")
        return
    decimals = len(shown.partition(".")[2])
    # Half a unit of the last place, and what two ways of summing may differ by.
    if abs(float(shown) - value) > 0.5 * 10**-decimals + 1e-9 * abs(value):
        WRONG.append(f"{where}: typeset {shown}, made again {value:.6g}")


def check_noise(where: str, text: str, bounds: Bounds | None) -> None:
    """`[lo, hi]` or `(half)` in small print; nothing where there is none."""
    pair = re.search(r"\[([0-9.]+), ([0-9.]+)\]", text)
    half = re.search(r"\(([0-9.]+)\)", text)
    if pair:
        check(f"{where} low", pair[1], bounds and bounds[0])
        check(f"{where} high", pair[2], bounds and bounds[1])
    elif half:
        check(f"{where} spread", half[1], bounds and (bounds[1] - bounds[0]) / 2)
    elif bounds:
        WRONG.append(f"{where}: no noise is typeset, there is {bounds}")


def is_number(text: str) -> bool:
    """Whether a column's text is a number."""
    return re.search("[0-9]", text) is not None and r"\multicolumn" not in text


def flattened(texts: Sequence[str]) -> list[str]:
    """The texts by column: one that spans several fills them all."""
    found: list[str] = []
    for text in texts:
        span = re.match(r"\\multicolumn\{(\d+)\}", text)
        found += [text] * (int(span[1]) if span else 1)
    return found


def check_main(run: Run, path: Path) -> None:
    """Main tables: three columns a workload point, a row of numbers and one of their noise."""
    for names, texts, is_figures in rows_of(path):
        columns = flattened(texts)[1:]
        for number in range(len(columns) // 3):
            texts_ = columns[3 * number : 3 * number + 3]
            cell = cell_at(run, path, names, number, len(columns) // 3)
            if cell is None or not run.of(cell):
                expect_no_number(f"{path.name} {cell}", texts_)
                continue
            attempts = run.of(cell)
            base = run.baseline_of(cell)
            where = f"{path.name} {cell}"
            gain = ratio(median_rate(attempts), median_rate(run.of(base))) if base else None
            if is_figures:
                check(f"{where} rate", texts_[0], median_rate(attempts))
                check(f"{where} speed-up", texts_[1], gain)
                check(f"{where} acceptance", texts_[2], length(attempts, run.baseline))
            else:
                check_noise(f"{where} rate", texts_[0], rate_bounds(attempts))
                own = base == cell
                bounds = None if own or not base else speed_up_bounds(attempts, run.of(base))
                check_noise(f"{where} speed-up", texts_[1], bounds)


def cell_at(run: Run, path: Path, names: Sequence[str], number: int, columns: int) -> str | None:
    """The cell of a group of columns: rows name as many cells as they have groups, or fewer where the plan has none."""
    if len(names) == columns:
        return names[number]
    points = column_points(run, path)
    for name in names:
        if run.attempts.get(name) and place(run.attempts[name][0]) == points[number]:
            return name
    return None


def column_points(run: Run, path: Path) -> Sequence[str | None]:
    """The workload of each group of columns, from a row that has all of them."""
    for names, texts, is_figures in rows_of(path):
        columns = flattened(texts)[1:]
        if is_figures and len(names) == len(columns) // 3 and all(run.attempts.get(name) for name in names):
            return [place(run.attempts[name][0]) for name in names]
    return [None] * 99


def expect_no_number(where: str, texts: Sequence[str]) -> None:
    """A cell without figures has none in the table."""
    numbers = [text for text in texts if is_number(text)]
    WRONG.extend(f"{where}: typeset {text}, the cell has no figures" for text in numbers)


def check_listing(run: Run, path: Path) -> None:
    """Tables with one line a cell: their columns by the titles."""
    columns = listed_columns(path)
    for names, texts, _ in rows_of(path):
        cell, flat = names[0], flattened(texts)
        if not run.of(cell):
            expect_no_number(f"{path.name} {cell}", flat[1:-2])
            continue
        for title, text in zip(columns, flat, strict=True):
            where = f"{path.name} {cell} {title}"
            if title == "$n$":
                check_text(where, text, counted(run.of(cell)))
            elif title.endswith(" noise"):
                check_noise(where, text, listed_bounds(run, cell, title))
            elif title not in ("Method", ""):
                check(where, text, listed_figure(run, cell, title))


def check_text(where: str, text: str, expected: str) -> None:
    """Counts that are typeset as words, such as `24/25`."""
    CHECKED[0] += 1
    if text != expected:
        WRONG.append(f"{where}: typeset {text}, made again {expected}")


def counted(attempts: Sequence[Json]) -> str:
    """Requests that succeeded, and of how many where some did not."""
    succeeded, every = len(good(attempts)), sum(len(one["requests"]) for one in attempts)
    return f"{succeeded}" + (f"/{every}" if succeeded < every else "")


def listed_bounds(run: Run, cell: str, title: str) -> Bounds | None:
    """The noise of the column before."""
    if "speed-up" not in title:
        return rate_bounds(run.of(cell))
    base = run.baseline_of(cell)
    return None if base in (None, cell) else speed_up_bounds(run.of(cell), run.of(str(base)))


def listed_figure(run: Run, cell: str, title: str) -> float | None:
    """The number under a title, in its unit."""
    attempts, base = run.of(cell), run.baseline_of(cell)
    own, steps = median_rate(attempts), length(attempts, run.baseline)
    found = re.fullmatch(r"(TTFT|TPOT) \(ms\) p([0-9]+)", title)
    if found:
        figure = ttft if found[1] == "TTFT" else tpot
        return milliseconds(percentile([figure(one) for one in good(attempts)], int(found[2]) / 100))
    figures: dict[str, Callable[[], float | None]] = {
        "per request tok/s": lambda: own,
        "per request speed-up": lambda: ratio(own, median_rate(run.of(base))) if base else None,
        "server tok/s": lambda: server_rate(attempts),
        "good requests/s": lambda: goodput(attempts),
        r"$\tau$": lambda: steps,
        "chunk gap (ms)": lambda: milliseconds(chunk_gap(attempts)),
        "step time (ms)": lambda: milliseconds(ratio(steps, own)),
    }
    return figures[title]()


def milliseconds(seconds: float | None) -> float | None:
    """In the unit of the tables."""
    return None if seconds is None else seconds * 1000


def ratio(above: float | None, below: float | None) -> float | None:
    """None where one of them is not known."""
    return above / below if above is not None and below else None


def listed_columns(path: Path) -> list[str]:
    """Each column's title, the spanner's before its own; the column of a figure's noise says so."""
    lines = [line for line in title_of(path).splitlines() if " & " in line]
    over, names = (
        [one.strip() for one in line.strip().removesuffix(r"\\").split("&")] for line in (lines[0], lines[-1])
    )
    spanners: list[str] = []
    for text in over:
        span = re.match(r"\\multicolumn\{(\d+)\}\{c\}\{(.*)\}$", text)
        spanners += [span[2]] * int(span[1]) if span else [""]
    titles: list[str] = []
    for text in names:
        wide = re.match(r"\\multicolumn\{2\}\{c\}\{(.*)\}$", text)
        titles += [wide[1], f"{wide[1]} noise"] if wide else [text[1:-1] if text.startswith("{") else text]
    return [f"{one} {two}".strip() for one, two in zip(spanners, titles, strict=True)]


def check_turns(run: Run, path: Path) -> None:
    """Conversations: a group of rows for each quantity, a column for each turn."""
    turns = [int(one) for one in re.findall(r"\{([0-9]+)\}", title_of(path).splitlines()[-2])]
    kinds = re.findall(r"\\textit\{(.*)\}\} \\\\", path.read_text(encoding="ascii"))
    seen: set[str] = set()
    kind = -1
    for names, texts, _ in rows_of(path):
        cell = names[0]
        if kind < 0 or cell in seen:
            kind, seen = kind + 1, set()
        seen.add(cell)
        attempts = run.of(cell)
        if not attempts:
            expect_no_number(f"{path.name} {cell}", flattened(texts)[1:])
            continue
        values = [turn_figure(kinds[kind], attempts, turn, run.baseline) for turn in turns]
        for turn, text, value in zip(turns, texts[1:-1], values, strict=True):
            check(f"{path.name} {cell} {kinds[kind]} turn {turn}", text, value)
        check(f"{path.name} {cell} {kinds[kind]} last/first", texts[-1], ratio(values[-1], values[0]))


def turn_figure(kind: str, attempts: Sequence[Json], turn: int, baseline: str) -> float | None:
    """One quantity of one turn."""
    requests = [one for one in good(attempts) if one["turn"] == turn]
    if kind.startswith("Output rate"):
        rates = known(rate(one) for one in requests)
        return statistics.median(rates) if rates else None
    if kind.startswith("Time to first"):
        return milliseconds(percentile([ttft(one) for one in requests], 0.50))
    told = told_by_requests(requests)
    if told is not None:
        return told[0] / told[1]
    plain = attempts[0]["deployment"]["method"] == baseline and not attempts[0]["deployment"]["speculative"]
    return 1.0 if plain and requests else None


def check_acceptance(run: Run, path: Path) -> None:
    """One row a method and size, over all its cells."""
    for names, texts, _ in rows_of(path):
        where = f"{path.name} {texts[0]} {names[0]}"
        cells = [run.of(name) for name in names]
        told = known(acceptance(one, run.baseline) for one in cells)
        lengths = [tokens / steps for tokens, steps in told]
        check(f"{where} all", texts[3], sum(one[0] for one in told) / sum(one[1] for one in told))
        check(f"{where} lowest", texts[4], min(lengths))
        check(f"{where} highest", texts[5], max(lengths))
        check(f"{where} steps", texts[6], float(sum(one[1] for one in told)))
        alone = [one for one in cells if one[0]["cell"]["point"]["concurrency"] == 1]
        times = known(ratio(length(one, run.baseline), median_rate(one)) for one in alone)
        check(f"{where} step time", texts[7], milliseconds(statistics.median(times)) if times else None)
        pairs: list[tuple[int, int]] = known(equal_outputs(run, name) for name in names)
        expected = f"{sum(one[0] for one in pairs)}/{sum(one[1] for one in pairs)}" if pairs else ""
        check_text(f"{where} equal outputs", texts[8], expected)


def equal_outputs(run: Run, cell: str) -> tuple[int, int] | None:
    """How many outputs a request of the baseline gave too, and of how many; None where they are not compared."""
    mine = run.of(cell)
    point = mine[0]["cell"]["point"]
    if mine[0]["deployment"]["method"] == run.baseline or point["sampling"]["temperature"] > 0:
        return None
    if point.get("turns", "replay") == "live":
        return None
    texts: dict[str, set[str]] = {}
    for name in run.attempts:
        for one in run.of(name):
            same = one["deployment"]["tensor_parallel"] == mine[0]["deployment"]["tensor_parallel"]
            if one["deployment"]["method"] == run.baseline and same and place(one) == place(mine[0]):
                for request in good([one]):
                    if request["text_sha256"]:
                        texts.setdefault(request["prompt"], set()).add(request["text_sha256"])
    compared = [one for one in good(mine) if one["text_sha256"] and one["prompt"] in texts]
    if not compared:
        return None
    return sum(one["text_sha256"] in texts[one["prompt"]] for one in compared), len(compared)


CHECKS = (
    ("tab-main-", check_main),
    ("tab-concurrency-", check_listing),
    ("tab-latency-", check_listing),
    ("tab-turns-", check_turns),
    ("tab-acceptance", check_acceptance),
)


def main(arguments: Sequence[str]) -> int:
    """Check all tables beside this file."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "journal.jsonl").is_file():
        print("usage: python3 recompute.py RUN_DIRECTORY (the folder with journal.jsonl and cells/)", file=sys.stderr)
        return 2
    run = Run(Path(arguments[0]))
    tables = 0
    for beginning, compare in CHECKS:
        for path in sorted(Path(__file__).resolve().parent.glob(f"{beginning}*.tex")):
            tables += 1
            compare(run, path)
    for line in WRONG:
        print(line)
    print(f"{CHECKED[0]} numbers of {tables} tables made again from the request records, {len(WRONG)} differ")
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

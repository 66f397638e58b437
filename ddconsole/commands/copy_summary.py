"""The summary of a run of another host, from this machine's copy of its journal; what was made once is kept."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

_KEPT = ".copy-status.json"


def copy_summary(folder: Path) -> dict[str, Any]:
    """As `status.json` of a run of this machine. A status bar asks often: an unchanged journal costs nothing.

    Raises:
        OSError: the journal cannot be read.
        ValueError: it says nothing: it is empty, or damaged at its beginning.
    """
    about = (folder / "journal.jsonl").stat()
    made_from = [about.st_size, about.st_mtime_ns]
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads((folder / _KEPT).read_bytes())
        if kept["made_from"] == made_from:
            summary: dict[str, Any] = kept["summary"]
            return summary
    summary = _made(folder)
    # A folder that cannot be written costs time, and nothing else.
    with suppress(OSError):
        fresh = folder / f"{_KEPT}.part"
        fresh.write_text(json.dumps({"made_from": made_from, "summary": summary}))
        fresh.rename(folder / _KEPT)
    return summary


def _made(folder: Path) -> dict[str, Any]:
    # The fold takes a tenth of a second to import: only a copy that has changed pays for it.
    from ddconsole.core.fold import fold  # noqa: PLC0415
    from ddconsole.core.journal_line import read_lines  # noqa: PLC0415
    from ddconsole.core.run_summary import status_of  # noqa: PLC0415

    entries, _ = read_lines((folder / "journal.jsonl").read_bytes())
    state = fold(entries)
    if state.created is None:
        raise ValueError("the journal says nothing")
    return status_of(state, folder.name)

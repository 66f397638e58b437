"""The runner's own file of events: one writer, append-only, each event durable before the runner goes on."""

from pathlib import Path

from ddconsole.core.clock import Clock
from ddconsole.core.events import Entry, Event
from ddconsole.core.journal_line import encode_line
from ddconsole.runner.durable import AppendFile


class EventFile:
    """`launches/<n>/events.jsonl`: the n-th line has seq n."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._file = AppendFile(path)
        self._clock = clock
        self._n = 0

    def write(self, event: Event, *, durable: bool = True) -> None:
        """Append one event.

        Raises:
            StorageFailed: the event stands in the file, but may not last; nothing more goes into it.
            OSError: the event is not in the file.
        """
        line = encode_line(Entry(epoch=0, seq=self._n + 1, at=self._clock.now(), event=event))
        self._file.append(line)
        self._n += 1
        if durable:
            self._file.sync()

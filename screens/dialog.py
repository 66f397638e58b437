"""What all dialogs share: they answer once."""

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType


class Dialog(ModalScreen[ScreenResultType]):
    """A modal screen. Keys that came in one batch with the one that answered it are not for what lies below it."""

    _answered = False

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close with an answer; the first one counts."""
        if self._answered:
            nothing: AwaitComplete = AwaitComplete.nothing()  # type: ignore[no-untyped-call]  # Textual's own
            return nothing
        self._answered = True
        return super().dismiss(result)

"""Editing cells in place: a form that is checked while it is typed, and says what the change will cost."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widget import Widget
from textual.widgets import Input, Label

from ddconsole.core.command_cost import launch_cost
from ddconsole.core.editing import EDITABLE_FIELDS, FLAG, EditProblem, edit_cell, editable_fields, flag_value
from ddconsole.core.sweep import Deployment, EngineArgument, cell_label
from screens.dialog import Dialog
from screens.session import Session
from screens.spans import Line, Role, joined, labelled, line, shown
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView

Changes = dict[str, str | None]
_REMOVED = "-"
"""Typed into a flag's field, it takes the flag away."""


class EditCellScreen(Dialog[Changes | None]):
    """A form over one cell, or over several that get the same changes. Answers with what was changed."""

    CSS_PATH: ClassVar[str] = "edit_cell.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", show=False),
        Binding("ctrl+s", "save", show=False, priority=True),
        Binding("up", "screen.focus_previous", show=False),
        Binding("down", "screen.focus_next", show=False),
    ]

    def __init__(self, session: Session, cells: Sequence[str]) -> None:
        super().__init__()
        self._session = session
        self._cells = list(cells)
        row = session.feed.state.cells[cells[0]]
        self._cell = row.cell
        self._deployment: Deployment = session.feed.state.deployments[row.cell.deployment]
        self._fields = {one.name: one.show(row.cell.point) for one in editable_fields(row.cell.point)}
        self._flags = {name: shown(flag_text(value)) for name, value in self._deployment.args.items()}
        self.problem: EditProblem | None = None

    def compose(self) -> ComposeResult:
        """What the client does at the left, what the server is started with at the right, the verdict below."""
        with Vertical(id="edit"):
            yield LineBar(id="edit-title")
            with VerticalScroll(id="edit-form"), Horizontal(id="edit-columns"):
                with Vertical(id="edit-client"):
                    yield Label("what is asked of the server", classes="heading", markup=False)
                    yield from self._client_rows()
                with Vertical(id="edit-server"):
                    yield Label(f"what it is started with ({_REMOVED} removes)", classes="heading", markup=False)
                    yield from self._server_rows()
            yield LineBar(id="edit-help")
            yield LinesView(can_focus=False, id="verdict")
            yield LineBar(id="edit-keys")

    def _client_rows(self) -> Iterator[Widget]:
        for field in editable_fields(self._cell.point):
            name = field.name
            yield Horizontal(
                Label(field.label, classes="name", markup=False),
                Input(self._fields[name], id=f"field-{name}", classes="value", compact=True),
                classes="row",
            )

    def _server_rows(self) -> Iterator[Widget]:
        for number, (name, text) in enumerate(self._flags.items()):
            yield Horizontal(
                Label(f"--{shown(name)}", classes="name", markup=False),
                Input(text, id=f"flag-{number}", classes="value", compact=True),
                classes="row",
            )
        yield Horizontal(
            Label("add", classes="name", markup=False),
            Input(placeholder="--flag value", id="add", classes="value", compact=True),
            classes="row",
        )

    def on_mount(self) -> None:
        """Ready to type."""
        many = f" and {len(self._cells) - 1} more" if len(self._cells) > 1 else ""
        label = shown(cell_label(self._cell, self._deployment))
        self.query_one("#edit-title", LineBar).set_line(
            line((f" Edit {self._cell.id}{many}  ", Role.TITLE), (label, Role.DIM))
        )
        keys = (("ctrl+s", "save"), ("tab ↓ ↑", "field"), ("esc", "cancel"))
        self.query_one("#edit-keys", LineBar).set_line(
            joined(
                [(" ", Role.PLAIN)] + [one for key, text in keys for one in ((key, Role.KEY), (text, Role.DIM))], " "
            )
        )
        self.query(Input).first().focus()
        self.call_after_refresh(self._judge)

    @on(Input.Changed)
    def _typed(self) -> None:
        self._judge()

    def on_descendant_focus(self) -> None:
        """Say what the field means."""
        name = (self.focused.id or "") if self.focused is not None else ""
        field = EDITABLE_FIELDS.get(name.removeprefix("field-"))
        text = (
            field.help
            if field is not None
            else f"true: a bare flag, false: left out, [1, 2]: several, {_REMOVED}: removed"
        )
        self.query_one("#edit-help", LineBar).set_line(line((f" {text}", Role.DIM)))

    @on(Input.Submitted)
    def _next_field(self) -> None:
        """Enter goes on to the next field: saving has a key of its own."""
        self.focus_next()

    def changes(self) -> Changes:
        """What differs from the cell as it is.

        Raises:
            EditProblem: the line for a new flag is none.
        """
        changed: Changes = {}
        for name, text in self._fields.items():
            value = self.query_one(f"#field-{name}", Input).value
            if value.strip() != text:
                changed[name] = value.strip()
        for number, (name, text) in enumerate(self._flags.items()):
            value = self.query_one(f"#flag-{number}", Input).value.strip()
            if value != text:
                changed[f"{FLAG}--{name}"] = None if value == _REMOVED else value
        added = self.query_one("#add", Input).value.strip()
        if added:
            name, value = added_flag(added)
            changed[f"{FLAG}--{name}"] = value
        return changed

    def _judge(self) -> None:
        """Say what the edit would do, or why it is not possible, and mark the field."""
        self.problem = None
        width = max(40, self.query_one("#verdict").size.width - 1)
        try:
            lines = self._verdict(self.changes(), width)
        except EditProblem as problem:
            self.problem = problem
            lines = labelled(shown(problem.field), problem.text, Role.BAD, width=width, most=2)
            lines += labelled("do", problem.do, width=width, most=1) if problem.do else []
        for field in self.query(Input):
            field.set_class(self._is_wrong(field), "wrong")
        self.query_one("#verdict", LinesView).set_lines(lines)

    def _is_wrong(self, field: Input) -> bool:
        if self.problem is None:
            return False
        name = self.problem.field.lstrip("-")
        flags = {f"flag-{number}": flag for number, flag in enumerate(self._flags)}
        mine = flags.get(field.id or "", (field.id or "").removeprefix("field-"))
        return mine == name or (field.id == "add" and name not in {*self._fields, *self._flags})

    def _verdict(self, changes: Changes, width: int) -> list[Line]:
        if not changes:
            return [line((" nothing is changed yet", Role.DIM))]
        state = self._session.feed.state
        lines: list[Line] = []
        for row in self._session.rows(self._cells):
            deployment = state.deployments[row.cell.deployment]
            engine = state.created.engine if state.created else ""
            point, wanted = edit_cell(row.cell, deployment, changes, engine=engine)
            if row.cell.id != self._cell.id:
                continue
            lines = self._change_in_words(
                cell_label(row.cell.edited(point, wanted.id), wanted), deployment, wanted, width
            )
        again = "its attempts so far do not count any more" if self._has_attempts() else ""
        return lines + (labelled("", again, Role.WARN, width=width, most=1) if again else [])

    def _change_in_words(self, label: str, before: Deployment, wanted: Deployment, width: int) -> list[Line]:
        state = self._session.feed.state
        lines = labelled("becomes", label, Role.STRONG, width=width, most=1)
        same = next((one for one in state.deployments.values() if _like(one, wanted)), None)
        if wanted == before:
            costs = launch_cost(state, before)
            text = "only what is asked changes; the server stays as it is"
            return lines + labelled("costs", "; ".join([text, *costs]), Role.GOOD, width=width, most=2)
        if same is not None:
            costs = launch_cost(state, same) or ["no start of its own"]
            text = f"moves to {same.label} ({same.id}), which is there already; {costs[0]}"
            return lines + labelled("costs", text, Role.WARN, width=width, most=2)
        costs = launch_cost(state, wanted)
        text = "moves to a deployment of its own: " + (costs[0] if costs else "one more server start")
        return lines + labelled("costs", text, Role.WARN, width=width, most=2)

    def _has_attempts(self) -> bool:
        return any(row.attempts for row in self._session.rows(self._cells))

    def action_cancel(self) -> None:
        """Leave the cell as it is."""
        self.dismiss(None)

    def action_save(self) -> None:
        """Answer with the changes, if they are possible."""
        self._judge()
        if self.problem is None:
            self.dismiss(self.changes() or None)


def _like(one: Deployment, wanted: Deployment) -> bool:
    """Whether one server serves both."""
    return (one.method, one.tensor_parallel, one.size, one.args, one.env, one.placement, one.context_tokens) == (
        wanted.method,
        wanted.tensor_parallel,
        wanted.size,
        wanted.args,
        wanted.env,
        wanted.placement,
        wanted.context_tokens,
    )


def flag_text(value: EngineArgument) -> str:
    """A flag's value as it would be typed."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(f'"{one}"' if isinstance(one, str) else flag_text(one) for one in value) + "]"
    return str(value)


def added_flag(text: str) -> tuple[str, str]:
    """`--name value` or `--name=value`; without a value it is a bare flag.

    Raises:
        EditProblem: it is none.
    """
    name, _, value = text.replace("=", " ", 1).partition(" ")
    if not name.startswith("--") or len(name) < 3:
        raise EditProblem("add", "a flag begins with two dashes", "type --name value")
    typed = value.strip() or "true"
    flag_value(typed)
    return name.removeprefix("--"), typed

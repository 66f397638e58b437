"""Key bindings made from the register of actions."""

from textual.binding import Binding, BindingType

from ddconsole.core.actions import Place, actions_at

_NAMES = {",": "comma"}
"""Keys that Textual wants to be called by name."""


def bindings_at(place: Place) -> list[BindingType]:
    """The bindings of a screen: its own actions and those of everywhere."""
    return [
        Binding(_NAMES.get(key, key), f"perform('{action.id}')", action.label, show=False)
        for action in actions_at(place)
        for key in action.keys
    ]

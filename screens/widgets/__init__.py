"""Widgets on Textual's line API: what changes often costs one line, not a screen."""

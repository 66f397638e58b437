"""The host's side: it owns its runs, one at a time, their journal and their launches, and answers consoles."""

"""The console's way to an agent: on this machine by its socket, elsewhere over one SSH connection."""

"""The pure middle: plans, expansion, states, events, the fold, estimates and figures. It does no input or output."""

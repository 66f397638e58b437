"""Tables, figures and a document for LaTeX, and CSV and JSON twins, from a run directory."""

"""Plan files: YAML read with the place of every node, turned into a plan or into errors that name line and field."""

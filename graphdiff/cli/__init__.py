"""The command line. Nothing heavy is imported before a command runs: `graphdiff --help` answers at once."""

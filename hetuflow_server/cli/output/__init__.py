"""What commands print: tables, trees, progress, YAML and JSON."""

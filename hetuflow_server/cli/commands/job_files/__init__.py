"""Commands about job files: apply, export, import, schema."""

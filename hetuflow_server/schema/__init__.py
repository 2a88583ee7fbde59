"""The schema of the database: all tables, and the migrations."""

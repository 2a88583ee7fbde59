"""What a database really holds, as text that can be compared."""

from __future__ import annotations

import psycopg

# Each query gives rows of text; partitions other than the default ones depend on the day and are left out.
_QUERIES = {
    "columns": """
        SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
               a.attidentity::text, a.attstorage::text, pg_get_expr(d.adbin, d.adrelid)
        FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v')
        ORDER BY c.relname, a.attname""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace ORDER BY 1, 2""",
    # A partition's indexes follow its table's, under names that depend on the order they were made in.
    "indexes": """
        SELECT t.relname, i.relname, pg_get_indexdef(i.oid)
        FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
        WHERE t.relnamespace = 'public'::regnamespace AND NOT t.relispartition ORDER BY 1, 2""",
    "partitioning": """
        SELECT c.relname, pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid), c.reloptions::text
        FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
        ORDER BY 1""",
    "triggers": """
        SELECT tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
        WHERE NOT tgisinternal ORDER BY 1, 2""",
    "functions": r"""
        SELECT proname, regexp_replace(pg_get_functiondef(oid), '\s+', ' ', 'g') FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace ORDER BY 1""",
    "views": """
        SELECT viewname, definition FROM pg_views WHERE schemaname = 'public' ORDER BY 1""",
}


def describe(url: str, *, without: frozenset[str] = frozenset({"alembic_version"})) -> dict[str, list[str]]:
    with psycopg.connect(url) as connection:
        return {
            name: [" | ".join(map(str, row)) for row in connection.execute(query) if row[0] not in without]
            for name, query in _QUERIES.items()
        }

"""Events, what is still to be matched, and what schedules remember of them.

Revision ID: 0013
Revises: 0012
"""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_TABLES = (
    """
    CREATE TABLE sched_event (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        name TEXT NOT NULL,
        payload JSONB NOT NULL,
        key TEXT,
        source TEXT NOT NULL,
        created_by TEXT,
        depth SMALLINT DEFAULT 0 NOT NULL,
        task_id UUID,
        replay_of UUID,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_event_pkey PRIMARY KEY (id),
        CONSTRAINT sched_event_depth_check CHECK (depth >= 0)
    ) PARTITION BY RANGE (id)
    """,
    "CREATE TABLE sched_event_default PARTITION OF sched_event DEFAULT",
    "CREATE INDEX sched_event_namespace_id_id_idx ON sched_event (namespace_id, id)",
    "CREATE INDEX sched_event_namespace_id_name_id_idx ON sched_event (namespace_id, name, id)",
    """
    CREATE TABLE sched_event_key (
        namespace_id INTEGER NOT NULL,
        key TEXT NOT NULL,
        event_id UUID NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_event_key_pkey PRIMARY KEY (namespace_id, key),
        CONSTRAINT sched_event_key_key_check CHECK (length(key) BETWEEN 1 AND 512)
    )
    """,
    "CREATE INDEX sched_event_key_created_at_idx ON sched_event_key (created_at)",
    """
    CREATE TABLE sched_event_todo (
        event_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        CONSTRAINT sched_event_todo_pkey PRIMARY KEY (event_id)
    )
    """,
    """
    CREATE TABLE sched_event_effect (
        event_id UUID NOT NULL,
        schedule_id UUID NOT NULL,
        outcome TEXT NOT NULL,
        task_id UUID,
        window_id UUID,
        depth SMALLINT NOT NULL,
        detail TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_event_effect_pkey PRIMARY KEY (event_id, schedule_id),
        CONSTRAINT sched_event_effect_outcome_check CHECK (outcome IN ('answered', 'awaited', 'collected',
          'debounced', 'failed', 'loop', 'skipped', 'started', 'throttled'))
    ) PARTITION BY RANGE (event_id)
    """,
    "CREATE TABLE sched_event_effect_default PARTITION OF sched_event_effect DEFAULT",
    """
    CREATE INDEX sched_event_effect_task_id_idx ON sched_event_effect (task_id) WHERE task_id IS NOT NULL
    """,
    """
    CREATE INDEX sched_event_effect_window_id_idx ON sched_event_effect (window_id)
    WHERE window_id IS NOT NULL
    """,
    """
    CREATE TABLE sched_event_trigger (
        namespace_id INTEGER NOT NULL,
        pattern TEXT NOT NULL,
        schedule_id UUID NOT NULL,
        CONSTRAINT sched_event_trigger_pkey PRIMARY KEY (namespace_id, pattern, schedule_id),
        CONSTRAINT sched_event_trigger_schedule_id_fkey FOREIGN KEY (schedule_id)
          REFERENCES sched_schedule (id)
    )
    """,
    "CREATE INDEX sched_event_trigger_schedule_id_idx ON sched_event_trigger (schedule_id)",
    """
    CREATE TABLE sched_event_window (
        schedule_id UUID NOT NULL,
        key TEXT NOT NULL,
        namespace_id INTEGER NOT NULL,
        id UUID NOT NULL,
        opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
        deadline_at TIMESTAMP WITH TIME ZONE NOT NULL,
        count INTEGER NOT NULL,
        last_event_id UUID,
        collected JSONB DEFAULT '{}'::jsonb NOT NULL,
        CONSTRAINT sched_event_window_pkey PRIMARY KEY (schedule_id, key),
        CONSTRAINT sched_event_window_count_check CHECK (count >= 0),
        CONSTRAINT sched_event_window_schedule_id_fkey FOREIGN KEY (schedule_id)
          REFERENCES sched_schedule (id)
    )
    """,
    "CREATE INDEX sched_event_window_deadline_at_idx ON sched_event_window (namespace_id, deadline_at)",
)

_RECORD_EVENT = """
CREATE FUNCTION hetuflow_record_event(
  p_namespace_id integer, p_name text, p_payload jsonb, p_key text, p_source text, p_created_by text,
  p_depth smallint, p_task_id uuid, p_replay_of uuid, OUT recorded uuid, OUT is_new boolean)
LANGUAGE plpgsql AS $$
DECLARE
  bits bytea := uuid_send(gen_random_uuid());
  stamp bytea := int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint);
  drawn uuid;
BEGIN
  bits := overlay(bits PLACING substring(stamp FROM 3) FROM 1 FOR 6);
  drawn := encode(set_byte(bits, 6, (get_byte(bits, 6) & 15) | 112), 'hex')::uuid;
  is_new := true;
  IF p_key IS NOT NULL THEN
    LOOP
      INSERT INTO sched_event_key (namespace_id, key, event_id) VALUES (p_namespace_id, p_key, drawn)
      ON CONFLICT (namespace_id, key) DO NOTHING;
      EXIT WHEN FOUND;
      SELECT k.event_id INTO recorded FROM sched_event_key k
      WHERE k.namespace_id = p_namespace_id AND k.key = p_key;
      IF FOUND THEN
        is_new := false;
        RETURN;
      END IF;
    END LOOP;
  END IF;
  recorded := drawn;
  INSERT INTO sched_event (id, namespace_id, name, payload, key, source, created_by, depth, task_id,
                           replay_of)
  VALUES (drawn, p_namespace_id, p_name, p_payload, p_key, p_source, p_created_by, p_depth, p_task_id,
          p_replay_of);
  INSERT INTO sched_event_todo (event_id, namespace_id) VALUES (drawn, p_namespace_id);
END $$
"""

_EMIT = """
CREATE FUNCTION hetuflow_emit(namespace text, name text, payload jsonb DEFAULT '{}', key text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  owner_id integer;
  made record;
BEGIN
  SELECT n.id INTO owner_id FROM sched_namespace n WHERE n.name = hetuflow_emit.namespace;
  IF owner_id IS NULL THEN
    RAISE EXCEPTION 'There is no namespace %.', namespace USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF name IS NULL OR length(name) > 128 OR name !~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' THEN
    RAISE EXCEPTION 'An event has a name of letters, digits, _ - and dots inside, such as file.uploaded.'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF octet_length(payload::text) > 65536 THEN
    RAISE EXCEPTION 'The payload of an event has at most 64 KiB: pass the address of a file.'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF length(key) NOT BETWEEN 1 AND 512 THEN
    RAISE EXCEPTION 'The key of an event has 1 to 512 characters: shorten it.'
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT * INTO made FROM hetuflow_record_event(
    owner_id, name, coalesce(payload, '{}'), key, 'sql', session_user, 0::smallint, NULL, NULL);
  IF made.is_new AND NOT EXISTS (SELECT FROM sched_event_todo t WHERE t.event_id <> made.recorded) THEN
    PERFORM pg_notify('hetuflow', json_build_object(
      'origin', '00000000-0000-0000-0000-000000000000', 'namespaces', '[]'::json, 'agents', '[]'::json,
      'events', json_build_array(owner_id))::text);
  END IF;
  RETURN made.recorded;
END $$
"""

_SEAL = """
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION hetuflow_emit(text, text, jsonb, text) SET search_path = %I, pg_temp',
                 current_schema());
  REVOKE ALL ON FUNCTION hetuflow_emit(text, text, jsonb, text) FROM PUBLIC;
  REVOKE ALL ON FUNCTION hetuflow_record_event(
    integer, text, jsonb, text, text, text, smallint, uuid, uuid) FROM PUBLIC;
END $$
"""


def upgrade() -> None:
    for statement in (*_TABLES, _RECORD_EVENT, _EMIT, _SEAL):
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP FUNCTION hetuflow_emit(text, text, jsonb, text)")
    op.execute(
        "DROP FUNCTION hetuflow_record_event(integer, text, jsonb, text, text, text, smallint, uuid, uuid)"
    )
    for table in ("window", "trigger", "effect", "todo", "key"):
        op.execute(f"DROP TABLE sched_event_{table}")
    op.execute("DROP TABLE sched_event")

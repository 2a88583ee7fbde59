"""Events: what has happened, what is still to be matched, and what schedules remember of it."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from hetuflow_core.events.windows import EventOutcome
from hetuflow_server.jobs import tables as job_tables
from hetuflow_server.postgres.table_base import (
    add_default_partition,
    after_create,
    created_now,
    instant,
    json_object,
    metadata,
    one_of,
    words,
)

event = Table(
    "sched_event",
    metadata,
    Column("id", Uuid, nullable=False),
    Column("namespace_id", Integer, nullable=False),
    words("name"),
    Column("payload", JSONB, nullable=False),
    Column("key", Text),
    # Through what it came: `api`, `sql`, `task`, `replay`, `webhook`.
    words("source"),
    Column("created_by", Text),
    # How many events and tasks led to it, one because of the other; loops end at a depth.
    Column("depth", SmallInteger, nullable=False, server_default=text("0")),
    # The task that emitted it.
    Column("task_id", Uuid),
    # The event it says once more.
    Column("replay_of", Uuid),
    created_now(),
    PrimaryKeyConstraint("id"),
    CheckConstraint("depth >= 0", name="depth"),
    postgresql_partition_by="RANGE (id)",
)
add_default_partition(event)
Index("sched_event_namespace_id_id_idx", event.c.namespace_id, event.c.id)
Index("sched_event_namespace_id_name_id_idx", event.c.namespace_id, event.c.name, event.c.id)

event_key = Table(
    "sched_event_key",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    words("key"),
    Column("event_id", Uuid, nullable=False),
    created_now(),
    PrimaryKeyConstraint("namespace_id", "key"),
    CheckConstraint("length(key) BETWEEN 1 AND 512", name="key"),
)
Index("sched_event_key_created_at_idx", event_key.c.created_at)

# Consumed by whoever can lock a row. Never read by a cursor over ids: what a long transaction emitted is
# committed late and has an old id.
event_todo = Table(
    "sched_event_todo",
    metadata,
    Column("event_id", Uuid, primary_key=True),
    Column("namespace_id", Integer, nullable=False),
)

# What became of an event at one schedule.
event_effect = Table(
    "sched_event_effect",
    metadata,
    Column("event_id", Uuid, nullable=False),
    Column("schedule_id", Uuid, nullable=False),
    Column("outcome", Text, nullable=False),
    # What it started, alone or as the last of several.
    Column("task_id", Uuid),
    # What it is counted in; whichever event that starts a task with has its id.
    Column("window_id", Uuid),
    # The depth of what the task emits.
    Column("depth", SmallInteger, nullable=False),
    Column("detail", Text),
    created_now(),
    PrimaryKeyConstraint("event_id", "schedule_id"),
    one_of("outcome", EventOutcome),
    postgresql_partition_by="RANGE (event_id)",
)
add_default_partition(event_effect)
Index("sched_event_effect_task_id_idx", event_effect.c.task_id, postgresql_where=text("task_id IS NOT NULL"))
Index(
    "sched_event_effect_window_id_idx",
    event_effect.c.window_id,
    postgresql_where=text("window_id IS NOT NULL"),
)

# By which names events find their schedules; written with the schedule.
event_trigger = Table(
    "sched_event_trigger",
    metadata,
    Column("namespace_id", Integer, nullable=False),
    # A name, `prefix.*` or `*`.
    words("pattern"),
    Column("schedule_id", Uuid, ForeignKey(job_tables.schedule.c.id), nullable=False),
    PrimaryKeyConstraint("namespace_id", "pattern", "schedule_id"),
)
Index("sched_event_trigger_schedule_id_idx", event_trigger.c.schedule_id)

# What a schedule that counts, collects or waits remembers for one value of its key.
event_window = Table(
    "sched_event_window",
    metadata,
    Column("schedule_id", Uuid, ForeignKey(job_tables.schedule.c.id), nullable=False),
    # JSON; empty without a key.
    words("key"),
    Column("namespace_id", Integer, nullable=False),
    Column("id", Uuid, nullable=False),
    instant("opened_at", required=True),
    instant("deadline_at", required=True),
    Column("count", Integer, nullable=False),
    Column("last_event_id", Uuid),
    # By place in all_of, the event and when it came.
    json_object("collected"),
    PrimaryKeyConstraint("schedule_id", "key"),
    CheckConstraint("count >= 0", name="count"),
)
Index("sched_event_window_deadline_at_idx", event_window.c.namespace_id, event_window.c.deadline_at)

# The functions by which events come in; applications call `hetuflow_emit` in their own transactions.
# The id says when it was recorded, as every id does; the to-do row is what matching consumes.
RECORD_EVENT = """
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

# Runs with the rights of its owner, so that an application needs none but to call it. Servers are notified
# when nothing else is waiting to be matched: whoever matches that finds this one too.
EMIT = """
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

# Names in a function that runs with another's rights mean this schema's objects, whoever calls it.
SEAL = """
DO $$
BEGIN
  EXECUTE format('ALTER FUNCTION hetuflow_emit(text, text, jsonb, text) SET search_path = %I, pg_temp',
                 current_schema());
  REVOKE ALL ON FUNCTION hetuflow_emit(text, text, jsonb, text) FROM PUBLIC;
  REVOKE ALL ON FUNCTION hetuflow_record_event(
    integer, text, jsonb, text, text, text, smallint, uuid, uuid) FROM PUBLIC;
END $$
"""

for _statement in (RECORD_EVENT, EMIT, SEAL):
    after_create(metadata, _statement)

"""The functions by which events come in; applications call one of them in their own transactions."""

from __future__ import annotations

from hetuflow_server.postgres.table_base import after_create, metadata

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

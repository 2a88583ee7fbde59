"""Foundation: namespaces, jobs, schedules, tasks, the queue and its history, servers, agents, logs.

Revision ID: 0001
Revises:
"""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STATEMENTS = (
    """
    CREATE FUNCTION hetuflow_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'integrity_constraint_violation';
    END $$
    """,
    """
    CREATE TABLE sched_namespace (
        id INTEGER GENERATED ALWAYS AS IDENTITY,
        name TEXT NOT NULL,
        weight SMALLINT DEFAULT 100 NOT NULL,
        labels JSONB DEFAULT '{}'::jsonb NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_namespace_pkey PRIMARY KEY (id),
        CONSTRAINT sched_namespace_name_key UNIQUE (name),
        CONSTRAINT sched_namespace_name_check CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
        CONSTRAINT sched_namespace_weight_check CHECK (weight BETWEEN 1 AND 10000)
    )
    """,
    """
    CREATE TABLE sched_placement (
        id BIGINT GENERATED ALWAYS AS IDENTITY,
        digest BYTEA NOT NULL,
        requirements JSONB DEFAULT '{}'::jsonb NOT NULL,
        limit_scopes TEXT[] DEFAULT '{}' NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_placement_pkey PRIMARY KEY (id),
        CONSTRAINT sched_placement_digest_key UNIQUE (digest)
    )
    """,
    """
    CREATE TABLE sched_limit (
        namespace_id INTEGER NOT NULL,
        scope TEXT NOT NULL,
        max INTEGER NOT NULL,
        in_use INTEGER DEFAULT 0 NOT NULL,
        named BOOLEAN DEFAULT false NOT NULL,
        CONSTRAINT sched_limit_pkey PRIMARY KEY (namespace_id, scope),
        CONSTRAINT sched_limit_max_check CHECK (max >= 0),
        CONSTRAINT sched_limit_in_use_check CHECK (in_use >= 0)
    )
    """,
    """
    CREATE TABLE hetuflow_schema (
        only_row BOOLEAN DEFAULT true NOT NULL,
        min_code_version INTEGER NOT NULL,
        CONSTRAINT hetuflow_schema_pkey PRIMARY KEY (only_row),
        CONSTRAINT hetuflow_schema_only_row_check CHECK (only_row),
        CONSTRAINT hetuflow_schema_min_code_version_check CHECK (min_code_version >= 1)
    )
    """,
    """
    CREATE TABLE sched_server (
        id UUID NOT NULL,
        hostname TEXT NOT NULL,
        url TEXT,
        version TEXT NOT NULL,
        weight SMALLINT DEFAULT 100 NOT NULL,
        started_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        heartbeat_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        stopped_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_server_pkey PRIMARY KEY (id),
        CONSTRAINT sched_server_weight_check CHECK (weight BETWEEN 0 AND 10000)
    )
    """,
    """
    CREATE INDEX sched_server_running_idx ON sched_server (heartbeat_at) WHERE stopped_at IS NULL
    """,
    """
    CREATE TABLE distributed_lock (
        name TEXT NOT NULL,
        holder UUID NOT NULL,
        epoch BIGINT NOT NULL,
        acquired_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        renewed_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT distributed_lock_pkey PRIMARY KEY (name),
        CONSTRAINT distributed_lock_epoch_check CHECK (epoch >= 0)
    )
    """,
    """
    CREATE TRIGGER distributed_lock_epoch_guard BEFORE UPDATE ON distributed_lock FOR EACH ROW
    WHEN (NEW.epoch < OLD.epoch OR (NEW.epoch = OLD.epoch AND NEW.holder <> OLD.holder))
    EXECUTE FUNCTION hetuflow_refuse('an epoch never decreases and never changes its holder')
    """,
    """
    CREATE TRIGGER distributed_lock_delete_guard BEFORE DELETE ON distributed_lock FOR EACH ROW
    EXECUTE FUNCTION hetuflow_refuse('a lock row is never deleted: its epoch would start again')
    """,
    """
    CREATE TABLE leader_term (
        epoch BIGINT NOT NULL,
        holder UUID NOT NULL,
        at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT leader_term_pkey PRIMARY KEY (epoch)
    )
    """,
    """
    CREATE TABLE sched_agent (
        id UUID NOT NULL,
        name TEXT NOT NULL,
        status TEXT NOT NULL,
        session_id UUID,
        labels JSONB DEFAULT '{}'::jsonb NOT NULL,
        capabilities JSONB DEFAULT '{}'::jsonb NOT NULL,
        slots INTEGER DEFAULT 1 NOT NULL,
        version TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        registered_at TIMESTAMP WITH TIME ZONE,
        last_seen_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_agent_pkey PRIMARY KEY (id),
        CONSTRAINT sched_agent_name_key UNIQUE (name),
        CONSTRAINT sched_agent_status_check CHECK (status IN ('draining', 'offline', 'online',
          'pending')),
        CONSTRAINT sched_agent_slots_check CHECK (slots BETWEEN 1 AND 10000),
        CONSTRAINT sched_agent_session_check CHECK (session_id IS NULL OR registered_at IS NOT NULL)
    )
    """,
    """
    CREATE TABLE sched_idempotency_key (
        namespace_id INTEGER NOT NULL,
        scope TEXT NOT NULL,
        key TEXT NOT NULL,
        body_digest BYTEA NOT NULL,
        response_status SMALLINT,
        response JSONB,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_idempotency_key_pkey PRIMARY KEY (namespace_id, scope, key),
        CONSTRAINT sched_idempotency_key_response_check CHECK ((response_status IS NULL) = (response IS
          NULL)),
        CONSTRAINT sched_idempotency_key_key_check CHECK (length(key) BETWEEN 1 AND 255)
    )
    """,
    """
    CREATE INDEX sched_idempotency_key_expires_at_idx ON sched_idempotency_key (expires_at)
    """,
    """
    CREATE TABLE sched_log_chunk (
        created_at TIMESTAMP WITH TIME ZONE NOT NULL,
        instance_id UUID NOT NULL,
        claim_no INTEGER NOT NULL,
        stream TEXT NOT NULL,
        start_offset BIGINT NOT NULL,
        byte_length INTEGER NOT NULL,
        data BYTEA NOT NULL,
        CONSTRAINT sched_log_chunk_pkey PRIMARY KEY (instance_id, claim_no, stream, start_offset,
          created_at),
        CONSTRAINT sched_log_chunk_stream_check CHECK (stream IN ('stdout', 'stderr', 'system')),
        CONSTRAINT sched_log_chunk_range_check CHECK (start_offset >= 0 AND byte_length > 0)
    )
     PARTITION BY RANGE (created_at)
    """,
    """
    ALTER TABLE sched_log_chunk ALTER COLUMN data SET STORAGE EXTERNAL
    """,
    """
    CREATE TABLE sched_log_chunk_default PARTITION OF sched_log_chunk DEFAULT
    """,
    """
    CREATE TABLE sched_log_length (
        instance_id UUID NOT NULL,
        claim_no INTEGER NOT NULL,
        stream TEXT NOT NULL,
        length BIGINT DEFAULT 0 NOT NULL,
        truncated BOOLEAN DEFAULT false NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_log_length_pkey PRIMARY KEY (instance_id, claim_no, stream),
        CONSTRAINT sched_log_length_stream_check CHECK (stream IN ('stdout', 'stderr', 'system')),
        CONSTRAINT sched_log_length_length_check CHECK (length >= 0)
    )
     PARTITION BY RANGE (instance_id)
    """,
    """
    CREATE TABLE sched_log_length_default PARTITION OF sched_log_length DEFAULT
    """,
    """
    CREATE TABLE sched_task (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        job_id UUID NOT NULL,
        job_version INTEGER NOT NULL,
        schedule_id UUID,
        retry_of UUID,
        status TEXT NOT NULL,
        reason TEXT,
        params JSONB DEFAULT '{}'::jsonb NOT NULL,
        priority SMALLINT DEFAULT 500 NOT NULL,
        fire_at TIMESTAMP WITH TIME ZONE NOT NULL,
        due_at TIMESTAMP WITH TIME ZONE NOT NULL,
        deadline_at TIMESTAMP WITH TIME ZONE,
        seq INTEGER DEFAULT 1 NOT NULL,
        attempts INTEGER DEFAULT 0 NOT NULL,
        losses INTEGER DEFAULT 0 NOT NULL,
        exit_code INTEGER,
        output JSONB,
        traceparent TEXT,
        created_by TEXT,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        finished_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_task_pkey PRIMARY KEY (id),
        CONSTRAINT sched_task_status_check CHECK (status IN ('cancelled', 'failed', 'pending', 'skipped',
          'succeeded', 'waiting_retry')),
        CONSTRAINT sched_task_finished_check CHECK ((status IN ('cancelled', 'failed', 'skipped',
          'succeeded')) = (finished_at IS NOT NULL)),
        CONSTRAINT sched_task_priority_check CHECK (priority BETWEEN 0 AND 1000),
        CONSTRAINT sched_task_due_check CHECK (due_at >= fire_at),
        CONSTRAINT sched_task_counts_check CHECK (seq >= 1 AND attempts >= 0 AND losses >= 0)
    )
     PARTITION BY RANGE (id)
    """,
    """
    CREATE INDEX sched_task_schedule_id_id_idx ON sched_task (schedule_id, id) WHERE schedule_id IS NOT
      NULL
    """,
    """
    CREATE INDEX sched_task_job_id_id_idx ON sched_task (job_id, id)
    """,
    """
    CREATE INDEX sched_task_unfinished_idx ON sched_task (namespace_id, id) WHERE finished_at IS NULL
    """,
    """
    CREATE INDEX sched_task_namespace_id_id_idx ON sched_task (namespace_id, id)
    """,
    """
    CREATE TRIGGER sched_task_terminal_guard BEFORE UPDATE ON sched_task FOR EACH ROW
    WHEN (OLD.status IN ('cancelled', 'failed', 'skipped', 'succeeded') AND NEW.status IS DISTINCT FROM
      OLD.status)
    EXECUTE FUNCTION hetuflow_refuse('a finished task never changes its status')
    """,
    """
    CREATE TABLE sched_task_default PARTITION OF sched_task DEFAULT
    """,
    """
    CREATE TABLE sched_task_instance (
        id UUID NOT NULL,
        task_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        placement_id BIGINT NOT NULL,
        job_id UUID NOT NULL,
        job_version INTEGER NOT NULL,
        schedule_id UUID,
        seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        status TEXT NOT NULL,
        priority SMALLINT NOT NULL,
        fire_at TIMESTAMP WITH TIME ZONE NOT NULL,
        due_at TIMESTAMP WITH TIME ZONE NOT NULL,
        concurrency_key TEXT,
        target_agent_id UUID,
        slot INTEGER,
        token UUID,
        claim_no INTEGER DEFAULT 0 NOT NULL,
        agent_id UUID,
        session_id UUID,
        reserved_at TIMESTAMP WITH TIME ZONE,
        started_at TIMESTAMP WITH TIME ZONE,
        cancel_requested BOOLEAN DEFAULT false NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        held_reason TEXT,
        request_id UUID,
        reserved_until TIMESTAMP WITH TIME ZONE,
        lease_ms INTEGER,
        lease_until TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_task_instance_pkey PRIMARY KEY (id),
        CONSTRAINT sched_task_instance_status_check CHECK (status IN ('held', 'pending', 'reserved',
          'running')),
        CONSTRAINT sched_task_instance_held_reason_check CHECK (held_reason IN ('flow', 'key', 'overlap',
          'paused')),
        CONSTRAINT sched_task_instance_held_check CHECK ((status = 'held') = (held_reason IS NOT NULL)),
        CONSTRAINT sched_task_instance_owner_check CHECK (CASE status WHEN 'reserved' THEN token IS NOT
          NULL AND agent_id IS NOT NULL AND session_id IS NOT NULL AND reserved_until IS NOT NULL AND
          lease_until IS NULL WHEN 'running' THEN started_at IS NOT NULL AND reserved_until IS NULL AND
          (token IS NULL) = (lease_until IS NULL) AND (token IS NULL) = (agent_id IS NULL) AND (token IS
          NULL) = (session_id IS NULL) ELSE token IS NULL AND agent_id IS NULL AND session_id IS NULL AND
          reserved_until IS NULL AND lease_until IS NULL AND request_id IS NULL END),
        CONSTRAINT sched_task_instance_priority_check CHECK (priority BETWEEN 0 AND 1000),
        CONSTRAINT sched_task_instance_counts_check CHECK (seq >= 1 AND attempt >= 1 AND claim_no >= 0),
        CONSTRAINT sched_task_instance_lease_check CHECK (lease_ms >= 4000)
    )
     WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
       autovacuum_vacuum_cost_delay = 0)
    """,
    """
    CREATE INDEX sched_task_instance_claimed_idx ON sched_task_instance (namespace_id, id) WHERE status IN
      ('reserved', 'running')
    """,
    """
    CREATE INDEX sched_task_instance_agent_id_idx ON sched_task_instance (agent_id, session_id) WHERE
      agent_id IS NOT NULL
    """,
    """
    CREATE INDEX sched_task_instance_task_id_idx ON sched_task_instance (task_id)
    """,
    """
    CREATE INDEX sched_task_instance_key_idx ON sched_task_instance (namespace_id, concurrency_key,
      priority DESC, due_at, id) WHERE status IN ('pending', 'held') AND concurrency_key IS NOT NULL
    """,
    """
    CREATE INDEX sched_task_instance_schedule_id_idx ON sched_task_instance (schedule_id) WHERE
      schedule_id IS NOT NULL
    """,
    """
    CREATE UNIQUE INDEX sched_task_instance_slot_key ON sched_task_instance (schedule_id, slot) WHERE slot
      IS NOT NULL
    """,
    """
    CREATE INDEX sched_task_instance_target_idx ON sched_task_instance (target_agent_id, priority, due_at,
      id) WHERE status = 'pending' AND target_agent_id IS NOT NULL
    """,
    """
    CREATE INDEX sched_task_instance_claim_idx ON sched_task_instance (namespace_id, placement_id,
      priority, due_at, id) WHERE status = 'pending' AND target_agent_id IS NULL
    """,
    """
    CREATE INDEX sched_task_instance_held_idx ON sched_task_instance (namespace_id, due_at, id) WHERE
      status = 'held'
    """,
    """
    CREATE TABLE sched_task_instance_history (
        id UUID NOT NULL,
        task_id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        placement_id BIGINT NOT NULL,
        job_id UUID NOT NULL,
        job_version INTEGER NOT NULL,
        schedule_id UUID,
        seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        status TEXT NOT NULL,
        priority SMALLINT NOT NULL,
        fire_at TIMESTAMP WITH TIME ZONE NOT NULL,
        due_at TIMESTAMP WITH TIME ZONE NOT NULL,
        concurrency_key TEXT,
        target_agent_id UUID,
        slot INTEGER,
        token UUID,
        claim_no INTEGER DEFAULT 0 NOT NULL,
        agent_id UUID,
        session_id UUID,
        reserved_at TIMESTAMP WITH TIME ZONE,
        started_at TIMESTAMP WITH TIME ZONE,
        cancel_requested BOOLEAN DEFAULT false NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        reason TEXT,
        exit_code INTEGER,
        signal SMALLINT,
        message TEXT,
        output JSONB,
        usage JSONB,
        finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
        CONSTRAINT sched_task_instance_history_pkey PRIMARY KEY (id),
        CONSTRAINT sched_task_instance_history_status_check CHECK (status IN ('cancelled', 'failed',
          'lost', 'skipped', 'succeeded', 'timed_out'))
    )
     PARTITION BY RANGE (id)
    """,
    """
    CREATE INDEX sched_task_instance_history_task_id_idx ON sched_task_instance_history (task_id)
    """,
    """
    CREATE INDEX sched_task_instance_history_agent_id_id_idx ON sched_task_instance_history (agent_id, id)
    """,
    """
    CREATE TRIGGER sched_task_instance_history_terminal_guard BEFORE UPDATE ON sched_task_instance_history
      FOR EACH ROW
    WHEN (NEW.status IS DISTINCT FROM OLD.status)
    EXECUTE FUNCTION hetuflow_refuse('a finished instance never changes its status')
    """,
    """
    CREATE TABLE sched_task_instance_history_default PARTITION OF sched_task_instance_history DEFAULT
    """,
    """
    CREATE TABLE sched_late_report (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        instance_id UUID NOT NULL,
        task_id UUID,
        agent_id UUID,
        token UUID NOT NULL,
        reported_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        report JSONB NOT NULL,
        CONSTRAINT sched_late_report_pkey PRIMARY KEY (id)
    )
    """,
    """
    CREATE INDEX sched_late_report_reported_at_idx ON sched_late_report (reported_at)
    """,
    """
    CREATE INDEX sched_late_report_instance_id_idx ON sched_late_report (instance_id)
    """,
    """
    CREATE TABLE sched_job (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        name TEXT NOT NULL,
        enabled BOOLEAN DEFAULT true NOT NULL,
        version INTEGER NOT NULL,
        labels JSONB DEFAULT '{}'::jsonb NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        deleted_at TIMESTAMP WITH TIME ZONE,
        CONSTRAINT sched_job_pkey PRIMARY KEY (id),
        CONSTRAINT sched_job_name_check CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
        CONSTRAINT sched_job_version_check CHECK (version >= 1),
        CONSTRAINT sched_job_namespace_id_fkey FOREIGN KEY(namespace_id) REFERENCES sched_namespace (id)
    )
    """,
    """
    CREATE UNIQUE INDEX sched_job_name_key ON sched_job (namespace_id, name) WHERE deleted_at IS NULL
    """,
    """
    CREATE TABLE sched_namespace_binding (
        namespace_id INTEGER NOT NULL,
        server_id UUID NOT NULL,
        epoch BIGINT DEFAULT 1 NOT NULL,
        pinned BOOLEAN DEFAULT false NOT NULL,
        bound_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_namespace_binding_pkey PRIMARY KEY (namespace_id),
        CONSTRAINT sched_namespace_binding_epoch_check CHECK (epoch >= 1),
        CONSTRAINT sched_namespace_binding_namespace_id_fkey FOREIGN KEY(namespace_id) REFERENCES
          sched_namespace (id) ON DELETE CASCADE,
        CONSTRAINT sched_namespace_binding_server_id_fkey FOREIGN KEY(server_id) REFERENCES sched_server
          (id)
    )
    """,
    """
    CREATE INDEX sched_namespace_binding_server_id_idx ON sched_namespace_binding (server_id)
    """,
    """
    CREATE TRIGGER sched_namespace_binding_epoch_guard BEFORE UPDATE ON sched_namespace_binding FOR EACH
      ROW
    WHEN ((NEW.server_id IS DISTINCT FROM OLD.server_id) <> (NEW.epoch > OLD.epoch) OR NEW.epoch <
      OLD.epoch)
    EXECUTE FUNCTION hetuflow_refuse('a binding''s epoch changes with its server and only then')
    """,
    """
    CREATE TABLE leader_fence (
        name TEXT NOT NULL,
        holder UUID NOT NULL,
        epoch BIGINT NOT NULL,
        CONSTRAINT leader_fence_pkey PRIMARY KEY (name),
        CONSTRAINT leader_fence_epoch_check CHECK (epoch >= 0),
        CONSTRAINT leader_fence_name_fkey FOREIGN KEY(name) REFERENCES distributed_lock (name)
    )
    """,
    """
    CREATE TRIGGER leader_fence_epoch_guard BEFORE UPDATE ON leader_fence FOR EACH ROW
    WHEN (NEW.epoch < OLD.epoch OR (NEW.epoch = OLD.epoch AND NEW.holder <> OLD.holder))
    EXECUTE FUNCTION hetuflow_refuse('an epoch never decreases and never changes its holder')
    """,
    """
    CREATE TRIGGER leader_fence_delete_guard BEFORE DELETE ON leader_fence FOR EACH ROW
    EXECUTE FUNCTION hetuflow_refuse('a lock row is never deleted: its epoch would start again')
    """,
    """
    CREATE TABLE sched_job_version (
        job_id UUID NOT NULL,
        version INTEGER NOT NULL,
        spec JSONB NOT NULL,
        digest BYTEA NOT NULL,
        placement_id BIGINT NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        created_by TEXT,
        CONSTRAINT sched_job_version_pkey PRIMARY KEY (job_id, version),
        CONSTRAINT sched_job_version_version_check CHECK (version >= 1),
        CONSTRAINT sched_job_version_job_id_fkey FOREIGN KEY(job_id) REFERENCES sched_job (id),
        CONSTRAINT sched_job_version_placement_id_fkey FOREIGN KEY(placement_id) REFERENCES
          sched_placement (id)
    )
    """,
    """
    CREATE TABLE sched_schedule (
        id UUID NOT NULL,
        namespace_id INTEGER NOT NULL,
        job_id UUID NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        spec JSONB NOT NULL,
        enabled BOOLEAN DEFAULT true NOT NULL,
        version INTEGER DEFAULT 1 NOT NULL,
        cursor TIMESTAMP WITH TIME ZONE,
        next_fire_at TIMESTAMP WITH TIME ZONE,
        fired_count BIGINT DEFAULT 0 NOT NULL,
        created_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        updated_at TIMESTAMP WITH TIME ZONE DEFAULT clock_timestamp() NOT NULL,
        CONSTRAINT sched_schedule_pkey PRIMARY KEY (id),
        CONSTRAINT sched_schedule_job_id_name_key UNIQUE (job_id, name),
        CONSTRAINT sched_schedule_name_check CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?$'),
        CONSTRAINT sched_schedule_kind_check CHECK (kind IN ('cron', 'daemon', 'event', 'flow', 'time')),
        CONSTRAINT sched_schedule_version_check CHECK (version >= 1),
        CONSTRAINT sched_schedule_fired_count_check CHECK (fired_count >= 0),
        CONSTRAINT sched_schedule_cursor_check CHECK (CASE WHEN kind IN ('cron', 'time') THEN cursor IS
          NOT NULL AND (next_fire_at IS NULL OR next_fire_at > cursor) ELSE cursor IS NULL AND
          next_fire_at IS NULL END),
        CONSTRAINT sched_schedule_namespace_id_fkey FOREIGN KEY(namespace_id) REFERENCES sched_namespace
          (id),
        CONSTRAINT sched_schedule_job_id_fkey FOREIGN KEY(job_id) REFERENCES sched_job (id)
    )
    """,
    """
    CREATE INDEX sched_schedule_next_fire_at_idx ON sched_schedule (next_fire_at, id) WHERE enabled AND
      next_fire_at IS NOT NULL
    """,
    """
    CREATE VIEW sched_task_instance_all AS
    SELECT id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt,
      status, priority, fire_at, due_at, concurrency_key, target_agent_id, slot, token, claim_no,
      agent_id, session_id, reserved_at, started_at, cancel_requested, created_at, held_reason,
      lease_until, NULL::text AS reason, NULL::integer AS exit_code,
           NULL::smallint AS signal, NULL::text AS message, NULL::jsonb AS output, NULL::jsonb AS usage,
           NULL::timestamptz AS finished_at
    FROM sched_task_instance
    UNION ALL
    SELECT id, task_id, namespace_id, placement_id, job_id, job_version, schedule_id, seq, attempt,
      status, priority, fire_at, due_at, concurrency_key, target_agent_id, slot, token, claim_no,
      agent_id, session_id, reserved_at, started_at, cancel_requested, created_at, NULL, NULL, reason,
      exit_code, signal, message, output, usage, finished_at
    FROM sched_task_instance_history
    """,
    "INSERT INTO hetuflow_schema (min_code_version) VALUES (1)",
    "INSERT INTO sched_namespace (name) VALUES ('default')",
)

TABLES = (
    "sched_schedule",
    "sched_job_version",
    "leader_fence",
    "sched_namespace_binding",
    "sched_job",
    "sched_late_report",
    "sched_task_instance_history",
    "sched_task_instance",
    "sched_task",
    "sched_log_length",
    "sched_log_chunk",
    "sched_idempotency_key",
    "sched_agent",
    "leader_term",
    "distributed_lock",
    "sched_server",
    "hetuflow_schema",
    "sched_limit",
    "sched_placement",
    "sched_namespace",
)


def upgrade() -> None:
    for statement in STATEMENTS:
        op.execute(statement)


def downgrade() -> None:
    op.execute("DROP VIEW sched_task_instance_all")
    for table in TABLES:
        op.execute(f"DROP TABLE {table}")
    op.execute("DROP FUNCTION hetuflow_refuse()")

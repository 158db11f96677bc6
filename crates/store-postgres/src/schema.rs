//! The tables of a shard, the roles, and the functions that a node may call.

use ganger_store::rows::names::SmallTable;

/// Newest format of the tables, which a new cluster has.
pub(crate) const FORMAT: u32 = 1;
/// Number of log tables.
pub(crate) const SLOTS: usize = 3;
/// Tables whose rows of each 2^[`RANGE_BITS`] job numbers are a table of their own.
const RANGED: [&str; 5] = ["finished", "payloads", "inputs", "marks", "logs"];
/// Number of bits of a job's number below its range.
pub(crate) const RANGE_BITS: u32 = 20;
/// The role that owns the schemas.
pub(crate) const ADMIN: &str = "ganger_admin";
/// The role of the nodes.
pub(crate) const NODE: &str = "ganger_node";

/// Returns the schema of a shard.
pub(crate) fn schema_of(shard: u32) -> String {
    format!("ganger_s_{shard}")
}

/// Makes the roles, if they are missing, gives the node its settings, and makes the schema `ganger`.
///
/// Isolation, time limits and durability are settings of the role: a pooler that gives each transaction another
/// connection keeps none that a session makes.
///
/// A superuser may do all of this, and so may a role with CREATEROLE that may create schemas. PostgreSQL 16 makes
/// the creator of a role a member that may not use SET ROLE; before, every member may, and `SET` is no privilege to ask for.
pub(crate) fn roles() -> String {
    format!(
        "DO $$ DECLARE
    membership text := CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END;
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{ADMIN}') THEN CREATE ROLE {ADMIN} NOLOGIN; END IF;
    IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '{NODE}') THEN CREATE ROLE {NODE} LOGIN; END IF;
    IF NOT pg_has_role('{NODE}', 'pg_read_all_stats', 'MEMBER') THEN
        BEGIN
            GRANT pg_read_all_stats TO {NODE};
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE WARNING 'nodes cannot see whether a standby is synchronous, because % may not grant '
                'pg_read_all_stats: let a role that may run `GRANT pg_read_all_stats TO {NODE}`', current_user;
        END;
    END IF;
    IF NOT pg_has_role(current_user, '{ADMIN}', membership) THEN EXECUTE format('GRANT {ADMIN} TO %I', current_user); END IF;
    -- An operator who does not own the database cannot pass its rights on, and makes the schemas with their own.
    IF has_database_privilege(current_database(), 'CREATE WITH GRANT OPTION') THEN
        EXECUTE format('GRANT CREATE, CONNECT ON DATABASE %I TO {ADMIN}', current_database());
        EXECUTE format('GRANT CONNECT ON DATABASE %I TO {NODE}', current_database());
    END IF;
    IF to_regnamespace('ganger') IS NULL THEN CREATE SCHEMA ganger AUTHORIZATION {ADMIN}; END IF;
END $$;
ALTER ROLE {NODE} SET default_transaction_isolation = 'read committed';
ALTER ROLE {NODE} SET synchronous_commit = 'on';
ALTER ROLE {NODE} SET statement_timeout = 0;
ALTER ROLE {NODE} SET lock_timeout = '5s';
ALTER ROLE {NODE} SET idle_in_transaction_session_timeout = '10s';"
    )
}

/// Makes the control tables in the schema `ganger`, and the functions by which a node adds and drops ranges of job
/// numbers. The functions run as their owner, see no names but their own, and verify what they are given.
pub(crate) fn functions() -> String {
    let of_each = |template: &str| -> String {
        let parts = RANGED
            .iter()
            .map(|table| template.replace("{table}", table));
        parts.collect()
    };
    let add = of_each("    PERFORM ganger.add_part(shard, part, '{table}');\n");
    let check = of_each(
        "    name := format('%I.%I', space, '{table}_' || part);
    EXECUTE 'LOCK TABLE ' || name || ' IN ACCESS EXCLUSIVE MODE';
    EXECUTE 'SELECT EXISTS (SELECT 1 FROM ' || name || ')' INTO found;
    IF found THEN RETURN false; END IF;\n",
    );
    let drop = of_each("    EXECUTE format('DROP TABLE %I.%I', space, '{table}_' || part);\n");
    [FUNCTIONS, crate::control::TABLES, crate::nodes::TABLES]
        .concat()
        .replace("{add}", &add)
        .replace("{check}", &check)
        .replace("{drop}", &drop)
        .replace("{bits}", &RANGE_BITS.to_string())
        .replace("{node}", NODE)
}

const FUNCTIONS: &str = "
GRANT USAGE ON SCHEMA ganger TO {node};

CREATE OR REPLACE FUNCTION ganger.add_part(shard int, part int8, parent text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    space text := 'ganger_s_' || shard;
    child text := parent || '_' || part;
BEGIN
    IF to_regclass(format('%I.%I', space, child)) IS NOT NULL THEN RETURN; END IF;
    EXECUTE format('CREATE TABLE %I.%I (LIKE %I.%I INCLUDING DEFAULTS INCLUDING STORAGE)', space, child, space, parent);
    EXECUTE format('ALTER TABLE %I.%I SET (autovacuum_vacuum_insert_threshold = -1)', space, child);
    EXECUTE format('ALTER TABLE %I.%I ATTACH PARTITION %I.%I FOR VALUES FROM (%s) TO (%s)',
        space, parent, space, child, part << {bits}, (part + 1) << {bits});
END $$;
REVOKE ALL ON FUNCTION ganger.add_part(int, int8, text) FROM PUBLIC;

CREATE OR REPLACE FUNCTION ganger.add_range(shard int, part int8) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF shard < 0 OR part < 0 OR part > (9223372036854775807 >> {bits}) - 1 THEN
        RAISE EXCEPTION 'shard % has no range %', shard, part USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- One at a time: the second finds what the first has made.
    EXECUTE format('LOCK TABLE %I.ranges IN EXCLUSIVE MODE', 'ganger_s_' || shard);
{add}    EXECUTE format('INSERT INTO %I.ranges (part) VALUES (%s) ON CONFLICT DO NOTHING', 'ganger_s_' || shard, part);
END $$;
REVOKE ALL ON FUNCTION ganger.add_range(int, int8) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ganger.add_range(int, int8) TO {node};

CREATE OR REPLACE FUNCTION ganger.drop_range(shard int, part int8) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    space text := 'ganger_s_' || shard;
    name text;
    found boolean;
BEGIN
    IF shard < 0 OR part < 0 THEN
        RAISE EXCEPTION 'shard % has no range %', shard, part USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE format('LOCK TABLE %I.ranges IN EXCLUSIVE MODE', space);
    EXECUTE format('SELECT EXISTS (SELECT 1 FROM %I.ranges WHERE part = %s)', space, part) INTO found;
    IF NOT found THEN RETURN true; END IF;
{check}{drop}    EXECUTE format('DELETE FROM %I.ranges WHERE part = %s', space, part);
    RETURN true;
END $$;
REVOKE ALL ON FUNCTION ganger.drop_range(int, int8) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION ganger.drop_range(int, int8) TO {node};
";

/// Makes the tables of a shard in its schema, `{s}`.
///
/// Rows of `body bytea` are records of the `store` crate with their checksum behind them, as in the embedded store.
/// Claims alone write `fence`, a checkpoint alone writes `checkpoint`; log tables are inserted into and truncated.
/// A commit locks the row `log` of `fence`, a checkpoint the row `rows`: two sharers of one row would need a
/// multixact for every commit.
const SHARD: &str = "
GRANT USAGE ON SCHEMA {s} TO {node};
CREATE TABLE {s}.fence (what text PRIMARY KEY, epoch int8 NOT NULL, state text NOT NULL, owner text NOT NULL,
    identity bytea NOT NULL, format int NOT NULL) WITH (fillfactor = 10);
CREATE TABLE {s}.checkpoint (one int PRIMARY KEY CHECK (one = 1), sequence int8 NOT NULL, slot int NOT NULL,
    meta bytea NOT NULL) WITH (fillfactor = 10);
CREATE TABLE {s}.ranges (part int8 PRIMARY KEY);
CREATE TABLE {s}.places (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, namespace bytea NOT NULL,
    queue bytea NOT NULL, UNIQUE (namespace, queue));
CREATE TABLE {s}.jobs (key int8 PRIMARY KEY, marked boolean NOT NULL, body bytea NOT NULL)
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE {s}.leases (key int8 PRIMARY KEY, body bytea NOT NULL)
    WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE TABLE {s}.finished (key int8 PRIMARY KEY, marked boolean NOT NULL, place int8 NOT NULL, outcome int2 NOT NULL,
    ended_at int8 NOT NULL, ended_order int8 NOT NULL, own int8, body bytea NOT NULL, result bytea)
    PARTITION BY RANGE (key);
CREATE INDEX ON {s}.finished (place, outcome, ended_order, own);
CREATE INDEX ON {s}.finished (place, outcome, ended_at, key) WHERE own IS NULL;
CREATE INDEX ON {s}.finished (own, key) WHERE own IS NOT NULL;
CREATE TABLE {s}.payloads (key int8 PRIMARY KEY, body bytea NOT NULL) PARTITION BY RANGE (key);
CREATE TABLE {s}.inputs (job int8, slot int8, dependency int8, body bytea NOT NULL, PRIMARY KEY (job, slot))
    PARTITION BY RANGE (job);
CREATE INDEX ON {s}.inputs (dependency) WHERE dependency IS NOT NULL;
CREATE TABLE {s}.marks (mark bytea, key int8, PRIMARY KEY (mark, key)) PARTITION BY RANGE (key);
CREATE TABLE {s}.logs (job int8, attempt int8, start int8, body bytea NOT NULL, PRIMARY KEY (job, attempt, start))
    PARTITION BY RANGE (job);
";

/// Makes a log table. `{t}` stands for its name.
const LOG: &str = "
CREATE TABLE {t} (seq int8 PRIMARY KEY, epoch int8 NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp(),
    body bytea NOT NULL) WITH (autovacuum_enabled = off);
ALTER TABLE {t} ALTER body SET STORAGE EXTERNAL;
GRANT TRUNCATE ON {t} TO {node};
";

/// Says what a node may do with the tables.
const RIGHTS: &str = "
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {s} TO {node};
REVOKE INSERT, DELETE ON {s}.fence, {s}.checkpoint FROM {node};
REVOKE INSERT, UPDATE, DELETE ON {s}.ranges FROM {node};
";

/// Returns the statement that makes the schema of a shard, for a role that may create schemas.
pub(crate) fn schema(number: u32) -> String {
    format!("CREATE SCHEMA {} AUTHORIZATION {ADMIN};", schema_of(number))
}

/// Returns the statements that make the tables of a shard in its schema, without rows.
pub(crate) fn shard(number: u32) -> String {
    let schema = schema_of(number);
    let smalls = SmallTable::ALL.map(|small| {
        let settings = match small {
            // Few rows that change often.
            SmallTable::Statistics | SmallTable::TagCounts | SmallTable::Queues => {
                " WITH (fillfactor = 70)"
            }
            SmallTable::External(table) if table.is_rewritten_often() => {
                " WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02)"
            }
            _ => "",
        };
        let table = small.table();
        format!(
            "CREATE TABLE {{s}}.{table} (name bytea PRIMARY KEY, body bytea NOT NULL){settings};\n"
        )
    });
    let logs: Vec<_> = (0..SLOTS)
        .map(|slot| LOG.replace("{t}", &format!("{{s}}.log_{slot}")))
        .collect();
    let sql = [SHARD, &smalls.concat(), &logs.concat(), RIGHTS].concat();
    sql.replace("{s}", &schema).replace("{node}", NODE)
}

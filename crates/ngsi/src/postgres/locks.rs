//! Advisory locks: no two sessions insert the same task or create the same table at the same time.

/// Returns the key of a task's lock.
pub(crate) fn task_key(uuid: &str) -> i64 {
    key("task", uuid)
}

/// Returns the key of the lock for creating a table, schema or the metadata.
pub(crate) fn creation_key(what: &str) -> i64 {
    key("make", what)
}

/// Returns the statement that acquires locks until the end of the transaction. It takes them in the order of their keys,
/// so that sessions with several locks cannot deadlock.
pub(crate) fn lock_statement(mut keys: Vec<i64>) -> String {
    keys.sort_unstable();
    keys.dedup();
    let keys: Vec<String> = keys.iter().map(i64::to_string).collect();
    let keys = keys.join(",");
    format!("select pg_advisory_xact_lock(key) from unnest('{{{keys}}}'::bigint[]) key")
}

/// FNV-1a. Names that share a key only wait for each other.
fn key(kind: &str, name: &str) -> i64 {
    let bytes = kind.bytes().chain([0]).chain(name.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_acquired_in_order_and_once() {
        assert_eq!(
            lock_statement(vec![5, -2, 5]),
            "select pg_advisory_xact_lock(key) from unnest('{-2,5}'::bigint[]) key"
        );
    }

    #[test]
    fn a_task_and_a_table_of_one_name_have_different_locks() {
        assert_ne!(task_key("x"), creation_key("x"));
        assert_ne!(task_key("x"), task_key("y"));
    }
}

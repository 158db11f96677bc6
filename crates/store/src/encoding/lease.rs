//! The lease record: small, because leases come and go with every attempt.

use ganger_types::LeaseRecord;

use super::field::{Near, Origin, fields, record};

record!("lease", version 1, LeaseRecord {
    key,
    attempt,
    attempts_counted,
    worker,
    token,
    granted_at,
    lease_for,
    granted_elapsed as Origin,
    expires_at as Near,
    ready_at as Near,
    timeout_at as Near,
    request,
    is_warned,
});

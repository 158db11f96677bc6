//! Inputs of jobs: values, and results of other jobs.

use ganger_types::{FailurePolicy, InputRow, InputState};

use super::field::{choice, fields, record};

record!("input", version 1, InputRow { job, slot, state });

choice!(InputState, "has an unknown state" {
    1 Value(value)
    2 Missing { dependency, id, policy }
    3 Delivered { dependency, id, policy }
    4 Ignored { id }
    5 Remote { dependency, policy, is_member }
    6 Received { dependency, policy, value }
});

choice!(FailurePolicy, "has an unknown failure policy" {
    1 Fail {}
    2 Wait {}
    3 Ignore {}
});

//! Tests of starts and stops that meet.

use super::*;

/// Creates a server that has not been started; `None` if none can run here.
fn stopped() -> Option<Instance> {
    if unavailable_reason().is_some() {
        return None;
    }
    let mut instance = Instance::start().expect("it starts");
    instance.stop().expect("it stops");
    Some(instance)
}

#[test]
fn a_server_that_is_stopped_while_it_starts_ends() {
    let Some(mut instance) = stopped() else {
        return;
    };
    for _ in 0..10 {
        instance.launch().expect("it is launched");
        instance.wait_for_end().expect("it ends");
    }
}

#[test]
fn a_server_that_has_not_been_started_yet_has_not_failed() {
    let Some(mut instance) = stopped() else {
        return;
    };
    for _ in 0..10 {
        instance.launch().expect("it is launched");
        assert!(!instance.has_failed_to_start().expect("it can be seen"));
        instance.wait_for_end().expect("it ends");
    }
}

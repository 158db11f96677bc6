//! What a real server answers, as faults and warnings.

use tokio_postgres::error::SqlState;

use super::support::Ground;
use crate::fault::Fault;
use crate::session::Session;

fn run(session: &mut Session, sql: &str) -> Result<(), Fault> {
    session.run(async |wire| wire.batch(sql).await)
}

#[test]
fn an_error_leaves_the_session_and_its_end_does_not() {
    let Some(ground) = Ground::start("an_error_leaves_the_session") else {
        return;
    };
    let mut session = Session::connect(&ground.settings(), "test").expect("it is there");
    for code in ["53100", "23505", "57014"] {
        let raise =
            format!("DO $$ BEGIN RAISE 'why' USING ERRCODE = '{code}', HINT = 'do'; END $$");
        let Err(Fault::Refused {
            code: found,
            message,
        }) = run(&mut session, &raise)
        else {
            panic!("{code} is an error");
        };
        assert_eq!(
            (found, message.as_str()),
            (SqlState::from_code(code), "why; do")
        );
        assert!(session.is_alive(), "{code}");
    }
    let ended = run(
        &mut session,
        "SELECT pg_terminate_backend(pg_backend_pid())",
    );
    let Err(Fault::Lost(reason)) = ended else {
        panic!("its end is no refusal: {ended:?}");
    };
    assert!(reason.starts_with("FATAL: "), "{reason}");
    assert!(!session.is_alive());
}

/// Its transaction cannot be used any more, but the next connection may go to a server that accepts writes.
#[test]
fn a_session_that_may_only_read_is_not_used_again() {
    let Some(ground) = Ground::start("a_session_that_may_only_read") else {
        return;
    };
    let mut session = Session::connect(&ground.settings(), "test").expect("it is there");
    let refused = run(&mut session, "BEGIN READ ONLY; CREATE TABLE t ()");
    assert!(refused.is_err_and(|fault| fault.is(&SqlState::READ_ONLY_SQL_TRANSACTION)),);
    assert!(!session.is_alive());
}

/// A warning in a commit is an outcome (see `a_commit_whose_wait_was_cancelled...`), a notice is none.
#[test]
fn the_first_warning_of_a_statement_is_known_with_its_answer() {
    let Some(ground) = Ground::start("the_first_warning_of_a_statement") else {
        return;
    };
    let mut session = Session::connect(&ground.settings(), "test").expect("it is there");
    let raise = "DO $$ BEGIN RAISE NOTICE 'a'; RAISE WARNING 'b'; RAISE WARNING 'c'; END $$";
    run(&mut session, raise).expect("it only warns");
    assert_eq!(session.take_warning().as_deref(), Some("b"));
    assert_eq!(session.take_warning(), None);
    run(&mut session, "DO $$ BEGIN RAISE NOTICE 'a'; END $$").expect("it only tells");
    assert_eq!(session.take_warning(), None);
}

//! Databases that are unreachable, overloaded or slow.

use std::time::Duration;

use ganger_ngsi::postgres::{InsertError, Inserter, TaskInsert};
use tokio_postgres::{Client, Config, NoTls};

use crate::support::{
    TestDatabase, attribute, database_of, entity, insert_one, new_insert, private_server, settings,
    shared_server, task,
};

fn fitting_insert() -> TaskInsert {
    new_insert(task(&entity("e1", &attribute("x", "Integer", "1"))))
}

fn assert_retryable(error: &InsertError, code: &str) {
    assert!(error.is_retryable, "{error}");
    assert!(error.message.contains(&format!("'C': '{code}'")), "{error}");
}

/// Opens a session of the superuser.
async fn session(database: &TestDatabase) -> Client {
    let (client, connection) = Config::new()
        .host_path(shared_server().socket_directory())
        .port(database.address.port)
        .user("postgres")
        .dbname(&database.address.name)
        .connect(NoTls)
        .await
        .expect("the server runs");
    tokio::spawn(connection);
    client
}

/// Waits until a statement returns this result.
async fn until(database: &TestDatabase, sql: &str, answer: &str) {
    while database.sql(sql) != answer {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_database_that_accepts_no_connections_is_retried() {
    let Some(database) = TestDatabase::plain("closed") else {
        return;
    };
    let mut inserter = database.inserter();
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("the connection should be open");
    let name = &database.address.name;
    shared_server()
        .allow_connections(name, false)
        .expect("the database should respond");
    shared_server()
        .terminate_sessions(name)
        .expect("the database should respond");

    let outcomes = inserter.insert(&[fitting_insert(), fitting_insert()]).await;
    for outcome in outcomes {
        let error = outcome.expect_err("the connection is closed");
        assert!(
            error
                .message
                .starts_with("ProgrammingError({'S': 'FATAL', 'V': 'FATAL', "),
            "{error}"
        );
        assert_retryable(&error, "55000");
    }
    assert!(!inserter.ping().await);

    shared_server()
        .allow_connections(name, true)
        .expect("the database should respond");
    assert!(inserter.ping().await);
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("the connection should be open");
    assert_eq!(database.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn a_session_that_was_cut_while_idle_costs_no_attempt() {
    let Some(database) = TestDatabase::plain("cut_while_idle") else {
        return;
    };
    let mut inserter = database.inserter();
    for _ in 0..3 {
        insert_one(&mut inserter, fitting_insert())
            .await
            .expect("the session should reconnect");
        shared_server()
            .terminate_sessions(&database.address.name)
            .expect("the database should respond");
    }
    assert!(inserter.ping().await);
    assert_eq!(database.sql("select count(*) from mtx.ett"), "3");
}

#[tokio::test]
async fn a_killed_server_comes_back_with_everything_it_acknowledged() {
    let Some(mut instance) =
        private_server("a_killed_server_comes_back_with_everything_it_acknowledged")
    else {
        return;
    };
    let database = database_of(instance.database());
    let mut inserter = Inserter::new(settings(&database));
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("the database should run");

    instance.kill().expect("the database should run");
    let error = insert_one(&mut inserter, fitting_insert())
        .await
        .expect_err("the database is stopped");
    assert_eq!(
        error.message,
        format!(
            "InterfaceError(\"Can't create a connection to host 127.0.0.1 and port {} (timeout is None and \
             source_address is None).\")",
            database.port
        )
    );
    assert!(error.is_retryable);
    assert!(!inserter.ping().await);
    instance.start_again().expect("the database should start");
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("the database should run");

    instance.stop().expect("the database should run");
    let error = insert_one(&mut inserter, fitting_insert())
        .await
        .expect_err("the database is stopped");
    assert!(error.is_retryable, "{error}");
    instance.start_again().expect("the database should start");
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("the database should run");
    let count = instance.sql("quantumleap", "select count(*) from mtx.ett");
    assert_eq!(count.expect("the database should respond"), "3");
}

#[tokio::test]
async fn limits_of_the_operator_are_retryable() {
    let Some(database) = TestDatabase::plain("limits") else {
        return;
    };
    let name = &database.address.name;
    insert_one(&mut database.inserter(), fitting_insert())
        .await
        .expect("no limit yet");
    let holder = session(&database).await;

    let new_table = new_insert(task(
        &entity("e1", "")
            .replace(", }", "}")
            .replace("\"T\"", "\"U\""),
    ));
    database.sql(&format!(
        "alter database {name} set default_transaction_read_only = on"
    ));
    let error = insert_one(&mut database.inserter(), fitting_insert())
        .await
        .expect_err("read only");
    assert_retryable(&error, "25006");
    let error = insert_one(&mut database.inserter(), new_table)
        .await
        .expect_err("read only");
    assert_retryable(&error, "25006");
    database.sql(&format!(
        "set default_transaction_read_only = off; alter database {name} reset all"
    ));

    database.sql(&format!("alter database {name} connection limit 0"));
    let error = insert_one(&mut database.inserter(), fitting_insert())
        .await
        .expect_err("no connection is allowed");
    assert_retryable(&error, "53300");
    database.sql(&format!("alter database {name} connection limit -1"));

    holder
        .batch_execute("begin; lock table mtx.ett")
        .await
        .expect("nobody else has it");
    for (limit, code) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        database.sql(&format!("alter database {name} set {limit} = '100ms'"));
        let error = insert_one(&mut database.inserter(), fitting_insert())
            .await
            .expect_err("the table is locked");
        assert_retryable(&error, code);
        database.sql(&format!("alter database {name} reset all"));
    }
    holder
        .batch_execute("rollback")
        .await
        .expect("the transaction can be rolled back");
    insert_one(&mut database.inserter(), fitting_insert())
        .await
        .expect("no limit any more");
    assert_eq!(database.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn wrong_names_and_passwords_are_permanent_errors() {
    let Some(database) = TestDatabase::plain("wrong_password") else {
        return;
    };
    for (change, code) in [("password", "28P01"), ("name", "3D000")] {
        let mut settings = settings(&database.address);
        match change {
            "password" => settings.database.password = "secret-guess".to_owned(),
            _ => settings.database.name = "no_such_database".to_owned(),
        }
        let error = insert_one(&mut Inserter::new(settings), fitting_insert())
            .await
            .expect_err(change);
        assert!(!error.is_retryable, "{error}");
        assert!(error.message.contains(&format!("'C': '{code}'")), "{error}");
        assert!(!error.message.contains("secret-guess"), "{error}");
    }
}

/// Rejects the first `times` inserts into `"mtx"."ett"` with this SQLSTATE.
fn reject_rows(database: &TestDatabase, code: &str, times: u32) {
    // A sequence keeps counting even if the transaction is rolled back.
    database.sql(&format!(
        "drop sequence if exists refusals; create sequence refusals; \
         grant all on sequence refusals to public; \
         create or replace function refuse() returns trigger language plpgsql as $$ begin \
             if nextval('public.refusals') <= {times} then \
                 raise exception 'refused' using errcode = '{code}'; \
             end if; \
             return new; \
         end $$; \
         create or replace trigger refuse before insert on mtx.ett \
             for each row execute function refuse()"
    ));
}

#[tokio::test]
async fn a_deadlock_is_repeated_within_the_attempt() {
    let Some(database) = TestDatabase::plain("deadlock") else {
        return;
    };
    let mut inserter = database.inserter();
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("nothing is in the way");
    for code in ["40P01", "40001"] {
        reject_rows(&database, code, 2);
        insert_one(&mut inserter, fitting_insert())
            .await
            .expect(code);
    }
    assert_eq!(database.sql("select count(*) from mtx.ett"), "3");
}

#[tokio::test]
async fn transient_errors_are_retryable_and_leave_nothing() {
    let Some(database) = TestDatabase::plain("passing_errors") else {
        return;
    };
    let mut inserter = database.inserter();
    insert_one(&mut inserter, fitting_insert())
        .await
        .expect("nothing is in the way");
    let codes = [
        "08006", "28000", "40001", "40P01", "42P01", "53100", "53200", "53400", "55000", "55P03",
        "57014", "57P01", "57P02", "57P03",
    ];
    for code in codes {
        reject_rows(&database, code, u32::MAX);
        let error = insert_one(&mut inserter, fitting_insert())
            .await
            .expect_err(code);
        assert_retryable(&error, code);
    }
    // After another error the entity is saved as JSON; if that fails as well, the error is permanent.
    reject_rows(&database, "XX000", 1);
    let error = insert_one(&mut inserter, fitting_insert()).await;
    assert_eq!(error.map(|done| done.rows), Ok(1));
    reject_rows(&database, "XX000", u32::MAX);
    let error = insert_one(&mut inserter, fitting_insert())
        .await
        .expect_err("refused");
    assert!(!error.is_retryable, "{error}");
    assert_eq!(database.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_cancelled_and_leaves_nothing() {
    let Some(database) = TestDatabase::plain("too_long") else {
        return;
    };
    insert_one(&mut database.inserter(), fitting_insert())
        .await
        .expect("nothing is in the way");
    let holder = session(&database).await;
    holder
        .batch_execute("begin; lock table mtx.ett")
        .await
        .expect("nobody else has it");

    let mut inserter = database
        .inserter()
        .with_attempt_timeout(Duration::from_secs(1));
    let error = insert_one(&mut inserter, fitting_insert())
        .await
        .expect_err("the table is locked");
    assert_eq!(
        error.message,
        "JobTimeoutException('Task exceeded maximum timeout value (1 seconds)')"
    );
    assert!(!error.is_retryable);
    let sessions = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and application_name = 'ganger'",
        database.address.name
    );
    until(&database, &sessions, "0").await;
    holder
        .batch_execute("rollback")
        .await
        .expect("the transaction can be rolled back");
    assert_eq!(database.sql("select count(*) from mtx.ett"), "1");
}

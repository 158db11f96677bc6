//! A database that is away, or has no time.

use std::time::Duration;

use ganger_ngsi::postgres::{Insert, InsertError, Inserter};
use tokio_postgres::{Client, Config, NoTls};

use crate::support::{
    Ground, attribute, database, entity, insert, instance, one, own_instance, settings, task,
};

fn fitting() -> Insert {
    insert(task(&entity("e1", &attribute("x", "Integer", "1"))))
}

fn assert_curable(error: &InsertError, code: &str) {
    assert!(error.is_curable, "{error}");
    assert!(error.message.contains(&format!("'C': '{code}'")), "{error}");
}

/// A session of the superuser.
async fn session(ground: &Ground) -> Client {
    let (client, connection) = Config::new()
        .host_path(instance().socket_directory())
        .port(ground.database.port)
        .user("postgres")
        .dbname(&ground.database.name)
        .connect(NoTls)
        .await
        .expect("the server runs");
    tokio::spawn(connection);
    client
}

/// Waits until a statement gives the answer.
async fn until(ground: &Ground, sql: &str, answer: &str) {
    while ground.sql(sql) != answer {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_database_that_takes_no_connections_is_an_outage_that_passes() {
    let Some(ground) = Ground::plain("closed") else {
        return;
    };
    let mut inserter = ground.inserter();
    one(&mut inserter, fitting()).await.expect("it is open");
    let name = &ground.database.name;
    instance()
        .allow_connections(name, false)
        .expect("it answers");
    instance().terminate_sessions(name).expect("it answers");

    let outcomes = inserter.insert(&[fitting(), fitting()]).await;
    for outcome in outcomes {
        let error = outcome.expect_err("it is closed");
        assert!(
            error
                .message
                .starts_with("ProgrammingError({'S': 'FATAL', 'V': 'FATAL', "),
            "{error}"
        );
        assert_curable(&error, "55000");
    }
    assert!(!inserter.answers().await);

    instance()
        .allow_connections(name, true)
        .expect("it answers");
    assert!(inserter.answers().await);
    one(&mut inserter, fitting()).await.expect("it is open");
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn a_session_that_was_cut_while_idle_costs_no_attempt() {
    let Some(ground) = Ground::plain("cut_while_idle") else {
        return;
    };
    let mut inserter = ground.inserter();
    for _ in 0..3 {
        one(&mut inserter, fitting())
            .await
            .expect("it connects again");
        instance()
            .terminate_sessions(&ground.database.name)
            .expect("it answers");
    }
    assert!(inserter.answers().await);
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "3");
}

#[tokio::test]
async fn a_server_that_is_killed_comes_back_with_all_it_acknowledged() {
    let Some(mut instance) =
        own_instance("a_server_that_is_killed_comes_back_with_all_it_acknowledged")
    else {
        return;
    };
    let database = database(instance.database());
    let mut inserter = Inserter::new(settings(&database));
    one(&mut inserter, fitting()).await.expect("it runs");

    instance.kill().expect("it runs");
    let error = one(&mut inserter, fitting()).await.expect_err("it is gone");
    assert_eq!(
        error.message,
        format!(
            "InterfaceError(\"Can't create a connection to host 127.0.0.1 and port {} (timeout is None and \
             source_address is None).\")",
            database.port
        )
    );
    assert!(error.is_curable);
    assert!(!inserter.answers().await);
    instance.start_again().expect("it starts");
    one(&mut inserter, fitting()).await.expect("it runs");

    instance.stop().expect("it runs");
    let error = one(&mut inserter, fitting()).await.expect_err("it is gone");
    assert!(error.is_curable, "{error}");
    instance.start_again().expect("it starts");
    one(&mut inserter, fitting()).await.expect("it runs");
    let count = instance.sql("quantumleap", "select count(*) from mtx.ett");
    assert_eq!(count.expect("it answers"), "3");
}

#[tokio::test]
async fn limits_of_the_operator_are_curable() {
    let Some(ground) = Ground::plain("limits") else {
        return;
    };
    let name = &ground.database.name;
    one(&mut ground.inserter(), fitting())
        .await
        .expect("no limit yet");
    let holder = session(&ground).await;

    let new_table = insert(task(
        &entity("e1", "")
            .replace(", }", "}")
            .replace("\"T\"", "\"U\""),
    ));
    ground.sql(&format!(
        "alter database {name} set default_transaction_read_only = on"
    ));
    let error = one(&mut ground.inserter(), fitting())
        .await
        .expect_err("read only");
    assert_curable(&error, "25006");
    let error = one(&mut ground.inserter(), new_table)
        .await
        .expect_err("read only");
    assert_curable(&error, "25006");
    ground.sql(&format!(
        "set default_transaction_read_only = off; alter database {name} reset all"
    ));

    ground.sql(&format!("alter database {name} connection limit 0"));
    let error = one(&mut ground.inserter(), fitting())
        .await
        .expect_err("no place");
    assert_curable(&error, "53300");
    ground.sql(&format!("alter database {name} connection limit -1"));

    holder
        .batch_execute("begin; lock table mtx.ett")
        .await
        .expect("nobody else has it");
    for (limit, code) in [("lock_timeout", "55P03"), ("statement_timeout", "57014")] {
        ground.sql(&format!("alter database {name} set {limit} = '100ms'"));
        let error = one(&mut ground.inserter(), fitting())
            .await
            .expect_err("it is locked");
        assert_curable(&error, code);
        ground.sql(&format!("alter database {name} reset all"));
    }
    holder
        .batch_execute("rollback")
        .await
        .expect("it was begun");
    one(&mut ground.inserter(), fitting())
        .await
        .expect("no limit any more");
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn wrong_names_and_passwords_are_incurable() {
    let Some(ground) = Ground::plain("wrong_password") else {
        return;
    };
    for (change, code) in [("password", "28P01"), ("name", "3D000")] {
        let mut settings = settings(&ground.database);
        match change {
            "password" => settings.database.password = "secret-guess".to_owned(),
            _ => settings.database.name = "no_such_database".to_owned(),
        }
        let error = one(&mut Inserter::new(settings), fitting())
            .await
            .expect_err(change);
        assert!(!error.is_curable, "{error}");
        assert!(error.message.contains(&format!("'C': '{code}'")), "{error}");
        assert!(!error.message.contains("secret-guess"), "{error}");
    }
}

/// Refuses rows of `"mtx"."ett"` with an error, the first `times` times.
fn refuse(ground: &Ground, code: &str, times: u32) {
    // A sequence counts on whatever becomes of the transaction.
    ground.sql(&format!(
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
    let Some(ground) = Ground::plain("deadlock") else {
        return;
    };
    let mut inserter = ground.inserter();
    one(&mut inserter, fitting())
        .await
        .expect("nothing is in the way");
    for code in ["40P01", "40001"] {
        refuse(&ground, code, 2);
        one(&mut inserter, fitting()).await.expect(code);
    }
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "3");
}

#[tokio::test]
async fn errors_that_will_pass_are_curable_and_leave_nothing() {
    let Some(ground) = Ground::plain("passing_errors") else {
        return;
    };
    let mut inserter = ground.inserter();
    one(&mut inserter, fitting())
        .await
        .expect("nothing is in the way");
    let codes = [
        "08006", "28000", "40001", "40P01", "42P01", "53100", "53200", "53400", "55000", "55P03",
        "57014", "57P01", "57P02", "57P03",
    ];
    for code in codes {
        refuse(&ground, code, u32::MAX);
        let error = one(&mut inserter, fitting()).await.expect_err(code);
        assert_curable(&error, code);
    }
    // Of another error the entity is saved, and if that is refused as well, there is no hope.
    refuse(&ground, "XX000", 1);
    let error = one(&mut inserter, fitting()).await;
    assert_eq!(error.map(|done| done.rows), Ok(1));
    refuse(&ground, "XX000", u32::MAX);
    let error = one(&mut inserter, fitting()).await.expect_err("refused");
    assert!(!error.is_curable, "{error}");
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "2");
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_is_cancelled_and_leaves_nothing() {
    let Some(ground) = Ground::plain("too_long") else {
        return;
    };
    one(&mut ground.inserter(), fitting())
        .await
        .expect("nothing is in the way");
    let holder = session(&ground).await;
    holder
        .batch_execute("begin; lock table mtx.ett")
        .await
        .expect("nobody else has it");

    let mut inserter = ground.inserter().limited_to(Duration::from_secs(1));
    let error = one(&mut inserter, fitting())
        .await
        .expect_err("it is locked");
    assert_eq!(
        error.message,
        "JobTimeoutException('Task exceeded maximum timeout value (1 seconds)')"
    );
    assert!(!error.is_curable);
    let sessions = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and application_name = 'ganger'",
        ground.database.name
    );
    until(&ground, &sessions, "0").await;
    holder
        .batch_execute("rollback")
        .await
        .expect("it was begun");
    assert_eq!(ground.sql("select count(*) from mtx.ett"), "1");
}

//! Sessions over TLS.

use ganger_ngsi::postgres::Inserter;
use rustls::RootCertStore;

use crate::support::{attribute, database, entity, insert, one, own_instance, settings, task};

#[tokio::test]
async fn a_session_is_encrypted_and_the_server_verified() {
    let Some(instance) = own_instance("a_session_is_encrypted_and_the_server_verified") else {
        return;
    };
    let mut settings = settings(&database(instance.database()));
    settings.database.ssl = true;
    let tasks = insert(task(&entity("e1", &attribute("x", "Integer", "1"))));

    // The server offers no TLS yet.
    let mut inserter = Inserter::new(settings.clone());
    let error = one(&mut inserter, tasks.clone())
        .await
        .expect_err("it is not encrypted");
    assert!(error.message.starts_with("InterfaceError("), "{error}");

    let made =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("it can be made");
    instance
        .encrypt(&made.cert.pem(), &made.signing_key.serialize_pem())
        .expect("it is taken");
    let mut roots = RootCertStore::empty();
    roots
        .add(made.cert.der().clone())
        .expect("it is a certificate");

    // A reload takes effect at some moment.
    let mut trusting = Inserter::with_roots(settings, roots);
    while !trusting.answers().await {}
    one(&mut trusting, tasks.clone())
        .await
        .expect("the server is trusted");
    let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
                     where application_name = 'ganger'";
    assert_eq!(
        instance.sql("quantumleap", encrypted).expect("it answers"),
        "t"
    );

    // Whom the system trusts does not vouch for this one.
    let error = one(&mut inserter, tasks)
        .await
        .expect_err("it is not trusted");
    assert!(error.message.starts_with("InterfaceError("), "{error}");
    assert_eq!(
        instance
            .sql("quantumleap", "select count(*) from mtx.ett")
            .expect("it answers"),
        "1"
    );
}

//! Sessions over TLS.

use ganger_ngsi::postgres::Inserter;
use rustls::RootCertStore;

use crate::support::{
    attribute, database_of, entity, insert_one, new_insert, private_server, settings, task,
};

#[tokio::test]
async fn a_session_is_encrypted_and_the_server_verified() {
    let Some(instance) = private_server("a_session_is_encrypted_and_the_server_verified") else {
        return;
    };
    let mut settings = settings(&database_of(instance.database()));
    settings.database.ssl = true;
    let tasks = new_insert(task(&entity("e1", &attribute("x", "Integer", "1"))));

    // The server offers no TLS yet.
    let mut inserter = Inserter::new(settings.clone());
    let error = insert_one(&mut inserter, tasks.clone())
        .await
        .expect_err("the connection is not encrypted");
    assert!(error.message.starts_with("InterfaceError("), "{error}");

    let certificate =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    instance
        .encrypt(
            &certificate.cert.pem(),
            &certificate.signing_key.serialize_pem(),
        )
        .expect("the server accepts the certificate");
    let mut roots = RootCertStore::empty();
    roots
        .add(certificate.cert.der().clone())
        .expect("a valid certificate");

    // A reload takes effect after a while.
    let mut trusting = Inserter::with_roots(settings, roots);
    while !trusting.ping().await {}
    insert_one(&mut trusting, tasks.clone())
        .await
        .expect("the server is trusted");
    let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
                     where application_name = 'ganger'";
    assert_eq!(
        instance
            .sql("quantumleap", encrypted)
            .expect("the database should respond"),
        "t"
    );

    // The system's authorities do not verify this certificate.
    let error = insert_one(&mut inserter, tasks)
        .await
        .expect_err("the certificate is not trusted");
    assert!(error.message.starts_with("InterfaceError("), "{error}");
    assert_eq!(
        instance
            .sql("quantumleap", "select count(*) from mtx.ett")
            .expect("the database should respond"),
        "1"
    );
}

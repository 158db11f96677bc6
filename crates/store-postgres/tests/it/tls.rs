//! Connections over TLS.

use ganger_store::Store as _;
use ganger_store_postgres::Settings;

use crate::support::{Ground, store};

#[test]
fn a_connection_is_encrypted_and_the_server_verified() {
    let Some(mut ground) = Ground::start("a_connection_is_encrypted_and_the_server_verified")
    else {
        return;
    };
    let number = ground.add_shard();
    let directory = tempfile::tempdir().expect("a directory can be made");
    let roots = directory.path().join("roots.pem");
    let made =
        rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("it can be made");
    std::fs::write(&roots, made.cert.pem()).expect("it can be written");
    let url = format!(
        "{}?sslmode=verify-full",
        Ground::url(ground.instance.port())
    );
    let open = |url: &str| {
        let settings = Settings::from_url(url).expect("it is whole");
        let mut store = store(settings, number);
        store.open().map(|_| store)
    };
    let trusting = format!("{url}&sslrootcert={}", roots.display());
    open(&trusting)
        .map(drop)
        .expect_err("the server offers no TLS yet");
    ground
        .instance
        .encrypt(&made.cert.pem(), &made.signing_key.serialize_pem())
        .expect("it is taken");
    // A reload takes effect at some moment.
    while ground.sql("SHOW ssl") != "on" {}
    let store = open(&trusting).expect("the server is trusted, and channels are bound");
    let encrypted = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
        WHERE usename = 'ganger_node'";
    assert_eq!(ground.sql(encrypted), "t");
    drop(store);
    open(&url)
        .map(drop)
        .expect_err("the system does not vouch for it");
    let wrong = trusting.replace("127.0.0.1", "localhost");
    open(&wrong)
        .map(drop)
        .expect_err("the certificate has another name");
}

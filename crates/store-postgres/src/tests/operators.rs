//! Operators that are no superusers, as hosted databases give them: they prepare a database with what they may do.

use ganger_postgres_instance::{Instance, unavailable_reason};
use ganger_store::Store as _;
use ganger_types::ShardId;

use super::support::{DATABASE, Ground, PASSWORD, commit, skipped, store};
use crate::{Admin, Settings};

/// A server without roles of a cluster.
fn server(test: &str) -> Option<Instance> {
    if let Some(reason) = unavailable_reason() {
        skipped(test, &reason);
        return None;
    }
    Some(Instance::start().expect("PostgreSQL starts"))
}

/// Connects as the role `operator`.
fn operator(instance: &Instance) -> Admin {
    let port = instance.port();
    let url = format!("postgres://operator:secret@127.0.0.1:{port}/{DATABASE}");
    let settings = Settings::from_url(&url).expect("it is whole");
    Admin::connect(&settings).expect("it may log in")
}

/// Prepares the database as `operator`, twice, and uses a shard of it as a node does.
fn prepare_and_use(instance: &Instance) {
    let is_new = {
        let version = instance.sql(DATABASE, "SHOW server_version_num");
        let version: u32 = version.expect("it runs").parse().expect("a number");
        version >= 160_000
    };
    let mut admin = operator(instance);
    admin.init(Some(PASSWORD)).expect("it may make roles");
    // From PostgreSQL 16 on, CREATEROLE does not allow to grant roles that others made.
    let warning = admin.take_warning();
    assert_eq!(warning.is_some(), is_new, "{warning:?}");
    admin.make_cluster("ganger").expect("it is new");
    admin
        .add_shard(1, &ShardId::default())
        .expect("it may make schemas");
    // A later connection, as that of another command.
    let mut admin = operator(instance);
    admin.init(None).expect("it can be repeated");
    assert_eq!(admin.shards(), Ok(vec![1]));
    assert_eq!(admin.migrate(), Ok(crate::schema::FORMAT));
    let other = ShardId::new("2").expect("it has the right form");
    admin.add_shard(2, &other).expect("it may make schemas");
    let owners = "SELECT DISTINCT nspowner::regrole FROM pg_namespace WHERE nspname LIKE 'ganger%'";
    let owners = instance.sql(DATABASE, owners).expect("it runs");
    assert_eq!(owners, "ganger_admin");

    let settings = Settings::from_url(&Ground::url(instance.port())).expect("it is whole");
    let mut store = store(settings, 1);
    let epoch = store.open().expect("it opens").epoch;
    store.commit(&commit(epoch, 1)).expect("it owns the shard");
    store.idle().expect("rows can be written");
}

#[test]
fn an_owner_of_the_database_who_may_make_roles_prepares_it() {
    let Some(instance) = server("an_owner_of_the_database_prepares_it") else {
        return;
    };
    let sql = "CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'secret'";
    instance.sql("postgres", sql).expect("a superuser may");
    let sql = format!("CREATE DATABASE {DATABASE} OWNER operator");
    instance.sql("postgres", &sql).expect("a superuser may");
    prepare_and_use(&instance);
}

/// Nothing is inherited from the roles of the cluster, and no right to the database can be passed on.
#[test]
fn a_role_that_may_only_make_roles_and_schemas_prepares_the_database() {
    let Some(instance) = server("a_role_that_may_only_make_roles_and_schemas") else {
        return;
    };
    instance.create_database(DATABASE).expect("it is new");
    let sql = format!(
        "CREATE ROLE operator LOGIN CREATEROLE NOINHERIT PASSWORD 'secret';
         GRANT CREATE ON DATABASE {DATABASE} TO operator"
    );
    instance.sql("postgres", &sql).expect("a superuser may");
    prepare_and_use(&instance);
}

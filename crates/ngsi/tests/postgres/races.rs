//! Concurrent inserters.

use crate::support::{TestDatabase, attribute, entity, new_insert, settings, shared_server, task};
use ganger_ngsi::postgres::Inserter;

const INSERTERS: usize = 4;
const ROUNDS: usize = 6;

/// Returns the entities of a round: of two types, with the same attributes for all inserters, in different order.
fn entities(round: usize, inserter: usize) -> String {
    let attributes: Vec<_> = (0..4)
        .map(|number| (number + inserter) % 4)
        .map(|number| attribute(&format!("x{round}_{number}"), "Integer", "1"))
        .collect();
    let of_round = entity("e1", &attributes.join(", ")).replace("\"T\"", &format!("\"R{round}\""));
    let of_all = entity("e1", &attributes.join(", "));
    if inserter.is_multiple_of(2) {
        format!("{of_round}, {of_all}")
    } else {
        format!("{of_all}, {of_round}")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inserters_that_create_the_same_tables_and_columns_lose_nothing() {
    let Some(database) = TestDatabase::plain("races") else {
        return;
    };
    let barrier = std::sync::Arc::new(tokio::sync::Barrier::new(INSERTERS));
    let inserters = (0..INSERTERS).map(|number| {
        let (barrier, settings) = (barrier.clone(), settings(&database.address));
        tokio::spawn(async move {
            let mut inserter = Inserter::new(settings);
            let mut outcomes = Vec::new();
            for round in 0..ROUNDS {
                let tasks = [
                    new_insert(task(&entities(round, number))),
                    new_insert(task(&entities(round, number))),
                ];
                barrier.wait().await;
                outcomes.extend(inserter.insert(&tasks).await);
            }
            outcomes
        })
    });
    for done in futures::future::join_all(inserters).await {
        for outcome in done.expect("no inserter panics") {
            assert_eq!(outcome.map(|done| done.rows), Ok(2));
        }
    }

    let each = INSERTERS * 2;
    for round in 0..ROUNDS {
        let sums = database.sql(&format!(
            "select count(*), sum(x{round}_0), sum(x{round}_3) from mtx.etr{round}"
        ));
        assert_eq!(sums, format!("{each}|{each}|{each}"));
        let sums = database.sql(&format!(
            "select sum(x{round}_0), sum(x{round}_3) from mtx.ett"
        ));
        assert_eq!(sums, format!("{each}|{each}"));
    }
    let entries = database.sql(
        "select count(*) from md_ets_metadata, jsonb_object_keys(entity_attrs) \
         where table_name = '\"mtx\".\"ett\"'",
    );
    // Three fixed columns, the time, and four of each round.
    assert_eq!(entries, (3 + 1 + 4 * ROUNDS).to_string());
    let originals = "select count(*) from mtx.ett where __original_ngsi_entity__ is not null";
    assert_eq!(database.sql(originals), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_program_that_creates_the_same_objects_does_no_harm() {
    let Some(database) = TestDatabase::plain("foreign_races") else {
        return;
    };
    let statements: String = (0..20)
        .flat_map(|_| {
            [
                "begin; create schema if not exists mtx; create table if not exists mtx.ett \
                 (entity_id text, entity_type text, time_index timestamptz not null, \
                 fiware_servicepath text, __original_ngsi_entity__ jsonb, instanceid text); \
                 grant all on schema mtx to public; alter table mtx.ett owner to quantumleap; commit;",
                "alter table mtx.ett add column if not exists x bigint;",
            ]
        })
        .collect();
    let foreign = tokio::task::spawn_blocking({
        let name = database.address.name.clone();
        move || shared_server().sql(&name, &statements)
    });
    for _ in 0..20 {
        database
            .insert(&entity("e1", &attribute("x", "Integer", "1")))
            .await;
    }
    // The other program may fail because we created the same object first.
    drop(foreign.await.expect("the task should not panic"));
    assert_eq!(database.sql("select count(x) from mtx.ett"), "20");
}

//! Property tests of rows, over any entities.

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::{groups, truncate_identifier};
use crate::Entity;
use crate::any_json;
use crate::attribute_type::properties::{GEO_TYPES, PLAIN_TYPES};
use crate::prepare::prepare;
use crate::task::{Origin, Task};

/// Generates entities of few types with few attributes, so that many share columns.
fn entity() -> impl Strategy<Value = Entity> {
    let ngsi_type = prop_oneof![30 => select(&PLAIN_TYPES[..]), 1 => select(&GEO_TYPES[..])];
    let attribute = (ngsi_type, any_json::value());
    let names = "[abAB]|a{62,64}|[Tt]ime_[Ii]ndex|instanceId|@context";
    let attributes = vec((names, attribute), 0..5);
    let colliding = ("T|t|U", attributes).prop_map(|(entity_type, attributes)| {
        let mut entity = Entity::new();
        entity.insert("id".to_owned(), "e".into());
        entity.insert("type".to_owned(), entity_type.into());
        for (name, (ngsi_type, value)) in attributes {
            entity.insert(name, serde_json::json!({"type": ngsi_type, "value": value}));
        }
        entity
    });
    prop_oneof![9 => colliding, 1 => any_json::entity()]
}

fn task() -> impl Strategy<Value = Task> {
    let tenant = proptest::option::of("|x|AbC|\\PC*");
    let service_path = proptest::option::of("|/|/a, */b|(/[ab],){0,3}/c");
    (tenant, service_path, vec(entity(), 0..5)).prop_map(|(tenant, service_path, payload)| Task {
        origin: Origin {
            tenant,
            service_path,
            correlator: None,
        },
        payload,
    })
}

proptest! {
    #[test]
    fn every_value_of_a_row_has_a_column_of_its_group(task in task()) {
        for group in groups(&task).into_iter().flatten() {
            for row in &group.rows {
                let shown: usize = row.values(group.columns.len()).flatten().map(str::len).sum();
                prop_assert_eq!(shown, row.bytes());
            }
        }
    }

    #[test]
    fn every_entity_has_one_row_and_groups_keep_their_order(task in task()) {
        let Ok(groups) = groups(&task) else {
            return Ok(());
        };
        let mut indexes = Vec::new();
        for group in &groups {
            prop_assert!(group.rows.is_sorted_by_key(|row| row.entity));
            indexes.extend(group.rows.iter().map(|row| row.entity));
            let alike: HashSet<_> = group
                .rows
                .iter()
                .map(|row| (&row.service_path, task.payload[row.entity]["type"].as_str()))
                .collect();
            prop_assert_eq!(alike.len(), 1);
        }
        indexes.sort_unstable();
        prop_assert_eq!(indexes, (0..task.payload.len()).collect::<Vec<_>>());
    }

    #[test]
    fn no_two_columns_of_a_table_share_a_name(task in task()) {
        let fixed = [
            "entity_id", "entity_type", "time_index", "fiware_servicepath", "instanceid", "__original_ngsi_entity__",
        ];
        for group in groups(&task).into_iter().flatten() {
            let mut names: HashSet<&str> = fixed.into();
            for column in &group.columns {
                prop_assert!(names.insert(truncate_identifier(&column.name)), "{column:?}");
                prop_assert_eq!(&column.name, &column.attribute.to_lowercase());
            }
        }
    }

    #[test]
    fn an_attribute_that_an_entity_lacks_is_null(task in task()) {
        for group in groups(&task).into_iter().flatten() {
            for row in &group.rows {
                let entity = &task.payload[row.entity];
                let attributes = entity.iter().filter(|(_, value)| value.is_object());
                let names: HashSet<String> = attributes.map(|(name, _)| name.to_lowercase()).collect();
                for (column, value) in group.columns.iter().zip(row.values(group.columns.len())) {
                    prop_assert!(value.is_none() || names.contains(&column.name));
                }
            }
        }
    }

    #[test]
    fn an_entity_without_geometries_and_odd_names_always_becomes_a_row(values in vec(any_json::value(), 1..4)) {
        let mut payload = Vec::new();
        for value in values {
            let mut entity = Entity::new();
            for ngsi_type in PLAIN_TYPES {
                entity.insert(ngsi_type.to_owned(), serde_json::json!({"type": ngsi_type, "value": value}));
            }
            entity.insert("untyped".to_owned(), Value::Object(Entity::from_iter([("value".to_owned(), value)])));
            payload.push(entity);
        }
        let task = Task { origin: Origin::default(), payload };
        let groups = groups(&task).expect("nothing can go wrong");
        prop_assert_eq!(groups.len(), 1);
    }

    #[test]
    fn any_queued_task_becomes_rows_or_one_of_three_errors(
        entities in vec(entity(), 0..4),
        service_path in "/|/a,/b",
    ) {
        let arrived = "2024-05-06T07:08:09Z".parse().expect("a time");
        let Ok(payload) = prepare(entities, Some("a"), arrived) else {
            return Ok(()); // The notification is refused and not queued.
        };
        let origin = Origin { service_path: Some(service_path), ..Origin::default() };
        let task = Task { origin, payload };
        let again = Task::from_json(&task.to_json()).expect("a task");
        prop_assert_eq!(groups(&again), groups(&task));
        if let Err(error) = groups(&task) {
            let class = error.0.split('(').next();
            prop_assert!(matches!(class, Some("AttributeError" | "InvalidHeaderValue" | "ValueError")), "{error}");
        }
    }
}

//! The worked examples of the specification (section 8), as far as they need no database: refusals, tables, columns,
//! and the texts that go into them.

mod table;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Group, groups};
use crate::Entity;
use crate::attribute_type::ColumnType;
use crate::prepare::prepare;
use crate::task::{Origin, Task};

/// A notification and its expected rows.
pub(super) struct Example {
    /// Number of the example in the specification.
    number: u8,
    tenant: Option<&'static str>,
    service_path: &'static str,
    time_index: Option<&'static str>,
    /// The members of each entity as JSON. `TI` stands for the usual `TimeInstant`; missing `id` and `type` are `e1` and
    /// `T`.
    entities: &'static [&'static str],
    /// The rows in the form of [`show`]; or `refused` or `failed` and the message.
    expected: &'static [&'static str],
}

/// Values that most examples share.
const PLAIN: Example = Example {
    number: 0,
    tenant: Some("x"),
    service_path: "/",
    time_index: None,
    entities: &[],
    expected: &[],
};

const TIME_INSTANT: &str =
    r#""TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"}"#;

impl Example {
    fn task(&self) -> Result<Task, String> {
        let entities = self
            .entities
            .iter()
            .map(|members| entity(members))
            .collect();
        let arrived: Timestamp = "2024-05-06T07:08:09Z".parse().expect("a time");
        let payload = prepare(entities, self.time_index, arrived)
            .map_err(|refusal| format!("refused {}", refusal.status))?;
        let origin = Origin {
            tenant: self.tenant.map(str::to_owned),
            service_path: Some(self.service_path.to_owned()),
            correlator: None,
        };
        Ok(Task { origin, payload })
    }

    fn outcome(&self) -> Result<Vec<String>, String> {
        let task = self.task()?;
        let groups = groups(&task).map_err(|error| format!("failed {error}"))?;
        let has_usual_time = self.entities.iter().any(|members| members.contains("TI"));
        Ok(groups
            .iter()
            .flat_map(|group| show(group, &task, has_usual_time))
            .collect())
    }
}

fn entity(members: &str) -> Entity {
    let text = format!("{{{}}}", members.replace("TI", TIME_INSTANT));
    let written: Value = serde_json::from_str(&text).expect("an entity");
    let mut entity = json!({"id": "e1", "type": "T"});
    let members = entity.as_object_mut().expect("an object");
    members.extend(written.as_object().expect("an object").clone());
    members.clone()
}

/// Formats a group as lines: the table with the service paths of its rows; the time index, unless it is the usual one;
/// and each column with its SQL type, attribute, NGSI type and values. The column of the usual time is left out.
fn show(group: &Group, task: &Task, has_usual_time: bool) -> Vec<String> {
    let rows = &group.rows;
    let paths: Vec<&str> = rows.iter().map(|row| row.service_path.as_str()).collect();
    let mut lines = vec![format!("{} {}", group.table.sql_name(), paths.join(" "))];
    if !has_usual_time {
        let times = rows
            .iter()
            .map(|row| &task.payload[row.entity]["time_index"]);
        let times: Vec<&str> = times.map(|time| time.as_str().expect("a text")).collect();
        lines.push(format!("time_index: {}", times.join(" | ")));
    }
    for (index, column) in group.columns.iter().enumerate() {
        if has_usual_time && column.name == "timeinstant" {
            continue;
        }
        let values = rows
            .iter()
            .map(|row| row.values(index + 1).last().flatten());
        let values: Vec<&str> = values.map(|value| value.unwrap_or("NULL")).collect();
        lines.push(format!(
            "{} {} [{}, {}]: {}",
            column.name,
            sql(column.column_type),
            column.attribute,
            column.ngsi_type,
            values.join(" | ")
        ));
    }
    lines
}

fn sql(column_type: ColumnType) -> &'static str {
    match column_type {
        ColumnType::Text => "text",
        ColumnType::Double => "float8",
        ColumnType::BigInt => "int8",
        ColumnType::Boolean => "bool",
        ColumnType::Timestamp => "timestamptz",
        ColumnType::Json => "jsonb",
        ColumnType::Geometry => "geometry",
    }
}

#[test]
fn every_example_that_needs_no_database_gives_the_specified_rows() {
    for example in table::EXAMPLES {
        let outcome = example.outcome().unwrap_or_else(|error| vec![error]);
        assert_eq!(
            outcome, example.expected,
            "example {}: {:?}",
            example.number, example.entities
        );
    }
}

#[test]
fn every_example_is_in_the_table() {
    // 2 needs two tasks, see `ids`.
    for number in (1..=40).filter(|number| *number != 2) {
        assert!(
            table::EXAMPLES
                .iter()
                .any(|example| example.number == number),
            "example {number}"
        );
    }
}

#[test]
fn an_empty_attribute_shows_its_null_in_the_input_as_example_12_says() {
    let example = Example {
        entities: &[r#"TI, "x": {"type": "Number"}, "y": {"type": "Number", "value": 1}"#],
        ..PLAIN
    };
    let task = example.task().expect("valid input");
    assert_eq!(
        task.payload[0]["x"],
        json!({"type": "Number", "value": null})
    );
}

//! Converts a task's entities into rows, table by table.
//!
//! Entities of one type form a [`Group`]: they go into one table and share its columns. If a task has several service
//! paths, entities of different paths are in different groups.

mod ids;
mod names;
mod service_paths;
mod table;

#[cfg(test)]
mod examples;
#[cfg(test)]
mod properties;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::Entity;
use crate::attribute_type::{self, ColumnType, ValueType};
use crate::geo::InvalidGeometry;
use crate::python;
use crate::task::Task;

pub use ids::{failed_batch_id, instance_id};
pub use names::{quote_identifier, truncate_identifier};
pub use table::Table;

/// The column of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The attribute's name in lower case.
    pub name: String,
    /// The attribute's name as given, for the metadata.
    pub attribute: String,
    /// The NGSI type as given or inferred, for the metadata.
    pub ngsi_type: String,
    /// The SQL type with which the column is created if it is missing.
    pub column_type: ColumnType,
}

/// The row of one entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Index of the entity in the task's payload.
    pub entity: usize,
    /// Value of the column `fiware_servicepath`.
    pub service_path: String,
    /// The values that are not NULL, with the indexes of their columns, in ascending order. NULLs are left out because
    /// entities of one type may have very different attributes: with them the size would grow with the square of the
    /// notification's.
    values: Vec<(usize, String)>,
}

impl Row {
    /// Returns the values of the group's first `columns` columns, in the text form that PostgreSQL reads; `None` for NULL.
    pub fn values(&self, columns: usize) -> impl Iterator<Item = Option<&str>> {
        let mut given = self.values.iter().peekable();
        (0..columns).map(move |column| {
            let (_, value) = given.next_if(|(index, _)| *index == column)?;
            Some(value.as_str())
        })
    }

    /// Returns the total length of the values in bytes.
    pub fn bytes(&self) -> usize {
        self.values.iter().map(|(_, value)| value.len()).sum()
    }
}

/// Rows for one table: entities of one type, and of one service path if the task has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The table that gets the rows.
    pub table: Table,
    /// The attributes' columns, in order of first appearance. PostgreSQL truncates no two of the names to the same one.
    pub columns: Vec<Column>,
    /// The rows in the order of their entities.
    pub rows: Vec<Row>,
}

/// The reason why a task can never be inserted, in the words of the task's `errors`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RowError(pub String);

impl From<InvalidGeometry> for RowError {
    fn from(error: InvalidGeometry) -> Self {
        Self(error.to_string())
    }
}

impl RowError {
    /// Creates an error as Python shows it: class name and message.
    fn new(class: &str, message: String) -> Self {
        Self(format!(
            "{class}({})",
            python::repr(&Value::String(message))
        ))
    }
}

/// Converts a task into groups of rows, in order of first appearance.
///
/// # Errors
/// If the number of service paths does not match that of the entities, a geometry cannot be encoded, or an attribute's
/// name is reserved or impossible for a column.
pub fn groups(task: &Task) -> Result<Vec<Group>, RowError> {
    let service_paths = service_paths::per_entity(&task.origin, task.payload.len())?;
    let tenant = task.origin.tenant.as_deref();
    let mut groups = Vec::new();
    for members in entity_groups(task, &service_paths) {
        let first = &task.payload[members[0]];
        let table = Table::of(tenant, string_member(first, "type"))?;
        groups.push(group(table, &members, task, &service_paths)?);
    }
    Ok(groups)
}

/// Returns the indexes of the entities of each group, grouped by path and then by type.
fn entity_groups(task: &Task, service_paths: &[String]) -> Vec<Vec<usize>> {
    let mut by_path: OrderedGroups<'_, OrderedGroups<'_, Vec<usize>>> = Vec::new();
    for (index, (entity, path)) in task.payload.iter().zip(service_paths).enumerate() {
        let by_type = entry_or_default(&mut by_path, path);
        entry_or_default(by_type, string_member(entity, "type")).push(index);
    }
    by_path
        .into_iter()
        .flat_map(|(_, by_type)| by_type)
        .map(|(_, indexes)| indexes)
        .collect()
}

/// Values by key, in order of first appearance of the keys.
type OrderedGroups<'k, T> = Vec<(&'k str, T)>;

/// Returns the value of a key, which is added at the end if it is new.
fn entry_or_default<'a, 'k, T: Default>(
    list: &'a mut OrderedGroups<'k, T>,
    key: &'k str,
) -> &'a mut T {
    let index = list.iter().position(|(known, _)| *known == key);
    let index = index.unwrap_or_else(|| {
        list.push((key, T::default()));
        list.len() - 1
    });
    &mut list[index].1
}

fn group(
    table: Table,
    members: &[usize],
    task: &Task,
    service_paths: &[String],
) -> Result<Group, RowError> {
    let mut layout = ColumnLayout::default();
    let mut cells = Vec::with_capacity(members.len());
    for &entity in members {
        cells.push(layout.assign_columns(&task.payload[entity])?);
    }
    let ColumnLayout {
        columns,
        value_types,
        ..
    } = layout;

    let mut rows = Vec::with_capacity(members.len());
    for (&entity, cells) in members.iter().zip(cells) {
        let mut values = BTreeMap::new();
        for (column, value) in cells {
            // Of two names that differ only in case the later one wins.
            values.insert(column, value_types[column].sql_text(value)?);
        }
        let values = values.into_iter();
        rows.push(Row {
            entity,
            service_path: service_paths[entity].clone(),
            values: values
                .filter_map(|(column, value)| Some((column, value?)))
                .collect(),
        });
    }
    Ok(Group {
        table,
        columns,
        rows,
    })
}

/// The columns of a group, built while going through its entities. The last entity with an attribute decides the type
/// of its column for all entities.
#[derive(Default)]
struct ColumnLayout {
    columns: Vec<Column>,
    /// The value type of each column.
    value_types: Vec<ValueType>,
    /// Indexes of the columns by their truncated names.
    indexes: HashMap<String, usize>,
}

impl ColumnLayout {
    /// Assigns a column to every attribute of an entity.
    fn assign_columns<'a>(
        &mut self,
        entity: &'a Entity,
    ) -> Result<Vec<(usize, &'a Value)>, RowError> {
        let mut cells = Vec::with_capacity(entity.len());
        for (name, attribute) in entity {
            let Value::Object(attribute) = attribute else {
                continue; // `id`, `type` and `time_index` have columns of their own.
            };
            if let Some(column_name) = names::column_name(name)?
                && let Some(column) = self.column(column_name, name, attribute)
            {
                cells.push((column, attribute_type::value_of(attribute)));
            }
        }
        Ok(cells)
    }

    /// Returns the column of an attribute; `None` if PostgreSQL truncates its name to that of an earlier, different column.
    fn column(&mut self, name: String, attribute_name: &str, attribute: &Entity) -> Option<usize> {
        let found = attribute_type::type_of(attribute);
        let column = Column {
            attribute: attribute_name.to_owned(),
            ngsi_type: found.name.into_owned(),
            column_type: found
                .value_type
                .column_type(attribute_type::value_of(attribute)),
            name,
        };
        match self.indexes.get(truncate_identifier(&column.name)) {
            None => {
                let index = self.columns.len();
                self.indexes
                    .insert(truncate_identifier(&column.name).to_owned(), index);
                self.columns.push(column);
                self.value_types.push(found.value_type);
                Some(index)
            }
            Some(&index) if self.columns[index].name == column.name => {
                self.columns[index] = column;
                self.value_types[index] = found.value_type;
                Some(index)
            }
            Some(_) => None,
        }
    }
}

/// Returns a member as a string; empty if it is missing or not a string.
fn string_member<'a>(entity: &'a Entity, member: &str) -> &'a str {
    entity.get(member).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::task::Origin;

    fn task(service_path: Option<&str>, payload: Value) -> Task {
        let origin = Origin {
            service_path: service_path.map(str::to_owned),
            ..Origin::default()
        };
        let payload = serde_json::from_value(payload).expect("a list of entities");
        Task { origin, payload }
    }

    fn values(group: &Group) -> Vec<Vec<Option<&str>>> {
        let rows = group.rows.iter();
        rows.map(|row| row.values(group.columns.len()).collect())
            .collect()
    }

    #[test]
    fn of_attributes_that_differ_only_in_case_the_later_one_wins() {
        let entity = json!({"id": "e", "type": "T",
            "Temp": {"type": "Text", "value": "a"}, "x": {"value": 1}, "TEMP": {"type": "Number", "value": 2}});
        let groups = groups(&task(None, json!([entity]))).expect("rows");
        let column = &groups[0].columns[0];
        assert_eq!(
            (column.name.as_str(), column.attribute.as_str()),
            ("temp", "TEMP")
        );
        assert_eq!(
            (column.ngsi_type.as_str(), column.column_type),
            ("Number", ColumnType::Double)
        );
        assert_eq!(values(&groups[0]), [[Some("2.0"), Some("1")]]);
    }

    #[test]
    fn of_names_that_are_truncated_to_the_same_the_first_one_gets_the_column() {
        let long = "a".repeat(63);
        let entities = json!([
            {"type": "T", format!("{long}b"): {"value": 1}, format!("{long}c"): {"value": "lost"}},
            {"type": "T", &long: {"value": "lost"}, format!("{long}B"): {"value": 2}},
        ]);
        let groups = groups(&task(None, entities)).expect("rows");
        assert_eq!(groups[0].columns.len(), 1);
        assert_eq!(groups[0].columns[0].name, format!("{long}b"));
        assert_eq!(values(&groups[0]), [[Some("1")], [Some("2")]]);
    }

    #[test]
    fn the_last_entity_with_an_attribute_decides_the_conversion_for_all() {
        let entities = json!([
            {"type": "T", "x": {"type": "Relationship", "object": "urn:1"}},
            {"type": "T", "x": {"type": "Property", "value": {"@type": "DateTime", "@value": "2019-01-01"}}},
            {"type": "T", "x": {"type": "Text", "value": true}},
            {"type": "T", "y": {"value": 5}},
        ]);
        let groups = groups(&task(None, entities)).expect("rows");
        assert_eq!(groups[0].columns[0].column_type, ColumnType::Text);
        assert_eq!(
            values(&groups[0]),
            [
                [Some("urn:1"), None],
                [Some("2019-01-01"), None],
                [Some("True"), None],
                [None, Some("5")]
            ]
        );
    }

    #[test]
    fn a_list_of_objects_of_a_relationship_is_json() {
        let entity =
            json!({"type": "T", "r": {"type": "Relationship", "object": ["urn:1", "urn:2"]}});
        let groups = groups(&task(None, json!([entity]))).expect("rows");
        assert_eq!(groups[0].columns[0].column_type, ColumnType::Json);
        assert_eq!(values(&groups[0]), [[Some(r#"["urn:1", "urn:2"]"#)]]);
    }

    #[test]
    fn entities_are_grouped_by_path_before_type() {
        let entities = json!([{"type": "A"}, {"type": "A"}, {"type": "B"}, {"type": "A"}]);
        let found = groups(&task(Some("/x,/y,/x,/x"), entities)).expect("rows");
        let found: Vec<_> = found
            .iter()
            .map(|group| {
                let indexes: Vec<usize> = group.rows.iter().map(|row| row.entity).collect();
                let path = group.rows[0].service_path.as_str();
                (group.table.name.as_str(), path, indexes)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("eta", "/x", vec![0, 3]),
                ("etb", "/x", vec![2]),
                ("eta", "/y", vec![1])
            ]
        );
    }

    #[test]
    fn types_that_differ_in_case_are_groups_of_one_table() {
        let found = groups(&task(None, json!([{"type": "Room"}, {"type": "ROOM"}]))).expect("rows");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].table, found[1].table);
    }

    #[test]
    fn attributes_with_the_names_of_fixed_columns_are_ignored() {
        let entity = json!({"id": "e", "type": "T", "time_index": "2020-01-01", "Time_Index": {"value": 1},
            "instanceId": {"value": "mine"}, "@context": {"type": "Text", "value": "c"}, "bare": [1]});
        let found = groups(&task(None, json!([entity]))).expect("rows");
        assert!(found[0].columns.is_empty());
        assert_eq!(values(&found[0]), [[]]);
    }

    #[test]
    fn an_attribute_with_a_reserved_name_fails_the_task() {
        let entity = json!({"type": "T", "__original_ngsi_entity__": {"value": 1}});
        let error = groups(&task(None, json!([entity]))).expect_err("a reserved name");
        assert_eq!(
            error.0,
            "ValueError(\"'__original_ngsi_entity__' is a reserved name, no attribute can have it\")"
        );
    }

    #[test]
    fn an_invalid_geometry_fails_the_whole_task() {
        let entities = json!([
            {"type": "T", "x": {"value": 1}},
            {"type": "U", "g": {"type": "geo:point", "value": null}},
        ]);
        let error = groups(&task(None, entities)).expect_err("an invalid geometry");
        assert_eq!(error, RowError::from(InvalidGeometry));
    }

    #[test]
    fn rows_of_entities_with_nothing_in_common_hold_their_own_values_only() {
        let entities = (0..300).map(|n| json!({"type": "T", format!("a{n}"): {"value": n}}));
        let groups = groups(&task(None, entities.collect())).expect("rows");
        assert_eq!(groups[0].columns.len(), 300);
        assert!(groups[0].rows.iter().all(|row| row.values.len() == 1));
        let last: Vec<_> = groups[0].rows[299].values(300).collect();
        assert_eq!((last[298], last[299]), (None, Some("299")));
    }

    #[test]
    fn no_entities_make_no_groups() {
        assert_eq!(groups(&task(None, json!([]))), Ok(Vec::new()));
    }
}

//! Names in the database: derived from NGSI names, and quoted for SQL.

use super::RowError;

/// Length in bytes to which PostgreSQL truncates identifiers.
const IDENTIFIER_BYTES_MAX: usize = 63;

/// The columns of every table that attributes cannot fill.
const FIXED_COLUMNS: [&str; 5] = [
    "entity_id",
    "entity_type",
    "time_index",
    "fiware_servicepath",
    "instanceid",
];
/// The column that keeps the original entity.
const ORIGINAL_ENTITY: &str = "__original_ngsi_entity__";

/// Quotes an identifier for SQL: in double quotes, with those inside doubled.
pub fn quote_identifier(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// Truncates an identifier as PostgreSQL does: to at most 63 bytes of whole characters.
pub fn truncate_identifier(identifier: &str) -> &str {
    let mut end = IDENTIFIER_BYTES_MAX.min(identifier.len());
    while !identifier.is_char_boundary(end) {
        end -= 1;
    }
    &identifier[..end]
}

/// Returns the column name of an attribute: its name in lower case. `None` if the attribute gets no column, because a
/// fixed column has that name, or it is NGSI-LD's `@context`, which is not an attribute.
pub(super) fn column_name(attribute: &str) -> Result<Option<String>, RowError> {
    let name = attribute.to_lowercase();
    if name == ORIGINAL_ENTITY {
        let message = format!("'{attribute}' is a reserved name, no attribute can have it");
        return Err(RowError::new("ValueError", message));
    }
    if attribute == "@context" || FIXED_COLUMNS.contains(&name.as_str()) {
        return Ok(None);
    }
    if name.is_empty() {
        let message = "an attribute without a name has no column".to_owned();
        return Err(RowError::new("ValueError", message));
    }
    check_name(name).map(Some)
}

/// Refuses a name that contains NUL, which no identifier can, however it is quoted.
pub(super) fn check_name(name: String) -> Result<String, RowError> {
    if name.contains('\0') {
        let message = format!("'{name}' contains NUL, no name in the database can");
        return Err(RowError::new("ValueError", message));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a quoted identifier as SQL does. Returns the name and the rest of the text.
    fn read_identifier(sql: &str) -> Option<(String, &str)> {
        let mut rest = sql.strip_prefix('"')?;
        let mut name = String::new();
        loop {
            let (part, after) = rest.split_once('"')?;
            name.push_str(part);
            rest = after;
            match rest.strip_prefix('"') {
                Some(after) => {
                    name.push('"');
                    rest = after;
                }
                None => return Some((name, rest)),
            }
        }
    }

    #[test]
    fn quotes_within_a_name_are_doubled() {
        assert_eq!(
            quote_identifier(r#"a"; drop table t; --"#),
            r#""a""; drop table t; --""#
        );
    }

    #[test]
    fn names_are_truncated_at_whole_characters() {
        assert_eq!(truncate_identifier("abc"), "abc");
        assert_eq!(truncate_identifier(&"a".repeat(64)), "a".repeat(63));
        let name = format!("{}\u{e9}", "a".repeat(62));
        assert_eq!(truncate_identifier(&name), "a".repeat(62));
    }

    #[test]
    fn attribute_names_are_only_changed_to_lower_case() {
        for (attribute, name) in [
            ("a b", "a b"),
            ("a.b", "a.b"),
            ("a'b", "a'b"),
            ("select", "select"),
            ("9x", "9x"),
            ("\u{c9}", "\u{e9}"),
            (
                "\u{39f}\u{394}\u{39f}\u{3a3}",
                "\u{3bf}\u{3b4}\u{3bf}\u{3c2}",
            ),
            ("@Context", "@context"),
        ] {
            assert_eq!(column_name(attribute), Ok(Some(name.to_owned())));
        }
    }

    #[test]
    fn fixed_columns_and_the_context_are_not_attributes() {
        for attribute in [
            "entity_id",
            "Entity_Type",
            "Time_Index",
            "fiware_ServicePath",
            "instanceId",
            "@context",
        ] {
            assert_eq!(column_name(attribute), Ok(None), "{attribute}");
        }
    }

    #[test]
    fn names_that_no_column_can_have_fail_the_task() {
        for attribute in [
            "__original_ngsi_entity__",
            "__ORIGINAL_ngsi_entity__",
            "",
            "a\0b",
        ] {
            let error = column_name(attribute).expect_err("no column has it");
            assert!(error.0.starts_with("ValueError("), "{error}");
        }
    }

    proptest! {
        #[test]
        fn a_quoted_name_reads_back_unchanged(name in "[\"'a; \\\\\u{e9}]{0,20}|\\PC*") {
            let sql = format!("{} text", quote_identifier(&name));
            prop_assert_eq!(read_identifier(&sql), Some((name, " text")));
        }

        #[test]
        fn a_truncated_name_is_the_longest_prefix_that_fits(name in "\\PC{0,80}") {
            let kept = truncate_identifier(&name);
            prop_assert!(name.starts_with(kept) && kept.len() <= IDENTIFIER_BYTES_MAX);
            let next = name[kept.len()..].chars().next().map_or(usize::MAX, char::len_utf8);
            prop_assert!(kept.len() == name.len() || kept.len() + next > IDENTIFIER_BYTES_MAX);
        }
    }
}

//! The table of an entity type.

use super::RowError;
use super::names::{check_name, quote_identifier};

/// The table of the entities of one type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Table {
    /// `mt` and the tenant in lower case; `None` without a tenant, for the first schema of the search path.
    pub schema: Option<String>,
    /// `et` and the type in lower case.
    pub name: String,
}

impl Table {
    /// Returns the table of a tenant's entities of a type. An empty tenant counts as none.
    pub(super) fn of(tenant: Option<&str>, entity_type: &str) -> Result<Self, RowError> {
        let schema = match tenant {
            None | Some("") => None,
            Some(tenant) => Some(check_name(format!("mt{}", tenant.to_lowercase()))?),
        };
        let name = check_name(format!("et{}", entity_type.to_lowercase()))?;
        Ok(Self { schema, name })
    }

    /// Returns the qualified name for SQL: `"mtx"."etroom"`, with quotes inside doubled.
    pub fn sql_name(&self) -> String {
        match &self.schema {
            Some(schema) => format!(
                "{}.{}",
                quote_identifier(schema),
                quote_identifier(&self.name)
            ),
            None => quote_identifier(&self.name),
        }
    }

    /// Returns the key of the table's row in `md_ets_metadata`: like [`Self::sql_name`], but quotes inside are not doubled.
    pub fn metadata_key(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{schema}\".\"{}\"", self.name),
            None => format!("\"{}\"", self.name),
        }
    }

    /// Returns the name of the table's index, not quoted: `ix_mtx.etroom_eid_and_tx`.
    pub fn index_name(&self) -> String {
        match &self.schema {
            Some(schema) => format!("ix_{schema}.{}_eid_and_tx", self.name),
            None => format!("ix_{}_eid_and_tx", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_named_by_tenant_and_type_in_lower_case() {
        let table = Table::of(Some("AbC"), "Room").expect("names");
        assert_eq!(table.sql_name(), r#""mtabc"."etroom""#);
        assert_eq!(table.metadata_key(), r#""mtabc"."etroom""#);
        assert_eq!(table.index_name(), "ix_mtabc.etroom_eid_and_tx");
    }

    #[test]
    fn without_a_tenant_there_is_no_schema() {
        for tenant in [None, Some("")] {
            let table = Table::of(tenant, "Room").expect("names");
            assert_eq!(table.sql_name(), r#""etroom""#);
            assert_eq!(table.metadata_key(), r#""etroom""#);
            assert_eq!(table.index_name(), "ix_etroom_eid_and_tx");
        }
    }

    #[test]
    fn odd_names_are_kept_and_their_quotes_doubled_in_sql_only() {
        let table = Table::of(
            Some(r#"x"; drop schema public; --"#),
            "https://a.b/c#D e\u{301}",
        )
        .expect("names");
        assert_eq!(
            table.sql_name(),
            "\"mtx\"\"; drop schema public; --\".\"ethttps://a.b/c#d e\u{301}\""
        );
        assert_eq!(
            table.metadata_key(),
            "\"mtx\"; drop schema public; --\".\"ethttps://a.b/c#d e\u{301}\""
        );
    }

    #[test]
    fn a_type_with_a_nul_has_no_table() {
        assert!(Table::of(None, "a\0").is_err());
    }
}

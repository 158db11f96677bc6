//! Checks that every operation of the HTTP API has a row in `docs/http.md`, and that every row has an existing
//! operation.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

use super::{Findings, Source};

/// Path without extension of the operations: a file, and a directory of the same name.
const TABLE: &str = "crates/dialect-http/src/operations";
/// Document with a row for each operation.
const DOCUMENT: &str = "docs/http.md";

/// Compares the operations in the code with the rows of the document.
pub(super) fn check(sources: &[Source], findings: &mut Findings) -> Result<()> {
    let tables = sources
        .iter()
        .filter(|source| source.path.to_string_lossy().starts_with(TABLE));
    let listed: BTreeSet<String> = tables.flat_map(|source| listed(source.product())).collect();
    let document = sources
        .iter()
        .find(|source| source.path.ends_with(DOCUMENT))
        .context("docs/http.md is missing")?;
    let documented = documented(&document.text);
    for operation in listed.difference(&documented) {
        findings.error(format!("{DOCUMENT} has no row for {operation}"));
    }
    for operation in documented.difference(&listed) {
        findings.error(format!(
            "{DOCUMENT} has a row for {operation}, which {TABLE} does not have"
        ));
    }
    Ok(())
}

/// Returns method and path of each `operation(M::GET, "/path", ...)`.
fn listed(text: &str) -> BTreeSet<String> {
    let calls = text.split("operation(").skip(1);
    calls
        .filter_map(|call| {
            let method = call.trim_start().strip_prefix("M::")?;
            let (method, rest) = method.split_once(',')?;
            let path = rest.trim_start().strip_prefix('"')?.split('"').next()?;
            Some(format!("{method} {path}"))
        })
        .collect()
}

/// Returns method and path of each row.
fn documented(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|rest| rest.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{documented, listed};

    #[test]
    fn operations_are_read_from_the_table_and_from_the_document() {
        let table = "fn operation(a: u8)\noperation(M::GET, \"/a\", \"x\")\n operation(\n M::PUT,\n \"/b/{c}\",";
        assert_eq!(
            listed(table),
            documented("| `GET /a` | x |\n| `PUT /b/{c}` | y |\n| z | `GET /q` |")
        );
    }
}

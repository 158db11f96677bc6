//! `/openapi.json`.
//!
//! The document is made from the table of operations and stands in the sources, in `openapi.json`: so the program has no
//! code that only describes it (its generic parts alone were 480 KB), and a change to the API shows itself in a review. A test of `operations`
//! makes it again and compares it.

/// The document, with [`VERSION`] as the version of the server.
pub(crate) const DOCUMENT: &str = include_str!("../openapi.json");
/// Stands for the version of the server.
pub(crate) const VERSION: &str = "SERVER_VERSION";

/// The OpenAPI document of a server of this version.
pub(crate) fn document(version: &str) -> String {
    DOCUMENT.replacen(VERSION, version, 1)
}

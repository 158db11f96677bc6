//! The service paths of a task's rows.

use super::RowError;
use crate::task::Origin;

/// Returns the service path of each of `entities` entities. A single path applies to all; several paths must be as many
/// as the entities. Paths are not validated; an empty one is the root.
pub(super) fn per_entity(origin: &Origin, entities: usize) -> Result<Vec<String>, RowError> {
    let header: String = origin
        .path()
        .chars()
        .filter(|character| !matches!(character, ' ' | '\t'))
        .collect();
    let paths: Vec<String> = header
        .split(',')
        .map(|path| if path.is_empty() { "/" } else { path }.to_owned())
        .collect();
    if let [path] = paths.as_slice() {
        return Ok(vec![path.clone(); entities]);
    }
    if paths.len() != entities {
        let message = format!(
            "The header value '{}' is not valid. Multiple servicePath are allowed only if their number match the \
             number of entities",
            origin.path()
        );
        return Err(RowError::new("InvalidHeaderValue", message));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(header: Option<&str>, entities: usize) -> Result<Vec<String>, RowError> {
        let origin = Origin {
            service_path: header.map(str::to_owned),
            ..Origin::default()
        };
        per_entity(&origin, entities)
    }

    #[test]
    fn a_single_path_applies_to_every_entity() {
        for (header, path) in [
            (None, "/"),
            (Some(""), "/"),
            (Some("  "), "/"),
            (Some("/a"), "/a"),
            (Some(" / a\t"), "/a"),
            (Some("a"), "a"),
        ] {
            let expected = vec![path.to_owned(); 3];
            assert_eq!(paths(header, 3), Ok(expected), "{header:?}");
            assert_eq!(paths(header, 0), Ok(Vec::new()));
        }
    }

    #[test]
    fn several_paths_belong_to_the_entities_one_by_one() {
        let expected = ["/a", "/b", "/"].map(str::to_owned).to_vec();
        assert_eq!(paths(Some("/a, /b,"), 3), Ok(expected));
    }

    #[test]
    fn another_number_of_paths_than_entities_fails_the_task() {
        for entities in [0, 1, 3] {
            let error = paths(Some("/a,/b"), entities).expect_err("two paths");
            assert_eq!(
                error.0,
                "InvalidHeaderValue(\"The header value '/a,/b' is not valid. Multiple servicePath are allowed only if \
                 their number match the number of entities\")"
            );
        }
    }
}

//! Limits the lines of files and functions.

use super::{Findings, Source};

/// Maximum lines of a file without its tests.
const FILE_LINES_MAX: usize = 1_000;
/// Lines of a file without its tests from which a remark suggests to split it.
const FILE_LINES_WARN: usize = 600;
/// Maximum lines of a function; only tables come close.
const FUNCTION_LINES_MAX: usize = 150;
/// Lines of a function from which a remark suggests to split it.
const FUNCTION_LINES_WARN: usize = 70;

/// Measures every Rust file except tests.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources
        .iter()
        .filter(|source| source.is("rs") && !source.is_test())
    {
        let path = source.path.display();
        let lines = source.product().lines().count();
        if lines > FILE_LINES_MAX {
            findings.error(format!(
                "{path} has {lines} lines, the limit is {FILE_LINES_MAX}: cut it at a seam"
            ));
        } else if lines > FILE_LINES_WARN {
            findings.remark(format!("{path} has {lines} lines: look for the seam"));
        }
        for (name, line, length) in functions(source.product()) {
            if length > FUNCTION_LINES_MAX {
                findings.error(format!("{path}:{line}: function {name} has {length} lines, the limit is {FUNCTION_LINES_MAX}"));
            } else if length > FUNCTION_LINES_WARN {
                findings.remark(format!("{path}:{line}: function {name} has {length} lines"));
            }
        }
    }
}

/// Returns name, first line and length of every function. In formatted code a function ends with a brace at the
/// indentation of its first line.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let indentation = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indentation));
        let length = lines[index..]
            .iter()
            .position(|line| *line == end)
            .map_or(1, |at| at + 1);
        // A declaration without a body ends with a semicolon before any brace opens.
        let has_body = lines[index..index + length]
            .iter()
            .find(|line| line.ends_with([';', '{', '}']))
            .is_some_and(|line| !line.ends_with(';'));
        if has_body {
            found.push((name.to_owned(), index + 1, length));
        }
    }
    found
}

fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in [
        "pub(crate) ",
        "pub(super) ",
        "pub ",
        "const ",
        "async ",
        "unsafe ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&rest[..end])
}

#[cfg(test)]
mod tests {
    use super::functions;

    #[test]
    fn a_function_is_measured_from_its_first_line_to_its_closing_brace() {
        let text = "impl A {\n    pub(crate) async fn one(\n        a: u8,\n    ) -> u8 {\n        a\n    }\n}\nfn two() {\n}\n";
        assert_eq!(
            functions(text),
            [("one".to_owned(), 2, 5), ("two".to_owned(), 8, 2)]
        );
    }

    #[test]
    fn a_declaration_without_a_body_does_not_count_as_a_function() {
        let text = "trait A {\n    fn one(&self);\n\n    fn two(\n        &self,\n    ) -> u8;\n\n    fn three(&self) {\n    }\n}\n";
        assert_eq!(functions(text), [("three".to_owned(), 8, 2)]);
    }
}

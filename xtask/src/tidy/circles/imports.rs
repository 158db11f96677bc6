//! Finds the imports between the top-level modules of a crate: every path that begins with `crate` or `super`.
//!
//! The sources are formatted, so an item ends at the indentation of its first line.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use crate::tidy::Source;

/// The line where a module uses another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Import<'a> {
    pub(super) path: &'a Path,
    /// Number of the line, from 1.
    pub(super) line: usize,
}

/// Each top-level module with the modules that it uses, and the first place where it does.
pub(super) type Imports<'a> = BTreeMap<String, BTreeMap<String, Import<'a>>>;

/// A file of a crate.
struct File<'a> {
    path: &'a Path,
    /// Names of the modules from the root to this file; empty for the root.
    module: Vec<String>,
    /// Lines of the file; those of comments and unit tests are empty.
    lines: Vec<&'a str>,
}

/// Returns the imports between the top-level modules of each crate, by the crate's directory name.
pub(super) fn of_crates(sources: &[Source]) -> BTreeMap<String, Imports<'_>> {
    let mut crates: BTreeMap<String, Vec<File>> = BTreeMap::new();
    let products = sources.iter().filter(|it| it.is("rs") && !it.is_test());
    for source in products {
        if let Some((name, module)) = place(&source.path) {
            let lines = code(&source.text);
            let file = File {
                path: &source.path,
                module,
                lines,
            };
            crates.entry(name).or_default().push(file);
        }
    }
    let crates = crates.into_iter();
    crates
        .map(|(name, files)| (name, between(&files)))
        .collect()
}

/// Returns the crate's directory name and the module of a file; `None` outside of `src`, and for programs in `src/bin`.
fn place(path: &Path) -> Option<(String, Vec<String>)> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let parts: Vec<&str> = parts.collect();
    let src = parts.iter().position(|part| *part == "src")?;
    let name = parts[src.checked_sub(1)?];
    let inside = parts[src + 1..].iter();
    let mut module: Vec<String> = inside
        .map(|part| part.trim_end_matches(".rs").to_owned())
        .collect();
    match &*module {
        [root] if root == "lib" || root == "main" => module.clear(),
        [first, ..] if first == "bin" => return None,
        _ => {}
    }
    Some((name.to_owned(), module))
}

/// Returns the lines without comments and without items that only tests compile.
fn code(text: &str) -> Vec<&str> {
    let lines = text.lines();
    let mut lines: Vec<&str> = lines
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let mut next = 0;
    while next < lines.len() {
        let first = next;
        next += 1;
        if lines[first].trim() == "#[cfg(test)]" {
            let is_attribute = |line: &&str| line.trim_start().starts_with("#[");
            let attributes = lines[first..].iter().take_while(|line| is_attribute(line));
            next = item_end(&lines, first + attributes.count()) + 1;
            lines[first..next].fill("");
        }
    }
    lines
}

/// Returns the index of the last line of the item that begins on line `first`.
fn item_end(lines: &[&str], first: usize) -> usize {
    let Some(line) = lines.get(first) else {
        return lines.len() - 1;
    };
    if line.trim_end().ends_with([';', ',', '}']) {
        return first;
    }
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let is_end = |other: &&str| {
        indentation(other) == indentation(line)
            && other.trim_start().starts_with(['}', ')'])
            && other.trim_end().ends_with([';', ',', '}'])
    };
    let end = lines[first + 1..].iter().position(is_end);
    end.map_or(lines.len() - 1, |end| first + 1 + end)
}

fn between<'a>(files: &[File<'a>]) -> Imports<'a> {
    let root = files.iter().find(|file| file.module.is_empty());
    let exported = root.map(|root| exports(&root.lines)).unwrap_or_default();
    let mut imports = Imports::new();
    for name in files.iter().filter_map(|file| file.module.first()) {
        imports.entry(name.clone()).or_default();
    }
    for file in files {
        let Some(from) = file.module.first() else {
            continue;
        };
        for (line, name) in names(file) {
            let to = match exported.get(&name) {
                Some(module) if !imports.contains_key(&name) => module,
                _ => &name,
            };
            if to == from || !imports.contains_key(to) {
                continue;
            }
            let path = file.path;
            let used = imports.entry(from.clone()).or_default();
            used.entry(to.clone()).or_insert(Import { path, line });
        }
    }
    imports
}

/// Returns the names that the root imports from its modules, each with the module.
fn exports(lines: &[&str]) -> BTreeMap<String, String> {
    let text = lines.join("\n");
    let mut exported = BTreeMap::new();
    for item in text.split("use ").skip(1) {
        let (path, _) = item.split_once(';').unwrap_or((item, ""));
        let mut words = words(path).filter(|word| !matches!(*word, "crate" | "self" | "as"));
        if let Some(module) = words.next() {
            exported.extend(words.map(|name| (name.to_owned(), module.to_owned())));
        }
    }
    exported
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c))
        .filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the names in the root of its crate that a file uses, each with the line number.
fn names(file: &File) -> Vec<(usize, String)> {
    let text = file.lines.join("\n");
    let mut found = Vec::new();
    for word in ["crate", "super"] {
        for (at, _) in text.match_indices(word) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| is_of_word(c) || c == ':') {
                continue;
            }
            let line = text[..at].matches('\n').count();
            let mut module = file.module.clone();
            module.extend(inline_modules(&file.lines, line));
            let mut named = Vec::new();
            resolve(module, &text[at..], &mut named);
            found.extend(named.into_iter().map(|name| (line + 1, name)));
        }
    }
    found
}

/// Returns the inline modules around a line, the outermost first.
fn inline_modules(lines: &[&str], inside: usize) -> Vec<String> {
    let open = lines[..inside].iter().enumerate().filter_map(|(at, line)| {
        let (visibility, rest) = line.split_once("mod ")?;
        let name = rest.strip_suffix(" {")?;
        let is_module = visibility.trim().is_empty() || visibility.trim().starts_with("pub");
        (is_module && item_end(lines, at) > inside).then(|| name.to_owned())
    });
    open.collect()
}

/// Resolves a path, or a tree of paths in braces, from a module; appends the name that it has in the root.
fn resolve(mut module: Vec<String>, text: &str, found: &mut Vec<String>) {
    let text = text.trim_start();
    if let Some(inside) = text.strip_prefix('{') {
        for path in branches(inside) {
            resolve(module.clone(), path, found);
        }
        return;
    }
    let end = text.find(|c| !is_of_word(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "crate" => module.clear(),
        "super" => drop(module.pop()),
        "" | "self" => return,
        name => {
            module.push(name.to_owned());
            found.push(module.swap_remove(0));
            return;
        }
    }
    if let Some(rest) = rest.strip_prefix("::") {
        resolve(module, rest, found);
    }
}

/// Returns the paths between an opened brace and its end.
fn branches(text: &str) -> Vec<&str> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.push(&text[begin..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source {
            path: path.into(),
            text: text.to_owned(),
        }
    }

    /// The imports of crate `c` as `from to:line`, by the texts of its files.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let sources = files
            .iter()
            .map(|(path, text)| source(&format!("crates/c/src/{path}"), text));
        let sources: Vec<_> = sources.collect();
        let found = of_crates(&sources).remove("c").unwrap_or_default();
        let each = found.iter().flat_map(|(from, used)| {
            let of_module = used.iter();
            of_module.map(move |(to, import)| format!("{from} {to}:{}", import.line))
        });
        each.collect()
    }

    #[test]
    fn use_items_use_trees_and_paths_in_code_are_read() {
        let text = "use crate::b::B;\nuse crate::{\n    c::{self, d},\n    e,\n};\nfn f(x: super::g::G) {\n    crate::h::run();\n}\n";
        let empty = ["b", "c", "d", "e", "g", "h"].map(|name| format!("{name}.rs"));
        let mut files = vec![("a.rs", text)];
        files.extend(empty.iter().map(|path| (path.as_str(), "")));
        assert_eq!(
            imports(&files),
            ["a b:1", "a c:2", "a e:2", "a g:6", "a h:7"]
        );
    }

    #[test]
    fn a_file_and_its_directory_are_one_module() {
        let files = [
            ("a.rs", "mod part;\nuse crate::a::part::P;\n"),
            ("a/part.rs", "use super::Whole;\nuse super::super::b::B;\n"),
            (
                "a/part/inner.rs",
                "use super::super::super::b::B;\nmod own {\n    use super::super::b::NotTheModule;\n}\n",
            ),
            (
                "b.rs",
                "mod inline {\n    use super::super::c::C;\n    use super::Own;\n}\n",
            ),
            ("c.rs", ""),
        ];
        assert_eq!(imports(&files), ["a b:2", "b c:2"]);
    }

    #[test]
    fn a_name_that_the_root_exports_counts_as_its_module() {
        let files = [
            (
                "lib.rs",
                "mod a;\nmod b;\npub use b::{B, Other as Shown};\nuse std::fmt;\n",
            ),
            ("a.rs", "use crate::{OfRoot, Shown};\n"),
            ("b.rs", ""),
        ];
        assert_eq!(imports(&files), ["a b:1"]);
    }

    #[test]
    fn tests_comments_and_visibility_do_not_count_as_imports() {
        let files = [
            (
                "a.rs",
                "//! [`crate::b`]\npub(crate) fn f() {} // crate::b::f()\n#[cfg(test)]\nuse crate::b::B;\n\n#[cfg(test)]\n#[derive(Debug)]\nstruct S {\n    b: crate::b::B,\n}\n\nfn g(x: crate::c::C) {}\n\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n",
            ),
            ("a/tests.rs", "use crate::b::B;\n"),
            ("b.rs", ""),
            ("c.rs", ""),
            ("bin/program.rs", "use crate::b::B;\n"),
        ];
        assert_eq!(imports(&files), ["a c:12"]);
    }
}

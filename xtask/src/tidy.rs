//! Checks the sources against rules of the project that no compiler checks.
//!
//! Each rule is a module that adds errors and remarks; an error fails the run, a remark does not.

mod arrows;
mod circles;
mod citations;
mod codes;
mod commits;
mod doc_comments;
mod external;
mod operations;
mod sizes;
mod text;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::root;

/// The findings of all rules.
#[derive(Default)]
pub(crate) struct Findings {
    errors: Vec<String>,
    remarks: Vec<String>,
}

impl Findings {
    fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }
}

/// A file of the project with its text.
struct Source {
    /// Path from the root of the project.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is(&self, extension: &str) -> bool {
        self.path
            .extension()
            .is_some_and(|found| found == extension)
    }

    /// Whether the file has only tests.
    fn is_test(&self) -> bool {
        let in_tests = self
            .path
            .components()
            .any(|part| part.as_os_str() == "tests");
        in_tests
            || self
                .path
                .file_stem()
                .is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"))
    }

    /// Returns the text up to the unit tests at the end of the file.
    fn product(&self) -> &str {
        match self.text.find("\n#[cfg(test)]\nmod ") {
            Some(end) => &self.text[..end],
            None => &self.text,
        }
    }
}

/// Runs every rule of tidy.
pub(crate) fn run() -> Result<()> {
    let sources = read_sources(&root())?;
    let mut findings = Findings::default();
    arrows::check(&sources, &mut findings)?;
    circles::check(&sources, &mut findings);
    sizes::check(&sources, &mut findings);
    words::check(&sources, &mut findings);
    text::check(&sources, &mut findings);
    doc_comments::check(&sources, &mut findings);
    external::check(&sources, &mut findings);
    citations::check(&sources, &mut findings)?;
    codes::check(&sources, &mut findings)?;
    operations::check(&sources, &mut findings)?;
    commits::check(&mut findings)?;

    for remark in &findings.remarks {
        println!("remark: {remark}");
    }
    for error in &findings.errors {
        println!("error: {error}");
    }
    println!(
        "tidy: {} files, {} errors, {} remarks",
        sources.len(),
        findings.errors.len(),
        findings.remarks.len()
    );
    if !findings.errors.is_empty() {
        bail!(
            "the rules are broken in the {} places listed above",
            findings.errors.len()
        );
    }
    Ok(())
}

/// Reads all sources and documents below `directory`, except generated and external ones.
fn read_sources(directory: &Path) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(current) = directories.pop() {
        for entry in
            fs::read_dir(&current).with_context(|| format!("cannot list {}", current.display()))?
        {
            let path = entry?.path();
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            if path.is_dir()
                && !matches!(name.as_str(), "target" | ".git" | "node_modules" | "corpus")
            {
                directories.push(path);
            } else if path.is_file() && is_source(&path) {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let path = path.strip_prefix(directory).unwrap_or(&path).to_path_buf();
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

fn is_source(path: &Path) -> bool {
    path.extension().is_some_and(|extension| {
        ["rs", "toml", "proto", "sh", "md", "py"]
            .iter()
            .any(|ours| extension == *ours)
    })
}

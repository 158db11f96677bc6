//! Test: every operation of the HTTP API is there over gRPC and on the command line, or `docs/apis.md` says why not.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use crate::args::Cli;

/// The page with the tables.
const PAGE: &str = include_str!("../../../docs/apis.md");
/// How a cell begins that gives the reason why there is nothing.
const NOTHING: &str = "none: ";

/// The cells of each row of the tables below headings, with the heading.
fn rows() -> Vec<(String, Vec<String>)> {
    let (mut rows, mut heading) = (Vec::new(), "");
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title;
        }
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let row = format!("`{}", row.trim_end_matches(" |"));
        let cells = row.split(" | ").map(str::to_owned).collect();
        rows.push((heading.to_owned(), cells));
    }
    rows
}

/// The names in a cell, which are written as code.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Rows of operations: HTTP, gRPC, command line.
fn operations() -> Vec<[String; 3]> {
    let all = rows().into_iter();
    let all = all.filter(|(heading, _)| heading != "Only over gRPC");
    all.map(|(heading, cells)| {
        let cells = <[String; 3]>::try_from(cells);
        cells.unwrap_or_else(|cells| panic!("a row of {heading} has not three cells: {cells:?}"))
    })
    .collect()
}

/// Whether a cell says that there is nothing, with a reason.
fn is_nothing(cell: &str) -> bool {
    let reason = cell.strip_prefix(NOTHING);
    reason.is_some_and(|reason| reason.len() > 10)
}

/// The methods of the schema, without the name of the package.
fn methods() -> BTreeSet<&'static str> {
    let all = ganger_proto::METHOD_RIGHTS.iter();
    all.map(|row| row.method.trim_start_matches("ganger.v1."))
        .collect()
}

/// Whether the program has a command with these words; words that begin with `--` are its options.
fn has_command(words: &str) -> bool {
    let mut words = words.split(' ').peekable();
    if words.next() != Some("ganger") {
        return false;
    }
    let mut command = Cli::command();
    command.build();
    while let Some(word) = words.next_if(|word| !word.starts_with("--")) {
        let Some(found) = command.find_subcommand(word) else {
            return false;
        };
        command = found.clone();
    }
    words.all(|word| {
        let name = word.trim_start_matches("--");
        command
            .get_arguments()
            .any(|argument| argument.get_long() == Some(name))
    })
}

#[test]
fn the_page_has_a_row_for_every_operation_of_http() {
    let rights = ganger_dialect_http::rights();
    let served: BTreeSet<&str> = rights.iter().map(|operation| operation.name).collect();
    let rows = operations();
    let listed: Vec<&str> = rows.iter().flat_map(|row| names(&row[0])).collect();
    let unique: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(unique, served);
    assert_eq!(listed.len(), unique.len(), "an operation has two rows");
}

#[test]
fn every_operation_is_there_over_grpc_or_has_a_reason() {
    let known = methods();
    for [operation, methods, _] in operations() {
        if is_nothing(&methods) {
            continue;
        }
        let named: Vec<&str> = names(&methods).collect();
        assert!(
            !named.is_empty(),
            "{operation}: neither methods nor a reason"
        );
        for method in named {
            assert!(
                known.contains(method),
                "{operation}: there is no method {method}"
            );
        }
    }
}

#[test]
fn every_method_of_grpc_is_on_the_page() {
    let rows = rows();
    let over_http = operations();
    let over_http = over_http.iter().flat_map(|row| names(&row[1]));
    let alone = rows
        .iter()
        .filter(|(heading, _)| heading == "Only over gRPC");
    let alone = alone.flat_map(|(_, cells)| names(&cells[0]));
    let listed: BTreeSet<&str> = over_http
        .chain(alone)
        .filter(|name| !name.starts_with("grpc."))
        .collect();
    assert_eq!(listed, methods());
}

#[test]
fn every_operation_is_on_the_command_line_or_has_a_reason() {
    for [operation, _, command] in operations() {
        if is_nothing(&command) {
            continue;
        }
        let named: Vec<&str> = names(&command).collect();
        assert!(
            !named.is_empty(),
            "{operation}: neither a command nor a reason"
        );
        for command in named {
            assert!(has_command(command), "{operation}: there is no {command}");
        }
    }
}

//! Tables without lines, as wide as the terminal.

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

/// Rows under a heading.
pub(crate) struct Rows {
    table: Table,
}

impl Rows {
    /// Creates a table with these columns; a name that begins with `>` is aligned right.
    pub(crate) fn new(columns: &[&str]) -> Self {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(
            columns
                .iter()
                .map(|name| name.trim_start_matches('>').to_uppercase()),
        );
        for (place, name) in columns.iter().enumerate() {
            let column = table.column_mut(place).expect("the header made it");
            // Two blanks between columns, none at the left edge.
            column.set_padding((0, 2));
            if name.starts_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        Self { table }
    }

    /// Adds a row to the table.
    pub(crate) fn push<C: Into<Cell>, const N: usize>(&mut self, cells: [C; N]) {
        self.table.add_row(cells);
    }

    /// Adds a row whose number of cells is known only at run time.
    pub(crate) fn push_all<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.table.add_row(cells);
    }

    /// Returns the table as text, without spaces at the ends of lines.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<String> = self
            .table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }
}

/// Returns lines of `name: value` with aligned values.
pub(crate) fn facts(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let lines = pairs
        .iter()
        .map(|(name, value)| format!("{:width$} {value}", format!("{name}:")));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut rows = Rows::new(&["job", ">count"]);
        rows.push(["a".to_owned(), "1".to_owned()]);
        rows.push(["longer".to_owned(), "20".to_owned()]);
        assert_eq!(rows.text(), "JOB     COUNT\na           1\nlonger     20");
        assert_eq!(
            facts(&[("a", "1".to_owned()), ("long", "2".to_owned())]),
            "a:    1\nlong: 2"
        );
    }
}

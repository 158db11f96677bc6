//! Copies of a database, as backups are, and their restore.

use std::io;

use super::Instance;

impl Instance {
    /// Copies a database, as a backup does; all its sessions are ended.
    ///
    /// # Errors
    /// If the server refuses, or there is a copy already.
    pub fn back_up(&self, database: &str) -> io::Result<()> {
        let copy = format!("create database {database}_saved template {database}");
        self.alone(database, &[&copy])
    }

    /// Puts the copy of [`Instance::back_up`] in the place of a database; all its sessions are ended.
    ///
    /// # Errors
    /// If there is no copy.
    pub fn restore(&self, database: &str) -> io::Result<()> {
        let drop = format!("drop database {database}");
        let rename = format!("alter database {database}_saved rename to {database}");
        self.alone(database, &[&drop, &rename])
    }

    /// Runs statements while nobody uses a database.
    fn alone(&self, database: &str, statements: &[&str]) -> io::Result<()> {
        self.allow_connections(database, false)?;
        self.terminate_sessions(database)?;
        for statement in statements {
            self.sql("postgres", statement)?;
        }
        self.allow_connections(database, true)
    }
}

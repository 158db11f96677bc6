//! Settings of the children's inserts as environment variables, because arguments, and so a password among them, are
//! visible to every user of the machine.

use ganger_ngsi::environment::{Database, Environment};
use ganger_ngsi::postgres::Settings;

/// Returns QuantumLeap's variables for a database.
pub fn variables(database: &Database) -> Vec<(String, String)> {
    let pairs = [
        ("POSTGRES_HOST", database.host.clone()),
        ("POSTGRES_PORT", database.port.to_string()),
        ("POSTGRES_DB_NAME", database.name.clone()),
        ("POSTGRES_DB_USER", database.user.clone()),
        ("POSTGRES_DB_PASS", database.password.clone()),
        ("POSTGRES_USE_SSL", database.ssl.to_string()),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the settings of inserts from QuantumLeap's variables.
pub(crate) fn settings(environment: Environment) -> Settings {
    Settings {
        database: environment.database,
        keep_raw: environment.keep_raw,
        insert_bytes_max: environment.insert_bytes_max,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn children_read_the_database_that_their_parent_wrote() {
        let database = Database {
            host: "h.example".into(),
            port: 5_433,
            name: "a b".into(),
            user: "me".into(),
            password: "p@ss, word".into(),
            ssl: true,
        };
        let written: HashMap<_, _> = variables(&database).into_iter().collect();
        let no_file = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
        let environment =
            ganger_ngsi::environment::read(|name| written.get(name).cloned(), no_file);
        let settings = settings(environment.expect("readable"));
        assert_eq!(settings.database, database);
        assert!(!settings.keep_raw);
    }
}

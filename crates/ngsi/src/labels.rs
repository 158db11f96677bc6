//! The labels of a task's job, by which it is found: tenant, service path and correlation id.

use sha2::{Digest as _, Sha256};

use crate::hexadecimal::hexadecimal;
use crate::task::Origin;

/// Key of the label that all tasks of one tenant and path share.
pub const SCOPE: &str = "scope";
/// Key of the label with the correlation id.
pub const CORRELATOR: &str = "fiware-correlator";
/// Key of the label with the hash of a correlation id that is too long for a label.
pub const CORRELATOR_HASH: &str = "fiware-correlator-sha256";
const TENANT: &str = "fiware-service";
const SERVICE_PATH: &str = "fiware-servicepath";

/// Maximum length of a label's value in bytes.
pub const VALUE_BYTES_MAX: usize = 255;

/// A label: the key, and a value of at most [`VALUE_BYTES_MAX`] bytes.
pub type Label = (&'static str, String);

/// Returns all labels of a task. A tenant or path that is too long for a label gets none.
pub fn of(origin: &Origin) -> Vec<Label> {
    let mut labels = vec![scope(origin)];
    let shown = [
        (TENANT, &origin.tenant),
        (SERVICE_PATH, &origin.service_path),
    ];
    for (key, value) in shown {
        let value = value.clone().filter(|value| value.len() <= VALUE_BYTES_MAX);
        labels.extend(value.map(|value| (key, value)));
    }
    labels.extend(origin.correlator.as_deref().map(correlator));
    labels
}

/// Returns the label of all tasks of this tenant and path; its value is a hash if it would be too long.
pub fn scope(origin: &Origin) -> Label {
    let scope = origin.scope();
    let fits = scope.len() <= VALUE_BYTES_MAX;
    (SCOPE, if fits { scope } else { hash(&scope) })
}

/// Returns the label of all tasks with this correlation id; its value is a hash if the id is too long.
pub fn correlator(correlator: &str) -> Label {
    if correlator.len() > VALUE_BYTES_MAX {
        (CORRELATOR_HASH, hash(correlator))
    } else {
        (CORRELATOR, correlator.to_owned())
    }
}

fn hash(text: &str) -> String {
    format!("sha256:{}", hexadecimal(&Sha256::digest(text)))
}

//! The client: connections and the way every call goes.

use crate::Options;
use crate::error::Error;

/// A connection to a server. Cheap to clone; all clones share one connection.
#[derive(Clone)]
pub struct Client {
    _options: std::sync::Arc<Options>,
}

/// Jobs submitted together: all or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Submission {
    /// In order.
    pub jobs: Vec<crate::NewJob>,
    /// A repeat under the same key within a day returns the first one's answer; `None`: one is made.
    pub idempotency_key: Option<String>,
    /// Whether to name the whole as a graph.
    pub graph: bool,
}

impl Client {
    /// Connects, and makes sure that the server answers.
    ///
    /// # Errors
    /// If the address is unreadable, or nobody answers within [`crate::Retry::total_max`].
    pub async fn connect(_options: Options) -> Result<Self, Error> {
        unimplemented!()
    }

    /// A client that connects at its first call, and again whenever it must.
    ///
    /// # Errors
    /// If the address is unreadable.
    pub fn new(_options: Options) -> Result<Self, Error> {
        unimplemented!()
    }

    /// Opens a worker's stream. Returns at once; the stream connects, and connects again, by itself.
    pub fn work(&self, _options: crate::WorkOptions) -> crate::WorkStream {
        unimplemented!()
    }
}

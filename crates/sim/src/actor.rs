//! Actors of a run: producers, workers, operators. They know only what clients know.

pub(crate) mod importer;
pub(crate) mod names;
pub(crate) mod operator;
pub(crate) mod producer;
pub(crate) mod worker;

use ganger_types::{Graph, JobId, Namespace, OperationRecord};

/// Maximum number of ids to remember for later commands.
const IDS_MAX: usize = 48;

/// The ids of jobs and graphs that clients know and can use again.
#[derive(Debug, Default)]
pub(crate) struct KnownIds {
    pub(crate) ids: Vec<(Namespace, JobId)>,
    pub(crate) graphs: Vec<(Namespace, Graph)>,
    pub(crate) submissions: Vec<ganger_types::command::Enqueue>,
    pub(crate) imports: Vec<ganger_types::Import>,
    pub(crate) operations: Vec<OperationRecord>,
    pub(crate) counter: u64,
}

impl KnownIds {
    pub(crate) fn learn(&mut self, namespace: &Namespace, id: &JobId) {
        if self.ids.len() == IDS_MAX {
            self.ids.remove(0);
        }
        self.ids.push((namespace.clone(), id.clone()));
    }

    pub(crate) fn learn_graph(&mut self, namespace: &Namespace, graph: &Graph) {
        if self.graphs.len() == 8 {
            self.graphs.remove(0);
        }
        self.graphs.push((namespace.clone(), graph.clone()));
    }

    /// Remembers an operation as its last answer showed it.
    pub(crate) fn learn_operation(&mut self, record: &OperationRecord) {
        self.operations
            .retain(|known| known.number != record.number);
        if self.operations.len() == 8 {
            self.operations.remove(0);
        }
        self.operations.push(record.clone());
    }

    /// A number that is unique in this run.
    pub(crate) fn count(&mut self) -> u64 {
        self.counter += 1;
        self.counter
    }
}

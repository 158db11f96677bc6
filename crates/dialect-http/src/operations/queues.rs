//! Operations on queues and namespaces.

use ganger_access::Right;
use ganger_document::settings::{NamespaceSettingsDocument, QueueSettingsDocument};
use ganger_document::view::queue::{NamespaceView, NamespacesDoc, QueueView, QueueWhy, QueuesDoc};
use http::Method;

use super::{Operation, PAGE, operation};
use crate::resource::numbers::Done;
use crate::resource::{namespaces, queues};

pub(super) fn about_queues() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/queues",
            "listQueues",
            Right::OBSERVE,
            "Lists the queues.",
            queues::list,
        )
        .query(PAGE)
        .reply::<QueuesDoc>(),
        operation(
            M::GET,
            "/api/v1/queues/{queue}",
            "getQueue",
            Right::OBSERVE,
            "Shows a queue.",
            queues::show,
        )
        .query(&[(
            "effective",
            "true: also the settings that apply, and where each comes from",
        )])
        .reply::<QueueView>(),
        operation(
            M::GET,
            "/api/v1/queues/{queue}/why",
            "explainQueue",
            Right::OBSERVE,
            "Explains why the jobs of a queue are not running: causes with numbers of jobs.",
            queues::why,
        )
        .reply::<QueueWhy>(),
        operation(
            M::PUT,
            "/api/v1/queues/{queue}",
            "setQueue",
            Right::OPERATE,
            "Sets all settings of a queue; with If-Match, only if they are still of that version.",
            queues::put,
        )
        .body::<QueueSettingsDocument>()
        .reply::<QueueView>(),
        operation(
            M::DELETE,
            "/api/v1/queues/{queue}",
            "forgetQueue",
            Right::OPERATE,
            "Removes a queue without jobs.",
            queues::forget,
        )
        .reply::<Done>(),
        operation(
            M::POST,
            "/api/v1/queues/{queue}/pause",
            "pauseQueue",
            Right::OPERATE,
            "Pauses a queue: nothing is leased from it.",
            queues::pause,
        )
        .reply::<QueueView>(),
        operation(
            M::POST,
            "/api/v1/queues/{queue}/resume",
            "resumeQueue",
            Right::OPERATE,
            "Resumes a paused queue.",
            queues::resume,
        )
        .reply::<QueueView>(),
        operation(
            M::GET,
            "/api/v1/namespaces",
            "listNamespaces",
            Right::OBSERVE.somewhere(),
            "Lists the namespaces.",
            namespaces::list,
        )
        .reply::<NamespacesDoc>(),
        operation(
            M::PUT,
            "/api/v1/namespaces/{name}",
            "setNamespace",
            Right::GOVERN,
            "Sets all settings of a namespace.",
            namespaces::put,
        )
        .body::<NamespaceSettingsDocument>()
        .reply::<NamespaceView>(),
    ]
}

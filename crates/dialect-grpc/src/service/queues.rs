//! Queues and namespaces.

use ganger_document::view::queue::{QueueWhy, effective};
use ganger_proto::convert;
use ganger_proto::v1;
use ganger_proto::v1::queues_server::Queues;
use ganger_types::command::{ConfigureNamespace, ConfigureQueue, ForgetQueue, QueueChange};
use ganger_types::query::Query;
use ganger_types::{Command, Namespace, NamespaceRecord, NamespaceSettings, Queue, Reply, limits};
use tonic::{Request, Response, Status};

use super::reply_as;
use crate::ServiceContext;
use crate::authorization;
use crate::decode::{self, At};
use crate::problem::Problem;

fn named(request: &v1::QueueRequest) -> Result<(Namespace, Queue), Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    Ok((namespace, decode::queue(At::top("queue"), &request.queue)?))
}

/// The version that the settings must still have.
fn version(text: &str) -> Result<u64, Problem> {
    let reason = "must be the `version` of the queue";
    u64::from_str_radix(text, 16).map_err(|_| Problem::invalid(At::top("version"), reason))
}

impl ServiceContext {
    /// The settings of a namespace; the default ones if it has none of its own.
    async fn namespace_settings(
        &self,
        namespace: &Namespace,
    ) -> Result<NamespaceSettings, Problem> {
        let reply = self.ask(Query::Namespaces).await?;
        let all = reply_as!(reply, Reply::Namespaces(records) => records)?;
        let own = all.into_iter().find(|it| it.namespace == *namespace);
        Ok(own.map(|record| record.settings).unwrap_or_default())
    }

    async fn configure_queue(&self, command: ConfigureQueue) -> Result<(), Problem> {
        let reply = self
            .call(Command::ConfigureQueue(Box::new(command)))
            .await?;
        reply_as!(reply, Reply::Done => ())
    }

    async fn pause(
        &self,
        request: &v1::QueueRequest,
        paused: bool,
    ) -> Result<Response<v1::Done>, Status> {
        let (namespace, queue) = named(request)?;
        let change = QueueChange::Paused(paused);
        self.configure_queue(ConfigureQueue {
            namespace,
            queue,
            change,
        })
        .await?;
        Ok(Response::new(v1::Done {}))
    }

    async fn show_queue(
        &self,
        namespace: Namespace,
        queue: Queue,
    ) -> Result<Response<v1::QueueView>, Status> {
        let query = Query::Queue(namespace.clone(), queue);
        let view = reply_as!(self.ask(query).await?, Reply::Queue(view) => view)?;
        let observed = self.handle.observe_queue_closely(&namespace, *view);
        Ok(Response::new((&observed).into()))
    }
}

#[tonic::async_trait]
impl Queues for ServiceContext {
    async fn list(
        &self,
        request: Request<v1::QueuesRequest>,
    ) -> Result<Response<v1::QueuesReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let at = At::top("cursor");
        let after = decode::unless_empty(at, &request.cursor, Queue::new)?;
        let most = u32::try_from(limits::PAGE_QUEUES_MAX).expect("a page is small");
        let limit = decode::bounded(At::top("limit"), request.limit, most, most)?;
        let limit = usize::try_from(limit).unwrap_or(limits::PAGE_QUEUES_MAX);
        let query = Query::Queues(namespace.clone(), after, limit + 1);
        let mut views = reply_as!(self.ask(query).await?, Reply::Queues(views) => views)?;
        let more = views.len() > limit;
        views.truncate(limit);
        let last = views.last().filter(|_| more);
        let next = last.map(|view| view.queue.to_text().into_owned());
        let queues = views.into_iter();
        let queues = queues.map(|view| (&self.handle.observe_queue(&namespace, view)).into());
        Ok(Response::new(v1::QueuesReply {
            queues: queues.collect(),
            next: next.unwrap_or_default(),
            unreachable: Vec::new(),
        }))
    }

    async fn get(
        &self,
        request: Request<v1::GetQueueRequest>,
    ) -> Result<Response<v1::QueueView>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let queue = decode::queue(At::top("queue"), &request.queue)?;
        let mut view = self.show_queue(namespace.clone(), queue).await?;
        if request.effective {
            let settings = view.get_ref().settings.clone().unwrap_or_default();
            let settings = convert::queue_settings(At::top("settings"), settings);
            let own = self.namespace_settings(&namespace).await?;
            let effective = effective(&settings.map_err(Problem::from)?, &own);
            view.get_mut().effective = convert::effective_messages(effective);
        }
        Ok(view)
    }

    async fn why(
        &self,
        request: Request<v1::QueueRequest>,
    ) -> Result<Response<v1::QueueExplanation>, Status> {
        let (namespace, queue) = named(request.get_ref())?;
        let query = Query::QueueWhy(namespace, queue.clone());
        let waits = reply_as!(self.ask(query).await?, Reply::QueueWhy(waits) => waits)?;
        Ok(Response::new(QueueWhy::new(&queue, &waits).into()))
    }

    async fn configure(
        &self,
        request: Request<v1::ConfigureQueueRequest>,
    ) -> Result<Response<v1::QueueView>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let queue = decode::queue(At::top("queue"), &request.queue)?;
        let settings = request.settings.ok_or_else(|| {
            Problem::missing("settings", "give all settings; absent ones are reset")
        })?;
        let at = At::top("settings");
        decode::check_retry(at, settings.retry.as_ref())?;
        let settings = convert::queue_settings(at, settings).map_err(Problem::from)?;
        let change = match request.version.as_deref().map(version).transpose()? {
            Some(version) => QueueChange::AllIf { settings, version },
            None => QueueChange::All(settings),
        };
        let command = ConfigureQueue {
            namespace: namespace.clone(),
            queue: queue.clone(),
            change,
        };
        self.configure_queue(command).await?;
        self.show_queue(namespace, queue).await
    }

    async fn pause(
        &self,
        request: Request<v1::QueueRequest>,
    ) -> Result<Response<v1::Done>, Status> {
        self.pause(request.get_ref(), true).await
    }

    async fn resume(
        &self,
        request: Request<v1::QueueRequest>,
    ) -> Result<Response<v1::Done>, Status> {
        self.pause(request.get_ref(), false).await
    }

    async fn forget(
        &self,
        request: Request<v1::QueueRequest>,
    ) -> Result<Response<v1::Done>, Status> {
        let (namespace, queue) = named(request.get_ref())?;
        let reply = self
            .call(Command::ForgetQueue(ForgetQueue { namespace, queue }))
            .await?;
        reply_as!(reply, Reply::Done => Response::new(v1::Done {})).map_err(Into::into)
    }

    async fn list_namespaces(
        &self,
        _: Request<v1::NamespacesRequest>,
    ) -> Result<Response<v1::NamespacesReply>, Status> {
        let reply = self.ask(Query::Namespaces).await?;
        let caller = authorization::identity();
        let records = reply_as!(reply, Reply::Namespaces(records) => records)?;
        let namespaces = records
            .iter()
            .filter(|record| caller.may_list(record.namespace.as_bytes()))
            .map(Into::into)
            .collect();
        Ok(Response::new(v1::NamespacesReply { namespaces }))
    }

    async fn configure_namespace(
        &self,
        request: Request<v1::ConfigureNamespaceRequest>,
    ) -> Result<Response<v1::NamespaceView>, Status> {
        let request = request.into_inner();
        let namespace = decode::namespace(&request.namespace)?;
        let settings = request.settings.ok_or_else(|| {
            Problem::missing("settings", "give all settings; absent ones are reset")
        })?;
        let at = At::top("settings");
        decode::check_retry(at, settings.retry.as_ref())?;
        let settings = convert::namespace_settings(at, settings).map_err(Problem::from)?;
        let command = ConfigureNamespace {
            namespace: namespace.clone(),
            settings: settings.clone(),
        };
        let reply = self
            .call(Command::ConfigureNamespace(Box::new(command)))
            .await?;
        reply_as!(reply, Reply::Done => ())?;
        Ok(Response::new(v1::NamespaceView::from(&NamespaceRecord {
            namespace,
            settings,
        })))
    }
}

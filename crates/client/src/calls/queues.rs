//! Calls for queues and namespaces.

use ganger_proto::convert;
use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::error::Error;
use crate::model::{Listed, NamespaceSettings, NamespaceView, QueueSettings, QueueView, QueueWhy};

impl Client {
    fn queue_named(&self, queue: &str) -> v1::QueueRequest {
        v1::QueueRequest {
            namespace: self.namespace(),
            queue: queue.to_owned(),
        }
    }

    /// Returns all queues of the namespace.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        Ok(self.list_queues().await?.entries)
    }

    /// Returns all queues of the namespace: of the shard of this client, or of all shards
    /// ([`Client::at_all_shards`]).
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn list_queues(&self) -> Result<Listed<QueueView>, Error> {
        let mut all = Listed::default();
        let mut cursor = String::new();
        loop {
            let request = v1::QueuesRequest {
                namespace: self.namespace(),
                cursor,
                limit: 0,
            };
            let reply = call!(self, Safe, queues_wire.list(request))?;
            for queue in reply.queues {
                all.entries.push(convert::queue(queue)?);
            }
            // Each page names the shards that are missing from it.
            all.unreachable.extend(reply.unreachable);
            cursor = reply.next;
            if cursor.is_empty() {
                all.unreachable.sort();
                all.unreachable.dedup();
                return Ok(all);
            }
        }
    }

    /// Returns a queue; one that does not exist is shown without jobs.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn queue(&self, queue: &str) -> Result<QueueView, Error> {
        self.get_queue(queue, false).await
    }

    /// Returns a queue as [`Client::queue`], with the settings that apply and where each comes from.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn queue_with_effective(&self, queue: &str) -> Result<QueueView, Error> {
        self.get_queue(queue, true).await
    }

    async fn get_queue(&self, queue: &str, effective: bool) -> Result<QueueView, Error> {
        let request = v1::GetQueueRequest {
            namespace: self.namespace(),
            queue: queue.to_owned(),
            effective,
        };
        Ok(convert::queue(call!(
            self,
            Safe,
            queues_wire.get(request)
        )?)?)
    }

    /// Explains why the jobs of a queue are not running: causes with numbers of jobs, most important first.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn queue_why(&self, queue: &str) -> Result<QueueWhy, Error> {
        Ok(call!(self, Safe, queues_wire.why(self.queue_named(queue)))?.into())
    }

    /// Replaces all settings of a queue.
    ///
    /// # Errors
    /// If a setting is out of range, or the server cannot be reached.
    pub async fn configure_queue(
        &self,
        queue: &str,
        settings: QueueSettings,
    ) -> Result<QueueView, Error> {
        let request = self.configure_request(queue, &settings, None);
        Ok(convert::queue(call!(
            self,
            Safe,
            queues_wire.configure(request)
        )?)?)
    }

    /// Replaces all settings of a queue if they are still of `version`, the one of a [`QueueView`].
    ///
    /// # Errors
    /// `settings_changed` if they are not, if a setting is out of range, or if the server cannot be reached.
    pub async fn configure_queue_if(
        &self,
        queue: &str,
        settings: QueueSettings,
        version: &str,
    ) -> Result<QueueView, Error> {
        let request = self.configure_request(queue, &settings, Some(version));
        Ok(convert::queue(call!(
            self,
            IfNothingChanged,
            queues_wire.configure(request)
        )?)?)
    }

    fn configure_request(
        &self,
        queue: &str,
        settings: &QueueSettings,
        version: Option<&str>,
    ) -> v1::ConfigureQueueRequest {
        v1::ConfigureQueueRequest {
            namespace: self.namespace(),
            queue: queue.to_owned(),
            settings: Some(settings.into()),
            version: version.map(str::to_owned),
        }
    }

    /// Pauses a queue: no jobs are leased from it until it is resumed.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn pause_queue(&self, queue: &str) -> Result<(), Error> {
        call!(self, Safe, queues_wire.pause(self.queue_named(queue))).map(|_| ())
    }

    /// Resumes a paused queue.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn resume_queue(&self, queue: &str) -> Result<(), Error> {
        call!(self, Safe, queues_wire.resume(self.queue_named(queue))).map(|_| ())
    }

    /// Hides a queue without live jobs from lists until it is used again; removes it if it has no finished jobs either.
    ///
    /// # Errors
    /// `queue_not_found`, `queue_in_use`, or if the server cannot be reached.
    pub async fn forget_queue(&self, queue: &str) -> Result<(), Error> {
        call!(
            self,
            IfNothingChanged,
            queues_wire.forget(self.queue_named(queue))
        )
        .map(|_| ())
    }

    /// Returns all namespaces.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn namespaces(&self) -> Result<Vec<NamespaceView>, Error> {
        let reply = call!(
            self,
            Safe,
            queues_wire.list_namespaces(v1::NamespacesRequest {})
        )?;
        reply
            .namespaces
            .into_iter()
            .map(|one| Ok(convert::namespace(one)?))
            .collect()
    }

    /// Replaces all settings of a namespace.
    ///
    /// # Errors
    /// If a setting is out of range, or the server cannot be reached.
    pub async fn configure_namespace(
        &self,
        namespace: &str,
        settings: NamespaceSettings,
    ) -> Result<NamespaceView, Error> {
        let request = v1::ConfigureNamespaceRequest {
            namespace: namespace.to_owned(),
            settings: Some((&settings).into()),
        };
        Ok(convert::namespace(call!(
            self,
            Safe,
            queues_wire.configure_namespace(request)
        )?)?)
    }
}

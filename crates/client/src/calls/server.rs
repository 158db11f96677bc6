//! Calls that read the server and its audit log.

use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::error::Error;
use crate::model::{AuditFilter, AuditLog, ClusterShards, NodeList, Server};

impl Client {
    /// Returns the server: its shards, how busy they are, their space, and the settings that are not secret.
    ///
    /// # Errors
    /// If the caller may not see the whole server, or it cannot be reached.
    pub async fn server(&self) -> Result<Server, Error> {
        let request = v1::GetServerRequest {};
        Ok(call!(self, Safe, admin_wire.get_server(request))?.into())
    }

    /// Returns the nodes of the cluster, as the node that answers sees them; none if the server is not such a node.
    ///
    /// # Errors
    /// If the caller may not see the whole server, or it cannot be reached.
    pub async fn cluster_nodes(&self) -> Result<NodeList, Error> {
        let request = v1::ListNodesRequest {};
        Ok(call!(self, Safe, admin_wire.list_nodes(request))?.into())
    }

    /// Returns the shards of the cluster with their owners, as the node that answers sees them; none if the server is
    /// not such a node.
    ///
    /// # Errors
    /// If the caller may not see the whole server, or it cannot be reached.
    pub async fn cluster_shards(&self) -> Result<ClusterShards, Error> {
        let request = v1::ListShardsRequest {};
        Ok(call!(self, Safe, admin_wire.list_shards(request))?.into())
    }

    /// Makes a node of the cluster give its shards away. It gets none until [`Client::resume_node`], or until it starts
    /// again.
    ///
    /// # Errors
    /// If there is no such node, the caller may not operate the server, or it cannot be reached.
    pub async fn drain_node(&self, node: &str) -> Result<(), Error> {
        let node = node.to_owned();
        let request = v1::DrainNodeRequest { node };
        call!(self, Safe, admin_wire.drain_node(request))?;
        Ok(())
    }

    /// Lets a node of the cluster take shards again.
    ///
    /// # Errors
    /// As [`Client::drain_node`].
    pub async fn resume_node(&self, node: &str) -> Result<(), Error> {
        let node = node.to_owned();
        let request = v1::ResumeNodeRequest { node };
        call!(self, Safe, admin_wire.resume_node(request))?;
        Ok(())
    }

    /// Moves a shard of the cluster to a node.
    ///
    /// # Errors
    /// If there is no such shard or node, the node takes no shards, the caller may not operate the server, or it cannot
    /// be reached.
    pub async fn move_shard(&self, shard: &str, node: &str) -> Result<(), Error> {
        let request = v1::MoveShardRequest {
            shard: shard.to_owned(),
            node: node.to_owned(),
        };
        call!(self, Safe, admin_wire.move_shard(request))?;
        Ok(())
    }

    /// Returns a page of the audit log, newest record first. The server keeps the newest 10,000 records.
    ///
    /// # Errors
    /// If the caller is not an admin of the whole server, the filter is refused, or the server cannot be reached.
    pub async fn audit_log(&self, filter: AuditFilter) -> Result<AuditLog, Error> {
        let request = v1::ListAuditLogRequest {
            who: filter.who.unwrap_or_default(),
            what: filter.what.unwrap_or_default(),
            outcome: filter.outcome.unwrap_or_default(),
            after: filter.after.unwrap_or_default(),
            limit: filter.limit,
        };
        Ok(call!(self, Safe, admin_wire.list_audit_log(request))?.into())
    }
}

//! Addresses of our own pages: the one place that encodes names into them.

use std::fmt::Write as _;
use std::sync::Arc;

use ganger_document::names::show;
use ganger_types::{JobId, Namespace, ShardId};
use maud::{Escaper, Render};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that a query value may hold as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b',');

/// What stands for all namespaces, as in grants.
pub(crate) const ALL_NAMESPACES: &str = "*";
/// Paths of the pages that can be of all namespaces.
pub(crate) const OF_ALL_NAMESPACES: [&str; 2] = ["/", "/queues"];

/// Makes addresses within the namespace and the shards of a view.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// What stands before `/ui`; empty, or begins with a slash and ends without one.
    base: Arc<str>,
    namespace: Namespace,
    /// The one shard of the view; `None` for all.
    shard: Option<ShardId>,
}

/// An address of ours, from its path on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    text: String,
    has_query: bool,
}

impl Links {
    pub(crate) fn new(base: Arc<str>, namespace: Namespace, shard: Option<ShardId>) -> Self {
        Self {
            base,
            namespace,
            shard,
        }
    }

    /// The page at a path below `/ui`, in the namespace and the shards of this view. A page that cannot be of all
    /// namespaces is that of the default one.
    pub(crate) fn to(&self, path: &str) -> Address {
        let address = self.bare(path);
        let is_left_out = self.is_of_all_namespaces() && !OF_ALL_NAMESPACES.contains(&path);
        let address = if is_left_out || self.namespace == Namespace::default() {
            address
        } else {
            address.name("ns", self.namespace.as_bytes())
        };
        match &self.shard {
            None => address,
            Some(shard) => address.with("shard", shard.as_str()),
        }
    }

    /// The page at a path below `/ui`, without namespace and shard.
    pub(crate) fn bare(&self, path: &str) -> Address {
        Address {
            text: format!("{}/ui{path}", self.base),
            has_query: false,
        }
    }

    /// A page about one thing of one shard.
    pub(crate) fn on(&self, shard: &ShardId, path: &str) -> Address {
        let links = Self {
            shard: Some(shard.clone()),
            ..self.clone()
        };
        links.to(path)
    }

    /// The page of a job. Its id names the shard.
    pub(crate) fn job(&self, shard: &ShardId, id: &JobId) -> Address {
        let links = Self {
            shard: None,
            ..self.clone()
        };
        links.to("/job").with("id", &job_name(shard, id))
    }

    /// The page of a job by its full name, `shard/id`.
    pub(crate) fn bare_job(&self, full_name: &str) -> Address {
        let links = Self {
            shard: None,
            ..self.clone()
        };
        links.to("/job").with("id", full_name)
    }

    /// The same pages of another namespace.
    pub(crate) fn in_namespace(self, namespace: Namespace) -> Self {
        Self { namespace, ..self }
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Whether the addresses are of all namespaces together.
    pub(crate) fn is_of_all_namespaces(&self) -> bool {
        self.namespace.as_bytes() == ALL_NAMESPACES.as_bytes()
    }

    pub(crate) fn shard(&self) -> Option<&ShardId> {
        self.shard.as_ref()
    }
}

impl Address {
    /// Adds a query parameter; its value is percent-encoded.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let before = if self.has_query { '&' } else { '?' };
        self.has_query = true;
        write!(
            self.text,
            "{before}{name}={}",
            utf8_percent_encode(value, PLAIN)
        )
        .expect("strings take everything");
        self
    }

    /// Adds a parameter if there is a value.
    pub(crate) fn with_if(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Adds a name of any bytes, if there is one.
    pub(crate) fn name_if(self, name: &str, bytes: Option<&[u8]>) -> Self {
        match bytes {
            Some(bytes) => self.name(name, bytes),
            None => self,
        }
    }

    /// Adds a name of any bytes.
    pub(crate) fn name(self, name: &str, bytes: &[u8]) -> Self {
        self.with(name, &show(bytes))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }
}

impl Render for Address {
    fn render_to(&self, out: &mut String) {
        Escaper::new(out)
            .write_str(&self.text)
            .expect("strings take everything");
    }
}

/// The full name of a job, in the form `shard/id`.
pub(crate) fn job_name(shard: &ShardId, id: &JobId) -> String {
    ganger_document::names::full_name(shard, id)
}

/// The address to go back to, if it is one of ours: a path that cannot leave this origin.
pub(crate) fn own_path(text: &str) -> Option<&str> {
    let is_own = text.starts_with('/')
        && !text.starts_with("//")
        && !text.contains('\\')
        && !text.chars().any(char::is_control);
    is_own.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_and_the_view_stays() {
        let shard = ShardId::new("2").expect("a shard");
        let links = Links::new("/ganger".into(), Namespace::from_static("a&b"), None);
        assert_eq!(
            links.to("/queue").name("name", b"x y/\xff?#").as_str(),
            "/ganger/ui/queue?ns=a%26b&name=x%20y/%5Cxff%3F%23"
        );
        let id = JobId::new("../a").expect("an id");
        assert_eq!(
            links.job(&shard, &id).as_str(),
            "/ganger/ui/job?ns=a%26b&id=2/../a"
        );
    }

    #[test]
    fn only_paths_of_this_origin_are_gone_back_to() {
        for good in ["/ui/", "/ganger/ui/jobs?tag=a//b"] {
            assert_eq!(own_path(good), Some(good));
        }
        for bad in [
            "",
            "ui",
            "//evil",
            "/\\evil",
            "https://evil",
            "/a\nb",
            "/a\\b",
        ] {
            assert_eq!(own_path(bad), None, "{bad:?}");
        }
    }
}

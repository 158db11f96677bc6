//! What it takes to call each method, from the schema.

use ganger_access::{Operation, Right, Scope, Verb};
use ganger_proto::v1::right::{Scope as SchemaScope, Verb as SchemaVerb};
use ganger_proto::{METHOD_RIGHTS, MethodRight};

/// Services of gRPC itself, whose schema is not ours.
const STANDARD: [Operation; 3] = [
    Operation::new("grpc.health.v1.Health/Check", Right::OPEN),
    Operation::new("grpc.health.v1.Health/Watch", Right::OPEN),
    Operation::new(
        "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Right::AUTHENTICATED,
    ),
];

/// The right to a method by its name, such as `ganger.v1.Jobs/Enqueue`; `None` if there is no such method.
pub fn right(method: &str) -> Option<Operation> {
    match METHOD_RIGHTS.binary_search_by(|row| row.method.cmp(method)) {
        Ok(place) => METHOD_RIGHTS.get(place).map(operation),
        Err(_) => STANDARD.into_iter().find(|known| known.name == method),
    }
}

/// Whether the method at a path, such as `/ganger.v1.Jobs/Get`, only reads.
pub fn is_read(path: &str) -> bool {
    let operation = right(path.trim_start_matches('/'));
    operation.is_some_and(|found| matches!(found.right.verb, Verb::Observe | Verb::Greet))
}

fn operation(row: &MethodRight) -> Operation {
    let verb = match row.verb {
        SchemaVerb::Greet => Verb::Greet,
        SchemaVerb::Observe => Verb::Observe,
        SchemaVerb::Submit => Verb::Submit,
        SchemaVerb::Cancel => Verb::Cancel,
        SchemaVerb::Work => Verb::Work,
        SchemaVerb::Operate => Verb::Operate,
        SchemaVerb::Govern => Verb::Govern,
        SchemaVerb::Peer => Verb::Peer,
    };
    let scope = match row.scope {
        SchemaScope::Namespace => Scope::Namespace,
        SchemaScope::Open => Scope::Open,
        SchemaScope::Known => Scope::Authenticated,
        SchemaScope::Some => Scope::AnyNamespace,
        SchemaScope::Server => Scope::Server,
        SchemaScope::Peers => Scope::Peer,
    };
    Operation::new(row.method, Right::new(verb, scope))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_schema_is_found_by_its_name() {
        for row in METHOD_RIGHTS {
            assert_eq!(right(row.method), Some(operation(row)));
        }
        assert_eq!(
            right("ganger.v1.Queues/ListNamespaces").map(|found| found.right),
            Some(Right::OBSERVE.somewhere())
        );
    }

    #[test]
    fn other_methods_are_not_found() {
        for method in [
            "",
            "ganger.v1.Jobs/",
            "ganger.v1.Jobs/Explode",
            "grpc.health.v1.Health/Nothing",
        ] {
            assert_eq!(right(method), None, "{method}");
        }
    }
}

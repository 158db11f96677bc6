//! Checks that the top-level modules of a crate do not import each other in a circle, so that each can be read alone.
//!
//! A top-level module is a file directly under `src/` together with the directory of its name. The root (`lib.rs`,
//! `main.rs`) and tests are not checked. A name that the root exports counts as the module that declares it.

mod imports;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use self::imports::{Import, Imports};
use super::{Findings, Source};

/// Crates in which a circle is an error; in other crates it is a remark.
const WITHOUT_CIRCLES: &[&str] = &[
    "dialect-grpc",
    "document",
    "engine",
    "e2e",
    "dialect-http",
    "dialect-resp",
    "fuzz",
    "metrics",
    "ngsi",
    "ngsi-worker",
    "proto",
    "store",
    "xtask",
];

/// Finds circles in every crate.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for (name, imports) in imports::of_crates(sources) {
        let circles = circles(&imports);
        if WITHOUT_CIRCLES.contains(&name.as_str()) {
            for circle in circles {
                findings.error(format!(
                    "crate {name}: modules use each other in a circle: {}: move what they share to a separate module",
                    described(&circle, &imports)
                ));
            }
        } else if let Some(shortest) = circles.iter().min_by_key(|circle| circle.len()) {
            findings.remark(format!(
                "crate {name}: circles between its modules: {}, the shortest: {}",
                circles.len(),
                described(shortest, &imports)
            ));
        }
    }
}

/// Returns, for each import in a circle, the shortest circle that contains it, starting with its first name in
/// alphabetical order.
fn circles(imports: &Imports) -> BTreeSet<Vec<String>> {
    let mut found = BTreeSet::new();
    for (from, used) in imports {
        for to in used.keys() {
            if let Some(mut circle) = shortest(imports, to, from) {
                let first = circle.iter().enumerate().min_by_key(|(_, name)| *name);
                let first = first.map_or(0, |(place, _)| place);
                circle.rotate_left(first);
                found.insert(circle);
            }
        }
    }
    found
}

/// Returns the modules on the shortest path from one to another, both included; `None` if there is no path.
fn shortest(imports: &Imports, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = VecDeque::from([from]);
    while let Some(module) = open.pop_front() {
        if module == to {
            let mut way = vec![to.to_owned()];
            let mut at = to;
            while at != from {
                at = before[at];
                way.push(at.to_owned());
            }
            way.reverse();
            return Some(way);
        }
        for next in imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            if next != from && !before.contains_key(next.as_str()) {
                before.insert(next, module);
                open.push_back(next);
            }
        }
    }
    None
}

fn described(circle: &[String], imports: &Imports) -> String {
    let next = circle.iter().cycle().skip(1);
    let steps = circle.iter().zip(next).map(|(from, to)| {
        let Import { path, line } = imports[from][to];
        format!("{from} uses {to} ({}:{line})", path.display())
    });
    let steps: Vec<_> = steps.collect();
    steps.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(name: &str, files: &[(&str, &str)]) -> Vec<Source> {
        let files = files.iter().map(|(path, text)| Source {
            path: format!("crates/{name}/src/{path}").into(),
            text: (*text).to_owned(),
        });
        files.collect()
    }

    const CIRCLE: &[(&str, &str)] = &[
        ("a.rs", "use crate::b::B;\n"),
        ("b.rs", "use crate::leaf::L;\nuse crate::c::C;\n"),
        ("c.rs", "use crate::a::A;\n"),
        ("leaf.rs", ""),
    ];

    #[test]
    fn a_circle_is_an_error_in_a_crate_of_the_list_and_a_remark_in_others() {
        let mut findings = Findings::default();
        check(&sources(WITHOUT_CIRCLES[0], CIRCLE), &mut findings);
        check(&sources("another", CIRCLE), &mut findings);
        let [error] = &*findings.errors else {
            panic!("{:?}", findings.errors);
        };
        let steps = "a uses b (crates/dialect-grpc/src/a.rs:1), b uses c (crates/dialect-grpc/src/b.rs:2), c uses a (crates/dialect-grpc/src/c.rs:1)";
        assert!(error.contains(steps), "{error}");
        assert_eq!(findings.remarks.len(), 1);
        assert!(findings.remarks[0].starts_with("crate another: circles between its modules: 1"));
    }

    #[test]
    fn each_circle_is_reported_once_and_modules_without_one_are_not() {
        let mut files = CIRCLE.to_vec();
        files.push(("d.rs", "use crate::a::A;\nuse crate::e::E;\n"));
        files.push(("e.rs", "use crate::d::D;\n"));
        let sources = sources("c", &files);
        let imports = &imports::of_crates(&sources)["c"];
        let found: Vec<_> = circles(imports).into_iter().collect();
        assert_eq!(found, [vec!["a", "b", "c"], vec!["d", "e"]]);
        assert!(circles(&Imports::new()).is_empty());
    }
}

//! Connections with one of several servers, of which some are away, say nothing or refuse.

use std::net::TcpListener;

use ganger_store_postgres::Settings;

use super::support::{DATABASE, Ground, PASSWORD};
use crate::fault::Fault;
use crate::session::Session;

/// The address of servers at these ports.
fn servers(password: &str, ports: &[u16]) -> Settings {
    let password = password.replace(' ', "%20");
    let hosts: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    let hosts = hosts.join(",");
    let url = format!("postgres://ganger_node:{password}@{hosts}/{DATABASE}");
    Settings::from_url(&url).expect("it is whole")
}

/// A machine that stands still: its system accepts connections, and nobody answers.
fn silent() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

/// A port where nobody listens.
fn absent() -> u16 {
    silent().1
}

#[test]
fn a_server_that_says_nothing_does_not_keep_from_the_next_one() {
    let Some(ground) = Ground::start("a_server_that_says_nothing") else {
        return;
    };
    let (_first, one) = silent();
    let (_second, two) = silent();
    let settings = servers(PASSWORD, &[one, two, absent(), ground.instance.port()]);
    for first in 0..5 {
        let session = Session::connect_from(&settings, "test", first);
        let mut session = session.expect("one of them answers");
        let read = session.run(async |wire| wire.batch("SELECT 1").await);
        read.expect("it is connected");
    }
}

#[test]
fn a_connection_that_nobody_accepts_says_why_of_each_server() {
    let Some(ground) = Ground::start("a_connection_that_nobody_accepts") else {
        return;
    };
    let there = ground.instance.port();
    let refused = |ports: &[u16]| match Session::connect(&servers("wrong", ports), "test") {
        Ok(_) => panic!("the password is wrong"),
        Err(fault) => fault,
    };
    let one = refused(&[there]);
    assert!(matches!(one, Fault::Refused { .. }), "{one:?}");
    let same = refused(&[there, there]);
    assert!(matches!(same, Fault::Refused { .. }), "{same:?}");
    let away = absent();
    let Fault::Lost(reasons) = refused(&[away, there]) else {
        panic!("the other server may know the password");
    };
    assert!(
        reasons.contains(&format!("127.0.0.1:{away}: ")),
        "{reasons}"
    );
    assert!(
        reasons.contains(&format!("127.0.0.1:{there}: password")),
        "{reasons}"
    );
}

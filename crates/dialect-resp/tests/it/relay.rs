//! Connections to a port whose shard another node serves.

use ganger_access::{Identity, Proof};

use crate::kit::{Client, World, encode, until};

fn somebody(grants: &str) -> Identity {
    let grants = grants.parse().expect("readable");
    Identity::principal("somebody", grants, Proof::Token)
}

#[test]
fn commands_run_on_the_other_node_and_their_replies_come_in_order() {
    let world = World::new();
    let (entry, _moved) = world.relay(true);
    let mut client = Client::new(entry);
    assert_eq!(client.ask(&["RPUSH", "list", "a", "b"]), ":2");
    let mut pipeline = Vec::new();
    for number in 0..200 {
        pipeline.extend(encode(&["RPUSH", "numbers", &number.to_string()]));
    }
    let large = "x".repeat(100_000);
    pipeline.extend(encode(&["SET", "large", &large]));
    pipeline.extend(encode(&["GET", "large"]));
    client.send(&pipeline);
    for number in 1..=200 {
        assert_eq!(client.shown(), format!(":{number}"));
    }
    assert_eq!(client.shown(), "+OK");
    assert_eq!(client.shown(), format!("$100000 {large}"));
    // Directly at the owner it is the same list.
    assert_eq!(world.client().ask(&["LLEN", "numbers"]), ":200");
}

#[test]
fn a_wait_for_an_element_ends_on_the_other_node() {
    let world = World::new();
    let (entry, _moved) = world.relay(true);
    let mut client = Client::new(entry);
    client.send(&encode(&["BLPOP", "list", "0"]));
    until(|| world.metrics().contains("ganger_resp_blocked 1"));
    assert_eq!(world.client().ask(&["RPUSH", "list", "a"]), ":1");
    assert_eq!(client.shown(), "*2 $4 list $1 a");
}

#[test]
fn the_client_authenticates_where_it_is_connected() {
    let world = World::new();
    world.tokens.put("secret", somebody("producer@*,worker@*"));
    let (entry, _moved) = world.relay(true);
    let mut client = Client::new(entry);
    let refused = client.ask(&["LLEN", "list"]);
    assert!(refused.starts_with("-NOAUTH"), "{refused}");
    let refused = client.ask(&["AUTH", "wrong"]);
    assert!(refused.starts_with("-WRONGPASS"), "{refused}");
    // The commands behind the token are in the same packet.
    let mut together = encode(&["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "mine"]);
    together.extend(encode(&["CLIENT", "GETNAME"]));
    together.extend(encode(&["GET", "missing"]));
    client.send(&together);
    let greeting = client.shown();
    assert!(greeting.contains("$5 proto :3"), "{greeting}");
    assert_eq!(client.shown(), "$4 mine");
    assert_eq!(client.shown(), "_", "the other node goes on in version 3");
}

#[test]
fn a_revoked_token_ends_the_connection() {
    let world = World::new();
    world.tokens.put("secret", somebody("producer@*,worker@*"));
    let (entry, _moved) = world.relay(true);
    let mut client = Client::new(entry);
    assert_eq!(client.ask(&["AUTH", "secret"]), "+OK");
    assert_eq!(client.ask(&["RPUSH", "list", "a"]), ":1");
    world.tokens.forget("secret");
    assert!(client.is_closed_at_last());
}

#[test]
fn a_move_of_the_shard_closes_the_connection_behind_the_pending_replies() {
    let world = World::new();
    let (entry, moved) = world.relay(true);
    let mut client = Client::new(entry);
    assert_eq!(client.ask(&["RPUSH", "list", "a"]), ":1");
    moved.cancel();
    assert!(client.is_closed_at_last());
    // The end of a client is noticed on both sides.
    until(|| world.metrics().contains("ganger_resp_connections 0"));
}

#[test]
fn a_client_that_leaves_ends_on_both_nodes() {
    let world = World::new();
    let (entry, _moved) = world.relay(true);
    let mut client = Client::new(entry);
    assert_eq!(client.ask(&["RPUSH", "list", "a"]), ":1");
    until(|| world.metrics().contains("ganger_resp_connections 2"));
    drop(client);
    until(|| world.metrics().contains("ganger_resp_connections 0"));
}

#[test]
fn without_an_owner_the_client_is_told_to_try_again() {
    let world = World::new();
    let (entry, _moved) = world.relay(false);
    let mut client = Client::new(entry);
    let refused = client.ask(&["RPUSH", "list", "a"]);
    assert_eq!(refused, "-LOADING no node owns the shard");
    assert!(client.is_closed());
}

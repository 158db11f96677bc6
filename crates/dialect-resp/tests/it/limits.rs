//! Limits of what one connection can make the server hold or do: each test is an attack that once blocked it or
//! exhausted its memory.

use std::time::{Duration, Instant};

use crate::kit::{Client, World, encode, until};
use ganger_access::{Budget, Identity, Proof};

const MIB: usize = 1 << 20;

/// Sets a key to a value of this size.
fn put(client: &mut Client, key: &str, bytes: usize) {
    assert_eq!(client.ask(&["SET", key, &"v".repeat(bytes)]), "+OK");
}

#[test]
fn names_are_bounded() {
    let world = World::new();
    let mut client = world.client();
    let long = |length: usize| "n".repeat(length);
    for words in [
        vec!["SUBSCRIBE", &long(1_025)],
        vec!["PUBLISH", &long(1_025), "x"],
        vec!["CLIENT", "SETNAME", &long(257)],
        vec!["CLIENT", "SETINFO", "lib-name", &long(257)],
        vec!["CLIENT", "SETINFO", "lib-ver", &long(257)],
        vec!["HELLO", "2", "SETNAME", &long(257)],
        vec!["PSUBSCRIBE", &long(1_025)],
        vec!["PUBSUB", "CHANNELS", &long(1_025)],
        vec!["KEYS", &long(1_025)],
        vec!["SCAN", "0", "MATCH", &long(1_025)],
        vec!["WATCH", &long((64 << 10) + 1)],
        vec!["BLPOP", &long((64 << 10) + 1), "0"],
    ] {
        let refusal = client.ask(&words);
        assert!(refusal.starts_with("-ERR "), "{}: {refusal}", words[0]);
        assert!(
            refusal.contains("largest length"),
            "{}: {refusal}",
            words[0]
        );
    }
    let many: Vec<_> = ["BLPOP"]
        .into_iter()
        .chain(vec![""; 1_001])
        .chain(["0"])
        .collect();
    assert!(client.ask(&many).starts_with("-ERR a command may wait for"));
    assert_eq!(client.ask(&["WATCH", &long(64 << 10)]), "+OK");
    assert!(client.ask(&["SUBSCRIBE", &long(1_024)]).starts_with("*3"));
}

#[test]
fn a_reply_beyond_all_bounds_is_refused_and_the_next_is_answered() {
    let world = World::new();
    let mut client = world.client();
    put(&mut client, "k", MIB);
    let words: Vec<_> = ["MGET"].into_iter().chain(vec!["k"; 600]).collect();
    assert!(client.ask(&words).starts_with("-ERR reply too large"));
    // A large reply within the limits is complete.
    client.send(&encode(&words[..41]));
    assert_eq!(client.reply().len(), 5 + 40 * (MIB + 12));
    let values = vec!["e"; 200_000];
    for _ in 0..6 {
        let push: Vec<_> = ["RPUSH", "l"]
            .into_iter()
            .chain(values.iter().copied())
            .collect();
        client.ask(&push);
    }
    assert!(
        client
            .ask(&["LRANGE", "l", "0", "-1"])
            .starts_with("-ERR reply too large")
    );
    assert!(
        client
            .ask(&["LPOP", "l", "1200000"])
            .starts_with("-ERR reply too large")
    );
    assert_eq!(client.ask(&["LLEN", "l"]), ":1200000", "nothing was taken");
    assert_eq!(client.ask(&["LRANGE", "l", "700000", "700000"]), "*1 $1 e");
}

#[test]
fn a_transaction_of_many_large_answers_is_refused_beyond_a_bound() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    let values = vec!["e"; 100_000];
    let push: Vec<_> = ["RPUSH", "l"].into_iter().chain(values).collect();
    client.ask(&push);
    let mut bytes = encode(&["MULTI"]);
    (0..200).for_each(|_| bytes.extend(encode(&["LRANGE", "l", "0", "-1"])));
    bytes.extend(encode(&["EXEC"]));
    client.send(&bytes);
    assert_eq!(other.ask(&["LLEN", "l"]), ":100000");
    (0..201).for_each(|_| drop(client.reply()));
    let reply = client.reply();
    let refused = reply
        .windows(20)
        .filter(|text| text == b"-ERR reply too large")
        .count();
    assert_eq!(
        refused, 190,
        "ten have as many elements as a commit may give"
    );
}

#[test]
fn a_transaction_without_room_is_refused_and_changes_nothing() {
    let world = World::with(|settings| settings.budget = Budget::new(24 * MIB));
    let mut client = world.client();
    client.ask(&["MULTI"]);
    // Only the number of arguments makes it large.
    let names: Vec<_> = ["DEL"].into_iter().chain(vec![""; 20_000]).collect();
    let mut replies = (0..).map(|_| client.ask(&names));
    let refusal = replies
        .find(|reply| reply != "+QUEUED")
        .expect("it has an end");
    assert!(refusal.starts_with("-BUSY "), "{refusal}");
    assert!(client.ask(&["EXEC"]).starts_with("-EXECABORT"));
    assert_eq!(client.ask(&["PING"]), "+PONG");
}

#[test]
fn a_value_without_room_is_skipped_and_the_connection_continues() {
    let world = World::with(|settings| settings.budget = Budget::new(24 * MIB));
    let mut client = world.client();
    let refusal = client.ask(&["SET", "k", &"v".repeat(8 * MIB)]);
    assert!(
        refusal.starts_with("-BUSY requests in progress of this identity"),
        "{refusal}"
    );
    put(&mut client, "k", 3 * MIB);
    assert_eq!(client.ask(&["STRLEN", "k"]), ":3145728");
}

#[test]
fn announcing_a_value_takes_no_memory_from_others() {
    let world = World::with(|settings| settings.budget = Budget::new(24 * MIB));
    let mut announcers: Vec<_> = (0..20).map(|_| world.client()).collect();
    for announcer in &mut announcers {
        announcer.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nx");
    }
    put(&mut world.client(), "k", 3 * MIB);
}

#[test]
fn messages_with_long_channels_and_patterns_count_whole() {
    let world = World::with(|settings| settings.budget = Budget::new(24 * MIB));
    let (mut slow, mut publisher) = (world.client(), world.client());
    let channel = "c".repeat(1_024);
    let pattern = "c".repeat(1_023) + "*";
    slow.ask(&["PSUBSCRIBE", &pattern]);
    let mut bytes = Vec::new();
    (0..100).for_each(|_| bytes.extend(encode(&["PUBLISH", &channel, ""])));
    // The size of the system's buffers is unknown; nothing waits for a cut client.
    let mut messages = 0;
    until(|| {
        publisher.send(&bytes);
        messages += 100;
        (0..100)
            .map(|_| publisher.shown())
            .filter(|heard| heard == ":0")
            .count()
            > 0
    });
    assert!(slow.is_closed_at_last());
    // The share is 4 MiB and a message 2 KiB. Counting the payload alone, it would take 32,000 messages.
    assert!(messages < 20_000, "{messages}");
}

#[test]
fn subscriptions_count_in_the_budget_until_they_end() {
    let budget = Budget::new(24 * MIB);
    let world = World::with(|settings| settings.budget = budget.clone());
    let mut client = world.client();
    let pattern = |number: usize| format!("{number}*{}", "p".repeat(1_000));
    let refusal = (0..10_000).map(|number| client.ask(&["PSUBSCRIBE", &pattern(number)]));
    let refusal = { refusal }.find(|reply| !reply.starts_with("*3"));
    assert!(refusal.is_some_and(|refusal| refusal.starts_with("-BUSY ")));
    let held = budget.used();
    for number in 0..100 {
        client.ask(&["PUNSUBSCRIBE", &pattern(number)]);
        client.ask(&["PSUBSCRIBE", &pattern(number)]);
    }
    assert_eq!(budget.used(), held);
    drop(client);
    until(|| budget.used() == 0);
}

#[test]
fn watched_keys_count_in_the_budget_until_they_are_let_go() {
    let budget = Budget::new(24 * MIB);
    let world = World::with(|settings| settings.budget = budget.clone());
    let mut client = world.client();
    let name = |number: usize| format!("{number}{}", "w".repeat(60_000));
    let refusal = (0..10_000).map(|number| client.ask(&["WATCH", &name(number)]));
    let refusal = { refusal }.find(|reply| reply != "+OK");
    assert!(refusal.is_some_and(|refusal| refusal.starts_with("-BUSY ")));
    assert!(budget.used() > 3 * MIB);
    client.ask(&["UNWATCH"]);
    assert_eq!(client.ask(&["WATCH", &name(0)]), "+OK");
    assert!(budget.used() < MIB);
}

#[test]
fn large_local_replies_are_written_as_they_are_made() {
    let world = World::new();
    let (mut listener, mut asker) = (world.client(), world.client());
    let names: Vec<_> = (0..10_000)
        .map(|number| format!("{number:0>900}"))
        .collect();
    let words: Vec<_> = ["SUBSCRIBE"]
        .into_iter()
        .chain(names.iter().map(String::as_str))
        .collect();
    listener.send(&encode(&words));
    (0..10_000).for_each(|_| drop(listener.reply()));
    let mut bytes = encode(&["MULTI"]);
    (0..20).for_each(|_| bytes.extend(encode(&["PUBSUB", "CHANNELS"])));
    bytes.extend(encode(&["EXEC"]));
    asker.send(&bytes);
    (0..21).for_each(|_| drop(asker.reply()));
    let reply = asker.reply();
    let refused = reply
        .windows(20)
        .filter(|text| text == b"-ERR reply too large")
        .count();
    assert!(refused > 15, "{refused}");
    (0..3).for_each(|_| asker.send(&encode(&["PUBSUB", "CHANNELS"])));
    (0..3).for_each(|_| assert!(asker.reply().len() > 9_000_000));
}

#[test]
fn patterns_do_not_delay_other_clients() {
    let world = World::new();
    let mut client = world.client();
    for hundred in 0..200 {
        let pairs =
            (0..100).flat_map(|one| [format!("{:0>2000}", hundred * 100 + one), String::new()]);
        let words: Vec<_> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
        client.send(&encode(&words));
        client.reply();
    }
    let class = format!("*[{}", "z".repeat(1_022));
    let stars = "*0".repeat(511) + "*x";
    let begun = Instant::now();
    for pattern in [&class, &stars] {
        assert_eq!(client.ask(&["KEYS", pattern]), "*0");
    }
    // If the class were evaluated again for each byte, it would be 20,000 x 2,000 x 1,022 steps.
    assert!(begun.elapsed() < Duration::from_secs(20));
    let found = client.ask(&["KEYS", "*"]);
    assert!(found.starts_with("*20000 "), "more than a page");
    let in_transaction = [vec!["MULTI"], vec!["KEYS", "*"], vec!["KEYS", "*00"]];
    for words in &in_transaction {
        client.ask(words);
    }
    let replies = client.ask(&["EXEC"]);
    assert!(replies.starts_with("*2 -ERR reply too large"), "{replies}");
}

fn identity(name: &str, grants: &str) -> Identity {
    Identity::principal(name, grants.parse().expect("readable"), Proof::Token)
}

#[test]
fn a_revoked_subscriber_gets_no_more_messages_however_often_others_publish() {
    let world = World::new();
    world.tokens.put("of-an-admin", identity("a", "admin@*"));
    world
        .tokens
        .put("of-a-reader", identity("r", "reader@default"));
    let (mut listener, mut publisher) = (world.client(), world.client());
    publisher.ask(&["AUTH", "of-an-admin"]);
    listener.ask(&["AUTH", "of-a-reader"]);
    listener.ask(&["SUBSCRIBE", "c"]);
    assert_eq!(publisher.ask(&["PUBLISH", "c", "1"]), ":1");
    assert_eq!(listener.shown(), "*3 $7 message $1 c $1 1");
    world.tokens.forget("of-a-reader");
    // No message that is published after the change arrives.
    until(|| publisher.ask(&["PUBLISH", "c", "2"]) == ":0");
    assert!(listener.is_closed());
}

#[test]
fn a_client_that_never_reads_its_replies_is_cut_and_holds_limited_memory() {
    let budget = Budget::new(24 * MIB);
    let world = World::with(|settings| {
        settings.budget = budget.clone();
        settings.write_timeout = Duration::from_secs(1);
    });
    let (mut slow, mut other) = (world.client(), world.client());
    put(&mut other, "k", 2 * MIB);
    let mut gets = Vec::new();
    (0..100).for_each(|_| gets.extend(encode(&["GET", "k"])));
    slow.send(&gets);
    until(|| {
        assert!(budget.used() <= budget.total());
        world.metrics().contains("connections_cut_total 1\n")
    });
    until(|| budget.used() == 0);
    assert!(slow.is_closed_at_last());
}

#[test]
fn replies_that_are_not_read_soon_count_until_they_are() {
    let budget = Budget::new(120 * MIB);
    let world = World::with(|settings| {
        settings.budget = budget.clone();
        // No client is cut only because it is slow.
        settings.write_timeout = Duration::from_secs(3_600);
    });
    let (mut slow, mut greedy) = (world.client(), world.client());
    put(&mut slow, "k", 2 * MIB);
    until(|| budget.used() == 0);
    let gets = |count: usize| encode(&["GET", "k"]).repeat(count);
    slow.send(&gets(8));
    until(|| budget.used() >= 16 * MIB);
    (0..8).for_each(|_| assert_eq!(slow.reply().len(), 10 + 2 * MIB + 2));
    until(|| budget.used() == 0);
    // A reply without room in a share of 20 MiB ends its connection.
    greedy.send(&gets(20));
    until(|| {
        assert!(budget.used() <= budget.total());
        world.metrics().contains("connections_cut_total 1\n")
    });
    assert!(greedy.is_closed_at_last());
    assert_eq!(slow.ask(&["PING"]), "+PONG");
}

#[test]
fn what_is_sent_behind_a_wait_is_bounded() {
    let world = World::new();
    let (mut waiting, mut other) = (world.client(), world.client());
    waiting.send(&encode(&["BLPOP", "q", "0"]));
    until(|| {
        other
            .ask(&["INFO", "clients"])
            .ends_with("blocked_clients:1")
    });
    // Half a megabyte waits with it, two are too much.
    waiting.send(&encode(&["SET", "k", &"v".repeat(MIB / 2)]));
    assert_eq!(other.ask(&["LPUSH", "q", "e"]), ":1");
    assert_eq!(waiting.shown(), "*2 $1 q $1 e");
    assert_eq!(waiting.shown(), "+OK");
    waiting.send(&encode(&["BLPOP", "q", "0"]));
    until(|| {
        other
            .ask(&["INFO", "clients"])
            .ends_with("blocked_clients:1")
    });
    waiting.send_what_is_taken(&encode(&["SET", "k", &"v".repeat(2 * MIB)]));
    assert!(waiting.is_closed_at_last());
    other.ask(&["LPUSH", "q", "e"]);
    assert_eq!(other.ask(&["LLEN", "q"]), ":1", "it waits no more");
}

#[test]
fn a_right_that_ends_ends_every_wait() {
    for words in [
        &["BRPOPLPUSH", "q", "to", "0"][..],
        &["BLMOVE", "q", "to", "LEFT", "RIGHT", "0"],
        &["BRPOP", "q", "0"],
    ] {
        let world = World::new();
        world.tokens.put("of-an-admin", identity("a", "admin@*"));
        world
            .tokens
            .put("of-a-worker", identity("w", "worker@default"));
        let (mut waiting, mut other) = (world.client(), world.client());
        other.ask(&["AUTH", "of-an-admin"]);
        waiting.ask(&["AUTH", "of-a-worker"]);
        waiting.send(&encode(words));
        let is_blocked = "blocked_clients:1";
        until(|| other.ask(&["INFO", "clients"]).ends_with(is_blocked));
        world.tokens.forget("of-a-worker");
        // The connection ends although the awaited element does not come.
        assert!(waiting.is_closed(), "{words:?}");
        other.ask(&["LPUSH", "q", "e"]);
        assert_eq!(other.ask(&["LLEN", "q"]), ":1", "{words:?}");
        assert_eq!(other.ask(&["LLEN", "to"]), ":0", "{words:?}");
    }
}

#[test]
fn a_revoked_token_pops_nothing() {
    let world = World::new();
    world.tokens.put("of-an-admin", identity("a", "admin@*"));
    world
        .tokens
        .put("of-a-worker", identity("w", "worker@default"));
    let (mut waiting, mut other) = (world.client(), world.client());
    other.ask(&["AUTH", "of-an-admin"]);
    waiting.ask(&["AUTH", "of-a-worker"]);
    waiting.send(&encode(&["BLPOP", "q", "0"]));
    until(|| {
        other
            .ask(&["INFO", "clients"])
            .ends_with("blocked_clients:1")
    });
    // The change is not announced, as when a token expires; the element must still not be sent.
    world.tokens.forget_silently("of-a-worker");
    other.ask(&["LPUSH", "q", "e"]);
    assert!(waiting.is_closed());
    until(|| other.ask(&["LRANGE", "q", "0", "-1"]) == "*1 $1 e");
}

//! Connections over real sockets: greeting, databases, transactions, waits, publish and subscribe, limits.

use crate::kit::{World, encode, until};
use ganger_access::{Identity, Proof};
use ganger_types::keys::KeyUpkeep;

fn blocked(world: &World, count: usize) {
    let mut watcher = world.client();
    let line = format!("blocked_clients:{count}");
    until(|| watcher.ask(&["INFO", "clients"]).ends_with(&line));
}

#[test]
fn greetings_tell_the_protocol_and_switch_it() {
    let world = World::new();
    let mut client = world.client();
    let two = client.ask(&["HELLO"]);
    assert!(
        two.starts_with("*14 $6 server $5 redis $7 version $6 7.0.15 $5 proto :2 $2 id :"),
        "{two}"
    );
    let three = client.ask(&["hello", "3", "SETNAME", "me"]);
    assert!(three.starts_with("%7 $6 server"), "{three}");
    assert!(
        three.ends_with("$4 mode $10 standalone $4 role $6 master $7 modules *0"),
        "{three}"
    );
    assert_eq!(client.ask(&["CLIENT", "GETNAME"]), "$2 me");
    assert_eq!(client.ask(&["GET", "none"]), "_");
    assert_eq!(
        client.ask(&["HELLO", "4"]),
        "-NOPROTO unsupported protocol version"
    );
    assert_eq!(
        client.ask(&["HELLO", "x"]),
        "-ERR Protocol version is not an integer or out of range"
    );
    assert!(client.ask(&["HELLO", "2"]).starts_with("*14 "));
    assert_eq!(client.ask(&["GET", "none"]), "$-1");
    assert_eq!(
        client.ask(&["HELLO", "2", "what"]),
        "-ERR Syntax error in HELLO option 'what'"
    );
}

#[test]
fn the_preambles_of_the_libraries_are_answered() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(
        client.ask(&["CLIENT", "SETINFO", "LIB-NAME", "redis-py"]),
        "+OK"
    );
    assert_eq!(client.ask(&["client", "setinfo", "lib-ver", "8.0"]), "+OK");
    assert_eq!(
        client.ask(&[
            "CLIENT",
            "MAINT_NOTIFICATIONS",
            "ON",
            "moving-endpoint-type",
            "internal-ip"
        ]),
        "-ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."
    );
    assert!(client.ask(&["CLIENT", "ID"]).starts_with(':'));
    let info = client.ask(&["info"]);
    for line in [
        "# Server redis_version:7.0.15 redis_mode:standalone",
        "# Clients connected_clients:1 blocked_clients:0",
        "# Persistence loading:0",
        "# Replication role:master connected_slaves:0",
        "# Keyspace",
    ] {
        assert!(info.contains(line), "{line} is not in {info}");
    }
    assert_eq!(client.ask(&["INFO", "nothing"]), "$0");
    client.ask(&["SET", "a", "1"]);
    assert!(
        client
            .ask(&["INFO", "keyspace"])
            .ends_with("# Keyspace db0:keys=1,expires=0,avg_ttl=0")
    );
    assert_eq!(client.ask(&["COMMAND", "DOCS"]), "*0");
    assert_eq!(client.ask(&["CONFIG", "GET", "maxmemory"]), "*0");
    assert_eq!(
        client.ask(&["AUTH", "x"]),
        "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?"
    );
    assert_eq!(client.ask(&["QUIT"]), "+OK");
    assert!(client.is_closed());
}

#[test]
fn what_is_unknown_is_refused_and_the_connection_goes_on() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(
        client.ask(&["FOO", "a", "b"]),
        "-ERR unknown command 'FOO', with args beginning with: 'a' 'b'"
    );
    assert_eq!(
        client.ask(&["GeT"]),
        "-ERR wrong number of arguments for 'get' command"
    );
    assert_eq!(
        client.ask(&["CLIENT", "ID", "x"]),
        "-ERR wrong number of arguments for 'client|id' command"
    );
    client.send(b"ping\r\nECHO 'a b'\r\n");
    assert_eq!(
        (client.shown(), client.shown()),
        ("+PONG".to_owned(), "$3 a b".to_owned())
    );
    client.send(b"*1\r\n:1\r\n");
    assert_eq!(client.shown(), "-ERR Protocol error: expected '$', got ':'");
    assert!(client.is_closed());
}

#[test]
fn databases_are_key_spaces_of_their_own() {
    let world = World::new();
    let mut client = world.client();
    // One write, several databases.
    let words: [&[&str]; 6] = [
        &["SET", "a", "0"],
        &["SELECT", "3"],
        &["GET", "a"],
        &["SET", "a", "3"],
        &["SELECT", "0"],
        &["GET", "a"],
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|words| encode(words)).collect();
    client.send(&bytes);
    let replies: Vec<_> = words.iter().map(|_| client.shown()).collect();
    assert_eq!(replies, ["+OK", "+OK", "$-1", "+OK", "+OK", "$1 0"]);
    assert_eq!(
        client.ask(&["SELECT", "16"]),
        "-ERR DB index is out of range"
    );
    for words in [
        &["MULTI"][..],
        &["SELECT", "3"],
        &["GET", "a"],
        &["SELECT", "0"],
        &["GET", "a"],
    ] {
        client.ask(words);
    }
    assert_eq!(client.ask(&["EXEC"]), "*4 +OK $1 3 +OK $1 0");
    assert_eq!(client.ask(&["FLUSHALL"]), "+OK");
    client.ask(&["SELECT", "3"]);
    assert_eq!(client.ask(&["DBSIZE"]), ":0");
}

#[test]
fn flushing_must_be_allowed() {
    let world = World::with(|settings| settings.may_flush = false);
    let mut client = world.client();
    client.ask(&["SET", "a", "1"]);
    for name in ["FLUSHDB", "FLUSHALL"] {
        assert!(client.ask(&[name]).contains("--resp-allow-flush"));
    }
    assert_eq!(client.ask(&["DBSIZE"]), ":1");
}

#[test]
fn transactions_are_one_step_with_the_errors_of_redis() {
    let world = World::new();
    let mut client = world.client();
    assert_eq!(client.ask(&["EXEC"]), "-ERR EXEC without MULTI");
    assert_eq!(client.ask(&["DISCARD"]), "-ERR DISCARD without MULTI");
    assert_eq!(client.ask(&["MULTI"]), "+OK");
    assert_eq!(client.ask(&["MULTI"]), "-ERR MULTI calls can not be nested");
    assert_eq!(
        client.ask(&["WATCH", "a"]),
        "-ERR WATCH inside MULTI is not allowed"
    );
    for words in [
        &["SET", "s", "1"][..],
        &["LPUSH", "s", "x"],
        &["PING"],
        &["BRPOP", "none", "0"],
        &["INCR", "s"],
    ] {
        assert_eq!(client.ask(words), "+QUEUED");
    }
    assert_eq!(
        client.ask(&["EXEC"]),
        "*5 +OK -WRONGTYPE Operation against a key holding the wrong kind of value +PONG *-1 :2"
    );
    client.ask(&["MULTI"]);
    assert!(client.ask(&["NOSUCH"]).starts_with("-ERR unknown command"));
    assert_eq!(client.ask(&["SET", "s", "9"]), "+QUEUED");
    assert_eq!(
        client.ask(&["EXEC"]),
        "-EXECABORT Transaction discarded because of previous errors."
    );
    assert_eq!(client.ask(&["GET", "s"]), "$1 2");
    client.ask(&["MULTI"]);
    assert_eq!(client.ask(&["BRPOPLPUSH", "none", "other", "0"]), "+QUEUED");
    assert_eq!(client.ask(&["EXEC"]), "*1 $-1");
}

#[test]
fn a_watched_key_that_changed_ends_the_transaction() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    for (change, expected) in [(true, "*-1"), (false, "*1 :1")] {
        client.ask(&["DEL", "n"]);
        assert_eq!(client.ask(&["WATCH", "w", "n"]), "+OK");
        if change {
            other.ask(&["INCR", "w"]);
        }
        client.ask(&["MULTI"]);
        client.ask(&["INCR", "n"]);
        assert_eq!(client.ask(&["EXEC"]), expected);
    }
    client.ask(&["WATCH", "w"]);
    client.ask(&["UNWATCH"]);
    other.ask(&["INCR", "w"]);
    client.ask(&["MULTI"]);
    assert_eq!(client.ask(&["EXEC"]), "*0");
    client.ask(&["WATCH", "w"]);
    other.ask(&["INCR", "w"]);
    client.ask(&["MULTI"]);
    assert_eq!(
        client.ask(&["EXEC"]),
        "*-1",
        "nothing is queued, and the key has changed all the same"
    );
}

#[test]
fn long_pipelines_and_long_transactions_are_answered_in_order() {
    let world = World::new();
    let mut client = world.client();
    let mut bytes = encode(&["MULTI"]);
    (0..2_000).for_each(|_| bytes.extend(encode(&["INCR", "n"])));
    bytes.extend(encode(&["EXEC"]));
    (0..6_000).for_each(|_| bytes.extend(encode(&["INCR", "n"])));
    client.send(&bytes);
    assert_eq!(client.shown(), "+OK");
    (0..2_000).for_each(|_| assert_eq!(client.shown(), "+QUEUED"));
    assert!(client.shown().starts_with("*2000 :1 :2 :3"));
    for number in 2_001..=8_000 {
        assert_eq!(client.shown(), format!(":{number}"));
    }
    let large = "x".repeat(5 << 20);
    assert_eq!(client.ask(&["SET", "large", &large]), "+OK");
    assert_eq!(
        client.ask(&["GET", "large"]),
        format!("${} {large}", large.len())
    );
}

#[test]
fn waiting_clients_are_served_in_turn_and_later_commands_wait_too() {
    let world = World::new();
    let (mut first, mut second, mut producer) = (world.client(), world.client(), world.client());
    first.send(&[encode(&["BRPOPLPUSH", "q", "p", "0"]), encode(&["PING"])].concat());
    blocked(&world, 1);
    second.send(&encode(&["BLPOP", "other", "q", "0.0"]));
    blocked(&world, 2);
    assert_eq!(producer.ask(&["LPUSH", "q", "a", "b"]), ":2");
    assert_eq!(first.shown(), "$1 a");
    assert_eq!(first.shown(), "+PONG");
    assert_eq!(second.shown(), "*2 $1 q $1 b");
    assert_eq!(producer.ask(&["LRANGE", "p", "0", "-1"]), "*1 $1 a");
    assert_eq!(producer.ask(&["BRPOPLPUSH", "q", "p", "0.001"]), "*-1");
    producer.ask(&["HELLO", "3"]);
    assert_eq!(producer.ask(&["BRPOP", "q", "0.001"]), "_");
    assert_eq!(
        producer.ask(&["BRPOP", "q", "-1"]),
        "-ERR timeout is negative"
    );
}

#[test]
fn a_client_that_disconnects_while_waiting_leaves_the_element() {
    let world = World::new();
    let mut waiting = world.client();
    waiting.send(&encode(&["BRPOPLPUSH", "q", "p", "0"]));
    blocked(&world, 1);
    drop(waiting);
    blocked(&world, 0);
    let mut client = world.client();
    assert_eq!(client.ask(&["LPUSH", "q", "a"]), ":1");
    assert_eq!(client.ask(&["LRANGE", "q", "0", "-1"]), "*1 $1 a");
    assert_eq!(client.ask(&["LLEN", "p"]), ":0");
}

#[test]
fn others_are_seen_and_ended() {
    let world = World::new();
    let (mut client, mut other) = (world.client(), world.client());
    other.ask(&["CLIENT", "SETNAME", "other"]);
    let id = other.ask(&["CLIENT", "ID"]).split_off(1);
    let list = client.ask(&["CLIENT", "LIST"]);
    assert!(
        list.contains("name=other") && list.contains("cmd=client"),
        "{list}"
    );
    other.send(&encode(&["BLPOP", "q", "0"]));
    blocked(&world, 1);
    assert_eq!(client.ask(&["CLIENT", "KILL", "ID", &id]), ":1");
    assert!(other.is_closed());
    assert_eq!(client.ask(&["CLIENT", "KILL", "ID", &id]), ":0");
}

#[test]
fn messages_go_to_subscribers() {
    let world = World::new();
    let (mut two, mut three, mut publisher) = (world.client(), world.client(), world.client());
    assert_eq!(two.ask(&["SUBSCRIBE", "a", "b"]), "*3 $9 subscribe $1 a :1");
    assert_eq!(two.shown(), "*3 $9 subscribe $1 b :2");
    assert_eq!(two.ask(&["PSUBSCRIBE", "a*"]), "*3 $10 psubscribe $2 a* :3");
    three.ask(&["HELLO", "3"]);
    assert_eq!(
        three.ask(&["PSUBSCRIBE", "[ab]"]),
        ">3 $10 psubscribe $4 [ab] :1"
    );
    assert_eq!(publisher.ask(&["PUBLISH", "a", "x"]), ":3");
    assert_eq!(two.shown(), "*3 $7 message $1 a $1 x");
    assert_eq!(two.shown(), "*4 $8 pmessage $2 a* $1 a $1 x");
    assert_eq!(three.shown(), ">4 $8 pmessage $4 [ab] $1 a $1 x");
    assert_eq!(publisher.ask(&["PUBSUB", "CHANNELS"]), "*2 $1 a $1 b");
    assert_eq!(
        publisher.ask(&["PUBSUB", "NUMSUB", "a", "c"]),
        "*4 $1 a :1 $1 c :0"
    );
    assert_eq!(publisher.ask(&["PUBSUB", "NUMPAT"]), ":2");
    assert_eq!(
        two.ask(&["GET", "a"]),
        "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
    );
    assert_eq!(two.ask(&["PING"]), "*2 $4 pong $0");
    assert_eq!(
        three.ask(&["PUBLISH", "b", "y"]),
        ">4 $8 pmessage $4 [ab] $1 b $1 y",
        "the event is before the reply"
    );
    assert_eq!(three.shown(), ":2");
    assert_eq!(two.shown(), "*3 $7 message $1 b $1 y");
    assert_eq!(two.ask(&["UNSUBSCRIBE"]), "*3 $11 unsubscribe $1 a :2");
    assert_eq!(two.shown(), "*3 $11 unsubscribe $1 b :1");
    assert_eq!(two.ask(&["UNSUBSCRIBE"]), "*3 $11 unsubscribe $-1 :1");
    assert_eq!(two.ask(&["RESET"]), "+RESET");
    assert_eq!(two.ask(&["GET", "a"]), "$-1");
    assert_eq!(publisher.ask(&["PUBLISH", "a", "z"]), ":1");
}

#[test]
fn while_the_store_loads_a_ping_is_answered_as_redis_answers_it() {
    let (go, waits) = std::sync::mpsc::channel();
    let world = World::loading(waits);
    let mut client = world.client();
    for words in [&["PING"][..], &["GET", "k"], &["LPUSH", "l", "e"]] {
        let reply = client.ask(words);
        assert!(reply.starts_with("-LOADING "), "{words:?}: {reply}");
    }
    assert!(client.ask(&["INFO", "persistence"]).contains("loading:1"));
    go.send(()).expect("it waits");
    until(|| client.ask(&["PING"]) == "+PONG");
    assert_eq!(client.ask(&["GET", "k"]), "$-1");
}

#[test]
fn a_subscriber_that_does_not_read_is_cut_and_holds_up_nobody() {
    let world = World::new();
    let (mut slow, mut publisher) = (world.client(), world.client());
    slow.ask(&["SUBSCRIBE", "a"]);
    let payload = "x".repeat(1 << 20);
    // The size of the system's buffers is unknown.
    until(|| publisher.ask(&["PUBLISH", "a", &payload]) == ":0");
}

#[test]
fn tokens_bring_rights_and_their_end() {
    let world = World::new();
    let identity =
        |grants: &str| Identity::principal("x", grants.parse().expect("readable"), Proof::Token);
    world.tokens.put("of-a-worker", identity("worker@default"));
    world.tokens.put("of-a-reader", identity("reader@default"));
    let mut client = world.client();
    assert_eq!(
        client.ask(&["GET", "a"]),
        "-NOAUTH Authentication required."
    );
    assert!(
        client
            .ask(&["HELLO", "3"])
            .starts_with("-NOAUTH HELLO must be called")
    );
    assert!(client.ask(&["AUTH", "wrong"]).starts_with("-WRONGPASS "));
    assert_eq!(client.ask(&["AUTH", "anyone", "of-a-reader"]), "+OK");
    assert_eq!(client.ask(&["GET", "a"]), "$-1");
    assert_eq!(
        client.ask(&["SET", "a", "1"]),
        "-NOPERM this user has no permissions to run the 'set' command"
    );
    assert_eq!(client.ask(&["RESET"]), "+RESET");
    assert_eq!(
        client.ask(&["GET", "a"]),
        "-NOAUTH Authentication required."
    );
    assert!(
        client
            .ask(&["HELLO", "3", "AUTH", "default", "of-a-worker"])
            .starts_with("%7")
    );
    assert_eq!(client.ask(&["SET", "a", "1"]), "+OK");
    assert!(client.ask(&["CLIENT", "LIST"]).starts_with("-NOPERM"));
    assert!(client.ask(&["FLUSHALL"]).starts_with("-NOPERM"));
    client.ask(&["SELECT", "1"]);
    assert!(
        client.ask(&["GET", "a"]).starts_with("-NOPERM"),
        "its rights are in another namespace"
    );
    client.ask(&["MULTI"]);
    assert!(client.ask(&["GET", "a"]).starts_with("-NOPERM"));
    assert!(client.ask(&["EXEC"]).starts_with("-EXECABORT"));
    world.tokens.forget_all();
    assert!(client.ask(&["PING"]).starts_with("-NOAUTH"));
    assert!(client.is_closed());
}

#[test]
fn clients_get_no_messages_of_namespaces_that_they_may_not_read() {
    let world = World::new();
    let identity =
        |grants: &str| Identity::principal("x", grants.parse().expect("readable"), Proof::Token);
    world.tokens.put("here", identity("worker@default"));
    world.tokens.put("there", identity("worker@db1"));
    let (mut here, mut there) = (world.client(), world.client());
    here.ask(&["AUTH", "here"]);
    there.ask(&["AUTH", "there"]);
    there.ask(&["SELECT", "1"]);
    here.ask(&["SUBSCRIBE", "a"]);
    assert_eq!(there.ask(&["PUBLISH", "a", "x"]), ":0");
}

#[test]
fn a_stop_ends_connections_that_wait() {
    let world = World::new();
    let (mut idle, mut waiting) = (world.client(), world.client());
    idle.ask(&["PING"]);
    waiting.send(&encode(&["BLPOP", "q", "0"]));
    blocked(&world, 1);
    world.stopping.cancel();
    assert!(idle.is_closed() && waiting.is_closed());
}

/// A world without upkeep of work queues.
fn patient() -> World {
    World::tended(KeyUpkeep {
        put_back_after: Some(std::time::Duration::from_secs(3_600)),
        ..KeyUpkeep::default()
    })
}

/// Waits until a list has these elements.
fn becomes(client: &mut crate::kit::Client, list: &str, elements: &str) {
    until(|| client.ask(&["LRANGE", list, "0", "-1"]) == elements);
}

#[test]
fn an_id_goes_back_when_its_connection_ends_before_any_client_reads_its_data() {
    let world = patient();
    let mut client = world.client();
    for id in ["1", "2", "3"] {
        client.ask(&["SETNX", &format!("w:item:{id}"), "data"]);
        client.ask(&["LPUSH", "w:queue", id]);
    }
    let takes: [&[&[&str]]; 4] = [
        &[&["RPOPLPUSH", "w:queue", "w:processing"]],
        &[&["BRPOPLPUSH", "w:queue", "w:processing", "0"]],
        &[&["LMOVE", "w:queue", "w:processing", "RIGHT", "LEFT"]],
        &[
            &["MULTI"],
            &["RPOPLPUSH", "w:queue", "w:processing"],
            &["RPOPLPUSH", "w:queue", "w:processing"],
            &["EXEC"],
        ],
    ];
    for commands in takes {
        let mut worker = world.client();
        for command in commands {
            worker.ask(command);
        }
        assert!(
            client
                .ask(&["LRANGE", "w:processing", "0", "-1"])
                .ends_with('1')
        );
        drop(worker);
        becomes(&mut client, "w:processing", "*0");
        becomes(&mut client, "w:queue", "*3 $1 3 $1 2 $1 1");
    }
}

#[test]
fn an_id_whose_data_was_read_on_any_connection_stays_when_its_connection_ends() {
    let world = patient();
    let (mut client, mut worker, mut other) = (world.client(), world.client(), world.client());
    for id in ["1", "2", "3", "4"] {
        client.ask(&["SETNX", &format!("w:item:{id}"), "data"]);
        client.ask(&["LPUSH", "w:queue", id]);
        worker.ask(&["RPOPLPUSH", "w:queue", "w:processing"]);
    }
    worker.ask(&["GET", "w:item:1"]);
    other.ask(&["GET", "w:item:2"]);
    other.ask(&["SETEX", "w:lease:3", "60", "session"]);
    drop(worker);
    // The unused item goes back once the end is detected; the others stay.
    becomes(&mut client, "w:queue", "*1 $1 4");
    assert_eq!(
        client.ask(&["LRANGE", "w:processing", "0", "-1"]),
        "*3 $1 3 $1 2 $1 1"
    );
}

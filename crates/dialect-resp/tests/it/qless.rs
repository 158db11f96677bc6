//! qless on the port, over real sockets: scripts, their calls and errors, order among other commands, messages,
//! rights.

use crate::kit::{Client, World, encode};
use ganger_access::{Identity, Proof};

/// The parts of a script of the second generation that the recogniser needs.
const SCRIPT: &str = "-- a comment\nlocal QlessAPI = {}\nlocal x = cjson, 'ql:'\nQlessAPI.put = function(now, me, queue) end";
/// Text of the first script.
const FIRST: &str =
    "local QlessAPI = {}\nlocal x = cjson, 'ql:'\nQlessAPI.put = function(now, queue, jid) end";

/// A client that has loaded the script.
struct Caller {
    client: Client,
    digest: String,
}

impl Caller {
    fn new(world: &World) -> Self {
        Self::of(world.client(), SCRIPT)
    }

    fn of(mut client: Client, script: &str) -> Self {
        let loaded = client.ask(&["SCRIPT", "LOAD", script]);
        let digest = loaded.strip_prefix("$40 ").expect(&loaded).to_owned();
        Self { client, digest }
    }

    /// The words of a call whose words are separated by spaces.
    fn words<'a>(&'a self, line: &'a str) -> Vec<&'a str> {
        let head = ["EVALSHA", &self.digest, "0"];
        head.into_iter().chain(line.split(' ')).collect()
    }

    /// The reply to a call.
    fn call(&mut self, line: &str) -> String {
        let bytes = encode(&self.words(line));
        self.client.send(&bytes);
        self.client.shown()
    }

    fn error(&self, message: &str) -> String {
        let digest = &self.digest;
        format!("-ERR user_script:1: {message} script: {digest}, on @user_script:1.")
    }
}

#[test]
fn pops_of_few_jobs_that_arrive_together_are_one_commit() {
    const POPS: usize = 50;
    let world = World::new();
    let mut caller = Caller::new(&world);
    let put: Vec<u8> = (0..POPS)
        .flat_map(|job| encode(&caller.words(&format!("put 0 me q job{job} kind {{}} 0"))))
        .collect();
    caller.client.send(&put);
    for _ in 0..POPS {
        caller.client.shown();
    }
    let before = world.commits();
    let pop = encode(&caller.words("pop 0 q worker 1")).repeat(POPS);
    caller.client.send(&pop);
    for _ in 0..POPS {
        let shown = caller.client.shown();
        assert!(shown.contains("jid"), "{shown}");
    }
    // The port may have read the calls in several pieces.
    let commits = world.commits() - before;
    assert!(commits <= 5, "{commits} commits for {POPS} pops");
}

#[test]
fn a_script_is_known_by_its_digest_until_it_is_flushed() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    let digest = caller.digest.clone();
    let client = &mut caller.client;
    let upper = digest.to_uppercase();
    let nothing = "0".repeat(40);
    assert_eq!(
        client.ask(&["SCRIPT", "EXISTS", &upper, &nothing, "x"]),
        "*3 :1 :0 :0"
    );
    assert_eq!(
        client.ask(&["EVALSHA", &upper, "0", "length", "0", "q"]),
        ":0"
    );
    assert_eq!(
        client.ask(&["EVALSHA", &nothing, "0", "length", "0", "q"]),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
    assert_eq!(client.ask(&["SCRIPT", "FLUSH", "SYNC"]), "+OK");
    assert_eq!(client.ask(&["SCRIPT", "EXISTS", &digest]), "*1 :0");
    assert_eq!(
        client.ask(&["EVALSHA", &digest, "0", "length", "0", "q"]),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
    assert_eq!(client.ask(&["EVAL", SCRIPT, "0", "length", "0", "q"]), ":0");
    assert_eq!(client.ask(&["SCRIPT", "EXISTS", &digest]), "*1 :1");
    assert_eq!(client.ask(&["SCRIPT", "FLUSH", "NOW"]), "-ERR syntax error");
}

#[test]
fn other_scripts_are_refused() {
    let world = World::new();
    let mut client = world.client();
    let refusal = "-ERR ganger does not run Lua and does not know this script";
    assert_eq!(client.ask(&["SCRIPT", "LOAD", "x"]), refusal);
    assert_eq!(
        client.ask(&["EVALSHA", "x", "0"]),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
    assert_eq!(client.ask(&["SCRIPT", "LOAD", "return 1"]), refusal);
    assert_eq!(client.ask(&["EVAL", "return 1", "0"]), refusal);
    let later = "local x = cjson, 'ql:'\nReqlessAPI['queue.put'] = function(now, me, queue) end";
    assert!(client.ask(&["SCRIPT", "LOAD", later]).contains("reqless"));
}

#[test]
fn keys_and_what_is_missing_are_refused_in_the_words_of_redis_and_of_the_script() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    let digest = caller.digest.clone();
    for (keys, error) in [
        ("x", "-ERR value is not an integer or out of range"),
        ("-1", "-ERR Number of keys can't be negative"),
        (
            "3",
            "-ERR Number of keys can't be greater than number of args",
        ),
    ] {
        let words = ["EVALSHA", &digest, keys, "length", "0"];
        assert_eq!(caller.client.ask(&words), error);
    }
    let words = ["EVALSHA", &digest, "1", "key", "length", "0"];
    let error = caller.error("No Keys should be provided");
    assert_eq!(caller.client.ask(&words), error);
    let words = ["EVALSHA", &digest, "0"];
    let error = caller.error("Must provide a command");
    assert_eq!(caller.client.ask(&words), error);
    assert_eq!(
        caller.call("nothing 0"),
        caller.error("Unknown command nothing")
    );
    assert_eq!(
        caller.call("length"),
        caller.error("Arg \"now\" missing or not a number: nil")
    );
}

#[test]
fn errors_keep_every_byte_but_line_ends() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    let digest = caller.digest.clone();
    let words: [&[u8]; 5] = [b"EVALSHA", digest.as_bytes(), b"0", b"a\xff\r\nb", b"0"];
    caller.client.send(&encode(&words));
    let expected = [
        b"-ERR user_script:1: Unknown command a\xff  b script: ",
        digest.as_bytes(),
        b", on @user_script:1.\r\n",
    ]
    .concat();
    assert_eq!(caller.client.reply(), expected);
}

#[test]
fn results_have_their_form_in_each_protocol() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    assert_eq!(caller.call("put 1 w q j k {} 0"), "$1 j");
    for (hello, nil) in [("2", "$-1"), ("3", "_")] {
        caller.client.ask(&["HELLO", hello]);
        assert_eq!(caller.call("get 1 none"), nil);
        assert_eq!(caller.call("length 1 q"), ":1");
        assert_eq!(caller.call("multiget 1 none"), "$2 {}");
        assert_eq!(caller.call("jobs 1 running q"), "*0");
        assert_eq!(caller.call("config.get 1 heartbeat"), ":60");
        assert!(caller.call("get 1 j").contains("\"jid\":\"j\""));
    }
}

#[test]
fn the_generation_is_a_property_of_the_script() {
    let world = World::new();
    let mut second = Caller::new(&world);
    let mut first = Caller::of(world.client(), FIRST);
    assert_eq!(first.call("put 1 q a k {} 0"), "$1 a");
    assert_eq!(second.call("put 2 w q b k {} 0"), "$1 b");
    assert_eq!(second.call("length 2 q"), ":2");
    assert_eq!(
        first.call("requeue 3 w q a k {} 0"),
        first.error("Unknown command requeue")
    );
}

#[test]
fn the_sets_of_queues_are_read_as_keys() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    caller.call("put 1 w a-b j k {} 0");
    caller.call("put 1 w a-b later k {} 100");
    caller.call("recur 0.5 a-b r k {} interval 60 1.25");
    let client = &mut caller.client;
    for (key, count) in [
        ("work", 1),
        ("scheduled", 1),
        ("recur", 1),
        ("locks", 0),
        ("depends", 0),
    ] {
        let key = format!("ql:q:a-b-{key}");
        assert_eq!(client.ask(&["ZCARD", &key]), format!(":{count}"), "{key}");
    }
    assert_eq!(client.ask(&["ZSCORE", "ql:q:a-b-recur", "r"]), "$4 1.75");
    assert_eq!(client.ask(&["ZSCORE", "ql:q:a-b-recur", "j"]), "$-1");
    client.ask(&["HELLO", "3"]);
    assert_eq!(client.ask(&["ZSCORE", "ql:q:a-b-recur", "r"]), ",1.75");
    assert_eq!(client.ask(&["ZSCORE", "ql:q:other-recur", "r"]), "_");
    assert_eq!(client.ask(&["ZCARD", "anything"]), ":0");
    assert_eq!(client.ask(&["ZSCORE", "anything", "r"]), "_");
    client.ask(&["SET", "text", "1"]);
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value";
    assert_eq!(client.ask(&["ZCARD", "text"]), wrong);
    assert_eq!(client.ask(&["ZSCORE", "text", "r"]), wrong);
    assert_eq!(client.ask(&["DBSIZE"]), ":1");
}

#[test]
fn calls_keep_their_order_among_other_commands_of_one_write() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    let pieces: Vec<Vec<&str>> = vec![
        caller.words("put 1 w q a k {} 0"),
        vec!["SET", "key", "1"],
        vec!["ZCARD", "ql:q:q-work"],
        caller.words("nonsense 1"),
        vec!["INCR", "key"],
        caller.words("put 1 w q b k {} 0"),
        vec!["SELECT", "1"],
        caller.words("length 1 q"),
        vec!["SELECT", "0"],
        caller.words("length 1 q"),
        vec!["GET", "key"],
    ];
    let bytes: Vec<u8> = pieces.iter().flat_map(|words| encode(words)).collect();
    let (count, error) = (pieces.len(), caller.error("Unknown command nonsense"));
    caller.client.send(&bytes);
    let replies: Vec<_> = (0..count).map(|_| caller.client.shown()).collect();
    let expected = [
        "$1 a", "+OK", ":1", &error, ":2", "$1 b", "+OK", ":0", "+OK", ":2", "$1 2",
    ];
    assert_eq!(replies, expected);
}

#[test]
fn a_transaction_loads_and_calls_in_one_step() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    caller.client.ask(&["SCRIPT", "FLUSH"]);
    assert_eq!(caller.client.ask(&["MULTI"]), "+OK");
    assert_eq!(caller.call("length 1 q"), "+QUEUED");
    for words in [
        &["SCRIPT", "LOAD", SCRIPT][..],
        &["SET", "key", "1"],
        &["ZCARD", "ql:q:q-work"],
    ] {
        assert_eq!(caller.client.ask(words), "+QUEUED");
    }
    assert_eq!(caller.call("put 1 w q a k {} 0"), "+QUEUED");
    assert_eq!(caller.call("pop 1 q w"), "+QUEUED");
    assert_eq!(caller.client.ask(&["ZCARD", "ql:q:q-work"]), "+QUEUED");
    let (digest, error) = (
        caller.digest.clone(),
        caller.error("Pop(): Arg \"count\" missing or not a number: nil"),
    );
    assert_eq!(
        caller.client.ask(&["EXEC"]),
        format!(
            "*7 -NOSCRIPT No matching script. Please use EVAL. $40 {digest} +OK :0 $1 a {error} :1"
        )
    );
}

#[test]
fn watched_keys_are_not_compared_for_calls_of_a_script() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    caller.client.ask(&["WATCH", "key"]);
    caller.client.ask(&["MULTI"]);
    caller.call("put 1 w q a k {} 0");
    let reply = caller.client.ask(&["EXEC"]);
    assert!(
        reply.starts_with("-ERR ganger compares watched keys"),
        "{reply}"
    );
    assert_eq!(caller.call("length 1 q"), ":0");
}

#[test]
fn clearing_a_database_takes_its_jobs_and_leaves_the_script() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    for database in ["0", "1", "2"] {
        caller.client.ask(&["SELECT", database]);
        caller.call("put 1 w q a k {} 0");
        caller.client.ask(&["SET", "key", "1"]);
    }
    let left = |caller: &mut Caller| {
        let databases = ["0", "1", "2"].iter();
        let counts = databases.map(|database| {
            caller.client.ask(&["SELECT", database]);
            (caller.call("length 1 q"), caller.client.ask(&["DBSIZE"]))
        });
        let counts: Vec<_> = counts.collect();
        assert!(counts.iter().all(|(jobs, keys)| jobs == keys), "{counts:?}");
        counts.into_iter().map(|(jobs, _)| jobs).collect::<Vec<_>>()
    };
    caller.client.ask(&["SELECT", "1"]);
    assert_eq!(caller.client.ask(&["FLUSHDB"]), "+OK");
    assert_eq!(left(&mut caller), [":1", ":0", ":1"]);
    caller.client.ask(&["MULTI"]);
    caller.client.ask(&["FLUSHALL", "ASYNC"]);
    assert_eq!(caller.client.ask(&["EXEC"]), "*1 +OK");
    assert_eq!(left(&mut caller), [":0", ":0", ":0"]);
}

#[test]
fn messages_come_to_all_databases_before_the_reply_to_their_call() {
    let world = World::new();
    let (mut listener, mut second) = (world.client(), world.client());
    listener.ask(&["SELECT", "5"]);
    listener.ask(&["SUBSCRIBE", "ql:log", "ql:put"]);
    listener.shown();
    second.ask(&["HELLO", "3"]);
    second.ask(&["PSUBSCRIBE", "ql:*"]);
    let mut caller = Caller::new(&world);
    caller.call("put 1 w q a k {} 0");
    caller.call("track 1 track a");
    // A client that has its reply gets the messages before any later answer on another connection.
    assert_eq!(
        listener.ask(&["UNSUBSCRIBE", "ql:put"]),
        "*3 $7 message $6 ql:log $37 {\"jid\":\"a\",\"event\":\"put\",\"queue\":\"q\"}"
    );
    assert_eq!(listener.shown(), "*3 $11 unsubscribe $6 ql:put :1");
    assert_eq!(
        second.shown(),
        ">4 $8 pmessage $4 ql:* $6 ql:log $37 {\"jid\":\"a\",\"event\":\"put\",\"queue\":\"q\"}"
    );
    assert_eq!(second.shown(), ">4 $8 pmessage $4 ql:* $8 ql:track $1 a");
    // A client that both subscribes and calls gets the message before its reply.
    let mut both = Caller::of(second, SCRIPT);
    assert_eq!(
        both.call("put 2 w q a k {} 0"),
        ">4 $8 pmessage $4 ql:* $6 ql:log $37 {\"jid\":\"a\",\"event\":\"put\",\"queue\":\"q\"}"
    );
    assert_eq!(both.client.shown(), ">4 $8 pmessage $4 ql:* $6 ql:put $1 a");
    assert_eq!(both.client.shown(), "$1 a");
}

#[test]
fn what_the_client_in_ruby_sends_is_answered() {
    let world = World::new();
    let (mut client, mut worker) = (world.client(), world.client());
    // The client only starts with certain versions of the server.
    let info = client.ask(&["INFO"]);
    assert!(info.contains(" redis_version:7.0.15 "), "{info}");
    // The client compares the whole message, loads the script, and repeats the call.
    let digest = Caller::new(&world).digest;
    client.ask(&["SCRIPT", "FLUSH"]);
    let put = [
        "EVALSHA", &digest, "0", "put", "1.5", "w", "q", "j", "k", "{}", "0", "priority", "0",
        "tags", "[]", "retries", "5", "depends", "[]",
    ];
    assert_eq!(
        client.ask(&put),
        "-NOSCRIPT No matching script. Please use EVAL."
    );
    client.ask(&["SCRIPT", "LOAD", SCRIPT]);
    assert_eq!(client.ask(&put), "$1 j");
    // The length of a queue.
    assert_eq!(client.ask(&["MULTI"]), "+OK");
    for set in ["locks", "work", "scheduled", "depends"] {
        let key = format!("ql:q:q-{set}");
        assert_eq!(client.ask(&["ZCARD", &key]), "+QUEUED");
    }
    assert_eq!(client.ask(&["EXEC"]), "*4 :0 :1 :0 :0");
    // A worker's listener, which another connection ends.
    worker.ask(&["SUBSCRIBE", "ql:w:w", "end"]);
    worker.shown();
    let pop = ["EVALSHA", &digest, "0", "pop", "2", "q", "w", "1"];
    assert!(client.ask(&pop).contains("\"worker\":\"w\""));
    assert_eq!(
        client.ask(&["EVALSHA", &digest, "0", "timeout", "3", "j"]),
        "$-1"
    );
    assert_eq!(
        worker.shown(),
        "*3 $7 message $6 ql:w:w $44 {\"jid\":\"j\",\"event\":\"lock_lost\",\"worker\":\"w\"}"
    );
    assert_eq!(client.ask(&["PUBLISH", "end", "disconnect"]), ":1");
    assert_eq!(worker.shown(), "*3 $7 message $3 end $10 disconnect");
    assert_eq!(
        worker.ask(&["UNSUBSCRIBE", "ql:w:w", "end"]),
        "*3 $11 unsubscribe $6 ql:w:w :1"
    );
    assert_eq!(worker.shown(), "*3 $11 unsubscribe $3 end :0");
    assert_eq!(worker.ask(&["PING"]), "+PONG");
}

#[test]
fn a_refused_call_leaves_no_message_and_no_trace() {
    let world = World::new();
    let mut listener = world.client();
    listener.ask(&["PSUBSCRIBE", "*"]);
    let mut caller = Caller::new(&world);
    assert!(
        caller
            .call("put 1 w q a k {} x")
            .contains("Arg \"delay\" not a number")
    );
    assert_eq!(caller.call("length 1 q"), ":0");
    assert_eq!(caller.call("queues 1"), "$2 {}");
    assert_eq!(listener.ask(&["PING"]), "*2 $4 pong $0");
}

fn identity(grants: &str) -> Identity {
    Identity::principal("x", grants.parse().expect("readable"), Proof::Token)
}

#[test]
fn each_role_may_make_its_calls() {
    let world = World::new();
    for role in ["reader", "producer", "worker", "operator"] {
        world.tokens.put(role, identity(&format!("{role}@default")));
    }
    let mut callers = ["reader", "producer", "worker", "operator"].map(|role| {
        let mut client = world.client();
        assert_eq!(client.ask(&["AUTH", role]), "+OK");
        Caller::of(client, SCRIPT)
    });
    // For each call: whether reader, producer, worker and operator may make it.
    for (line, may) in [
        ("length 1 q", [true; 4]),
        ("tag 1 top", [true; 4]),
        ("track 1", [true; 4]),
        ("put 1 w q j k {} 0", [false, true, true, true]),
        ("tag 1 add j t", [false, true, true, true]),
        ("track 1 track j", [false, true, true, true]),
        ("pop 1 other w 1", [false, false, true, true]),
        ("config.set 1 heartbeat 10", [false, false, false, true]),
        ("cancel 1 nobody", [false, false, false, true]),
        ("nonsense 1", [true; 4]),
    ] {
        for (caller, may) in callers.iter_mut().zip(may) {
            let reply = caller.call(line);
            assert_eq!(!reply.starts_with("-NOPERM"), may, "{line}: {reply}");
        }
    }
    assert_eq!(
        callers[0].call("pop 1 q w 1"),
        "-NOPERM this user has no permissions to run the 'pop' command"
    );
    // A known script gives no rights in another database.
    callers[3].client.ask(&["SELECT", "1"]);
    assert!(callers[3].call("length 1 q").starts_with("-NOPERM"));
}

#[test]
fn clients_get_no_events_of_namespaces_that_they_may_not_read() {
    let world = World::new();
    world.tokens.put("here", identity("reader@default"));
    world.tokens.put("there", identity("producer@db1"));
    let (mut here, mut there) = (world.client(), world.client());
    here.ask(&["AUTH", "here"]);
    here.ask(&["PSUBSCRIBE", "*"]);
    there.ask(&["AUTH", "there"]);
    there.ask(&["SELECT", "1"]);
    let mut there = Caller::of(there, SCRIPT);
    assert_eq!(there.call("put 1 w q a k {} 0"), "$1 a");
    assert_eq!(here.ask(&["PING"]), "*2 $4 pong $0");
}

#[test]
fn a_script_that_only_reads_makes_no_other_calls() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    let digest = caller.digest.clone();
    let words = ["EVALSHA_RO", &digest, "0", "length", "0", "q"];
    assert_eq!(caller.client.ask(&words), ":0");
    let words = [
        "EVAL_RO", SCRIPT, "0", "put", "0", "w", "q", "j", "k", "{}", "0",
    ];
    let error = caller.error("Write commands are not allowed from read-only scripts.");
    assert_eq!(caller.client.ask(&words), error);
    assert_eq!(caller.call("length 0 q"), ":0");
}

#[test]
fn calls_are_counted_by_family() {
    let world = World::new();
    let mut caller = Caller::new(&world);
    caller.call("put 1 w q a k {} 0");
    caller.call("put 1 w q b k {} 0");
    caller.call("pop 1 q w 1");
    caller.call("nonsense 1");
    let text = world.metrics();
    for line in [
        "ganger_resp_qless_calls_total{family=\"put\"} 2",
        "ganger_resp_qless_calls_total{family=\"pop\"} 1",
        "ganger_resp_qless_calls_total{family=\"look\"} 0",
        "ganger_resp_qless_calls_total{family=\"unknown\"} 1",
        "ganger_resp_qless_refused_total 1",
        "ganger_resp_qless_messages_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

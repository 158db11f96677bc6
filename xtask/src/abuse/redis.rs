//! Attacks over the Redis port.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Attack, OpenConnections, Target, each};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "redis-unfinished",
        run: unfinished,
    },
    Attack {
        name: "redis-announced",
        run: announced,
    },
    Attack {
        name: "redis-unread-replies",
        run: unread_replies,
    },
    Attack {
        name: "redis-transactions",
        run: transactions,
    },
    Attack {
        name: "redis-patterns",
        run: patterns,
    },
    Attack {
        name: "redis-mailboxes",
        run: unread_subscriptions,
    },
    Attack {
        name: "redis-keys-unread",
        run: keys_unread,
    },
];

/// Key that attackers read.
const LARGE_KEY: &str = "large";
/// Bytes of its value.
const LARGE_BYTES: usize = 1_000_000;
/// Number of other keys, with names of [`NAME_BYTES`] bytes.
const KEYS: usize = 100_000;
/// Bytes of their names.
const NAME_BYTES: usize = 100;
/// Maximum bytes of a pattern or channel.
const PATTERN_BYTES: usize = 1 << 10;
/// Time after which a connection without progress counts as cut or refused.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Stores the keys that attackers read.
pub(super) fn put_keys(target: &Target) -> Result<()> {
    let mut stream = connect(target, "victim")?;
    let value = "x".repeat(LARGE_BYTES);
    send_command(&mut stream, &["SET", LARGE_KEY, &value])?;
    for hundred in 0..KEYS / 100 {
        let names = (0..100).map(|one| format!("{:0>NAME_BYTES$}", hundred * 100 + one));
        let names: Vec<String> = names.collect();
        let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
        let words: Vec<&str> = ["MSET"].into_iter().chain(pairs).collect();
        send_command(&mut stream, &words)?;
    }
    Ok(())
}

/// Encodes a command in RESP2.
fn encode(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Sends a command whose reply is `+OK`.
fn send_command(stream: &mut TcpStream, words: &[&str]) -> Result<()> {
    stream.write_all(&encode(words))?;
    let mut reply = [0; 5];
    stream.read_exact(&mut reply)?;
    ensure!(
        &reply == b"+OK\r\n",
        "{}: {}",
        words[0],
        reply.escape_ascii()
    );
    Ok(())
}

/// Opens a connection and logs in as an identity.
fn connect(target: &Target, who: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(target.redis)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_read_timeout(Some(TIMEOUT * 5))?;
    send_command(&mut stream, &["AUTH", target.token(who)])?;
    Ok(stream)
}

/// Opens connections that send bytes, as many as the server accepts, and read nothing.
fn senders(target: &Target, connections: usize, bytes: &[u8]) -> OpenConnections {
    each(target, connections, |open| {
        let mut stream = connect(target, "attacker")?;
        let _ = stream.write_all(bytes);
        open.push(Box::new(stream));
        Ok(())
    })
}

/// Sends arguments almost completely.
fn unfinished(target: &Target) -> OpenConnections {
    let announced = 64 << 10;
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${announced}\r\n");
    let mut bytes = head.into_bytes();
    bytes.resize(bytes.len() + announced - 500, b'x');
    senders(target, 1_000, &bytes)
}

/// Announces arguments without sending them: one of the maximum length, and the maximum number of them.
fn announced(target: &Target) -> OpenConnections {
    let bulk = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$60000000\r\nx";
    let mut open = senders(target, 500, bulk);
    let arguments = [&b"*1000000\r\n"[..], &b"$0\r\n\r\n".repeat(5_000)].concat();
    open.extend(senders(target, 500, &arguments));
    open
}

/// Sends pipelines of reads and reads no replies.
fn unread_replies(target: &Target) -> OpenConnections {
    senders(target, 1_000, &encode(&["GET", LARGE_KEY]).repeat(100))
}

/// Fills transactions without running them, and runs some that read much.
fn transactions(target: &Target) -> OpenConnections {
    let empty: Vec<&str> = ["EXISTS"].into_iter().chain(vec![""; 10_000]).collect();
    let filled = [encode(&["MULTI"]), encode(&empty).repeat(20)].concat();
    let mut open = senders(target, 500, &filled);
    let reads = encode(&["GET", LARGE_KEY]).repeat(500);
    let run = [encode(&["MULTI"]), reads, encode(&["EXEC"])].concat();
    open.extend(senders(target, 500, &run));
    open
}

/// Subscribes to many long patterns on each connection.
fn patterns(target: &Target) -> OpenConnections {
    let mut bytes = Vec::new();
    for number in 0..100 {
        let class = "z".repeat(PATTERN_BYTES - 20);
        bytes.extend(encode(&["PSUBSCRIBE", &format!("{number}*[{class}")]));
    }
    senders(target, 1_000, &bytes)
}

/// Opens subscribers that do not read, while publishers continue.
fn unread_subscriptions(target: &Target) -> OpenConnections {
    let pattern = "c".repeat(PATTERN_BYTES - 1) + "*";
    let mut open = senders(target, 990, &encode(&["PSUBSCRIBE", &pattern]));
    let channel = "c".repeat(PATTERN_BYTES);
    let publish = encode(&["PUBLISH", &channel, &"x".repeat(10_000)]);
    let publishers = each(target, 10, |open| {
        let mut stream = connect(target, "attacker")?;
        let mut replies = stream.try_clone()?;
        // The publisher reads its replies, so that it is not cut itself.
        thread::spawn(move || while matches!(replies.read(&mut [0; 4_096]), Ok(1..)) {});
        for _ in 0..100 {
            if stream.write_all(&publish).is_err() {
                break;
            }
        }
        open.push(Box::new(stream));
        Ok(())
    });
    open.extend(publishers);
    open
}

/// Requests the names of all keys, and does not read them.
fn keys_unread(target: &Target) -> OpenConnections {
    let words = [
        encode(&["KEYS", "*"]),
        encode(&["SCAN", "0", "COUNT", "100000"]),
    ];
    senders(target, 1_000, &words.concat().repeat(3))
}

//! A relay between a client and shards that the tests play.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ganger_proto::v1;
use proptest::prelude::*;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{BufferSettings, EncodeBody, SingleMessageCompressionOverride};
use tonic_prost::{ProstDecoder, ProstEncoder};

use super::*;

/// Room in the channels of a test.
const ROOM: usize = 100;

type Answer = Result<v1::EnqueueAnswer, Status>;

/// The shard's end of an inner stream.
struct ShardEnd {
    incoming: Streaming<v1::EnqueueBatch>,
    says: mpsc::Sender<Answer>,
}

impl ShardEnd {
    /// The number of the next batch; `None` at the end.
    async fn hears(&mut self) -> Option<u64> {
        let heard = self.incoming.message().await.expect("no error");
        heard.map(|batch| batch.number)
    }

    async fn accepts(&self, number: u64) {
        let answer = v1::EnqueueAnswer {
            number,
            outcome: Some(v1::enqueue_answer::Outcome::Accepted(
                v1::EnqueueReply::default(),
            )),
        };
        self.says
            .send(Ok(answer))
            .await
            .expect("the relay is there");
    }

    /// Ends the stream as a node does that gives its shard up.
    async fn moves(self) {
        let end = Err(Problem::stopping().into());
        self.says.send(end).await.expect("the relay is there");
    }
}

/// A client's stream through a relay.
struct Test {
    relay: EnqueueRelay,
    says: Option<mpsc::Sender<v1::EnqueueBatch>>,
    hears: Streaming<v1::EnqueueAnswer>,
    /// The inner streams that the relay opens.
    opened: mpsc::Receiver<ShardEnd>,
}

impl Test {
    /// Opens the stream; returns the shard's end too.
    async fn open() -> (Self, ShardEnd) {
        let relay = EnqueueRelay {
            stopping: CancellationToken::new(),
            reopened: Arc::default(),
        };
        let (says, said) = mpsc::channel(ROOM);
        let encoder = ProstEncoder::<v1::EnqueueBatch>::new(BufferSettings::default());
        let said = futures::StreamExt::map(ReceiverStream::new(said), Ok);
        let body = Body::new(EncodeBody::new_client(encoder, said, None, None));
        let (opens, mut opened) = mpsc::channel(ROOM);
        let connect: Connect = Arc::new(move |request| Box::pin(shard(request, opens.clone())));
        let response = relay.answer(Request::new(body), connect).await;
        let decoder = ProstDecoder::new(BufferSettings::default());
        let (code, body) = (response.status(), response.into_body());
        let first = opened.recv().await.expect("an inner stream");
        let test = Self {
            relay,
            says: Some(says),
            hears: Streaming::new_response(decoder, body, code, None, None),
            opened,
        };
        (test, first)
    }

    async fn sends(&self, numbers: impl IntoIterator<Item = u64>, key: &str) {
        for number in numbers {
            let says = self
                .says
                .as_ref()
                .expect("the client has not ended its half");
            says.send(batch(number, key))
                .await
                .expect("the relay is there");
        }
    }

    async fn hears(&mut self) -> Option<u64> {
        let answer = self.hears.message().await.expect("no error");
        answer.map(|answer| answer.number)
    }

    /// Lets the relay run until something has happened at the shard, before there is an answer.
    async fn until<T>(&mut self, happened: impl Future<Output = T>) -> T {
        tokio::select! {
            happened = happened => happened,
            answer = self.hears.message() => panic!("there is no answer yet: {answer:?}"),
        }
    }

    /// Lets the relay run until it has opened the stream again.
    async fn until_opened(&mut self) -> ShardEnd {
        tokio::select! {
            opened = self.opened.recv() => opened.expect("it is opened again"),
            answer = self.hears.message() => panic!("there is no answer yet: {answer:?}"),
        }
    }
}

fn batch(number: u64, key: &str) -> v1::EnqueueBatch {
    v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            namespace: "default".to_owned(),
            idempotency_key: key.to_owned(),
            ..v1::EnqueueRequest::default()
        }),
    }
}

/// Answers a request for an inner stream, and hands its end to the test.
async fn shard(request: Request<Body>, opens: mpsc::Sender<ShardEnd>) -> Response<Body> {
    let decoder = ProstDecoder::new(BufferSettings::default());
    let incoming = Streaming::new_request(decoder, request.into_body(), None, None);
    let (says, said) = mpsc::channel::<Answer>(ROOM);
    let encoder = ProstEncoder::new(BufferSettings::default());
    let single = SingleMessageCompressionOverride::default();
    let body = EncodeBody::new_server(encoder, ReceiverStream::new(said), None, single, None);
    assert!(
        opens.send(ShardEnd { incoming, says }).await.is_ok(),
        "the test looks"
    );
    Response::new(Body::new(body))
}

#[tokio::test]
async fn batches_that_the_last_owner_did_not_take_go_to_the_next_one() {
    let (mut test, mut first) = Test::open().await;
    test.sends(1..=3, "").await;
    assert_eq!(test.until(first.hears()).await, Some(1));
    first.accepts(1).await;
    first.moves().await;
    assert_eq!(test.hears().await, Some(1));
    let mut second = test.until_opened().await;
    for number in 2..=3 {
        assert_eq!(test.until(second.hears()).await, Some(number));
        second.accepts(number).await;
        assert_eq!(test.hears().await, Some(number));
    }
    // The client's end reaches the shard, and the last answers reach the client.
    test.sends([4], "").await;
    test.says = None;
    assert_eq!(test.until(second.hears()).await, Some(4));
    assert_eq!(test.until(second.hears()).await, None);
    second.accepts(4).await;
    assert_eq!(test.hears().await, Some(4));
    assert_eq!(test.hears().await, None);
    assert_eq!(
        test.relay
            .reopened
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[tokio::test]
async fn a_client_that_has_sent_everything_gets_all_answers_over_a_move() {
    let (mut test, mut first) = Test::open().await;
    test.sends(1..=2, "").await;
    test.says = None;
    assert_eq!(test.until(first.hears()).await, Some(1));
    first.accepts(1).await;
    first.moves().await;
    assert_eq!(test.hears().await, Some(1));
    let mut second = test.until_opened().await;
    assert_eq!(test.until(second.hears()).await, Some(2));
    assert_eq!(test.until(second.hears()).await, None);
    second.accepts(2).await;
    assert_eq!(test.hears().await, Some(2));
    assert_eq!(test.hears().await, None);
}

#[tokio::test]
async fn batches_without_a_key_are_not_sent_again_when_their_owner_dies() {
    let (mut test, mut first) = Test::open().await;
    test.sends([1], "a").await;
    test.sends([2], "").await;
    assert_eq!(test.until(first.hears()).await, Some(1));
    drop(first);
    let end = test.hears.message().await.expect_err("nobody knows");
    assert_eq!(end.code(), Code::Unknown);
    assert!(test.opened.try_recv().is_err(), "nothing is sent again");
}

#[tokio::test]
async fn batches_with_keys_are_sent_again_when_their_owner_dies() {
    let (mut test, mut first) = Test::open().await;
    test.sends(1..=2, "key").await;
    assert_eq!(test.until(first.hears()).await, Some(1));
    drop(first);
    let mut second = test.until_opened().await;
    for number in 1..=2 {
        assert_eq!(test.until(second.hears()).await, Some(number));
        second.accepts(number).await;
        assert_eq!(test.hears().await, Some(number));
    }
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_has_passed_on() {
    let (mut test, mut shard) = Test::open().await;
    test.sends([1], "").await;
    assert_eq!(test.until(shard.hears()).await, Some(1));
    test.relay.stopping.cancel();
    // Nothing more is read.
    test.sends([2], "").await;
    assert_eq!(test.until(shard.hears()).await, None);
    shard.accepts(1).await;
    assert_eq!(test.hears().await, Some(1));
    let end = test.hears.message().await.expect_err("the server stops");
    assert_eq!(end.code(), Code::Unavailable);
}

#[tokio::test]
async fn a_server_that_stops_sends_nothing_to_the_next_owner() {
    let (mut test, mut shard) = Test::open().await;
    test.sends([1], "").await;
    assert_eq!(test.until(shard.hears()).await, Some(1));
    test.relay.stopping.cancel();
    assert_eq!(test.until(shard.hears()).await, None);
    shard.moves().await;
    let end = test.hears.message().await.expect_err("the server stops");
    assert_eq!(end.code(), Code::Unavailable);
    assert!(test.opened.try_recv().is_err());
}

#[tokio::test]
async fn no_later_refusal_hides_that_a_batch_may_be_enqueued() {
    let (mut test, mut first) = Test::open().await;
    test.sends([1], "key").await;
    assert_eq!(test.until(first.hears()).await, Some(1));
    drop(first);
    let second = test.until_opened().await;
    let refusal = Err(Status::permission_denied("no longer"));
    second.says.send(refusal).await.expect("the relay is there");
    let end = test.hears.message().await.expect_err("nobody knows");
    assert_eq!(end.code(), Code::Unknown);
}

#[tokio::test]
async fn a_refusal_of_the_shard_ends_the_stream() {
    let (mut test, shard) = Test::open().await;
    let refusal = Err(Status::permission_denied("no longer"));
    shard.says.send(refusal).await.expect("the relay is there");
    let end = test.hears.message().await.expect_err("it is refused");
    assert_eq!(end.code(), Code::PermissionDenied);
    assert!(test.opened.try_recv().is_err());
}

/// What an owner does: how many batches it takes, and whether it then gives the shard up or dies, with how many of them
/// answered.
#[derive(Clone, Copy, Debug)]
struct Owner {
    takes: u64,
    dies_after: Option<u64>,
}

/// What has become of the batches of a run.
#[derive(Debug, Default)]
struct Run {
    /// How often each batch was made, by its number.
    made: BTreeMap<u64, u32>,
    /// Numbers that were answered, in order.
    answered: Vec<u64>,
    end: Option<Code>,
}

/// Sends batches to owners one after the other, of which the last one takes everything.
async fn run(owners: Vec<Owner>, batches: u64, key: &'static str) -> Run {
    let (mut test, first) = Test::open().await;
    let says = test.says.take().expect("it was just opened");
    let client = async move {
        for number in 1..=batches {
            let _ = says.send(batch(number, key)).await;
            tokio::task::yield_now().await;
        }
    };
    let made = Mutex::new(BTreeMap::new());
    let shards = async {
        let mut next = Some(first);
        for owner in owners {
            let Some(mut shard) = next else { return };
            let mut taken = Vec::new();
            while u64::try_from(taken.len()).unwrap_or(0) < owner.takes
                && let Ok(Some(batch)) = shard.incoming.message().await
            {
                *made
                    .lock()
                    .expect("not poisoned")
                    .entry(batch.number)
                    .or_insert(0) += 1;
                taken.push(batch.number);
            }
            let answers = owner.dies_after.unwrap_or(u64::MAX);
            for number in taken
                .into_iter()
                .take(usize::try_from(answers).unwrap_or(usize::MAX))
            {
                shard.accepts(number).await;
            }
            match owner.dies_after {
                Some(_) => drop(shard),
                None => shard.moves().await,
            }
            next = test.opened.recv().await;
        }
        while let Some(mut shard) = next {
            while let Ok(Some(batch)) = shard.incoming.message().await {
                *made
                    .lock()
                    .expect("not poisoned")
                    .entry(batch.number)
                    .or_insert(0) += 1;
                shard.accepts(batch.number).await;
            }
            drop(shard);
            next = test.opened.recv().await;
        }
    };
    let mut hears = test.hears;
    let answers = async {
        let mut answered = Vec::new();
        loop {
            match hears.message().await {
                Ok(Some(answer)) => answered.push(answer.number),
                Ok(None) => return (answered, None),
                Err(status) => return (answered, Some(status.code())),
            }
        }
    };
    let (answered, end) = tokio::select! {
        ended = async { tokio::join!(client, answers).1 } => ended,
        () = shards => unreachable!("the shards wait for more"),
    };
    Run {
        made: made.into_inner().expect("not poisoned"),
        answered,
        end,
    }
}

fn owners() -> impl Strategy<Value = Vec<Owner>> {
    let owner = (0_u64..5, proptest::option::of(0_u64..5))
        .prop_map(|(takes, dies_after)| Owner { takes, dies_after });
    proptest::collection::vec(owner, 0..6)
}

proptest! {
    #[test]
    fn every_batch_is_made_once_or_its_client_hears_that_nobody_knows(
        owners in owners(),
        batches in 1_u64..12,
        has_keys: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime");
        let deaths = owners.iter().any(|owner| owner.dies_after.is_some());
        let run = runtime.block_on(run(owners, batches, if has_keys { "key" } else { "" }));
        let in_order: Vec<u64> = (1..=batches).collect();
        prop_assert!(in_order.starts_with(&run.answered), "{run:?}");
        prop_assert!(run.answered.iter().all(|number| run.made.contains_key(number)));
        if !has_keys {
            prop_assert!(run.made.values().all(|times| *times == 1), "{run:?}");
        }
        match run.end {
            None => prop_assert_eq!(run.answered, in_order),
            Some(code) => prop_assert!(code == Code::Unknown && deaths && !has_keys, "{run:?}"),
        }
    }
}

use super::*;

/// Returns a scheduler whose threads always lag.
fn scheduler() -> Scheduler {
    let scheduler = Scheduler::with_lag(1, DispatchLag::new(Duration::ZERO));
    tokio::spawn(scheduler.clone().dispatch(CancellationToken::new()));
    scheduler
}

/// Spawns tasks that count their polls. Each is polled twice.
fn burst(lane: &Lane, count: usize, polls: &Arc<AtomicUsize>) {
    for _ in 0..count {
        let polls = Arc::clone(polls);
        lane.execute(async move {
            polls.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            polls.fetch_add(1, Ordering::Relaxed);
        });
    }
}

#[tokio::test]
async fn a_new_connection_does_not_wait_for_the_backlog_of_others() {
    let scheduler = scheduler();
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let heavy = scheduler.lane();
        heavy.charge(LIGHT_USE_MAX * 100, Instant::now());
        burst(&heavy, 1_000, &polls);
    }
    let newcomer = scheduler.lane();
    let seen = Arc::clone(&polls);
    let asked = tokio::spawn(newcomer.scheduled(async move {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        seen.load(Ordering::Relaxed)
    }));
    let before = asked.await.expect("no panic");
    assert!(before <= 6 * BATCH, "{before} of 20,000 ran before");
    while polls.load(Ordering::Relaxed) < 20_000 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn lighter_connections_run_first_and_equal_ones_in_turn() {
    let scheduler = scheduler();
    let (flood, first, second) = (scheduler.lane(), scheduler.lane(), scheduler.lane());
    flood.charge(LIGHT_USE_MAX * 1_000, Instant::now());
    for lane in [&first, &second] {
        lane.charge(LIGHT_USE_MAX * 3, Instant::now());
    }
    let polls = Arc::new(AtomicUsize::new(0));
    let of_first = Arc::new(AtomicUsize::new(0));
    burst(&flood, 1_000, &polls);
    burst(&first, 1_000, &of_first);
    let seen = (Arc::clone(&polls), Arc::clone(&of_first));
    let asked = tokio::spawn(second.scheduled(async move {
        (
            seen.0.load(Ordering::Relaxed),
            seen.1.load(Ordering::Relaxed),
        )
    }));
    let (flooded, before) = asked.await.expect("no panic");
    assert_eq!(flooded, 0, "the flood goes last");
    assert!(before <= 2 * BATCH, "{before} of 2,000 ran before");
}

#[tokio::test]
async fn a_task_that_ends_while_it_waits_delays_no_other() {
    let scheduler = scheduler();
    let heavy = scheduler.lane();
    heavy.charge(LIGHT_USE_MAX * 100, Instant::now());
    let ended: Vec<_> = (0..100)
        .map(|_| tokio::spawn(heavy.scheduled(std::future::pending::<()>())))
        .collect();
    tokio::task::yield_now().await;
    for task in &ended {
        task.abort();
    }
    let asked = tokio::spawn(heavy.scheduled(std::future::ready(7)));
    assert_eq!(asked.await.expect("no panic"), 7);
    for task in ended {
        assert!(task.await.is_err());
    }
    assert_eq!(scheduler.queue().running, 0);
}

#[tokio::test]
async fn while_many_requests_wait_a_connection_reads_on_once_its_own_have_started() {
    let scheduler = scheduler();
    let (flood, other) = (scheduler.lane(), scheduler.lane());
    flood.charge(LIGHT_USE_MAX * 100, Instant::now());
    let polls = Arc::new(AtomicUsize::new(0));
    burst(&flood, UNSTARTED_MANY, &polls);
    let reading = |lane: &Lane| lane.poll_reading(&Context::from_waker(Waker::noop()));
    assert_eq!(reading(&flood), Poll::Ready(ReadAllowance::All));
    burst(&flood, 1, &polls);
    assert_eq!(reading(&flood), Poll::Pending);
    assert_eq!(reading(&other), Poll::Ready(ReadAllowance::Little));
    let read_on = std::future::poll_fn(|cx| flood.poll_reading(cx));
    assert_eq!(read_on.await, ReadAllowance::All);
    assert!(polls.load(Ordering::Relaxed) > UNSTARTED_MANY);
}

#[tokio::test]
async fn a_connection_that_uses_much_queues_only_while_the_threads_are_behind() {
    // The dispatcher does not run until the end, so queued tasks stay queued.
    let behind = Duration::from_secs(60);
    let earlier = Instant::now().checked_sub(behind * 2);
    let lag = DispatchLag {
        epoch: earlier.expect("the clock counts from further back"),
        ..DispatchLag::new(behind)
    };
    let scheduler = Scheduler::with_lag(1, lag);
    let heavy = scheduler.lane();
    heavy.charge(LIGHT_USE_MAX * 1_000, Instant::now());
    for _ in 0..3 {
        heavy.charge(LIGHT_USE_MAX * 1_000, Instant::now());
        assert_eq!(heavy.scheduled(std::future::ready(7)).await, 7);
    }
    // The dispatcher seems to have been scheduled at the very beginning.
    scheduler.0.lag.asked.store(1, Ordering::Relaxed);
    let queued = tokio::spawn(heavy.scheduled(std::future::ready(7)));
    tokio::task::yield_now().await;
    assert!(!queued.is_finished());
    tokio::spawn(scheduler.dispatch(CancellationToken::new()));
    assert_eq!(queued.await.expect("no panic"), 7);
}

#[test]
fn use_is_forgotten() {
    let lane = Scheduler::new(1).lane();
    lane.charge(LIGHT_USE_MAX * 100, Instant::now());
    assert!(!lane.is_light(Instant::now()));
    lane.state().halved -= HALF_LIFE * 7;
    assert!(lane.is_light(Instant::now()));
}

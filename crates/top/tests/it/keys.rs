//! What keys change, and what they ask for.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ganger_top::keys::{Request, press};
use ganger_top::state::{EVERY_MAX, EVERY_MIN};
use ganger_top::{Screen, State};

use crate::kit::{COLORED, frame, keys, state};

fn queues() -> State {
    state(COLORED, Screen::Queues)
}

fn is_do(request: &Request) -> bool {
    matches!(request, Request::Do(_))
}

#[test]
fn a_row_is_opened_and_left_again() {
    let mut state = queues();
    assert_eq!(keys(&mut state, "j\n"), Request::Ask);
    assert_eq!(state.screen().title(), "JOBS of queue img");
    assert_eq!(keys(&mut state, "\n"), Request::Ask);
    assert_eq!(state.screen().title(), "JOB 1/3kq9f2");
    assert!(frame(&state, 80, 24).contains("QUEUES > JOBS of queue img > JOB 1/3kq9f2"));
    keys(&mut state, "\u{1b}\u{1b}");
    assert_eq!(*state.screen(), Screen::Queues);
    assert_eq!(
        keys(&mut state, "\u{1b}"),
        Request::Ask,
        "there is nothing behind it"
    );
    assert_eq!(*state.screen(), Screen::Queues);
}

#[test]
fn digits_choose_a_screen_and_jobs_stay_with_the_open_queue() {
    let mut state = queues();
    for (digit, title) in [
        "QUEUES", "JOBS", "FAILURES", "WORKERS", "GRAPHS", "EVENTS", "SHARDS",
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(keys(&mut state, &(digit + 1).to_string()), Request::Ask);
        assert_eq!(state.screen().title(), title);
    }
    keys(&mut state, "1\n2");
    assert_eq!(state.screen().title(), "JOBS of queue mail");
}

#[test]
fn the_cursor_stays_with_its_row_when_the_order_changes() {
    let mut state = queues();
    keys(&mut state, "jj");
    assert_eq!(state.rows()[state.place()], "1/billing");
    keys(&mut state, "s");
    assert_eq!(state.screen().sorts()[state.sort], "oldest");
    assert_eq!(state.place(), 0, "it waits longest");
    keys(&mut state, "S");
    assert_eq!(state.rows()[state.place()], "1/billing");
    press(&mut state, KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    assert_eq!(state.place(), 3);
    press(
        &mut state,
        KeyEvent::new(KeyCode::PageUp, KeyModifiers::NONE),
    );
    assert_eq!(state.place(), 0);
}

#[test]
fn the_filter_is_typed_and_cleared() {
    let mut state = queues();
    keys(&mut state, "/IM");
    assert_eq!(state.rows(), ["1/img"], "it works while it is typed");
    assert_eq!(keys(&mut state, "q"), Request::Draw, "letters are text now");
    press(
        &mut state,
        KeyEvent::new(KeyCode::Backspace, KeyModifiers::NONE),
    );
    keys(&mut state, "\n");
    assert_eq!(state.filter, "IM");
    assert!(frame(&state, 80, 24).contains("filter: IM"));
    keys(&mut state, "\u{1b}");
    assert_eq!(state.rows().len(), 4);
}

#[test]
fn actions_ask_first_and_anything_but_yes_changes_nothing() {
    let mut state = queues();
    keys(&mut state, "p");
    assert!(frame(&state, 80, 24).contains("Pause queue mail? y/N"));
    assert_eq!(keys(&mut state, "n"), Request::Draw);
    assert!(frame(&state, 80, 24).contains("Nothing was changed."));
    assert!(is_do(&keys(&mut state, "py")));
    assert_eq!(state.question, None);
    keys(&mut state, "2");
    for (key, words) in [
        ("r", "Retry job 1/3kq9f2? y/N"),
        ("c", "Cancel job 1/3kq9f2? y/N"),
        ("D", "Delete job 1/3kq9f2 with its result and log? y/N"),
    ] {
        keys(&mut state, key);
        let asked = frame(&state, 80, 24);
        assert!(asked.contains(words), "{asked}");
        assert_eq!(keys(&mut state, "\n"), Request::Draw, "Enter is no yes");
        keys(&mut state, key);
        assert!(is_do(&keys(&mut state, "y")));
    }
}

#[test]
fn many_jobs_take_their_number() {
    let mut state = queues();
    keys(&mut state, "3r");
    assert!(frame(&state, 80, 24).contains("Retry 212 jobs of the group exit-1? Type 212:"));
    assert!(!is_do(&keys(&mut state, "21\n")));
    assert!(is_do(&keys(&mut state, "r212\n")));
    keys(&mut state, "5c");
    assert!(frame(&state, 80, 24).contains("4 of its jobs are live. Type 4:"));
    assert!(is_do(&keys(&mut state, "4\n")));
}

#[test]
fn without_the_right_an_action_is_neither_offered_nor_done() {
    for is_read_only in [true, false] {
        let mut state = queues();
        state.is_read_only = is_read_only;
        if !is_read_only {
            state.data.rights = ganger_top::data::Rights::default();
        }
        assert!(!frame(&state, 80, 24).contains("pause"));
        keys(&mut state, "p");
        assert_eq!(state.question, None);
        keys(&mut state, "2rcD");
        assert_eq!(state.question, None);
        let last = frame(&state, 80, 24);
        assert!(
            !last.contains("r retry") && !last.contains("c cancel"),
            "{last}"
        );
    }
}

#[test]
fn a_frozen_screen_keeps_what_it_shows() {
    let mut state = queues();
    keys(&mut state, " ");
    assert!(frame(&state, 80, 24).contains("frozen"));
    state.update(ganger_top::data::Update::Data(Box::default()));
    assert_eq!(state.rows().len(), 4);
    keys(&mut state, " ");
    assert_eq!(state.rows().len(), 0, "the newest answer is shown");
}

#[test]
fn the_interval_stays_within_its_bounds() {
    let mut state = queues();
    keys(&mut state, "+++++");
    assert_eq!(state.every, EVERY_MIN);
    keys(&mut state, "----------");
    assert_eq!(state.every, EVERY_MAX);
}

#[test]
fn ids_are_kept_and_leaving_needs_no_question() {
    let mut state = queues();
    keys(&mut state, "2yjyy");
    assert_eq!(state.kept.len(), 2);
    assert_eq!(state.kept[0], "1/3kq9f2");
    assert_eq!(keys(&mut state, "q"), Request::Quit);
    let control = |key| KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL);
    keys(&mut state, "/abc");
    assert_eq!(press(&mut state, control('c')), Request::Quit);
    assert_eq!(press(&mut state, control('z')), Request::Suspend);
}

#[test]
fn a_log_is_scrolled_and_followed() {
    let mut state = state(COLORED, Screen::Job("1/3kq9f2".to_owned()));
    assert!(!frame(&state, 80, 24).contains("line 30"));
    keys(&mut state, "f");
    let end = frame(&state, 80, 24);
    assert!(
        end.contains("line 30\\x1b[2J"),
        "control characters are written out: {end}"
    );
    keys(&mut state, "k");
    assert!(!state.follows, "scrolling up ends it");
}

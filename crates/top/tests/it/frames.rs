//! Frames at several sizes, with and without colour, as the terminal would show them.

use std::time::Duration;

use ganger_top::data::Update;
use ganger_top::{Screen, Theme};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use crate::kit::{COLORED, PLAIN, frame, keys, snapshot, state};

/// All screens, with a name for the file of each.
fn screens() -> Vec<(&'static str, Screen)> {
    let digit = |digit| Screen::of_digit(digit, None).expect("a screen");
    vec![
        ("queues", digit('1')),
        ("jobs", digit('2')),
        ("failures", digit('3')),
        ("workers", digit('4')),
        ("graphs", digit('5')),
        ("events", digit('6')),
        ("shards", digit('7')),
        ("job", Screen::Job("1/3kq9f2".to_owned())),
    ]
}

/// The events' times are those of the person's zone, which is not that of the test's author.
fn without_times(frame: &str) -> String {
    let mut out = String::new();
    let mut rest = frame;
    while let Some(at) = rest.find(':') {
        let is_time = |text: &str| {
            let bytes = text.as_bytes();
            bytes.len() == 8
                && bytes.iter().enumerate().all(|(place, byte)| match place {
                    2 | 5 => *byte == b':',
                    _ => byte.is_ascii_digit(),
                })
        };
        let time = at.checked_sub(2).and_then(|from| rest.get(from..from + 8));
        match time.filter(|text| is_time(text)) {
            Some(_) => {
                out.push_str(&rest[..at - 2]);
                out.push_str("HH:MM:SS");
                rest = &rest[at + 6..];
            }
            None => {
                out.push_str(&rest[..=at]);
                rest = &rest[at + 1..];
            }
        }
    }
    out + rest
}

#[test]
fn every_screen_fits_eighty_columns_and_twenty_four_lines() {
    for (name, screen) in screens() {
        let frame = frame(&state(COLORED, screen), 80, 24);
        insta::assert_snapshot!(format!("80x24_{name}"), without_times(&frame));
    }
}

#[test]
fn every_screen_fits_the_smallest_size_in_ascii() {
    for (name, screen) in screens() {
        let frame = frame(&state(PLAIN, screen.clone()), 60, 15);
        let is_foreign = |character: &char| !character.is_ascii();
        if name != "jobs" {
            assert_eq!(frame.chars().find(is_foreign), None, "{name}\n{frame}");
        }
        insta::assert_snapshot!(format!("60x15_ascii_{name}"), without_times(&frame));
    }
}

#[test]
fn wide_screens_have_the_sparkline_and_large_ones_everything_side_by_side() {
    for (name, screen) in screens() {
        let wide = frame(&state(COLORED, screen.clone()), 120, 40);
        insta::assert_snapshot!(format!("120x40_{name}"), without_times(&wide));
        let large = frame(&state(COLORED, screen), 200, 60);
        insta::assert_snapshot!(format!("200x60_{name}"), without_times(&large));
    }
}

#[test]
fn a_screen_that_is_too_small_says_how_large_it_must_be() {
    let state = state(COLORED, Screen::Queues);
    for (columns, lines) in [(59, 15), (60, 14), (30, 5)] {
        let frame = frame(&state, columns, lines);
        assert!(frame.contains("Too small: 60 by 15"), "{frame}");
        assert!(!frame.contains("mail"), "{frame}");
    }
    // Even these draw something without a panic.
    for (columns, lines) in [(1, 1), (2, 30), (200, 1)] {
        let _ = frame(&state, columns, lines);
    }
}

#[test]
fn every_size_and_screen_is_drawn_without_a_panic() {
    for (_, screen) in screens() {
        let mut state = state(COLORED, screen);
        for columns in [60, 61, 79, 100, 159, 160, 250] {
            for lines in [15, 16, 23, 39, 40, 80] {
                state.is_wide = !state.is_wide;
                let _ = frame(&state, columns, lines);
            }
        }
    }
}

/// The colours and modifiers of all cells.
fn styles(theme: Theme, screen: Screen) -> Vec<(Color, Color, Modifier)> {
    let state = state(theme, screen);
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a terminal in memory");
    terminal
        .draw(|frame| ganger_top::draw::draw(&state, frame))
        .expect("memory takes everything");
    let cells = terminal.backend().buffer().content.iter();
    cells
        .map(|cell| (cell.fg, cell.bg, cell.modifier))
        .collect()
}

#[test]
fn only_the_colours_of_the_terminal_are_used_and_none_where_none_is_wanted() {
    let own = [
        Color::Reset,
        Color::Blue,
        Color::Yellow,
        Color::Green,
        Color::Red,
        Color::Magenta,
        Color::Cyan,
    ];
    for (name, screen) in screens() {
        let colored = styles(COLORED, screen.clone());
        assert!(
            colored.iter().all(|(front, _, _)| own.contains(front)),
            "{name}"
        );
        assert!(
            colored.iter().all(|(_, back, _)| *back == Color::Reset),
            "{name}"
        );
        let plain = styles(PLAIN, screen);
        assert!(
            plain.iter().all(|(front, _, _)| *front == Color::Reset),
            "{name}"
        );
        let allowed = Modifier::BOLD | Modifier::REVERSED;
        assert!(
            plain.iter().all(|(_, _, used)| allowed.contains(*used)),
            "{name}"
        );
    }
}

#[test]
fn a_server_that_does_not_answer_is_named_on_the_first_line() {
    let mut state = state(COLORED, Screen::Queues);
    state.update(Update::Missed("connection refused".to_owned()));
    state.silent_for = Duration::from_secs(2);
    assert!(!frame(&state, 80, 24).contains("no answer"));
    state.silent_for = Duration::from_secs(7);
    let silent = frame(&state, 80, 24);
    let first = silent.lines().next().unwrap_or_default();
    assert!(first.contains("no answer for 7s"), "{first}");
    assert!(silent.contains("No answer: connection refused"), "{silent}");
    assert!(silent.contains("mail"), "what was known stays: {silent}");
    state.update(Update::Data(Box::new(snapshot())));
    assert!(!frame(&state, 80, 24).contains("no answer"));
}

#[test]
fn words_stand_for_what_is_empty() {
    for (screen, words) in [
        ('1', "No queues yet."),
        ('2', "No job matches."),
        ('3', "No failed jobs are kept."),
        ('4', "No worker has asked"),
        ('5', "No graph"),
        ('6', "Nothing has happened"),
    ] {
        let screen = Screen::of_digit(screen, None).expect("a screen");
        let mut empty = ganger_top::State::new(COLORED, screen);
        assert!(frame(&empty, 80, 24).contains("Asking the server"));
        empty.update(Update::Data(Box::default()));
        let frame = frame(&empty, 80, 24);
        assert!(frame.contains(words), "{frame}");
        assert!(frame.contains("Nothing needs attention."), "{frame}");
    }
}

#[test]
fn the_help_has_every_key() {
    let mut state = state(COLORED, Screen::Queues);
    keys(&mut state, "?");
    insta::assert_snapshot!("80x24_help", frame(&state, 80, 24));
}

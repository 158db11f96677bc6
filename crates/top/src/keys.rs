//! Keys: from a key and the state to a new state, and what the caller must do.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ganger_document::measure::count;

use crate::action::Action;
use crate::screen::{Screen, Which};
use crate::state::{EVERY_MAX, EVERY_MIN, Question, State, type_into};

/// What a key asks of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Nothing but to draw again.
    Draw,
    /// To ask the server for what the screen needs now.
    Ask,
    /// To do what was asked and answered with yes.
    Do(Confirmed),
    /// To stop the program until it is continued.
    Suspend,
    /// To leave the screen at once.
    Quit,
}

/// An action that a person has confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmed(pub(crate) Action);

/// Changes the state as a key asks; returns what else is to do.
pub fn press(state: &mut State, key: KeyEvent) -> Request {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c') => Request::Quit,
            KeyCode::Char('z') => Request::Suspend,
            _ => Request::Draw,
        };
    }
    state.notice = None;
    if state.question.is_some() {
        return answer(state, key.code);
    }
    if state.typing.is_some() {
        return edit_filter(state, key.code);
    }
    if state.shows_help {
        state.shows_help = false;
        return match key.code {
            KeyCode::Char('q') => Request::Quit,
            _ => Request::Draw,
        };
    }
    if let Some(moved) = go(state, key.code) {
        return moved;
    }
    match key.code {
        KeyCode::Char('q') => Request::Quit,
        KeyCode::Char('?') => {
            state.shows_help = true;
            Request::Draw
        }
        KeyCode::Char(digit @ '1'..='7') => {
            if let Some(screen) = Screen::of_digit(digit, state.open_queue()) {
                state.switch(screen);
            }
            Request::Ask
        }
        KeyCode::Enter => enter(state),
        KeyCode::Esc => {
            state.back();
            Request::Ask
        }
        KeyCode::Char(character) => command(state, character),
        _ => Request::Draw,
    }
}

fn go(state: &mut State, code: KeyCode) -> Option<Request> {
    let page = isize::try_from(state.size.1.saturating_sub(6).max(1)).unwrap_or(1);
    let by = match code {
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::PageDown => page,
        KeyCode::PageUp => -page,
        KeyCode::Home => isize::MIN / 2,
        KeyCode::End => isize::MAX / 2,
        _ => return None,
    };
    state.go(by);
    Some(Request::Draw)
}

fn command(state: &mut State, character: char) -> Request {
    match character {
        '/' => state.typing = Some(state.filter.clone()),
        's' if !state.screen().sorts().is_empty() => {
            state.sort = (state.sort + 1) % state.screen().sorts().len();
            state.is_turned = false;
            // The rates of other queues are needed now.
            return Request::Ask;
        }
        'S' if !state.screen().sorts().is_empty() => state.is_turned = !state.is_turned,
        ' ' => state.freeze(!state.is_frozen),
        '+' => state.every = (state.every / 2).max(EVERY_MIN),
        '-' => state.every = (state.every * 2).min(EVERY_MAX),
        'w' => state.is_wide = !state.is_wide,
        'f' if matches!(state.screen(), Screen::Job(_)) => state.follows = !state.follows,
        'y' => keep_id(state),
        'r' => ask_retry(state),
        'c' => ask_cancel(state),
        'D' => ask_delete(state),
        'p' => ask_pause(state),
        _ => {}
    }
    match character {
        '+' | '-' => {
            let every = state.every.as_secs_f32();
            state.notice = Some(format!("The server is asked every {every} s."));
            Request::Ask
        }
        _ => Request::Draw,
    }
}

fn enter(state: &mut State) -> Request {
    let rows = state.rows();
    let Some(row) = rows.get(state.place()).cloned() else {
        return Request::Draw;
    };
    let name = row
        .split_once('/')
        .map_or(row.as_str(), |(_, name)| name)
        .to_owned();
    let screen = match state.screen() {
        Screen::Queues => Screen::Jobs(Which {
            queue: Some(name),
            ..Which::default()
        }),
        Screen::Jobs(_) => Screen::Job(row),
        Screen::Failures => Screen::Jobs(Which {
            group: Some(row),
            ..Which::default()
        }),
        Screen::Workers => Screen::Jobs(Which {
            worker: Some(name),
            ..Which::default()
        }),
        Screen::Graphs => Screen::Jobs(Which {
            graph: Some(row),
            ..Which::default()
        }),
        Screen::Events | Screen::Shards | Screen::Job(_) => return Request::Draw,
    };
    state.open(screen);
    Request::Ask
}

fn edit_filter(state: &mut State, code: KeyCode) -> Request {
    let Some(text) = &mut state.typing else {
        return Request::Draw;
    };
    match code {
        KeyCode::Enter => state.filter = state.typing.take().unwrap_or_default(),
        KeyCode::Esc => state.typing = None,
        KeyCode::Backspace => {
            text.pop();
        }
        KeyCode::Char(character) => type_into(text, character),
        _ => {}
    }
    Request::Draw
}

fn answer(state: &mut State, code: KeyCode) -> Request {
    let Some(question) = &mut state.question else {
        return Request::Draw;
    };
    let is_confirmed = match (question.number, code) {
        (None, KeyCode::Char('y' | 'Y')) => true,
        (Some(number), KeyCode::Enter) if question.typed == number.to_string() => true,
        (Some(_), KeyCode::Char(digit)) if digit.is_ascii_digit() => {
            type_into(&mut question.typed, digit);
            return Request::Draw;
        }
        (Some(_), KeyCode::Backspace) => {
            question.typed.pop();
            return Request::Draw;
        }
        _ => false,
    };
    let question = state.question.take().filter(|_| is_confirmed);
    match question {
        Some(question) => Request::Do(Confirmed(question.action)),
        None => {
            state.notice = Some("Nothing was changed.".to_owned());
            Request::Draw
        }
    }
}

fn keep_id(state: &mut State) {
    let id = match state.chosen_job() {
        Some(job) => Some(job.r#ref.clone()),
        None => state.rows().get(state.place()).cloned(),
    };
    if let Some(id) = id {
        state.notice = Some(format!("{id} is printed on leaving."));
        if !state.kept.contains(&id) {
            state.kept.push(id);
        }
    }
}

fn ask(state: &mut State, text: String, number: Option<u64>, action: Action) {
    state.question = Some(Question {
        text,
        number,
        typed: String::new(),
        action,
    });
}

fn ask_retry(state: &mut State) {
    if !state.may_operate() {
        return;
    }
    if *state.screen() == Screen::Failures {
        let failures = state.failures();
        let Some(row) = failures.get(state.place()) else {
            return;
        };
        let (group, jobs) = (row.group.clone(), row.jobs);
        let text = format!(
            "Retry {} jobs of the group {group}? Type {jobs}:",
            count(jobs)
        );
        return ask(state, text, Some(jobs), Action::RetryGroup(group));
    }
    if let Some(job) = state.chosen_job().map(|job| job.r#ref.clone()) {
        ask(
            state,
            format!("Retry job {job}? y/N"),
            None,
            Action::Retry(job),
        );
    }
}

fn ask_cancel(state: &mut State) {
    if !state.may_cancel() {
        return;
    }
    if *state.screen() == Screen::Graphs {
        let graphs = state.graphs();
        let Some(row) = graphs.get(state.place()) else {
            return;
        };
        let (bound, live) = match &row.counts {
            Some(counts) => ("", counts.unfinished()),
            None => ("up to ", row.jobs),
        };
        let text = format!(
            "Cancel graph {}? {bound}{live} of its jobs are live. Type {live}:",
            row.graph
        );
        // Each shard of a graph asks the others to cancel their jobs.
        let action = Action::CancelGraph {
            shard: row.shards.first().cloned().unwrap_or_default(),
            graph: row.graph.clone(),
        };
        return ask(state, text, Some(live), action);
    }
    if let Some(job) = state.chosen_job().map(|job| job.r#ref.clone()) {
        ask(
            state,
            format!("Cancel job {job}? y/N"),
            None,
            Action::Cancel(job),
        );
    }
}

fn ask_delete(state: &mut State) {
    if !state.may_operate() {
        return;
    }
    if let Some(job) = state.chosen_job().map(|job| job.r#ref.clone()) {
        let text = format!("Delete job {job} with its result and log? y/N");
        ask(state, text, None, Action::Delete(job));
    }
}

fn ask_pause(state: &mut State) {
    if !state.may_operate() {
        return;
    }
    let Some(row) = state.chosen_queue() else {
        return;
    };
    let (shard, queue) = (row.shard.clone(), row.view.queue.clone());
    let is_paused = !row.view.settings.paused;
    let verb = if is_paused { "Pause" } else { "Resume" };
    let text = format!("{verb} queue {queue}? y/N");
    ask(
        state,
        text,
        None,
        Action::Pause {
            shard,
            queue,
            is_paused,
        },
    );
}

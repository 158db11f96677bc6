//! Drawings: bounded, complete, and the same for the same graph.

use std::collections::HashSet;

use ganger_graphs::{BOXES_MAX, Drawing, EdgePolicy, Focus, Grouping, LINES_MAX, Selection, Shape};
use ganger_types::JobState;
use proptest::prelude::*;

use crate::sample::{diamond, graph, index, large};

fn draw(shape: &Shape, selection: &Selection) -> Drawing {
    Drawing::new(shape, selection, &ready(shape))
}

fn ready(shape: &Shape) -> Vec<JobState> {
    vec![JobState::Ready; shape.members().len()]
}

fn open(ids: &[&str]) -> Selection {
    Selection {
        open: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Selection::default()
    }
}

/// The labels of boxes: kind or `*`, and the number of jobs.
fn labels(shape: &Shape, drawing: &Drawing) -> Vec<String> {
    let kind = |place: usize| shape.kinds()[place].to_text().into_owned();
    let boxes = drawing.boxes.iter();
    boxes
        .map(|it| {
            format!(
                "{} {}",
                it.kind.map_or_else(|| "*".to_owned(), kind),
                it.jobs
            )
        })
        .collect()
}

#[test]
fn a_small_graph_has_a_box_for_each_job_in_the_column_of_its_level() {
    let shape = graph(
        &["a", "b", "c", "d"],
        &[(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)],
    );
    let drawing = draw(&shape, &Selection::default());
    assert!(!drawing.is_collapsed);
    assert_eq!(drawing.grouping, Grouping::Jobs);
    let columns: Vec<u32> = drawing.boxes.iter().map(|it| it.at.x).collect();
    assert_eq!(columns, [0, 1, 1, 2]);
    let rows = [drawing.boxes[1].at.y, drawing.boxes[2].at.y];
    assert!((rows[0] - rows[1]).abs() >= 1.0, "{rows:?}");
    let long = drawing
        .lines
        .iter()
        .find(|line| (line.from, line.to) == (0, 3));
    let via = &long.expect("there is a line").via;
    assert_eq!(via.len(), 1, "it passes the column in between");
    assert!(!rows.contains(&via[0].y), "and no box: {via:?}");
}

#[test]
fn jobs_with_the_same_neighbours_are_one_box() {
    let shape = diamond(1_000);
    let drawing = draw(&shape, &Selection::default());
    assert_eq!(
        labels(&shape, &drawing),
        ["split 1", "resize 1000", "join 1"]
    );
    assert_eq!(drawing.grouping, Grouping::Neighbours);
    let edges: Vec<u64> = drawing.lines.iter().map(|line| line.edges).collect();
    assert_eq!(edges, [1_000, 1_000]);
}

#[test]
fn jobs_of_one_level_and_kind_with_other_neighbours_are_separate() {
    // Two hundred jobs of one kind: half of them lead to `mail`, half to `bill`.
    let mut kinds = vec!["step".to_owned(); 200];
    kinds.extend(["mail".to_owned(), "bill".to_owned()]);
    let edges = (0..200).map(|at| (at, 200 + at % 2, EdgePolicy::Wait));
    let shape = large(&kinds, edges);
    let drawing = draw(&shape, &Selection::default());
    assert_eq!(
        labels(&shape, &drawing),
        ["step 100", "step 100", "bill 1", "mail 1"]
    );
    assert!(
        drawing
            .lines
            .iter()
            .all(|line| line.policy == EdgePolicy::Wait)
    );
}

#[test]
fn an_opened_group_shows_failed_and_running_jobs_first_and_the_rest_as_a_box() {
    let shape = diamond(1_000);
    let mut states = ready(&shape);
    states[500] = JobState::Failed;
    states[700] = JobState::Running;
    let drawing = Drawing::new(&shape, &open(&["b1", "b77"]), &states);
    assert_eq!(drawing.boxes.len(), 53);
    let rest = drawing.boxes.iter().find(|it| it.is_rest).expect("a rest");
    assert_eq!((rest.jobs, rest.job, rest.id.as_str()), (950, None, "b1"));
    for member in [index(500), index(700)] {
        let place = drawing.box_of(member).expect("it is shown");
        assert_eq!(drawing.boxes[place].job, Some(member));
    }
}

#[test]
fn the_surroundings_of_a_job_are_bounded_and_say_how_many_more_there_are() {
    let shape = diamond(1_000);
    let focus = |job, depth| Selection {
        focus: Some(Focus {
            job: index(job),
            depth,
        }),
        ..Selection::default()
    };
    let one = draw(&shape, &focus(5, 1));
    assert_eq!(labels(&shape, &one), ["resize 1", "split 1", "join 1"]);
    let many = draw(&shape, &focus(1_001, 1));
    assert!(many.boxes.len() <= BOXES_MAX);
    assert_eq!(many.boxes.iter().map(|it| it.jobs).sum::<u64>(), 1_001);
    assert!(many.boxes.iter().any(|it| it.is_rest && it.jobs > 800));
}

#[test]
fn a_chain_of_a_hundred_thousand_jobs_is_drawn_as_ranges_of_levels() {
    let kinds = vec!["step".to_owned(); 100_000];
    let shape = large(
        &kinds,
        (1..100_000).map(|at| (at - 1, at, EdgePolicy::Fail)),
    );
    assert_eq!(shape.levels(), 100_000);
    let drawing = draw(&shape, &Selection::default());
    assert_eq!(drawing.grouping, Grouping::LevelRanges);
    check(&shape, &drawing, true).expect("it is bounded");
    assert!(drawing.boxes.len() > 100, "{}", drawing.boxes.len());
}

/// What holds for every drawing; with `has_all`, each job is in exactly one box.
fn check(shape: &Shape, drawing: &Drawing, has_all: bool) -> Result<(), TestCaseError> {
    prop_assert!(
        drawing.boxes.len() <= BOXES_MAX,
        "{} boxes",
        drawing.boxes.len()
    );
    prop_assert!(
        drawing.lines.len() <= LINES_MAX,
        "{} lines",
        drawing.lines.len()
    );
    let ids: HashSet<&str> = drawing.boxes.iter().map(|it| it.id.as_str()).collect();
    prop_assert_eq!(ids.len(), drawing.boxes.len(), "ids differ");
    let counts = drawing.counts(&ready(shape));
    for (drawn, counts) in drawing.boxes.iter().zip(&counts) {
        prop_assert_eq!(drawn.jobs, counts.total());
        prop_assert!(drawn.jobs > 0);
        prop_assert_eq!(drawn.jobs == 1, drawn.job.is_some());
    }
    if has_all {
        let members = u64::try_from(shape.members().len()).expect("small");
        prop_assert_eq!(drawing.boxes.iter().map(|it| it.jobs).sum::<u64>(), members);
        prop_assert_eq!(drawing.lines_left_out, 0);
    }
    let mut taken = HashSet::new();
    for drawn in &drawing.boxes {
        prop_assert!(drawn.at.y >= 0.0 && drawn.at.y < drawing.size.y);
        prop_assert!(drawn.at.x < drawing.size.x);
        prop_assert!(
            taken.insert((drawn.at.x, drawn.at.y.to_bits())),
            "two in one place"
        );
    }
    Ok(())
}

/// Jobs of few kinds, and for each job some earlier jobs that it depends on.
fn shapes(jobs: usize) -> impl Strategy<Value = Shape> {
    (
        1..jobs,
        1..40_usize,
        0..5_usize,
        1..2_000_usize,
        any::<u64>(),
    )
        .prop_map(|(jobs, kinds, degree, reach, seed)| {
            let mut state = seed | 1;
            let mut draw = move |below: usize| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                usize::try_from(state >> 33).expect("31 bits fit") % below.max(1)
            };
            let kinds: Vec<String> = (0..jobs).map(|_| format!("k{}", draw(kinds))).collect();
            let mut edges = Vec::new();
            for to in 1..jobs {
                for _ in 0..draw(degree + 1) {
                    let from = to - 1 - draw(reach.min(to));
                    edges.push((from, to, EdgePolicy::Fail));
                }
            }
            large(&kinds, edges)
        })
}

fn check_selections(shape: &Shape) -> Result<(), TestCaseError> {
    let drawing = draw(shape, &Selection::default());
    check(shape, &drawing, true)?;
    let groups: Vec<&str> = drawing.boxes.iter().map(|it| it.id.as_str()).collect();
    let opened = draw(shape, &open(&groups));
    check(shape, &opened, true)?;
    let few = Selection {
        boxes_max: 10,
        ..Selection::default()
    };
    let few = draw(shape, &few);
    check(shape, &few, true)?;
    prop_assert!(few.boxes.len() <= 10);
    let last = u32::try_from(shape.members().len() / 2).expect("small");
    let focus = Selection {
        focus: Some(Focus {
            job: index(last),
            depth: 5,
        }),
        ..Selection::default()
    };
    let around = draw(shape, &focus);
    check(shape, &around, false)?;
    prop_assert!(around.box_of(index(last)).is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_drawing_is_bounded_and_counts_each_job_once(shape in shapes(2_000)) {
        check_selections(&shape)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn so_is_every_drawing_of_large_graphs(shape in shapes(100_000)) {
        check_selections(&shape)?;
    }
}

//! docs/known-bugs.md names every bug.

use dkvf_known_bugs::BUGS;

const PAGE: &str = include_str!("../../../../docs/known-bugs.md");

#[test]
fn the_page_has_the_story_source_run_and_finding_of_each_bug() {
    let text = PAGE.split_whitespace().collect::<Vec<_>>().join(" ");
    for bug in BUGS {
        let row = format!("| {} | {} | {} | {} |", bug.name, bug.faults, bug.seed, bug.caught);
        for part in [row.as_str(), bug.story, bug.published] {
            assert!(text.contains(part), "{}: the page lacks {part:?}", bug.name);
        }
    }
    assert_eq!(PAGE.matches("\n### ").count(), BUGS.len(), "a section for each bug, and no other");
}

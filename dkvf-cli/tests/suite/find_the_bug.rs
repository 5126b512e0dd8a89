//! `docs/find-the-bug.md` shows what the program prints.

use crate::{assert_status, path, run, text};

const PAGE: &str = include_str!("../../../docs/find-the-bug.md");

/// The commands of the page, without the program's name.
fn commands() -> Vec<Vec<&'static str>> {
    let lines = PAGE.lines().filter_map(|line| line.strip_prefix("dkvf "));
    lines
        .map(|line| line.split_whitespace().collect())
        .collect()
}

/// What the first command is said to print.
fn shown() -> Vec<&'static str> {
    let (_, rest) = PAGE.split_once("```text\n").unwrap();
    rest.split_once("```").unwrap().0.lines().collect()
}

/// The violated model and the kind of anomaly. Stamps and hashes are those of the day the page was written.
#[test]
fn the_bug_is_found_by_the_command_and_is_what_the_page_says() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("picture.svg");
    let mut command = commands().remove(0);
    *command.last_mut().unwrap() = path(&picture);
    let output = run(command);
    assert_status(&output, 1);
    let stdout = text(&output.stdout);
    let said: Vec<&str> = stdout.lines().collect();
    let kind = |line: &'static str| line.split_whitespace().next().unwrap();
    assert_eq!(said[0], shown()[0]);
    assert!(said[1].starts_with(kind(shown()[1])), "{}", said[1]);
    assert!(
        said.iter()
            .any(|line| line.starts_with("shrunk: 6 servers, 8 clients, 1000 operations"))
    );
    assert!(
        std::fs::read_to_string(picture)
            .unwrap()
            .contains(kind(shown()[1]))
    );
}

#[test]
fn the_fixed_protocol_keeps_its_claim_in_the_same_runs() {
    let command = commands().remove(1);
    assert_status(&run(command), 0);
}

//! `dkvf protocols`, and `--help`.

use crate::{assert_status, fields, json, run, text};

#[test]
fn the_library_is_listed_for_people_and_for_scripts() {
    let output = run(["protocols"]);
    assert_status(&output, 0);
    assert!(
        text(&output.stdout).contains("\neventual\n")
            || text(&output.stdout).starts_with("eventual\n")
    );

    let output = run(["protocols", "--json", "-"]);
    assert_status(&output, 0);
    let library = json(&output.stdout);
    assert_eq!(fields(&library), ["protocols"]);
    let protocols = library["protocols"].as_array().unwrap();
    assert!(
        protocols
            .iter()
            .any(|protocol| protocol["name"] == "eventual")
    );
    for protocol in protocols {
        assert_eq!(
            fields(protocol),
            [
                "claims",
                "client",
                "guarantee",
                "lines",
                "name",
                "paper",
                "status"
            ]
        );
        assert_eq!(fields(&protocol["lines"]), ["client", "metadata", "server"]);
        assert!(protocol["lines"]["server"].as_u64().unwrap() > 0);
    }
}

#[test]
fn every_help_ends_with_two_examples() {
    let commands: [&[&str]; 13] = [
        &[],
        &["protocols"],
        &["compare"],
        &["sim"],
        &["check"],
        &["anomalies"],
        &["calibrate"],
        &["server"],
        &["client"],
        &["client", "get"],
        &["client", "put"],
        &["client", "status"],
        &["client", "repl"],
    ];
    for command in commands {
        let output = run(command.iter().copied().chain(["--help"]));
        assert_status(&output, 0);
        let help = text(&output.stdout);
        let (_, examples) = help
            .split_once("\nExamples:\n")
            .unwrap_or_else(|| panic!("no examples: {help}"));
        assert!(
            examples.matches("dkvf ").count() >= 2,
            "{command:?}: {examples}"
        );
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let output = run(["protocols", "--json", "/no/such/folder/file"]);
    assert_status(&output, 1);
    assert!(text(&output.stderr).contains("/no/such/folder/file"));
}

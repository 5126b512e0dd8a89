//! `dkvf calibrate`.

use crate::{assert_status, fields, json, path, run, text};

#[test]
fn a_calibration_is_written_and_the_simulator_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cpu.json");
    let output = run([
        "calibrate",
        "--seconds",
        "1",
        "--repeats",
        "1",
        "--out",
        path(&file),
    ]);
    assert_status(&output, 0);
    assert!(text(&output.stdout).contains("per message "));
    let calibration = json(&std::fs::read(&file).unwrap());
    assert_eq!(
        fields(&calibration),
        ["commit", "cpu", "machine", "measured", "residual_percent"]
    );
    assert!(calibration["cpu"]["per_message_ns"].as_u64().unwrap() > 0);
    assert_status(
        &run(["sim", "eventual", "--ops", "50", "--cpu", path(&file)]),
        0,
    );
}

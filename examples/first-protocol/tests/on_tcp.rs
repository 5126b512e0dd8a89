//! The protocol as a cluster on loopback TCP, under load, with its history checked.

#[test]
fn a_short_run_satisfies_what_the_protocol_claims() {
    let report = first_protocol::run_checked(2_000).unwrap();
    let check = report.check.expect("the run is checked");
    assert_eq!(check.verdict, "satisfied", "{}", check.explanation);
    assert_eq!(check.model, "convergence,read-your-writes,monotonic-reads");
    assert_eq!((report.failed, report.unknown), (0, 0));
}

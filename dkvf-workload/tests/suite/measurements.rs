//! Latencies and how they are printed.

use dkvf_workload::{Measurements, OperationKind, Status};

#[test]
fn the_result_has_the_lines_of_ycsb() {
    let mut thread = Measurements::new();
    for latency_us in 1..=100 {
        thread.record(OperationKind::Read, Status::Ok, latency_us);
    }
    thread.record(OperationKind::AmplifiedInsert, Status::Ok, 500);
    let mut other = Measurements::new();
    other.record(OperationKind::Read, Status::NotFound, 7);
    other.record(OperationKind::Read, Status::Error, 9);
    other.record(OperationKind::Update, Status::Unknown, 1000);
    let mut all = Measurements::new();
    all.merge(&thread);
    all.merge(&other);
    assert_eq!(
        all.ycsb_lines(2000, None),
        "\
[OVERALL], RunTime(ms), 2000
[OVERALL], Throughput(ops/sec), 50.5
[READ], Operations, 100
[READ], AverageLatency(us), 50.5
[READ], MinLatency(us), 1
[READ], MaxLatency(us), 100
[READ], 50thPercentileLatency(us), 50
[READ], 95thPercentileLatency(us), 95
[READ], 99thPercentileLatency(us), 99
[READ], Return=OK, 100
[READ], Return=NOT_FOUND, 1
[READ], Return=ERROR, 1
[READ-FAILED], Operations, 2
[READ-FAILED], AverageLatency(us), 8
[READ-FAILED], MinLatency(us), 7
[READ-FAILED], MaxLatency(us), 9
[READ-FAILED], 50thPercentileLatency(us), 7
[READ-FAILED], 95thPercentileLatency(us), 9
[READ-FAILED], 99thPercentileLatency(us), 9
[UPDATE], Return=UNKNOWN, 1
[UPDATE-FAILED], Operations, 1
[UPDATE-FAILED], AverageLatency(us), 1000
[UPDATE-FAILED], MinLatency(us), 1000
[UPDATE-FAILED], MaxLatency(us), 1000
[UPDATE-FAILED], 50thPercentileLatency(us), 1000
[UPDATE-FAILED], 95thPercentileLatency(us), 1000
[UPDATE-FAILED], 99thPercentileLatency(us), 1000
[AMP_INSERT], Operations, 1
[AMP_INSERT], AverageLatency(us), 500
[AMP_INSERT], MinLatency(us), 500
[AMP_INSERT], MaxLatency(us), 500
[AMP_INSERT], 50thPercentileLatency(us), 500
[AMP_INSERT], 95thPercentileLatency(us), 500
[AMP_INSERT], 99thPercentileLatency(us), 500
[AMP_INSERT], Return=OK, 1
"
    );
}

#[test]
fn intended_latencies_are_printed_apart() {
    let mut plain = Measurements::new();
    plain.record(OperationKind::Read, Status::Ok, 10);
    let mut intended = Measurements::new();
    intended.record(OperationKind::Read, Status::Ok, 30);
    let lines = plain.ycsb_lines(0, Some(&intended));
    assert!(
        lines.contains("[OVERALL], Throughput(ops/sec), 0\n"),
        "{lines}"
    );
    assert!(lines.contains("[READ], MaxLatency(us), 10\n"), "{lines}");
    assert!(
        lines.contains("[Intended-READ], MaxLatency(us), 30\n"),
        "{lines}"
    );
}

#[test]
fn latencies_beyond_an_hour_count_as_an_hour() {
    let mut measurements = Measurements::new();
    measurements.record(OperationKind::Read, Status::Ok, u64::MAX);
    measurements.record(OperationKind::Read, Status::Ok, 0);
    let histogram = measurements.latency_us(OperationKind::Read).unwrap();
    assert_eq!(histogram.len(), 2);
    assert_eq!(histogram.min(), 0);
    let hour_us = 3_600_000_000_u64;
    assert!(
        histogram.max().abs_diff(hour_us) < hour_us / 100,
        "{}",
        histogram.max()
    );
    assert_eq!(measurements.count(Status::Ok), 2);
    assert!(measurements.latency_us(OperationKind::Scan).is_none());
}

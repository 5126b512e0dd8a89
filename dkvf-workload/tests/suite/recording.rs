//! The recorder, and the history that it becomes.

use dkvf_check::{About, Action, History, Model, Options, Outcome, Verdict};
use dkvf_workload::{Entry, Kind, Recorder, Tag, Workload, WorkloadSpec};

fn workload() -> Workload {
    let overrides = [("recordcount", "10"), ("insertorder", "ordered")];
    Workload::new(WorkloadSpec::load("a", overrides).unwrap(), 1, 2)
}

fn entry(session: u32, kind: Kind, key_index: u64, value: Option<Tag>, invoke_us: u64) -> Entry {
    Entry {
        process: session,
        session,
        site: session as u16,
        kind,
        key_index,
        value,
        version: None,
        invoke_us,
        complete_us: Some(invoke_us + 1),
        outcome: Outcome::Ok,
        same_transaction: false,
    }
}

fn tag(session: u64, counter: u64) -> Option<Tag> {
    Some(Tag { session, counter })
}

fn history(recorders: &[Recorder]) -> History {
    let sites = ["dc1".to_owned(), "dc2".to_owned()];
    let about = About {
        workload: "a".to_owned(),
        ..About::default()
    };
    Recorder::history(recorders, &workload(), &sites, about)
}

fn recorder(entries: &[Entry]) -> Recorder {
    let mut recorder = Recorder::new(entries.len());
    for &entry in entries {
        recorder.record(entry);
    }
    recorder
}

fn verdict(history: &History, model: Model) -> Verdict {
    model.check(history, &Options::default())
}

#[test]
fn what_was_recorded_is_in_the_history() {
    let mut write = entry(1, Kind::Write, 3, tag(1, 1), 5);
    write.version = Some(77);
    write.outcome = Outcome::Info;
    write.complete_us = None;
    let history = history(&[recorder(&[write])]);
    let [op] = history.operations() else {
        panic!("{history:?}");
    };
    let transaction = history.transaction_of(0);
    assert_eq!((transaction.process, transaction.session), (1, 1));
    assert_eq!(history.site(transaction.site), "dc2");
    assert_eq!(history.key(op.key), b"user3");
    let Action::Write(Some(value)) = op.action else {
        panic!("{op:?}");
    };
    assert_eq!(history.value(value), b"1-1");
    assert_eq!(op.version, Some(77));
    assert_eq!((transaction.invoke_us, transaction.complete_us), (5, None));
    assert_eq!(transaction.outcome, Outcome::Info);
    assert_eq!(history.sites(), ["dc1", "dc2"]);
    assert_eq!(history.about.workload, "a");
}

#[test]
fn entries_of_one_transaction_are_one_in_the_history() {
    let read = entry(0, Kind::Read, 1, None, 10);
    let mut with_it = entry(0, Kind::Read, 2, None, 10);
    with_it.same_transaction = true;
    let next = entry(0, Kind::Read, 1, None, 20);
    let mut recorder = Recorder::new(2);
    recorder.reserve(2);
    for entry in [next, read, with_it, next] {
        recorder.record(entry);
    }
    let history = history(&[recorder]);
    let loaded = 2_usize;
    let of = |transaction: usize| history.operations_of(loaded + transaction).len();
    assert_eq!([of(0), of(1), of(2)], [1, 2, 1]);
}

#[test]
fn recorders_of_several_threads_become_one_history() {
    let history = history(&[
        recorder(&[entry(0, Kind::Write, 1, tag(0, 1), 10)]),
        recorder(&[entry(1, Kind::Read, 1, tag(0, 1), 20)]),
    ]);
    assert_eq!(history.operations().len(), 2);
    assert_eq!(verdict(&history, Model::MonotonicReads), Verdict::Satisfied);
}

#[test]
fn loaded_records_are_written_before_everything_else() {
    let loaded = Some(Tag::loaded(3));
    let read_loaded = entry(0, Kind::Read, 3, loaded, 10);
    let history_of = |second| history(&[recorder(&[read_loaded, second])]);

    let same = history_of(entry(0, Kind::Read, 3, loaded, 20));
    assert_eq!(same.operations().len(), 3, "one write by the loader");
    assert_eq!(verdict(&same, Model::MonotonicReads), Verdict::Satisfied);

    let lost = history_of(entry(0, Kind::Read, 3, None, 20));
    assert_eq!(verdict(&lost, Model::MonotonicReads).name(), "violated");

    let wrong_key = history_of(entry(0, Kind::Read, 4, loaded, 20));
    assert_eq!(
        verdict(&wrong_key, Model::MonotonicReads).name(),
        "violated"
    );
}

#[test]
fn a_loaded_record_that_no_replica_has_is_lost() {
    let finals = |value| {
        history(&[recorder(&[
            entry(0, Kind::Read, 3, value, 10),
            entry(1, Kind::Read, 3, value, 10),
        ])])
    };
    let verdict_of = |value| verdict(&finals(value), Model::Convergence);
    assert_eq!(verdict_of(Some(Tag::loaded(3))), Verdict::Satisfied);
    assert_eq!(verdict_of(None).name(), "violated");
    // A record that was never loaded may be absent.
    let inserted = history(&[recorder(&[
        entry(0, Kind::Read, 10, None, 10),
        entry(1, Kind::Read, 10, None, 10),
    ])]);
    assert_eq!(verdict(&inserted, Model::Convergence), Verdict::Satisfied);
}

#[test]
fn a_value_without_a_tag_is_one_that_nobody_wrote() {
    let history = history(&[recorder(&[entry(0, Kind::Read, 3, Some(Tag::FOREIGN), 1)])]);
    let verdict = verdict(&history, Model::ReadYourWrites);
    let text = verdict.explain(&history).to_string();
    assert!(text.contains("thin-air-read"), "{text}");
}

#[test]
fn past_its_cap_a_recorder_drops_and_no_verdict_is_given() {
    let mut recorder = Recorder::new(2);
    for i in 0..5 {
        recorder.record(entry(0, Kind::Write, 1, tag(0, i), i));
    }
    assert_eq!(recorder.entries().count(), 2);
    assert_eq!(recorder.dropped(), 3);
    let history = history(&[recorder]);
    let reason = "the history is incomplete: \
                  the recorder was full after 2 operations and dropped 3";
    for model in Model::ALL {
        assert_eq!(
            verdict(&history, model),
            Verdict::Unknown(reason.to_owned())
        );
    }
}

#[test]
fn an_entry_is_small() {
    const { assert!(Recorder::ENTRY_BYTES <= 112) };
}

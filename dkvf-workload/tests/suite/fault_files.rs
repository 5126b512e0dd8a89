//! Schedules of faults as files.

use dkvf_core::{Member, ServerId, Topology};
use dkvf_workload::faults::{
    Change, Disk, Fault, Links, Schedule, ScheduleError, ScheduleFile, TIME_US_MAX, Timed, links,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Servers 0_0, 0_1, 0_2, 1_0, 1_1, 1_2: ids 0 to 5.
fn topology() -> Topology {
    Topology::grid(2, 3)
}

fn parse(text: &str) -> Result<Schedule, ScheduleError> {
    Schedule::parse("f.jsonl", text.as_bytes(), &topology())
}

/// The only fault of a line that begins at 1 ms.
#[track_caller]
fn fault(rest: &str) -> Timed {
    let schedule =
        parse(&format!("{{\"at_ms\":1,{rest}}}")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(schedule.faults.len(), 1, "{rest}");
    assert_eq!(schedule.faults[0].at_us, 1000);
    schedule.faults[0].clone()
}

fn cut(rest: &str) -> Links {
    match fault(&format!("\"fault\":\"partition\",{rest}")).fault {
        Fault::Cut { links } => links,
        other => panic!("{other:?}"),
    }
}

fn ids(ids: &[u16]) -> Vec<ServerId> {
    ids.iter().map(|id| ServerId(*id)).collect()
}

fn link(from: u16, to: u16) -> (ServerId, ServerId) {
    (ServerId(from), ServerId(to))
}

#[test]
fn every_fault_has_its_word_and_fields() {
    let node = ServerId(1);
    let both = || vec![link(0, 3), link(3, 0)];
    let crash = |disk| Fault::Crash { node, disk };
    let table = [
        ("\"fault\":\"crash\",\"node\":\"0_1\"", crash(Disk::Kept)),
        (
            "\"fault\":\"crash\",\"node\":\"0_1\",\"disk\":\"kept\"",
            crash(Disk::Kept),
        ),
        (
            "\"fault\":\"crash\",\"node\":\"0_1\",\"disk\":\"torn\"",
            crash(Disk::Torn),
        ),
        (
            "\"fault\":\"crash\",\"node\":\"0_1\",\"disk\":\"empty\"",
            crash(Disk::Empty),
        ),
        ("\"fault\":\"torn\",\"node\":[\"0_1\"]", crash(Disk::Torn)),
        (
            "\"fault\":\"pause\",\"node\":\"0_1\"",
            Fault::Pause { node },
        ),
        (
            "\"fault\":\"disk-full\",\"node\":\"0_1\"",
            Fault::DiskFull { node },
        ),
        (
            "\"fault\":\"slow\",\"node\":\"0_1\",\"factor\":8",
            Fault::Slow { node, factor: 8 },
        ),
        (
            "\"fault\":\"step\",\"node\":\"0_1\",\"by_ms\":-2.5",
            Fault::Step { node, by_us: -2500 },
        ),
        (
            "\"fault\":\"skew\",\"node\":\"0_1\",\"by_ms\":0.001",
            Fault::Step { node, by_us: 1 },
        ),
        (
            "\"fault\":\"drift\",\"node\":\"0_1\",\"ppm\":-200",
            Fault::Drift { node, ppm: -200 },
        ),
        (
            "\"fault\":\"partition\",\"link\":\"0_0-1_0\"",
            Fault::Cut { links: both() },
        ),
        (
            "\"fault\":\"hold\",\"link\":\"0_0-1_0\"",
            Fault::Hold { links: both() },
        ),
        (
            "\"fault\":\"delay\",\"link\":\"0_0-1_0\",\"by_ms\":40,\"jitter_ms\":0.5",
            Fault::Delay {
                links: both(),
                by_us: 40_000,
                jitter_us: 500,
            },
        ),
        (
            "\"fault\":\"break\",\"link\":\"0_0-1_0\",\"lose_permille\":10,\"reorder_permille\":1000",
            Fault::Break {
                links: both(),
                lose_permille: 10,
                repeat_permille: 0,
                reorder_permille: 1000,
            },
        ),
    ];
    for (line, expected) in table {
        let read = fault(line);
        assert_eq!(read.fault, expected, "{line}");
        assert_eq!(read.for_us, None, "{line}");
    }
    assert_eq!(
        fault("\"fault\":\"pause\",\"node\":\"0_1\",\"for_ms\":0.25").for_us,
        Some(250)
    );
}

#[test]
fn links_are_named_one_by_one_or_by_what_they_cut_off() {
    let all = topology();
    assert_eq!(cut("\"link\":\"0_0-1_0\""), [link(0, 3), link(3, 0)]);
    assert_eq!(cut("\"link\":\"1_0>0_0\""), [link(3, 0)]);
    assert_eq!(
        cut("\"link\":[\"0_0>1_0\",\"1_0<>0_0\"]"),
        [link(0, 3), link(3, 0)]
    );
    assert_eq!(cut("\"link\":\"*\""), links::all(&all));
    assert_eq!(
        cut("\"node\":\"0_1\""),
        links::around(&ids(&[1]), &all, false)
    );
    assert_eq!(
        cut("\"node\":\"0_1\",\"one_way\":true"),
        links::around(&ids(&[1]), &all, true)
    );
    let both = cut("\"node\":[\"0_1\",\"0_2\"]");
    assert!(both.contains(&link(1, 2)), "each of them is alone");
    assert_eq!(both.len(), 2 * (5 + 4));
    assert_eq!(
        cut("\"replica\":1"),
        links::between(&[ids(&[3, 4, 5]), ids(&[0, 1, 2])], false)
    );
    let sides = "\"sides\":[[\"0_0\",\"0_1\"],[\"1_0\"]]";
    assert_eq!(cut(sides), [link(0, 3), link(1, 3), link(3, 0), link(3, 1)]);
    assert_eq!(
        cut(&format!("{sides},\"one_way\":true")),
        [link(0, 3), link(1, 3)]
    );
    let three = cut("\"sides\":[[\"0_0\"],[\"1_0\"],[\"1_1\"]],\"one_way\":true");
    assert_eq!(three, [link(0, 3), link(0, 4), link(3, 4)]);
}

#[test]
fn faults_are_sorted_by_time_and_blank_lines_and_comments_skipped() {
    let text = "# what goes wrong\n\n{\"at_ms\":20,\"fault\":\"crash\",\"node\":[\"0_1\",\"0_0\"],\"for_ms\":1}\n  \n{\"at_ms\":5,\"fault\":\"pause\",\"node\":\"1_1\"}\r\n";
    let read = ScheduleFile::parse("f.jsonl", text.as_bytes(), &topology()).unwrap();
    let times: Vec<u64> = read
        .schedule
        .faults
        .iter()
        .map(|timed| timed.at_us)
        .collect();
    assert_eq!(times, [5000, 20_000, 20_000]);
    assert_eq!(read.lines, [5, 3, 3]);
    assert_eq!(read.place(0), "f.jsonl:5");
    assert_eq!(parse("# nothing\n").unwrap(), Schedule::default());
}

#[test]
fn names_with_a_hyphen_are_told_from_links() {
    let member = |name: &str, partition| Member {
        name: name.to_owned(),
        partition,
        ..topology().members()[0].clone()
    };
    let names = ["a", "b-c", "a-b", "c"];
    let members = (0..).zip(names).map(|(place, name)| member(name, place));
    let topology = Topology::new(members.collect()).unwrap();
    let parse = |link: &str| {
        let line = format!("{{\"at_ms\":1,\"fault\":\"partition\",\"link\":\"{link}\"}}");
        Schedule::parse("f", line.as_bytes(), &topology)
    };
    let ambiguous = parse("a-b-c").unwrap_err().to_string();
    assert_eq!(
        ambiguous,
        "f:1: link: \"a-b-c\" can be read in several ways; write A<>B"
    );
    assert_eq!(parse("b-c-c").unwrap(), parse("b-c<>c").unwrap());
    let written = parse("a<>b-c").unwrap();
    let text = written.write(&topology);
    assert!(text.contains("\"a<>b-c\""), "{text}");
    assert_eq!(
        Schedule::parse("f", text.as_bytes(), &topology).unwrap(),
        written
    );
}

#[test]
fn mistakes_are_told_with_file_line_field_and_remedy() {
    let table = [
        (
            "crash",
            "f.jsonl:2: expected value at line 1 column 1: write one object per line, such as {\"at_ms\":500,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":200}",
        ),
        (
            "[]",
            "f.jsonl:2: invalid type: sequence, expected an object at line 1 column 0: write one object per line, such as {\"at_ms\":500,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":200}",
        ),
        (
            "{\"at_ms\":1,\"at_ms\":2}",
            "f.jsonl:2: \"at_ms\" is there twice at line 1 column 21: write one object per line, such as {\"at_ms\":500,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":200}",
        ),
        (
            "{\"fault\":\"crash\"}",
            "f.jsonl:2: \"at_ms\" is missing: add it",
        ),
        ("{\"at_ms\":1}", "f.jsonl:2: \"fault\" is missing: add it"),
        (
            "{\"at_ms\":-1,\"fault\":\"crash\"}",
            "f.jsonl:2: at_ms: it is -1; allowed: milliseconds from 0 to 86400000",
        ),
        (
            "{\"at_ms\":\"1\",\"fault\":\"crash\"}",
            "f.jsonl:2: at_ms: it is \"1\"; allowed: milliseconds from 0 to 86400000",
        ),
        (
            "{\"at_ms\":1e9,\"fault\":\"crash\"}",
            "f.jsonl:2: at_ms: it is 1000000000.0; allowed: milliseconds from 0 to 86400000",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crahs\"}",
            "f.jsonl:2: fault: \"crahs\" is no fault; there are crash, restart, pause, partition, delay, hold, slow, step, skew, drift, disk-full, torn, break",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\"}",
            "f.jsonl:2: \"node\" is missing: add it",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":7}",
            "f.jsonl:2: node: it is 7; allowed: a text in quotes or a list of them",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":[]}",
            "f.jsonl:2: node: an empty list: name a server",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":\"2_0\"}",
            "f.jsonl:2: node: there is no server \"2_0\"; there are 0_0, 0_1, 0_2, 1_0, 1_1, 1_2",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":\"0_0\",\"disk\":\"gone\"}",
            "f.jsonl:2: disk: \"gone\" is no state of a disk; there are kept, torn, empty",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":\"0_0\",\"for\":1}",
            "f.jsonl:2: \"for\": crash has no such field; it has at_ms, fault, for_ms, disk, node",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":0}",
            "f.jsonl:2: for_ms: a fault that lasts no time: give more than 0, or leave this out for one that lasts to the end",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"step\",\"node\":\"0_0\",\"by_ms\":1,\"for_ms\":1}",
            "f.jsonl:2: \"for_ms\": step has no such field; it has at_ms, fault, by_ms, node",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"slow\",\"node\":\"0_0\",\"factor\":1}",
            "f.jsonl:2: factor: it is 1; allowed: a whole number from 2 to 1000000",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"drift\",\"node\":\"0_0\",\"ppm\":-1000000}",
            "f.jsonl:2: ppm: it is -1000000; allowed: a whole number from -999999 to 999999",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\"}",
            "f.jsonl:2: it does not say where: add one of \"link\", \"node\", \"replica\" or \"sides\"",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"node\":\"0_0\",\"replica\":0}",
            "f.jsonl:2: replica: it already says where: keep one of \"link\", \"node\", \"replica\" or \"sides\"",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"replica\":2}",
            "f.jsonl:2: replica: there is no replica 2; there are 0 to 1",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"link\":\"0_0\"}",
            "f.jsonl:2: link: \"0_0\" is no link between two servers; write A-B for both directions, A>B for one, or * for all links, with names such as 0_0, 0_1",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"link\":\"0_0>0_0\"}",
            "f.jsonl:2: link: \"0_0>0_0\" leads from a server to itself: name two servers",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"link\":\"0_0-1_0\",\"one_way\":true}",
            "f.jsonl:2: one_way: a link says it itself: write \"A>B\" for one way, \"A-B\" for both, and leave this field out",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"sides\":[[\"0_0\"]]}",
            "f.jsonl:2: sides: give at least two, such as [[\"0_0\"],[\"1_0\"]]",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"partition\",\"sides\":[[\"0_0\"],[\"0_0\"]]}",
            "f.jsonl:2: sides: 0_0 is on two sides: name it once",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"delay\",\"link\":\"*\"}",
            "f.jsonl:2: \"by_ms\" is missing: add it",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"break\",\"link\":\"*\"}",
            "f.jsonl:2: nothing breaks: give lose_permille, repeat_permille or reorder_permille, from 1 to 1000",
        ),
        (
            "{\"at_ms\":1,\"fault\":\"break\",\"link\":\"*\",\"lose_permille\":1001}",
            "f.jsonl:2: lose_permille: it is 1001; allowed: a whole number from 0 to 1000",
        ),
    ];
    for (line, message) in table {
        match parse(&format!("# first\n{line}\n")) {
            Err(error) => assert_eq!(error.to_string(), message),
            Ok(schedule) => panic!("{line}: {schedule:?}"),
        }
    }
}

#[test]
fn faults_that_contradict_each_other_are_refused() {
    let crash = |at: u64, rest: &str| {
        format!("{{\"at_ms\":{at},\"fault\":\"crash\",\"node\":\"0_1\"{rest}}}\n")
    };
    let node = |at: u64, fault: &str| {
        format!("{{\"at_ms\":{at},\"fault\":\"{fault}\",\"node\":\"0_1\",\"for_ms\":5}}\n")
    };
    let restart = |at: u64| format!("{{\"at_ms\":{at},\"fault\":\"restart\",\"node\":\"0_1\"}}\n");
    let cut = |at: u64, link: &str| {
        format!("{{\"at_ms\":{at},\"fault\":\"partition\",\"link\":\"{link}\",\"for_ms\":10}}\n")
    };
    let still = |target: &str, line: u32, with: u32| {
        Some(format!(
            "f.jsonl:{line}: {target} is still under the fault of line {with} then: let that end before this begins"
        ))
    };
    let not_down = |line: u32| {
        Some(format!(
            "f.jsonl:{line}: 0_1 has not crashed then: restart it while it is down, or remove this line"
        ))
    };
    let table = [
        (crash(1, ",\"for_ms\":9") + &crash(10, ""), None),
        (
            crash(1, ",\"for_ms\":10") + &crash(10, ""),
            still("0_1", 2, 1),
        ),
        (crash(1, "") + &node(10, "pause"), still("0_1", 2, 1)),
        (node(7, "pause") + &node(3, "disk-full"), still("0_1", 1, 2)),
        (crash(1, "") + &restart(5) + &crash(5, ""), None),
        (
            crash(1, ",\"for_ms\":10") + &restart(5) + &node(6, "pause"),
            None,
        ),
        (restart(5), not_down(1)),
        (crash(1, ",\"for_ms\":2") + &restart(5), not_down(2)),
        (node(1, "pause") + &restart(5), not_down(2)),
        (cut(1, "0_0>1_0") + &cut(5, "1_0>0_0"), None),
        (
            cut(1, "0_0-1_0") + &cut(5, "0_0>1_0"),
            still("0_0>1_0", 2, 1),
        ),
    ];
    for (text, problem) in table {
        let error = parse(&text).err().map(|error| error.to_string());
        assert_eq!(error, problem, "{text}");
    }
}

#[test]
fn changes_come_in_the_order_of_time_and_a_restart_ends_a_crash() {
    let text = "{\"at_ms\":2,\"fault\":\"crash\",\"node\":\"0_0\",\"for_ms\":100}
        {\"at_ms\":1,\"fault\":\"partition\",\"node\":\"1_1\",\"for_ms\":3}
        {\"at_ms\":4,\"fault\":\"restart\",\"node\":\"0_0\"}
        {\"at_ms\":4,\"fault\":\"step\",\"node\":\"0_0\",\"by_ms\":1}
        {\"at_ms\":9,\"fault\":\"hold\",\"link\":\"*\"}";
    let schedule = parse(text).unwrap();
    let change = |at_ms: u64, fault, begins| Change {
        at_us: at_ms * 1000,
        fault,
        begins,
    };
    assert_eq!(
        schedule.changes(),
        [
            change(1, 0, true),
            change(2, 1, true),
            change(4, 0, false),
            change(4, 1, false),
            change(4, 3, true),
            change(9, 4, true),
        ]
    );
}

#[test]
fn hostile_files_are_refused_without_using_much() {
    let deep = format!("{{\"at_ms\":1,\"fault\":{}", "[".repeat(1 << 20));
    let many_fields: String = (0..100_000)
        .map(|field| format!("\"{field}\":0,"))
        .collect();
    let links =
        "{\"at_ms\":1,\"fault\":\"hold\",\"link\":\"*\",\"for_ms\":0.001}\n".repeat(1 << 18);
    let long = "#".repeat(17 << 20);
    let faults = "{\"at_ms\":1,\"fault\":\"step\",\"node\":\"0_0\",\"by_ms\":1}\n".repeat(100_001);
    for (text, problem) in [
        (deep.as_str(), "recursion limit exceeded"),
        (
            &format!("{{{many_fields}\"at_ms\":1}}"),
            "no fault has so many fields",
        ),
        (&links, "or 4194304 links in them"),
        (&long, "longer than 16777216 bytes"),
        (&faults, "more than 100000 faults"),
        (
            "{\"at_ms\":1e999,\"fault\":\"crash\"}",
            "number out of range",
        ),
        ("{\"at_ms\":1,\"fault\":\"\u{1b}[2J\"}", "control character"),
    ] {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{problem:?} is not in {error}");
        assert!(error.len() < 1000, "{} bytes", error.len());
    }
    let not_text = Schedule::parse("f.jsonl", b"\xff", &topology()).unwrap_err();
    assert!(
        not_text.to_string().starts_with("f.jsonl: not UTF-8"),
        "{not_text}"
    );
    let none = ScheduleFile::read("/no/such/file".as_ref(), &topology()).unwrap_err();
    assert!(
        none.to_string()
            .starts_with("/no/such/file: cannot read it"),
        "{none}"
    );
}

#[test]
fn partitions_are_written_as_people_would_say_them() {
    let table = [
        "\"link\":\"*\"",
        "\"node\":\"0_1\"",
        "\"node\":\"0_1\",\"one_way\":true",
        "\"replica\":0",
        "\"replica\":1,\"one_way\":true",
        "\"sides\":[[\"0_0\",\"1_1\"],[\"0_1\"]]",
        "\"sides\":[[\"0_0\",\"1_1\"],[\"0_1\"]],\"one_way\":true",
        "\"link\":\"0_0-1_0\"",
        "\"link\":\"1_0>0_0\"",
        "\"link\":[\"0_0>0_1\",\"0_2-1_0\"]",
    ];
    for target in table {
        let line = format!("{{\"at_ms\":1.5,\"fault\":\"partition\",{target},\"for_ms\":0.125}}\n");
        assert_eq!(parse(&line).unwrap().write(&topology()), line);
    }
}

fn some_links() -> impl Strategy<Value = Links> {
    vec((0..6_u16, 0..6_u16), 1..12)
        .prop_map(|pairs| {
            links::normalised(pairs.into_iter().map(|(from, to)| link(from, to)).collect())
        })
        .prop_filter("at least one link", |links| !links.is_empty())
}

fn some_fault() -> impl Strategy<Value = Fault> {
    let node = || (0..6_u16).prop_map(ServerId);
    let disk = prop_oneof![Just(Disk::Kept), Just(Disk::Torn), Just(Disk::Empty)];
    let step = -(TIME_US_MAX as i64)..=TIME_US_MAX as i64;
    prop_oneof![
        (node(), disk).prop_map(|(node, disk)| Fault::Crash { node, disk }),
        node().prop_map(|node| Fault::Restart { node }),
        node().prop_map(|node| Fault::Pause { node }),
        node().prop_map(|node| Fault::DiskFull { node }),
        (node(), 2..=1_000_000_u32).prop_map(|(node, factor)| Fault::Slow { node, factor }),
        (node(), step).prop_map(|(node, by_us)| Fault::Step { node, by_us }),
        (node(), -999_999..=999_999).prop_map(|(node, ppm)| Fault::Drift { node, ppm }),
        some_links().prop_map(|links| Fault::Cut { links }),
        some_links().prop_map(|links| Fault::Hold { links }),
        (some_links(), 0..=TIME_US_MAX, 0..=TIME_US_MAX).prop_map(|(links, by_us, jitter_us)| {
            Fault::Delay {
                links,
                by_us,
                jitter_us,
            }
        }),
        (some_links(), 0..=1000_u16, 0..=1000_u16, 1..=1000_u16).prop_map(
            |(links, lose_permille, repeat_permille, reorder_permille)| Fault::Break {
                links,
                lose_permille,
                repeat_permille,
                reorder_permille,
            }
        ),
    ]
}

/// A schedule in which no fault contradicts another.
fn some_schedule() -> impl Strategy<Value = Schedule> {
    let length = proptest::option::of(1..=TIME_US_MAX);
    vec((0..=TIME_US_MAX, length, some_fault()), 0..20).prop_map(|faults| {
        let mut sorted: Vec<Timed> = faults
            .into_iter()
            .map(|(at_us, for_us, fault)| {
                let has_length = !matches!(fault, Fault::Restart { .. } | Fault::Step { .. });
                Timed {
                    at_us,
                    for_us: for_us.filter(|_| has_length),
                    fault,
                }
            })
            .collect();
        sorted.sort_by_key(|timed| timed.at_us);
        let mut schedule = Schedule::default();
        for timed in sorted {
            schedule.faults.push(timed);
            if schedule.conflict().is_some() {
                schedule.faults.pop();
            }
        }
        schedule
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back_as_it_was(schedule in some_schedule()) {
        let text = schedule.write(&topology());
        prop_assert_eq!(parse(&text), Ok(schedule), "{}", text);
    }

    #[test]
    fn no_line_makes_the_reader_panic(
        words in vec(prop_oneof![
            Just("{"), Just("}"), Just("["), Just("]"), Just(","), Just(":"), Just("\"link\""), Just("\"sides\""),
            Just("\"at_ms\":1,"), Just("\"fault\":\"partition\","), Just("\"fault\":\"delay\","), Just("\"by_ms\":"),
            Just("\"0_0-1_0\""), Just("\"node\""), Just("\"-\""), Just("\"<>\""), Just("-1e300"), Just("null"), Just("\n"),
        ], 0..24)
    ) {
        let _ = parse(&words.concat());
        let _ = parse(&format!("{{\"at_ms\":1,\"fault\":\"partition\",{}}}", words.concat()));
    }
}

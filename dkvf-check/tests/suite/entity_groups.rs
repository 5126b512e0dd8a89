//! Parallel snapshot isolation with entity groups: within a group it must be snapshot isolation.

use dkvf_check::{AnomalyKind, Evidence, Groups, History, Model, Options, Order, Outcome, Verdict};

use crate::common::history;
use crate::drafts::{self, Draft, Orders, Random, Shape, Step, Txn, Value};
use crate::oracle;

fn groups(text: &[(&str, &str)]) -> Groups {
    let mut groups = Groups::default();
    for (key, group) in text {
        groups.insert(key.as_bytes(), group);
    }
    groups
}

fn check(history: &History, groups: &Groups, evidence: Evidence, order: Order) -> Verdict {
    let options = Options {
        groups: Some(groups),
        order: Some(order),
        ..Options::with(evidence)
    };
    Model::Psi.check(history, &options)
}

const LONG_FORK: &str = "
    1: w x 1
    2: w y 1
    3: r x 1, r y
    4: r x, r y 1";

#[test]
fn a_long_fork_is_allowed_across_groups_and_forbidden_within_one() {
    let history = history(LONG_FORK);
    let apart = groups(&[("x", "a"), ("y", "b")]);
    let together = groups(&[("x", "a"), ("y", "a")]);
    assert_eq!(
        check(&history, &apart, Evidence::Auto, Order::None),
        Verdict::Satisfied
    );
    let verdict = check(&history, &together, Evidence::Auto, Order::None);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::LongFork);
    assert_eq!(
        anomalies[0].because[0],
        "within group a, which must be snapshot isolated:"
    );
}

#[test]
fn a_key_without_a_group_leaves_the_verdict_open() {
    let verdict = check(
        &history(LONG_FORK),
        &groups(&[("x", "a")]),
        Evidence::Auto,
        Order::None,
    );
    assert_eq!(verdict, Verdict::Unknown("key y is in no group".to_owned()));
}

#[test]
fn a_cycle_across_groups_that_parallel_snapshot_isolation_forbids_is_found() {
    let history = history(
        "
        1: w x 1, w y 1
        2: r x 1, r y",
    );
    let apart = groups(&[("x", "a"), ("y", "b")]);
    let verdict = check(&history, &apart, Evidence::Auto, Order::None);
    let Verdict::Violated(anomalies) = &verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(anomalies[0].kind, AnomalyKind::FracturedRead);
}

/// The transactions without what they do to other keys.
fn projected(draft: &Draft, group: impl Fn(usize) -> bool) -> Draft {
    let mut draft = draft.clone();
    for txn in &mut draft.txns {
        txn.steps.retain(|step| group(step.key()));
    }
    draft
}

/// Adds two writers of two keys, and two readers each of which saw one of them.
fn add_long_fork(random: &mut Random, draft: &mut Draft, versions: &mut Orders) {
    let first = random.below(3) as usize;
    let second = (first + 1) % 3;
    let (a, b) = (101, 102);
    let transactions = [
        vec![Step::Write(first, a)],
        vec![Step::Write(second, b)],
        vec![Step::Read(first, a), Step::Read(second, 0)],
        vec![Step::Read(second, b), Step::Read(first, 0)],
    ];
    for (session, steps) in (10..).zip(transactions) {
        let outcome = Outcome::Ok;
        draft.txns.push(Txn {
            session,
            invoke: 0,
            complete: 99,
            outcome,
            steps,
        });
    }
    versions[first].push(a);
    versions[second].push(b);
}

#[test]
fn groups_are_judged_as_their_projections_and_the_whole() {
    let shape = Shape {
        txns: 2,
        steps: 3,
        sessions: 2,
        keys: 3,
        lists: false,
    };
    let groups = groups(&[("k0", "a"), ("k1", "a"), ("k2", "b")]);
    let mut only_within_a_group = 0;
    for seed in 0..1_500 {
        let (mut draft, mut truth) = drafts::random(seed, shape);
        add_long_fork(&mut Random(seed), &mut draft, &mut truth);
        let parts = [
            projected(&draft, |key| key < 2),
            projected(&draft, |key| key == 2),
        ];
        for order in [Order::None, Order::Session] {
            let whole = oracle::allows(&draft, Model::Psi, order, Some(&truth));
            let within = parts
                .iter()
                .all(|part| oracle::allows(part, Model::Si, order, Some(&truth)));
            let history = draft.history(Some(&truth));
            let verdict = check(&history, &groups, Evidence::WhiteBox, order);
            let is_allowed = verdict == Verdict::Satisfied;
            assert_eq!(
                is_allowed,
                whole && within,
                "seed {seed}: {}",
                verdict.explain(&history)
            );
            only_within_a_group += u32::from(whole && !within);
        }
    }
    assert!(
        only_within_a_group > 100,
        "{only_within_a_group} histories need groups to be refuted"
    );
}

#[test]
fn groups_without_an_order_of_versions_share_one() {
    let shape = Shape {
        txns: 4,
        steps: 3,
        sessions: 3,
        keys: 3,
        lists: false,
    };
    let groups = groups(&[("k0", "a"), ("k1", "a"), ("k2", "b")]);
    for seed in 0..1_500 {
        let (draft, truth) = drafts::random(seed, shape);
        let verdict = check(
            &draft.history(None),
            &groups,
            Evidence::BlackBox,
            Order::Session,
        );
        let explained = orders(&truth).into_iter().any(|versions| {
            let history = draft.history(Some(&versions));
            check(&history, &groups, Evidence::WhiteBox, Order::Session) == Verdict::Satisfied
        });
        let expected = if explained { "satisfied" } else { "violated" };
        assert_eq!(verdict.name(), expected, "seed {seed}");
    }
}

/// Every order of the versions of every key.
fn orders(versions: &Orders) -> Vec<Orders> {
    let [first, rest @ ..] = &versions[..] else {
        return vec![Vec::new()];
    };
    let rest = orders(&rest.to_vec());
    let with = |order: Vec<Value>| {
        let longer = move |rest: &Orders| {
            let mut all = vec![order.clone()];
            all.extend(rest.iter().cloned());
            all
        };
        rest.iter().map(longer).collect::<Vec<_>>()
    };
    permutations(first).into_iter().flat_map(with).collect()
}

fn permutations(values: &[Value]) -> Vec<Vec<Value>> {
    let [first, rest @ ..] = values else {
        return vec![Vec::new()];
    };
    let mut result = Vec::new();
    for order in permutations(rest) {
        for place in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(place, *first);
            result.push(longer);
        }
    }
    result
}

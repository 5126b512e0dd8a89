//! Changes to a history that cannot make an allowed one forbidden, or that change nothing.

use dkvf_check::{Evidence, Model, Options, Outcome};

use crate::drafts::{self, Draft, Orders, Random, Shape, Step, Txn};

const MODELS: [Model; 5] = [
    Model::ReadCommitted,
    Model::Prefix,
    Model::Psi,
    Model::Si,
    Model::Serializable,
];

const SHAPE: Shape = Shape {
    txns: 12,
    steps: 4,
    sessions: 4,
    keys: 4,
    lists: false,
};

const HISTORIES: u64 = 400;

/// The answers of all models, without and with the order of versions.
fn answers(draft: &Draft, versions: &Orders) -> Vec<&'static str> {
    let judge = |(model, evidence)| {
        let history = draft.history((evidence == Evidence::WhiteBox).then_some(versions));
        Model::check(model, &history, &Options::with(evidence)).name()
    };
    let both = |model| [(model, Evidence::BlackBox), (model, Evidence::WhiteBox)];
    MODELS.into_iter().flat_map(both).map(judge).collect()
}

/// Applies a change to many histories and compares the answers before and after.
fn compare(
    change: impl Fn(&mut Random, &mut Draft, &mut Orders),
    agree: impl Fn(&str, &str) -> bool,
) {
    for seed in 0..HISTORIES {
        let (mut draft, mut versions) = drafts::random(seed, SHAPE);
        let before = answers(&draft, &versions);
        change(&mut Random(seed), &mut draft, &mut versions);
        let after = answers(&draft, &versions);
        assert!(
            !before.contains(&"unknown") && !after.contains(&"unknown"),
            "seed {seed}"
        );
        for (place, (before, after)) in before.iter().zip(&after).enumerate() {
            let model = MODELS[place / 2];
            assert!(
                agree(before, after),
                "seed {seed}: {model} is {before}, then {after}"
            );
        }
    }
}

fn is_equal(before: &str, after: &str) -> bool {
    before == after
}

fn is_no_worse(before: &str, after: &str) -> bool {
    before == "violated" || after == "satisfied"
}

#[test]
fn names_of_keys_values_and_sessions_do_not_matter() {
    let change = |_: &mut Random, draft: &mut Draft, versions: &mut Orders| {
        let keys = draft.keys;
        for txn in &mut draft.txns {
            txn.session = 9 - txn.session;
            for step in &mut txn.steps {
                match step {
                    Step::Read(key, value) | Step::Write(key, value) => {
                        (*key, *value) = (keys - 1 - *key, renamed(*value));
                    }
                    Step::Append(..) | Step::ReadList(..) => unreachable!(),
                }
            }
        }
        versions.reverse();
        versions
            .iter_mut()
            .flatten()
            .for_each(|value| *value = renamed(*value));
    };
    compare(change, is_equal);
}

/// The initial version keeps its name.
fn renamed(value: drafts::Value) -> drafts::Value {
    if value == 0 { 0 } else { 1_000 - value }
}

#[test]
fn a_read_less_never_makes_a_history_worse() {
    let change = |random: &mut Random, draft: &mut Draft, _: &mut Orders| {
        let victim = random.below(draft.txns.len() as u64) as usize;
        // An unknown transaction whose value is no longer read does not count: that is no worse either.
        let steps = &mut draft.txns[victim].steps;
        if let Some(place) = steps.iter().position(|step| matches!(step, Step::Read(..))) {
            steps.remove(place);
        }
    };
    compare(change, is_no_worse);
}

#[test]
fn a_transaction_less_that_nobody_read_from_never_makes_a_history_worse() {
    let change = |random: &mut Random, draft: &mut Draft, _: &mut Orders| {
        let victim = random.below(draft.txns.len() as u64) as usize;
        let wrote = |value| {
            draft.txns[victim]
                .steps
                .iter()
                .any(|step| step.written() == Some(value))
        };
        let mut others = draft
            .txns
            .iter()
            .enumerate()
            .filter(|&(id, _)| id != victim);
        let is_read = others.any(|(_, txn)| txn.steps.iter().filter_map(Step::seen).any(wrote));
        if !is_read {
            draft.txns.remove(victim);
        }
    };
    compare(change, is_no_worse);
}

#[test]
fn sessions_cut_in_two_never_make_a_history_worse() {
    let change = |random: &mut Random, draft: &mut Draft, _: &mut Orders| {
        let from = random.below(draft.txns.len() as u64) as usize;
        draft.txns[from..]
            .iter_mut()
            .for_each(|txn| txn.session += 100);
    };
    compare(change, is_no_worse);
}

#[test]
fn a_reader_of_the_last_state_in_a_session_of_its_own_changes_nothing_about_the_version_order_it_sees()
 {
    let change = |_: &mut Random, draft: &mut Draft, versions: &mut Orders| {
        let wrote = |txn: &Txn, value| txn.steps.iter().any(|step| step.written() == Some(value));
        let committed = |value: &&drafts::Value| {
            let writer = draft.txns.iter().find(|txn| wrote(txn, **value));
            writer.is_some_and(|txn| txn.outcome == Outcome::Ok)
        };
        let last = |order: &Vec<drafts::Value>| order.iter().rev().find(committed).copied();
        let reads = versions.iter().enumerate();
        let steps = reads
            .map(|(key, order)| Step::Read(key, last(order).unwrap_or(0)))
            .collect();
        let (session, invoke) = (50, 1_000);
        let outcome = Outcome::Ok;
        draft.txns.push(Txn {
            session,
            invoke,
            complete: invoke + 1,
            outcome,
            steps,
        });
    };
    // With the order of versions that it follows; without it, another order may have explained the rest.
    for seed in 0..HISTORIES {
        let (mut draft, mut versions) = drafts::random(seed, SHAPE);
        let judge = |draft: &Draft, versions: &Orders, model: Model| {
            let history = draft.history(Some(versions));
            model
                .check(&history, &Options::with(Evidence::WhiteBox))
                .name()
        };
        let unknown = draft.txns.iter().any(|txn| txn.outcome == Outcome::Info);
        let before = MODELS.map(|model| judge(&draft, &versions, model));
        change(&mut Random(seed), &mut draft, &mut versions);
        let after = MODELS.map(|model| judge(&draft, &versions, model));
        assert!(
            unknown || before == after,
            "seed {seed}: {before:?}, then {after:?}"
        );
    }
}

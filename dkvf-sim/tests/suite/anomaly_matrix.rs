//! The anomaly matrix of the library, pinned.

use dkvf_core::Protocol;
use dkvf_protocols::Visitor;
use dkvf_sim::anomalies::{Cell, Phenomenon, row};

struct Row;

impl Visitor for Row {
    type Output = (Vec<Cell>, &'static [&'static str]);

    fn visit<P: Protocol>(self) -> Self::Output {
        (row::<P>(20).unwrap(), P::claims().models)
    }
}

fn row_of(protocol: &str) -> (Vec<&'static str>, &'static [&'static str]) {
    let (cells, claims) = dkvf_protocols::visit(protocol, Row).unwrap();
    (cells.iter().map(Cell::name).collect(), claims)
}

/// dirty-write, dirty-read, non-repeatable-read, lost-update, write-skew, long-fork, causality-violation, stale-read.
#[test]
fn the_matrix_of_the_library_is_this_one() {
    const NO: &str = "forbidden";
    const YES: &str = "observed";
    const NA: &str = "not-applicable";
    for (protocol, expected) in [
        ("eventual", [NA, NO, NA, NA, NA, NA, YES, YES]),
        ("cops", [NA, NO, NA, NA, NA, NA, NO, YES]),
        ("gentlerain", [NA, NO, NA, NA, NA, NO, NO, YES]),
        ("causalspartan", [NA, NO, NA, NA, NA, YES, NO, YES]),
    ] {
        assert_eq!(row_of(protocol).0, expected, "{protocol}");
    }
}

#[test]
fn who_claims_causality_is_not_seen_to_violate_it() {
    let column = Phenomenon::ALL
        .iter()
        .position(|phenomenon| phenomenon.name() == "causality-violation")
        .unwrap();
    for protocol in dkvf_protocols::NAMES {
        let (cells, claims) = row_of(protocol);
        assert_eq!(
            cells[column] == "forbidden",
            claims.contains(&"causal"),
            "{protocol}"
        );
    }
}

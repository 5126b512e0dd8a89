//! One seed is one run.

use dkvf_core::Protocol;
use dkvf_protocols::Visitor;
use dkvf_sim::{Options, Outcome, run};
use dkvf_workload::WorkloadSpec;

struct Once(Options);

impl Visitor for Once {
    type Output = Outcome;
    fn visit<P: Protocol>(self) -> Outcome {
        run::<P>(&self.0).unwrap()
    }
}

fn once(protocol: &str, options: &Options) -> Outcome {
    dkvf_protocols::visit(protocol, Once(options.clone())).unwrap()
}

fn options(seed: u64) -> Options {
    let workload = WorkloadSpec::load("a", [("recordcount", "50")]).unwrap();
    Options { strict: true, ..Options::new(seed, workload, 400) }
}

#[test]
fn a_run_without_faults_ends_well_for_every_protocol() {
    for protocol in dkvf_protocols::NAMES {
        let outcome = once(protocol, &options(1));
        assert_eq!(outcome.failure, None, "{protocol}");
        assert_eq!(outcome.operations, 400, "{protocol}");
        println!("{protocol} {} {} {} {:?}", outcome.events, outcome.deliveries, outcome.virtual_us, outcome.messages);
    }
}

//! T-S6: a cut-off that arrives late is merged, not assigned.

use dkvf_core::script::{Channel, Script};
use dkvf_protocols::gentlerain::GentleRain;

use crate::{exchange_heartbeats, publish_cut_off, state};

#[test]
fn an_older_cut_off_that_arrives_last_does_not_move_stable_time_back() {
    let mut script = Script::<GentleRain>::new(3, 4);
    let (d, y, d3) = (script.key(1, 0), script.key(2, 0), script.key(3, 0));
    let [a, b, c] = [1, 0, 0].map(|replica| script.session(replica));

    // A first round, whose cut-off does not reach partition 2 yet.
    exchange_heartbeats(&mut script);
    publish_cut_off(&mut script);
    for partition in [1, 3] {
        script.deliver_link(script.at(0, 0), script.at(0, partition));
    }

    // d3, then d arrive; in the second round they are stable, which partition 1 learns.
    for key in [&d3, &d] {
        script.advance(100);
        script.put(a, key, "by A").unwrap();
    }
    exchange_heartbeats(&mut script);
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));

    // B sees d and raises the stable time of partition 2 with its write.
    assert_eq!(script.get(b, &d), Ok(Some("by A".into())));
    script.advance(100);
    script.put(b, &y, "by B").unwrap();
    let before = state(&script, 0, 2)["gst"].as_u64();

    // Now the cut-off of the first round arrives there.
    assert!(script.deliver(Channel::Link(script.at(0, 0), script.at(0, 2))));
    assert_eq!(state(&script, 0, 2)["gst"].as_u64(), before);
    assert_eq!(script.get(c, &y), Ok(Some("by B".into())));
    assert_eq!(script.get(c, &d3), Ok(Some("by A".into())));
}

//! T-S1: stable time that a reader has not heard of travels through a local write.

use dkvf_core::Protocol;
use dkvf_core::script::Script;
use dkvf_protocols::{causalspartan::CausalSpartan, gentlerain::GentleRain};

use crate::{exchange_heartbeats, publish_cut_off};

fn a_local_write_carries_what_its_writer_knows_to_be_stable<P: Protocol>() {
    let mut script = Script::<P>::new(3, 4);
    let (z, d, y, d3) = (script.key(0, 0), script.key(1, 0), script.key(2, 0), script.key(3, 0));
    let [a, b, c, early] = [1, 0, 0, 0].map(|replica| script.session(replica));

    // A, elsewhere, writes z, then d3, then d. All arrive here.
    for key in [&z, &d3, &d] {
        script.advance(100);
        script.put(a, key, "by A").unwrap();
    }
    exchange_heartbeats(&mut script);

    // Of the new cut-off only partition 1 learns.
    publish_cut_off(&mut script);
    script.deliver_link(script.at(0, 0), script.at(0, 1));
    assert_eq!(script.get(early, &d3), Ok(None), "partition 3 has not heard that d3 is stable");

    // B sees d there and writes y at partition 2, which has not heard either.
    assert_eq!(script.get(b, &d), Ok(Some("by A".into())));
    script.advance(100);
    script.put(b, &y, "by B").unwrap();

    // Who sees y must see d3.
    assert_eq!(script.get(c, &y), Ok(Some("by B".into())));
    assert_eq!(script.get(c, &d3), Ok(Some("by A".into())));
}

#[test]
fn in_gentlerain() {
    a_local_write_carries_what_its_writer_knows_to_be_stable::<GentleRain>();
}

#[test]
fn in_causalspartan() {
    a_local_write_carries_what_its_writer_knows_to_be_stable::<CausalSpartan>();
}

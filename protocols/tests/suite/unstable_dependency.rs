//! T-S4: what a session depends on is not therefore stable.

use dkvf_core::script::Script;
use dkvf_protocols::causalspartan::CausalSpartan;

#[test]
fn a_write_that_depends_on_an_eagerly_read_version_does_not_make_others_stable() {
    let mut script = Script::<CausalSpartan>::new(3, 4);
    let (d, e, other, f) = (script.key(1, 0), script.key(2, 0), script.key(2, 1), script.key(3, 0));
    let [a, a2, from_e, c, r] = [1, 1, 2, 0, 0].map(|replica| script.session(replica));

    // f is slow to come here; E has seen it and writes e, which is here, invisible.
    script.advance(100);
    script.put(a, &f, "f").unwrap();
    script.deliver_link(script.at(1, 3), script.at(2, 3));
    assert_eq!(script.get(from_e, &f), Ok(Some("f".into())));
    script.put(from_e, &e, "after f").unwrap();
    script.deliver_link(script.at(2, 2), script.at(0, 2));
    assert_eq!(script.versions(script.at(0, 2), &e), 1);

    // d, later than f, from the same replica and without dependencies, is visible at once. C writes after it, where e is.
    script.advance(3_000);
    script.put(a2, &d, "d").unwrap();
    script.deliver_link(script.at(1, 1), script.at(0, 1));
    assert_eq!(script.get(c, &d), Ok(Some("d".into())));
    script.put(c, &other, "after d").unwrap();

    assert_eq!(script.get(r, &e), Ok(None), "f has not arrived");
    assert_eq!(script.get(r, &f), Ok(None));

    script.settle(50);
    assert_eq!(script.get(r, &e), Ok(Some("after f".into())));
    assert_eq!(script.get(r, &f), Ok(Some("f".into())));
}

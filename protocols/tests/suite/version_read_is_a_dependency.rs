//! T-S3: a version read is a dependency, also if its writer had none.

use dkvf_core::script::Script;
use dkvf_protocols::causalspartan::CausalSpartan;

#[test]
fn a_first_write_that_was_read_is_a_dependency_of_what_follows() {
    let mut script = Script::<CausalSpartan>::new(3, 4);
    let (x, y) = (script.key(1, 0), script.key(2, 0));
    let [a, b, c] = [1, 1, 0].map(|replica| script.session(replica));

    script.advance(100);
    script.put(a, &x, "the first ever").unwrap();
    assert_eq!(script.get(b, &x), Ok(Some("the first ever".into())));
    script.put(b, &y, "after x").unwrap();

    // y overtakes x.
    script.deliver_link(script.at(1, 2), script.at(0, 2));
    assert_eq!(script.versions(script.at(0, 2), &y), 1, "y is here");
    assert_eq!(script.get(c, &y), Ok(None), "and invisible, for x is not");

    script.settle(50);
    assert_eq!(script.get(c, &y), Ok(Some("after x".into())));
    assert_eq!(script.get(c, &x), Ok(Some("the first ever".into())));
}

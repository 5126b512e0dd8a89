//! T-S5: a dependency is satisfied by the version itself, not by a newer one of its key.

use dkvf_core::script::Script;
use dkvf_protocols::cops::Cops;

#[test]
fn a_concurrent_newer_version_does_not_satisfy_a_dependency() {
    let mut script = Script::<Cops>::new(3, 4);
    let (x, y, z) = (script.key(1, 0), script.key(2, 0), script.key(3, 0));
    let unrelated = script.key(1, 1);
    let [a, b, c] = [0, 1, 2].map(|replica| script.session(replica));

    for (key, value) in [(&z, "z"), (&x, "x"), (&y, "y")] {
        script.put(a, key, value).unwrap();
    }
    // B's version of x is newer, for B's server has counted further.
    for i in 0..5 {
        script.put(b, &unrelated, format!("{i}")).unwrap();
    }
    script.put(b, &x, "x'").unwrap();

    // At replica 2, x' and y arrive first.
    script.deliver_link(script.at(1, 1), script.at(2, 1));
    assert_eq!(script.get(c, &x), Ok(Some("x'".into())));
    script.deliver_link(script.at(0, 2), script.at(2, 2));
    script.deliver_link(script.at(2, 2), script.at(2, 1));
    script.deliver_link(script.at(2, 1), script.at(2, 2));
    assert_eq!(script.get(c, &y), Ok(None), "x, on which y depends, has not arrived, let alone z");
    assert_eq!(script.get(c, &z), Ok(None));

    script.run_until_idle();
    assert_eq!(script.get(c, &y), Ok(Some("y".into())));
    assert_eq!(script.get(c, &z), Ok(Some("z".into())));
    assert_eq!(script.get(c, &x), Ok(Some("x'".into())), "the older version came and lost");
}

//! Mistakes as people make them: every file of `tests/config` holds one, and its second line says in which words it
//! is refused.

use std::fs;
use std::path::Path;

use dkvf_core::config::NodeConfig;

#[test]
fn every_mistake_is_refused_in_the_words_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let content = fs::read_to_string(&path).unwrap();
        let expected = content
            .lines()
            .nth(1)
            .unwrap()
            .trim_start_matches("<!-- ")
            .trim_end_matches(" -->");
        let error = NodeConfig::load(&path).expect_err(expected).to_string();
        assert_eq!(
            error.replace(&format!("{}/", folder.display()), ""),
            expected
        );
        seen += 1;
    }
    assert_eq!(seen, 7);
}

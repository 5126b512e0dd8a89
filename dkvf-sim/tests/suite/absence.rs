//! What is deliberately absent: nothing random or real is reachable from a simulated run.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in
        fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
    {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_clock_thread_or_random_order_is_reachable_from_a_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    sources(&root.join("../protocols/src"), &mut files);
    assert!(files.len() > 30, "the sources are there");
    let words = [
        "Instant",
        "SystemTime",
        "std::thread",
        "HashMap",
        "HashSet",
        "RandomState",
        "rand::rng",
        "thread_rng",
        "from_os_rng",
        "getrandom",
        "tokio",
        "std::net",
        "std::env",
        "Mutex",
        "RwLock",
        "AtomicU",
        "f64::sin",
        ".ln()",
        ".exp()",
        ".powf(",
        ".sqrt()",
        ".cos()",
    ];
    let mut findings = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let line = line.split("//").next().unwrap_or_default();
            for word in words.iter().filter(|word| line.contains(**word)) {
                findings.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

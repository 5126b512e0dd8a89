//! What is deliberately absent from which folder; see "Architecture Invariant" in docs/ARCHITECTURE.md.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Rust files below `folder`, without those whose path contains one of `but`.
fn sources(folder: &str, but: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        {
            let path = entry.expect("a folder entry can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && !but.iter().any(|part| path.to_string_lossy().contains(part))
            {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "{folder} has sources");
    found
}

/// Code lines of a file: comments and what follows an inline module of tests are left out.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let without_comment = |line: &str| match line.trim_start() {
        comment if comment.starts_with("//") => String::new(),
        _ => line.split(" // ").next().unwrap_or_default().to_owned(),
    };
    code.lines()
        .enumerate()
        .map(|(number, line)| (number + 1, without_comment(line)))
        .collect()
}

fn assert_absent(files: &[PathBuf], words: &[&str]) {
    let mut findings = Vec::new();
    for file in files {
        for (number, line) in code(file) {
            for word in words.iter().filter(|word| line.contains(**word)) {
                findings.push(format!(
                    "{}:{number}: {word}: {}",
                    file.display(),
                    line.trim()
                ));
            }
        }
    }
    assert!(findings.is_empty(), "\n{}", findings.join("\n"));
}

const CLOCKS: [&str; 2] = ["Instant::now", "SystemTime"];
const THREADS: [&str; 6] = [
    "std::thread",
    "thread::spawn",
    "Mutex",
    "RwLock",
    "mpsc::",
    "AtomicU",
];
const RANDOM: [&str; 4] = [
    "std::collections::HashMap",
    "std::collections::HashSet",
    "RandomState",
    "rand::rng()",
];

#[test]
fn protocols_reach_the_world_only_through_their_context() {
    let files = sources("protocols/src", &[]);
    assert_absent(&files, &CLOCKS);
    assert_absent(&files, &THREADS);
    assert_absent(&files, &RANDOM);
    assert_absent(
        &files,
        &["tokio", "std::net", "std::fs", "std::env::var", "unsafe "],
    );
}

#[test]
fn the_framework_names_no_protocol() {
    assert_absent(
        &sources("dkvf-core/src", &[]),
        &[
            "eventual",
            "cops",
            "gentlerain",
            "causalspartan",
            "dkvf_protocols",
        ],
    );
}

#[test]
fn only_the_tcp_host_touches_sockets_clocks_and_threads() {
    let files = sources("dkvf-core/src", &["/src/net/"]);
    assert_absent(&files, &CLOCKS);
    assert_absent(&files, &THREADS);
    assert_absent(&files, &RANDOM);
    assert_absent(&files, &["tokio", "TcpStream", "TcpListener"]);
}

#[test]
fn workloads_and_checkers_know_no_clock_network_or_thread() {
    for folder in ["dkvf-workload/src", "dkvf-check/src"] {
        let files = sources(folder, &[]);
        assert_absent(&files, &CLOCKS);
        assert_absent(&files, &RANDOM);
        assert_absent(&files, &["tokio", "std::net", "std::thread"]);
    }
}

#[test]
fn stores_know_no_clock_and_no_random_order() {
    let files = sources("dkvf-storage/src", &[]);
    assert_absent(&files, &CLOCKS);
    assert_absent(&files, &RANDOM);
    assert_absent(&files, &["tokio", "std::net"]);
}

#[test]
fn the_checkers_depend_on_no_other_crate_of_ours() {
    let manifest =
        fs::read_to_string(root().join("dkvf-check/Cargo.toml")).expect("the manifest is there");
    let ours: Vec<&str> = manifest
        .lines()
        .filter(|line| line.starts_with("dkvf-"))
        .collect();
    assert!(ours.is_empty(), "{ours:?}");
}

#[test]
fn versions_of_dependencies_stand_in_one_place() {
    let mut manifests = vec![
        root().join("protocols/Cargo.toml"),
        root().join("xtask/Cargo.toml"),
    ];
    for name in [
        "dkvf-core",
        "dkvf-build",
        "dkvf-storage",
        "dkvf-workload",
        "dkvf-check",
        "dkvf-bench",
        "dkvf-cli",
        "examples/first-protocol",
        "examples/storage-engines",
    ] {
        manifests.push(root().join(name).join("Cargo.toml"));
    }
    for manifest in manifests {
        let text = fs::read_to_string(&manifest)
            .unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
        let mut in_dependencies = false;
        for line in text.lines() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            } else if in_dependencies && line.contains('=') {
                assert!(
                    line.contains("workspace = true"),
                    "{}: {line}",
                    manifest.display()
                );
            }
        }
    }
}

//! CPU time and memory of this process and others, from `/proc`. On systems without it everything reads as zero.

use std::collections::BTreeMap;
use std::fs;

/// Clock ticks per second of `/proc`: fixed at 100 on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// CPU seconds of this process's threads, by thread name.
pub fn thread_cpu() -> BTreeMap<String, f64> {
    let mut seconds = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
    {
        if let Ok(stat) = fs::read_to_string(task.path().join("stat")) {
            let (name, cpu) = parse_stat(&stat);
            *seconds.entry(name).or_insert(0.0) += cpu;
        }
    }
    seconds
}

/// CPU seconds of another process.
pub fn process_cpu(pid: u32) -> f64 {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(0.0, |stat| parse_stat(&stat).1)
}

/// Name and user + system seconds of a `stat` line. The name is in parentheses and may contain anything.
fn parse_stat(stat: &str) -> (String, f64) {
    let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else {
        return (String::new(), 0.0);
    };
    // After the name: state is field 3, utime 14 and stime 15 of proc(5).
    let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
    let ticks = |field: usize| {
        fields
            .get(field - 3)
            .and_then(|text| text.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (
        stat[open + 1..close].to_owned(),
        (ticks(14) + ticks(15)) / TICKS_PER_SECOND,
    )
}

/// Peak resident memory since [`reset_peak`], in bytes.
pub fn peak_rss_bytes(pid: Option<u32>) -> u64 {
    let process = pid.map_or("self".to_owned(), |pid| pid.to_string());
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// Starts a new peak for this process, so that runs in one process do not inherit each other's.
pub fn reset_peak() {
    // Not allowed everywhere; then the peak is that of the whole process.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_name_may_contain_parentheses_and_blanks() {
        let stat = "7 (a) b (c)) S 1 1 1 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 5 0 0";
        assert_eq!(parse_stat(stat), ("a) b (c)".to_owned(), 3.0));
    }

    #[test]
    fn a_line_of_another_form_counts_nothing() {
        assert_eq!(parse_stat("nonsense"), (String::new(), 0.0));
        assert_eq!(parse_stat("7 (short) S"), ("short".to_owned(), 0.0));
    }
}

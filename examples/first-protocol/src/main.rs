//! Runs the protocol of docs/tutorial.md: `cargo run --release -p first-protocol`.

fn main() -> anyhow::Result<()> {
    let report = first_protocol::run_checked(20_000)?;
    println!(
        "{:.0} operations per second, {:.2} messages per operation",
        report.throughput_ops_s, report.messages_per_op
    );
    let check = report.check.ok_or_else(|| anyhow::anyhow!("the run was not checked"))?;
    println!("{} of {} operations: {}", check.model, check.operations, check.verdict);
    anyhow::ensure!(check.verdict == "satisfied", "{}", check.explanation);
    Ok(())
}

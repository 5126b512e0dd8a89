//! The command that repeats a run.

use dkvf_core::Topology;
use dkvf_sim::{ClockOptions, Faults, Options};

use super::arguments::{Arguments, WorldArguments};
use super::plan::Plan;
use super::words::{self, NONE};

/// The command that repeats the run of `options`: what `arguments` said of the workload and of files, and the options of
/// the world as far as they are not the usual ones.
pub fn command(arguments: &Arguments, plan: &Plan, options: &Options) -> String {
    let mut words = Words::default();
    words
        .0
        .extend(["dkvf", "sim", &arguments.protocol, "--seed"].map(str::to_owned));
    words.0.push(options.seed.to_string());
    if arguments.runs.conformance {
        words.0.push("--conformance".to_owned());
    } else if arguments.runs.check {
        words.0.push("--check".to_owned());
    }
    words.add_workload(arguments);
    words.add_differences(
        options,
        &plan.bare(options.seed, &options.faults),
        &arguments.world,
    );
    words.add_faults(&options.faults, &arguments.world, &options.topology());
    let quoted: Vec<String> = words.0.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    fn add(&mut self, option: &str, value: impl std::fmt::Display) {
        self.0.extend([option.to_owned(), value.to_string()]);
    }

    fn add_if(&mut self, differs: bool, option: &str, value: impl std::fmt::Display) {
        if differs {
            self.add(option, value);
        }
    }

    fn add_workload(&mut self, arguments: &Arguments) {
        let workload = &arguments.workload;
        self.add_if(workload.workload != "a", "--workload", &workload.workload);
        for property in &workload.properties {
            self.add("-p", property);
        }
        for (option, value) in [
            ("--records", workload.records),
            ("--value-size", workload.value_size),
        ] {
            if let Some(value) = value {
                self.add(option, value);
            }
        }
        for (option, value) in [
            ("--get-proportion", workload.get_proportion),
            ("--target", workload.target),
        ] {
            if let Some(value) = value {
                self.add(option, value);
            }
        }
    }

    fn add_differences(&mut self, options: &Options, bare: &Options, original: &WorldArguments) {
        let or_none = |value: Option<String>| value.unwrap_or_else(|| NONE.to_owned());
        self.add_if(
            options.replicas != bare.replicas,
            "--replicas",
            options.replicas,
        );
        self.add_if(
            options.partitions != bare.partitions,
            "--partitions",
            options.partitions,
        );
        self.add_if(
            options.clients != bare.clients,
            "--clients",
            options.clients,
        );
        self.add_if(
            options.operations != bare.operations,
            "--ops",
            options.operations,
        );
        self.add_if(
            options.spread_us != bare.spread_us,
            "--spread",
            or_none(options.spread_us.map(words::ms)),
        );
        let latency = words::latency_word(&options.latency, original.latency.as_deref());
        self.add_if(options.latency != bare.latency, "--latency", latency);
        let latency =
            words::latency_word(&options.intra_latency, original.intra_latency.as_deref());
        self.add_if(
            options.intra_latency != bare.intra_latency,
            "--intra-latency",
            latency,
        );
        let bandwidth = options.bandwidth_bytes_s;
        let word = or_none(bandwidth.map(|bytes| bytes.to_string()));
        self.add_if(bandwidth != bare.bandwidth_bytes_s, "--bandwidth", word);
        self.add_clocks(options.clocks, bare.clocks);
        let cpu = if options.cpu.is_free() {
            None
        } else {
            original.cpu.clone()
        };
        self.add_if(options.cpu != bare.cpu, "--cpu", or_none(cpu));
        let durability = words::durability_word(options.durability);
        self.add_if(
            options.durability != bare.durability,
            "--durability",
            durability,
        );
        let timeout = words::ms(options.request_timeout_us);
        self.add_if(
            options.request_timeout_us != bare.request_timeout_us,
            "--timeout",
            timeout,
        );
        for property in options
            .properties
            .iter()
            .filter(|property| !bare.properties.iter().any(|bare| bare == *property))
        {
            self.add(
                "--protocol-property",
                format!("{}={}", property.0, property.1),
            );
        }
        if options.strict != bare.strict {
            self.0.push(format!("--strict={}", options.strict));
        }
    }

    fn add_clocks(&mut self, clocks: ClockOptions, bare: ClockOptions) {
        self.add_if(
            clocks.skew_us != bare.skew_us,
            "--skew",
            words::ms(clocks.skew_us),
        );
        self.add_if(
            clocks.drift_ppm != bare.drift_ppm,
            "--drift",
            clocks.drift_ppm,
        );
        if clocks.ntp != bare.ntp {
            let word = clocks
                .ntp
                .map(|ntp| format!("{}:{}", words::ms(ntp.interval_us), words::ms(ntp.error_us)));
            self.0
                .push(format!("--ntp={}", word.as_deref().unwrap_or(NONE)));
        }
    }

    fn add_faults(&mut self, faults: &Faults, original: &WorldArguments, topology: &Topology) {
        match faults {
            Faults::None => {}
            Faults::Random(_) => {
                for word in &original.faults {
                    self.add("--faults", word);
                }
            }
            Faults::Schedule(schedule) => {
                for fault in &schedule.faults {
                    self.add("--faults", fault.to_json(topology));
                }
            }
        }
    }
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell_where_they_must_be() {
        assert_eq!(quoted("uniform:10:5"), "uniform:10:5");
        assert_eq!(quoted(r#"{"at_ms":1}"#), r#"'{"at_ms":1}'"#);
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}

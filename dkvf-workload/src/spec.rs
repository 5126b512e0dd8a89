//! What a workload asks for: YCSB's core properties, checked and defaulted.

use std::path::Path;

use crate::distribution::{Lengths, Requests, Zipf};
use crate::naming::{InsertOrder, KeyNaming};
use crate::properties::{Properties, PropertyError};
use crate::value::Tag;

/// Most records of a run.
const RECORDS_MAX: u64 = 1 << 40;
/// Longest value, in bytes.
const VALUE_BYTES_MAX: u64 = 16 << 20;
/// Most digits that key names are padded to.
const ZERO_PADDING_MAX: u64 = 200;
/// Most records of a scan, or inserts of an amplified insert.
const BATCH_MAX: u64 = 1_000_000;
/// Most records of a read-only transaction.
const READ_ONLY_KEYS_MAX: u64 = 1_000;
/// Most sessions, seconds or retries: beyond them is a slip of the pen.
const COUNT_MAX: u64 = 1_000_000_000;
/// The exponent of Zipf's law where none is set, as in YCSB.
const THETA: f64 = 0.99;

/// How often each kind of operation is chosen: weights, which need not add up
/// to 1. At least one is positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Reads of a record that exists.
    pub read: f64,
    /// New values of records that exist.
    pub update: f64,
    /// New records.
    pub insert: f64,
    /// Scans from a record that exists.
    pub scan: f64,
    /// A read and then an update of the same record.
    pub read_modify_write: f64,
    /// Operations that each insert several new records, one after the other.
    pub amplified_insert: f64,
    /// Transactions that read several records that exist as one snapshot.
    pub read_only: f64,
}

/// How long values are.
#[derive(Clone, Debug)]
pub enum ValueSize {
    /// Always the same, in bytes, at least [`Tag::BYTES`].
    Constant(u32),
    /// The sum of the fields of a record, at least [`Tag::BYTES`].
    Fields {
        /// Number of fields.
        count: u32,
        /// Bytes of each.
        bytes: Lengths,
    },
}

/// A workload, as a property file describes it.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// The file, or the name of the built-in workload.
    pub name: String,
    /// The table.
    pub table: String,
    /// Records that exist once all of the load phase is done. Inserts of the run
    /// go on from here.
    pub record_count: u64,
    /// Operations of the run, over all sessions; `None` is no limit.
    pub operation_count: Option<u64>,
    /// Index of the first record that this load phase inserts.
    pub insert_start: u64,
    /// Records that this load phase inserts. Operations choose among these and
    /// those that the run inserts.
    pub insert_count: u64,
    /// Length of values.
    pub value_size: ValueSize,
    /// Kinds of operations.
    pub mix: Mix,
    /// New records of one amplified insert.
    pub amplification: u32,
    /// Records of one read-only transaction.
    pub read_only_keys: u32,
    /// Spread of the requests over the records.
    pub requests: Requests,
    /// Records of a scan.
    pub scan_length: Lengths,
    /// Names of keys.
    pub naming: KeyNaming,
    /// Limit of the run, in seconds.
    pub max_execution_time_s: Option<u64>,
    /// Operations per second, over all sessions, of an open loop; `None` is a
    /// closed loop.
    pub target_ops_s: Option<f64>,
    /// Client sessions.
    pub thread_count: u32,
    /// How often a failed insert of the load phase is tried again.
    pub insertion_retry_limit: u32,
    /// Seconds between these tries.
    pub insertion_retry_interval_s: u64,
    /// Properties that have no effect here, with the reason.
    pub warnings: Vec<String>,
}

type BuiltIn = (&'static str, &'static [(&'static str, &'static str)]);

/// YCSB's core workloads, and DKVF's amplified insert.
const BUILT_IN: &[BuiltIn] = &[
    (
        "a",
        &[
            ("readproportion", "0.5"),
            ("updateproportion", "0.5"),
            ZIPFIAN,
        ],
    ),
    (
        "b",
        &[
            ("readproportion", "0.95"),
            ("updateproportion", "0.05"),
            ZIPFIAN,
        ],
    ),
    (
        "c",
        &[("readproportion", "1"), ("updateproportion", "0"), ZIPFIAN],
    ),
    (
        "d",
        &[
            ("readproportion", "0.95"),
            ("updateproportion", "0"),
            ("insertproportion", "0.05"),
            ("requestdistribution", "latest"),
        ],
    ),
    (
        "e",
        &[
            ("readproportion", "0"),
            ("updateproportion", "0"),
            ("scanproportion", "0.95"),
            ("insertproportion", "0.05"),
            ("maxscanlength", "100"),
            ("scanlengthdistribution", "uniform"),
            ZIPFIAN,
        ],
    ),
    (
        "f",
        &[
            ("readproportion", "0.5"),
            ("updateproportion", "0"),
            ("readmodifywriteproportion", "0.5"),
            ZIPFIAN,
        ],
    ),
    (
        "amplified",
        &[
            ("readproportion", "0"),
            ("updateproportion", "0"),
            ("ampinsertproportion", "1"),
            ("ampfactor", "100"),
        ],
    ),
];

const ZIPFIAN: (&str, &str) = ("requestdistribution", "zipfian");

impl WorkloadSpec {
    /// The names that [`WorkloadSpec::builtin`] knows.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|&(name, _)| name)
    }

    /// The built-in workload `name`: `a` to `f` of YCSB, or DKVF's `amplified`
    /// insert. 1,000 records and operations, as in YCSB's files.
    pub fn builtin(name: &str) -> Option<Self> {
        let properties = builtin_properties(name)?;
        Some(WorkloadSpec::from_properties(&properties).expect("built-in workloads are valid"))
    }

    /// The built-in workload or the property file `name_or_path`, changed by
    /// overrides as `-p key=value` gives them.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, a property has a wrong value, or properties
    /// contradict each other.
    pub fn load<'a>(
        name_or_path: &str,
        overrides: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, PropertyError> {
        let mut properties = match builtin_properties(name_or_path) {
            Some(properties) => properties,
            None => Properties::read(Path::new(name_or_path))?,
        };
        for (key, value) in overrides {
            properties.set(key, value);
        }
        WorkloadSpec::from_properties(&properties)
    }

    /// The workload that `properties` describe.
    ///
    /// # Errors
    ///
    /// When a property has a wrong value, or properties contradict each other.
    pub fn from_properties(properties: &Properties) -> Result<Self, PropertyError> {
        let p = properties;
        let count = |key, default, max| Ok(p.integer(key, 0..=max)?.unwrap_or(default));
        let positive = |key, default, max| Ok(p.integer(key, 1..=max)?.unwrap_or(default));

        let record_count = p.integer("recordcount", 0..=RECORDS_MAX)?;
        let record_count = record_count.ok_or_else(|| PropertyError::Missing {
            source_name: p.source_name().to_owned(),
            key: "recordcount".to_owned(),
        })?;
        let insert_start = count("insertstart", 0, record_count)?;
        let left = record_count - insert_start;
        let insert_count = count("insertcount", left, left)?;
        let operation_count = count("operationcount", 0, u64::MAX)?;
        let max_execution_time_s = count("maxexecutiontime", 0, COUNT_MAX)?;
        let target_ops_s = p.number("target", 0.0, 0.0..=COUNT_MAX as f64)?;

        let spec = WorkloadSpec {
            name: p.source_name().to_owned(),
            table: p.get("table").unwrap_or("usertable").to_owned(),
            record_count,
            operation_count: (operation_count > 0).then_some(operation_count),
            insert_start,
            insert_count,
            value_size: value_size(p)?,
            mix: mix(p)?,
            amplification: positive("ampfactor", 100, BATCH_MAX)? as u32,
            read_only_keys: positive("rotxkeynumber", 3, READ_ONLY_KEYS_MAX)? as u32,
            requests: requests(p)?,
            scan_length: scan_length(p)?,
            naming: KeyNaming {
                order: p.choice(
                    "insertorder",
                    InsertOrder::Hashed,
                    &[
                        ("hashed", InsertOrder::Hashed),
                        ("ordered", InsertOrder::Ordered),
                    ],
                )?,
                zero_padding: count("zeropadding", 1, ZERO_PADDING_MAX)? as usize,
            },
            max_execution_time_s: (max_execution_time_s > 0).then_some(max_execution_time_s),
            target_ops_s: (target_ops_s > 0.0).then_some(target_ops_s),
            thread_count: positive("threadcount", 1, 1_000_000)? as u32,
            insertion_retry_limit: count("core_workload_insertion_retry_limit", 0, COUNT_MAX)?
                as u32,
            insertion_retry_interval_s: count(
                "core_workload_insertion_retry_interval",
                3,
                COUNT_MAX,
            )?,
            warnings: warnings(p)?,
        };
        spec.require_records(p)?;
        Ok(spec)
    }

    /// The most entries of a [`Recorder`](crate::Recorder) that one operation takes.
    pub fn entries_per_operation(&self) -> usize {
        let of_kind = |weight: f64, entries: u32| if weight > 0.0 { entries } else { 1 };
        of_kind(self.mix.amplified_insert, self.amplification)
            .max(of_kind(self.mix.read_only, self.read_only_keys))
            .max(of_kind(self.mix.read_modify_write, 2)) as usize
    }

    fn require_records(&self, p: &Properties) -> Result<(), PropertyError> {
        let Mix {
            read,
            update,
            scan,
            read_modify_write,
            read_only,
            ..
        } = self.mix;
        let needs_records = read + update + scan + read_modify_write + read_only > 0.0;
        if needs_records && self.insert_count == 0 {
            return Err(PropertyError::Contradiction {
                source_name: p.source_name().to_owned(),
                reason: "reads, updates and scans need records, but none is loaded \
                         (recordcount, insertstart, insertcount)"
                    .to_owned(),
            });
        }
        Ok(())
    }
}

fn builtin_properties(name: &str) -> Option<Properties> {
    let (_, pairs) = BUILT_IN.iter().find(|(known, _)| *known == name)?;
    let mut properties = Properties::parse(name, b"").ok()?;
    properties.set("recordcount", "1000");
    properties.set("operationcount", "1000");
    for (key, value) in *pairs {
        properties.set(key, value);
    }
    Some(properties)
}

fn mix(p: &Properties) -> Result<Mix, PropertyError> {
    let weight = |key, default| p.number(key, default, 0.0..=1e9);
    let mix = Mix {
        read: weight("readproportion", 0.95)?,
        update: weight("updateproportion", 0.05)?,
        insert: weight("insertproportion", 0.0)?,
        scan: weight("scanproportion", 0.0)?,
        read_modify_write: weight("readmodifywriteproportion", 0.0)?,
        amplified_insert: weight("ampinsertproportion", 0.0)?,
        read_only: weight("rotxproportion", 0.0)?,
    };
    // A share of the mix that is silently left out would change the workload.
    if weight("deleteproportion", 0.0)? > 0.0 {
        return Err(p.invalid("deleteproportion", "0, there is no such operation"));
    }
    let sum = mix.read
        + mix.update
        + mix.insert
        + mix.scan
        + mix.read_modify_write
        + mix.amplified_insert
        + mix.read_only;
    if sum > 0.0 {
        Ok(mix)
    } else {
        Err(PropertyError::Contradiction {
            source_name: p.source_name().to_owned(),
            reason: "all proportions are 0: there is no operation to choose".to_owned(),
        })
    }
}

fn requests(p: &Properties) -> Result<Requests, PropertyError> {
    let theta = p.number("zipfianconstant", THETA, 0.0..=f64::MAX)?;
    let scrambled = p.boolean("zipfianscrambled", true)?;
    let data_fraction = p.number("hotspotdatafraction", 0.2, 0.0..=1.0)?;
    let operation_fraction = p.number("hotspotopnfraction", 0.8, 0.0..=1.0)?;
    let fraction = p.number("exponential.frac", 0.857_142_857_1, 0.0..=1.0)?;
    let percentile = p.number("exponential.percentile", 95.0, 0.0..=100.0)?;
    let requests = p.choice(
        "requestdistribution",
        Requests::Uniform,
        &[
            ("uniform", Requests::Uniform),
            ("zipfian", Requests::Zipfian { theta, scrambled }),
            ("latest", Requests::Latest { theta }),
            (
                "hotspot",
                Requests::Hotspot {
                    data_fraction,
                    operation_fraction,
                },
            ),
            ("sequential", Requests::Sequential),
            (
                "exponential",
                Requests::Exponential {
                    share: percentile / 100.0,
                    fraction,
                },
            ),
        ],
    )?;
    if let Requests::Exponential { share, fraction } = requests {
        if fraction <= 0.0 || fraction >= 1.0 {
            return Err(p.invalid("exponential.frac", "a number between 0 and 1"));
        }
        if share <= fraction || share >= 1.0 {
            return Err(p.invalid(
                "exponential.percentile",
                format!(
                    "a number between {} (100 times exponential.frac) and 100",
                    fraction * 100.0
                ),
            ));
        }
    }
    Ok(requests)
}

#[derive(Clone, Copy)]
enum Law {
    Constant,
    Uniform,
    Zipfian,
    Histogram,
}

fn value_size(p: &Properties) -> Result<ValueSize, PropertyError> {
    let size = p.integer("valuesize", Tag::BYTES as u64..=VALUE_BYTES_MAX)?;
    let count = p.integer("fieldcount", 1..=VALUE_BYTES_MAX)?.unwrap_or(10);
    let max = p
        .integer("fieldlength", 1..=VALUE_BYTES_MAX)?
        .unwrap_or(100);
    let min = p.integer("minfieldlength", 1..=max)?.unwrap_or(1);
    if count * max > VALUE_BYTES_MAX {
        return Err(p.invalid(
            if p.get("fieldlength").is_some() {
                "fieldlength"
            } else {
                "fieldcount"
            },
            format!("fieldcount times fieldlength up to {VALUE_BYTES_MAX}"),
        ));
    }
    let law = p.choice(
        "fieldlengthdistribution",
        Law::Constant,
        &[
            ("constant", Law::Constant),
            ("uniform", Law::Uniform),
            ("zipfian", Law::Zipfian),
            ("histogram", Law::Histogram),
        ],
    )?;
    let (count, min, max) = (count as u32, min as u32, max as u32);
    Ok(match (size, law) {
        (Some(size), _) => ValueSize::Constant(size as u32),
        (None, Law::Constant) => ValueSize::Constant((count * max).max(Tag::BYTES as u32)),
        (None, Law::Histogram) => {
            return Err(p.invalid(
                "fieldlengthdistribution",
                "constant, uniform, zipfian; histogram files are not read",
            ));
        }
        (None, Law::Uniform) => ValueSize::Fields {
            count,
            bytes: Lengths::Uniform { min, max },
        },
        (None, Law::Zipfian) => ValueSize::Fields {
            count,
            bytes: zipfian_lengths(min, max),
        },
    })
}

fn scan_length(p: &Properties) -> Result<Lengths, PropertyError> {
    let max = p.integer("maxscanlength", 1..=BATCH_MAX)?.unwrap_or(1000);
    let min = p.integer("minscanlength", 1..=max)?.unwrap_or(1);
    let (min, max) = (min as u32, max as u32);
    let choices = [("uniform", Law::Uniform), ("zipfian", Law::Zipfian)];
    Ok(
        match p.choice("scanlengthdistribution", Law::Uniform, &choices)? {
            Law::Zipfian => zipfian_lengths(min, max),
            _ => Lengths::Uniform { min, max },
        },
    )
}

fn zipfian_lengths(min: u32, max: u32) -> Lengths {
    Lengths::Zipfian {
        min,
        max,
        zipf: Zipf::new(THETA),
    }
}

/// Properties with an effect.
const MEANINGFUL: &[&str] = &[
    "ampfactor",
    "ampinsertproportion",
    "core_workload_insertion_retry_interval",
    "core_workload_insertion_retry_limit",
    "exponential.frac",
    "exponential.percentile",
    "fieldcount",
    "fieldlength",
    "fieldlengthdistribution",
    "hotspotdatafraction",
    "hotspotopnfraction",
    "insertcount",
    "insertorder",
    "insertproportion",
    "insertstart",
    "maxexecutiontime",
    "maxscanlength",
    "minfieldlength",
    "minscanlength",
    "operationcount",
    "readmodifywriteproportion",
    "readproportion",
    "recordcount",
    "requestdistribution",
    "rotxkeynumber",
    "rotxproportion",
    "scanlengthdistribution",
    "scanproportion",
    "table",
    "target",
    "threadcount",
    "updateproportion",
    "valuesize",
    "zeropadding",
    "zipfianconstant",
    "zipfianscrambled",
];

/// Properties of YCSB and DKVF that mean nothing here, by prefix if they end in
/// a dot.
const MEANINGLESS: &[&str] = &[
    "client.",
    "clientClassName",
    "clientConfigFile",
    "columnfamily",
    "dataintegrity",
    "db",
    "deleteproportion",
    "discardscannedrecord",
    "dotransactions",
    "exportfile",
    "exporter",
    "fieldlengthhistogram",
    "fieldnameprefix",
    "hdrhistogram.",
    "histogram.",
    "htrace.",
    "label",
    "latencytrackederrors",
    "maxscanrate",
    "measurement.",
    "measurementtype",
    "reportlatencyforeacherror",
    "scanoptimelimit",
    "status.",
    "threads",
    "timeseries.",
];

fn warnings(p: &Properties) -> Result<Vec<String>, PropertyError> {
    let mut warnings = Vec::new();
    for key in p.keys() {
        let reason = match key {
            "readallfields" if p.boolean(key, true)? => None,
            "readallfields" => Some("a read returns the whole value".to_owned()),
            "writeallfields" if p.boolean(key, false)? => None,
            "writeallfields" => Some("an update replaces the whole value".to_owned()),
            "workload" => p
                .get(key)
                .filter(|class| !is_core_workload(class))
                .map(|class| format!("{class} is treated as the core workload")),
            known if MEANINGFUL.contains(&known) => None,
            known if is_meaningless(known) => Some("it has no effect here".to_owned()),
            unknown => Some(match similar_property(unknown) {
                Some(similar) => format!("no such property; did you mean {similar}?"),
                None => "no such property".to_owned(),
            }),
        };
        if let (Some(reason), Some(place)) = (reason, p.place(key)) {
            warnings.push(format!("{place}: {key}: {reason}"));
        }
    }
    Ok(warnings)
}

fn is_core_workload(class: &str) -> bool {
    let name = class.rsplit_once('.').map_or(class, |(_, name)| name);
    matches!(name, "CoreWorkload" | "DKVFWorkload")
}

fn is_meaningless(key: &str) -> bool {
    MEANINGLESS.iter().any(|&known| {
        let is_prefix = known.ends_with('.') && key.starts_with(known);
        key == known || is_prefix
    })
}

/// The property that `unknown` most likely was meant to be.
fn similar_property(unknown: &str) -> Option<&'static str> {
    /// Slips of the pen, not other words.
    const DISTANCE_MAX: usize = 3;
    let lower = unknown.to_lowercase();
    let known = MEANINGFUL.iter().chain(MEANINGLESS);
    known
        .map(|&known| (edit_distance(&lower, &known.to_lowercase()), known))
        .filter(|&(distance, known)| distance <= DISTANCE_MAX.min(known.len() / 3))
        .min()
        .map(|(_, known)| known)
}

/// Levenshtein's distance: insertions, deletions and replacements of letters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
